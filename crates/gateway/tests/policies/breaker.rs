//! Circuit breakers: when one opens, whom it refuses, and how it closes again.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::kit::{soon, until};
use super::server::{End, Faulty, call, failure, text};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const DOWN: End = End::Status("503 Service Unavailable", "", "");
/// One attempt each, so that calls and failures are the same number.
const ONCE: &str =
    "[defaults]\nretry = { attempts = 1 }\nloop = { mode = \"off\" }\nfallback = []\n";

/// A server that is down until it is told to be well.
async fn patient() -> (Faulty, Arc<AtomicBool>) {
    let is_well = Arc::new(AtomicBool::new(false));
    let looked = Arc::clone(&is_well);
    let server = Faulty::start(move |_, _, _| match looked.load(Ordering::SeqCst) {
        true => End::Text("well"),
        false => DOWN,
    })
    .await;
    (server, is_well)
}

#[tokio::test]
async fn five_failures_open_the_breaker_and_one_of_many_calls_tries_again() {
    let (server, is_well) = patient().await;
    let served =
        server.served(&format!("{ONCE}breaker = {{ cooldown = \"3s\", slow_start = 0 }}\n")).await;
    let session = served.session("/mcp/gh").await;
    for _ in 0..5 {
        assert_eq!(
            failure(&call(&session, "get_issue", json!({})).await)["code"],
            "UPSTREAM_ERROR"
        );
    }
    let refused = call(&session, "get_issue", json!({})).await;
    assert_eq!(failure(&refused)["code"], "CIRCUIT_OPEN");
    assert!((1..=3).contains(&failure(&refused)["retryAfter"].as_u64().unwrap()), "{refused}");
    assert_eq!(failure(&refused)["attempts"], 0, "{refused}");
    assert_eq!(server.calls("get_issue"), 5, "the sixth call was not made");
    assert!(!text(&call(&session, "list_issues", json!({})).await).is_empty());

    // Still down: of many calls after the cool-down one is the probe, and it opens the breaker for
    // a full cool-down again.
    let mut answers = Vec::new();
    until("the cool-down is over", async || {
        answers = join_all((0..20).map(|id| ask(&session, id))).await;
        answers.iter().any(|answer| failure(answer)["code"] != "CIRCUIT_OPEN")
    })
    .await;
    let probes =
        answers.iter().filter(|answer| failure(answer)["code"] == "UPSTREAM_ERROR").count();
    assert_eq!((probes, server.calls("get_issue")), (1, 6), "{answers:?}");

    is_well.store(true, Ordering::SeqCst);
    until("the breaker closes", async || ask(&session, 1).await["result"]["isError"].is_null())
        .await;
    let answers = join_all((0..20).map(|id| ask(&session, id))).await;
    assert!(answers.iter().all(|answer| text(answer) == "well"), "{answers:?}");
}

async fn ask(session: &super::kit::Session<'_>, id: i64) -> Value {
    session.ask(100 + id, "tools/call", json!({"name": "get_issue", "arguments": {}})).await
}

#[tokio::test]
async fn after_it_closed_few_calls_pass_at_once_and_the_others_are_told_to_come_back() {
    let hold = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&hold);
    let server = Faulty::start(move |_, count, _| match count {
        1 => DOWN,
        2 => End::Text("well"),
        _ => End::Held(Arc::clone(&held), "well"),
    })
    .await;
    let policy = "breaker = { failures = 1, cooldown = \"5s\", slow_start = 2 }\n";
    let served = server.served(&format!("{ONCE}{policy}")).await;
    let session = served.session("/mcp/gh").await;
    ask(&session, 0).await;
    until("the breaker closes", async || ask(&session, 1).await["result"]["isError"].is_null())
        .await;

    // Those that ask the same at once would be one.
    let one = |id: i64| {
        session.ask(id, "tools/call", json!({"name": "get_issue", "arguments": {"n": id}}))
    };
    let let_go = async {
        until("two are under way", async || server.calls("get_issue") == 4).await;
        for id in 10..13 {
            let refused = one(id).await;
            assert_eq!(
                (&failure(&refused)["code"], &failure(&refused)["retryAfter"]),
                (&json!("CIRCUIT_OPEN"), &json!(1))
            );
        }
        assert_eq!(server.calls("get_issue"), 4);
        hold.add_permits(100);
    };
    let (answers, ()) = tokio::join!(join_all((2..4).map(one)), let_go);
    assert!(answers.iter().all(|answer| text(answer) == "well"), "{answers:?}");
    let answers = join_all((20..24).map(one)).await;
    assert!(
        answers.iter().all(|answer| text(answer) == "well"),
        "two went well, so four may pass: {answers:?}"
    );
}

