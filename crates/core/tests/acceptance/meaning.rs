//! What a failure's status and words do to a call, and what they must not.

use super::kit::*;
use seawall::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[tokio::test(start_paused = true)]
async fn words_about_a_later_step_do_not_repeat_or_queue_a_write() {
    for text in [
        "Issue created; webhook failed: connect ECONNREFUSED",
        "Issue #12 created; adding labels failed: 429 Too Many Requests",
        "certificate issued, but upload failed",
        "Issue #12 created; adding label failed: label not found",
    ] {
        let own = Settings { durable: Some(Arc::new(MemoryQueue::new(9))), ..settings(&env(0.0)) };
        let script = Script::down(FailureSignals::rpc(-32000, text));
        let answer =
            ToolCaller::new(own).unwrap().call("create_issue", nothing(), script.send()).await;

        assert_eq!((script.executions(), report(&answer).may_have_executed), (1, true), "{text}");
        assert!(
            report(&answer).message.contains("may have been executed"),
            "{}",
            report(&answer).message
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_text_that_says_more_than_its_status_does_not_repeat_a_write() {
    for (text, executions) in [
        ("429 Too Many Requests: issue #12 was created, adding its labels was throttled", 1),
        ("Error: 429 while adding labels; issue #12 was created", 1),
        ("429 Too Many Requests", 3),
        ("Error: HTTP 429, retry after 1 s", 3),
    ] {
        let script = Script::down(text);
        let retry = Retry::new(Effect::Write).env(env(0.0));
        let gave_up = retry.call(|_| std::future::ready(script.execute())).await.unwrap_err();

        assert_eq!(script.executions(), executions, "{text}");
        assert_eq!(gave_up.failure.disposition, Disposition::Transient, "{text}");
        assert_eq!(gave_up.failure.sent == Sent::Never, executions > 1, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_in_a_tools_own_words_neither_repeats_it_nor_opens_its_breaker() {
    let tools =
        ToolCaller::<Value>::new(Settings { env: env(0.0), ..Settings::default() }).unwrap();
    let executions = AtomicU32::new(0);
    for id in 0..9 {
        let answer = tools
            .call("get_invoice", json!({"id": id}), |_| {
                executions.fetch_add(1, Ordering::SeqCst);
                async { Ok(json!({"isError": true, "content": [{"type": "text", "text": "No such invoice: 503"}]})) }
            })
            .await;
        assert!(answer.value().is_some(), "{answer:?}");
    }
    assert_eq!(executions.into_inner(), 9);
}

#[tokio::test(start_paused = true)]
async fn who_says_that_it_has_acted_is_believed_whatever_the_status() {
    for second_step in [
        FailureSignals::http(429, "adding the labels was throttled"),
        FailureSignals::http(425, "too early for labels"),
        FailureSignals::http(404, "label missing"),
        FailureSignals::http(403, "no labels for you"),
        FailureSignals::rpc(-32602, "no such label"),
        FailureSignals::http(404, "session gone").with_session(),
    ] {
        let script = Script::down(second_step.with_sent(Sent::Yes));
        let answer = caller(&env(0.0)).call("create_issue", nothing(), script.send()).await;

        let report = report(&answer);
        assert_eq!(
            (script.executions(), report.may_have_executed),
            (1, true),
            "{}",
            report.message
        );
        assert!(!report.message.contains("was not executed"), "{}", report.message);
    }
    let throttled = Script::down(FailureSignals::http(429, "slow down"));
    caller(&env(0.0)).call("create_issue", nothing(), throttled.send()).await;
    assert!(throttled.executions() > 1, "a plain 429 has not acted");
}

/// Texts that a server can send as long as it likes.
const HOSTILE: &[&str] = &[
    ":",
    "=",
    "a:",
    "key=",
    "token:",
    "timeout",
    "timeout ",
    "xtimeout-",
    "://",
    "a://b@",
    "'",
    "a 'b",
    "\"",
    "503 ",
    "5",
    "é",
    "İ:",
    "\n",
    "{\"token\":",
    "bearer ",
    "rate limit:",
    "a@",
    "/",
];

#[test]
#[expect(clippy::disallowed_methods, reason = "how long the processor works is what is measured")]
fn a_long_text_does_not_stop_who_reads_it() {
    type Work = fn(String);
    let works: [(&str, Work); 5] = [
        ("sanitize", |text| drop(sanitize(&json!({ "q": text })))),
        ("classify", |text| drop(classify(&FailureSignals::text(text)))),
        ("classify a body", |text| drop(classify(&FailureSignals::http(500, "x").with_body(text)))),
        ("classify_soft", |text| drop(Classifier::new().classify_soft(&text))),
        ("quote", |text| drop(quote(&text))),
    ];
    for (size, limit, works) in [(64 << 10, 1, &works[..]), (1 << 20, 2, &works[..2])] {
        for unit in HOSTILE {
            for (name, work) in works {
                let text = format!("x{}", unit.repeat(size / unit.len()));
                let begun = std::time::Instant::now();
                work(text);
                let took = begun.elapsed();
                assert!(took.as_secs() < limit, "{name} of {size} bytes of {unit:?} took {took:?}");
            }
        }
    }
}

#[test]
fn of_a_long_text_the_beginning_counts_and_no_secret_comes_out_of_its_middle() {
    let late = format!("{} 503 Service Unavailable", "lorem ipsum ".repeat(1000));
    assert_eq!(classify(&FailureSignals::text(late)).status, None);
    let early = format!("503 Service Unavailable {}", "é".repeat(9000));
    let failure = classify(&FailureSignals::text(early));
    assert!(
        failure.status == Some(503) && failure.message.len() <= 8192,
        "{}",
        failure.message.len()
    );
    let and_more = format!("429{}issue #12 was created", " ".repeat(9000));
    assert_eq!(
        classify(&FailureSignals::text(and_more)).sent,
        Sent::Maybe,
        "not read whole, it proves nothing"
    );

    for length in [8000, 8180, 8192, 9000, 20_000] {
        let secret = "hunter2".repeat(length / 7);
        for text in [
            format!("at https://me:{secret}@host/x"),
            format!("{} https://me:{secret}@host/x", "a ".repeat(4090)),
            format!("token={secret} https://me:hunter2@h/"),
            format!("https://me:{secret}@host/x,https://me:{secret}@host/x"),
        ] {
            let shown = classify(&FailureSignals::text(text.clone())).message
                + &quote(&text)
                + &sanitize(&json!(text)).to_string();
            assert!(!shown.contains("hunter2"), "{length}: {shown}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_and_cancellations_do_not_open_a_breaker() {
    let status_after = async |failure: FailureSignals| {
        let breaker = CircuitBreaker::new(BreakerPolicy::new(5, secs(30)), &env(0.0)).unwrap();
        for _ in 0..100 {
            let _ = breaker.call("x", || async { Err::<(), _>(failure.clone()) }).await;
        }
        breaker.status("x").unwrap().status
    };
    for answer in [
        FailureSignals::rpc(4001, "Quota plan missing"),
        FailureSignals::rpc(0, "Nothing to do"),
        FailureSignals::rpc(-32100, "Duplicate title"),
        FailureSignals::rpc(-31999, "not your turn"),
        FailureSignals::text("AbortError: This operation was aborted"),
        FailureSignals::text("context canceled"),
        FailureSignals::text("Request was cancelled by the user"),
        FailureSignals::text("title must not be empty"),
        FailureSignals::text("'owner' is required"),
        FailureSignals::text("Repository acme/x does not exist"),
        FailureSignals::text("A label named bug already exists"),
        FailureSignals::text("ZodError: [ { code: 'invalid_type', path: ['limit'] } ]"),
        FailureSignals::http(499, "client closed request"),
    ] {
        assert_eq!(status_after(answer.clone()).await, BreakerStatus::Closed, "{answer:?}");
    }
    for fault in [
        FailureSignals::text("fail"),
        FailureSignals::rpc(-32603, "boom"),
        FailureSignals::rpc(-32000, "database is locked"),
        FailureSignals::rpc(-32000, "Connection closed"),
        FailureSignals::rpc(-32001, "Request timed out"),
        FailureSignals::rpc(4001, "upstream said: 503 Service Unavailable"),
    ] {
        assert_eq!(status_after(fault.clone()).await, BreakerStatus::Open, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_became_unreachable_may_have_acted() {
    for kind in [std::io::ErrorKind::HostUnreachable, std::io::ErrorKind::NetworkUnreachable] {
        let script = Script::down(FailureSignals::from(std::io::Error::from(kind)));
        let answer = caller(&env(0.0)).call("create_issue", nothing(), script.send()).await;
        assert_eq!((script.executions(), report(&answer).may_have_executed), (1, true), "{kind:?}");
    }
}