#[tokio::test]
async fn an_open_breaker_is_not_tried_again_whatever_the_tool_is_called() {
    let (server, _) = patient().await;
    let served = server
        .served("[defaults]\nretry = { attempts = 3, base = \"5s\" }\nbreaker = { failures = 1 }\n")
        .await;
    let session = served.session("/mcp/gh").await;
    call(&session, "timeout_report", json!({})).await;
    let before = server.calls("timeout_report");
    let started = tokio::time::Instant::now();
    let answer = call(&session, "timeout_report", json!({"n": 1})).await;
    assert_eq!(
        (&failure(&answer)["code"], server.calls("timeout_report")),
        (&json!("CIRCUIT_OPEN"), before)
    );
    assert!(
        started.elapsed().as_secs() < 4,
        "it did not wait for another try: {:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn two_successes_close_the_breaker_where_two_are_asked_for() {
    let server =
        Faulty::start(|_, count, _| if count == 2 { End::Text("well") } else { DOWN }).await;
    let policy = "breaker = { failures = 1, cooldown = \"3s\", successes = 2 }\n";
    let served = server.served(&format!("{ONCE}{policy}")).await;
    let session = served.session("/mcp/gh").await;
    ask(&session, 0).await;
    until("a probe succeeds", async || ask(&session, 1).await["result"]["isError"].is_null()).await;
    // Half open: the next one is a probe too, and its failure opens the breaker at once.
    assert_eq!(failure(&ask(&session, 2).await)["code"], "UPSTREAM_ERROR");
    assert_eq!(failure(&ask(&session, 3).await)["code"], "CIRCUIT_OPEN");
}

#[tokio::test]
async fn what_is_not_the_servers_fault_never_opens_the_breaker() {
    let server = Faulty::start(|tool, count, _| match (tool, count) {
        ("cypher", _) => End::Hang,
        (_, 0..=40) => End::Status("422 Unprocessable Entity", "", ""),
        _ => End::Status("403 Forbidden", "", ""),
    })
    .await;
    let one = "breaker = { scope = \"server\" }\n[tools.\"gh/cypher\"]\ntimeout = \"300ms\"\n";
    let served = server.served(&format!("{ONCE}{one}")).await;
    let session = served.session("/mcp/gh").await;
    for _ in 0..80 {
        let code = failure(&ask(&session, 0).await)["code"].clone();
        assert!(code == "VALIDATION_ERROR" || code == "DENIED", "{code}");
    }
    for _ in 0..5 {
        assert_eq!(failure(&call(&session, "cypher", json!({})).await)["code"], "TIMEOUT");
    }
    assert_eq!(failure(&ask(&session, 0).await)["code"], "CIRCUIT_OPEN");
}

#[tokio::test]
async fn writes_open_at_three_and_batches_at_two_and_are_not_repeated() {
    let (server, _) = patient().await;
    let served = server.served("[defaults]\nfallback = []\nloop = { mode = \"off\" }\n").await;
    let session = served.session("/mcp/gh").await;
    for (tool, failures, seconds) in [("create_issue", 3, 60), ("batch_label_issues", 2, 120)] {
        for number in 0..failures {
            let answer = call(&session, tool, json!({"n": number})).await;
            assert_eq!(
                (&failure(&answer)["code"], &failure(&answer)["attempts"]),
                (&json!("UPSTREAM_ERROR"), &json!(1))
            );
        }
        let answer = call(&session, tool, json!({})).await;
        assert_eq!(
            (&failure(&answer)["code"], server.calls(tool)),
            (&json!("CIRCUIT_OPEN"), failures)
        );
        let wait = failure(&answer)["retryAfter"].as_u64().unwrap();
        assert!((seconds - 5..=seconds).contains(&wait), "{tool}: {wait}");
    }
}

#[tokio::test]
async fn a_breaker_may_be_shared_by_a_server_or_by_all() {
    for scope in ["server", "global"] {
        let (server, _) = patient().await;
        let served = server
            .served(&format!("{ONCE}breaker = {{ failures = 2, scope = \"{scope}\" }}\n"))
            .await;
        let session = served.session("/mcp/gh").await;
        call(&session, "get_issue", json!({})).await;
        call(&session, "list_issues", json!({})).await;
        let answer = call(&session, "search_issues", json!({})).await;
        assert_eq!(
            (&failure(&answer)["code"], server.calls("search_issues")),
            (&json!("CIRCUIT_OPEN"), 0),
            "{scope}"
        );
    }
}

#[tokio::test]
async fn a_probe_whose_client_leaves_does_not_hold_the_breaker_open() {
    let server = Faulty::start(|_, count, _| match count {
        1 => DOWN,
        2 => End::Hang,
        _ => End::Text("well"),
    })
    .await;
    let policy = "breaker = { failures = 1, cooldown = \"200ms\" }\n";
    let served = server.served(&format!("{ONCE}{policy}")).await;
    let session = served.session("/mcp/gh").await;
    ask(&session, 0).await;
    let params = json!({"name": "get_issue", "arguments": {}});
    let probe =
        json!({"jsonrpc": "2.0", "id": 1000, "method": "tools/call", "params": params}).to_string();
    // Refused at once until the cool-down is over; then it is the probe.
    let tried = async {
        while server.calls("get_issue") < 2 {
            session.raw(&probe).await;
        }
    };
    let left = async {
        until("the probe runs", async || server.calls("get_issue") == 2).await;
        session
            .tell("notifications/cancelled", json!({"requestId": 1000, "reason": "enough"}))
            .await;
    };
    tokio::join!(soon(tried), left);
    until("another probe is let through", async || {
        ask(&session, 1).await["result"]["isError"].is_null()
    })
    .await;
}

#[tokio::test]
async fn half_of_the_calls_failing_opens_the_breaker_where_a_share_is_set() {
    // Never two failures in a row.
    let flaky = |_: &str, count: usize, _: &Value| {
        if count.is_multiple_of(2) { DOWN } else { End::Text("well") }
    };
    let server = Faulty::start(flaky).await;
    let policy = "breaker = { failures = 5, failure_rate = 0.5, min_calls = 8 }\n";
    let served = server.served(&format!("{ONCE}{policy}")).await;
    let session = served.session("/mcp/gh").await;
    for id in 0..8 {
        let answer = ask(&session, id).await;
        match id % 2 {
            0 => assert_eq!(text(&answer), "well"),
            _ => assert_eq!(failure(&answer)["code"], "UPSTREAM_ERROR"),
        }
    }
    let before = server.calls("get_issue");
    assert_eq!(failure(&ask(&session, 8).await)["code"], "CIRCUIT_OPEN");
    assert_eq!(server.calls("get_issue"), before);
}

#[tokio::test]
async fn slow_calls_open_the_breaker_where_they_count() {
    let server = Faulty::start(|_, _, _| End::After(60, "late")).await;
    let policy = "breaker = { slow_call = \"50ms\", slow_call_rate = 1.0, min_calls = 3 }\n";
    let served = server.served(&format!("{ONCE}{policy}")).await;
    let session = served.session("/mcp/gh").await;
    for id in 0..3 {
        assert_eq!(text(&ask(&session, id).await), "late");
    }
    assert_eq!(failure(&ask(&session, 3).await)["code"], "CIRCUIT_OPEN");
}

#[tokio::test]
async fn a_breaker_that_opens_again_stays_open_for_longer_up_to_its_longest_time() {
    let server = Faulty::start(|_, _, _| DOWN).await;
    let policy = "breaker = { failures = 1, cooldown = \"1s\", max_cooldown = \"1h\" }\n";
    let served = server.served(&format!("{ONCE}{policy}")).await;
    let session = served.session("/mcp/gh").await;
    let mut last = 0;
    until("it is open for eight seconds", async || {
        let answer = ask(&session, 0).await;
        last = last.max(failure(&answer)["retryAfter"].as_u64().unwrap_or_default());
        last >= 7
    })
    .await;
    assert!(server.calls("get_issue") <= 5, "{}", server.calls("get_issue"));
}

#[tokio::test]
async fn a_client_that_uses_up_its_rate_is_told_when_to_come_back_and_others_go_on() {
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    let served = server.served("caller_rate = \"2/h\"\n").await;
    let (eager, other) = (served.session("/mcp/gh").await, served.session("/mcp/gh").await);
    for id in 0..2 {
        assert_eq!(text(&ask(&eager, id).await), "well");
    }
    let refused = ask(&eager, 2).await;
    let told = failure(&refused);
    assert_eq!((&told["code"], &told["mayHaveExecuted"]), (&json!("RATE_LIMITED"), &json!(false)));
    assert!(told["retryAfter"].as_u64().is_some_and(|wait| wait > 1000), "{refused}");
    assert_eq!(server.calls("get_issue"), 2);
    let listed = eager.ask(9, "tools/list", json!({})).await;
    assert!(listed["result"]["tools"].is_array(), "lists do not count: {listed}");
    assert_eq!(text(&ask(&other, 0).await), "well");
}
