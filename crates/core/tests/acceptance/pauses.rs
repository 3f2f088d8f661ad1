//! What a server asks for with `Retry-After` is remembered: who has a copy is answered with it, who
//! has not waits or is told.

use super::kit::*;
use seawall::*;
use serde_json::json;

fn busy(seconds: u64) -> FailureSignals {
    FailureSignals { retry_after: Some(secs(seconds)), ..FailureSignals::http(429, "slow down") }
}

#[tokio::test(start_paused = true)]
async fn a_throttled_tool_is_alive() {
    let tools = caller(&env(0.0));
    let throttled = Script::down(FailureSignals::http(429, "slow down"));
    for n in 0..10 {
        tools.call("create_issue", json!({ "n": n }), throttled.send()).await;
    }

    assert_eq!(tools.breaker_status("create_issue").unwrap().trips, 0);
}

#[tokio::test(start_paused = true)]
async fn while_a_pause_lasts_nobody_is_sent_to_be_refused_again() {
    let tools = caller(&env(0.0));
    let throttled = Script::failing([busy(120)]);
    let call = async |n| tools.call("create_issue", json!({ "n": n }), throttled.send()).await;

    assert_eq!(report(&call(1).await).retry_after, Some(secs(120)));
    advance(secs(20)).await;
    let (answer, elapsed) = timed(call(2)).await;

    assert_eq!((elapsed, throttled.executions()), (secs(0), 1));
    assert_eq!(
        (report(&answer).code, report(&answer).retry_after),
        (ErrorCode::RateLimited, Some(secs(100)))
    );
    assert_eq!(
        report(&answer).message,
        "create_issue was not executed: its server asked for a pause. The same call can be repeated in 100s."
    );
    let other = Script::healthy();
    tools.call("get_issue", nothing(), other.send()).await;
    assert_eq!(other.executions(), 1, "another tool is not concerned");

    advance(secs(100)).await;
    assert_eq!(call(2).await.value().map(String::as_str), Some("ok"));
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_fits_is_waited_for_and_so_is_the_next_one() {
    let tools = caller(&env(0.0));
    let throttled = Script::failing([busy(20), busy(10)]);
    let first = async { timed(tools.call("get_issue", json!({"n": 1}), throttled.send())).await };
    let second = async {
        tokio::time::sleep(secs(5)).await;
        timed(tools.call("get_issue", json!({"n": 2}), throttled.send())).await
    };

    let ((first, first_took), (second, second_took)) = tokio::join!(first, second);

    assert_eq!(
        throttled.executions(),
        4,
        "the first, the one that came back and was refused, and then both"
    );
    assert_eq!((first_took, second_took), (secs(20 + 10), secs(15 + 10)));
    assert_eq!((first.attempts + second.attempts, second.value().is_some()), (4, true));
}

#[tokio::test(start_paused = true)]
async fn a_read_with_a_copy_sits_out_no_long_pause() {
    let tools = caller(&env(0.0));
    for n in [1, 2] {
        tools.call("get_issue", json!({ "n": n }), Script::healthy().send()).await;
    }
    let throttled = Script::failing([busy(7)]);

    for n in [1, 2] {
        let (answer, elapsed) =
            timed(tools.call("get_issue", json!({ "n": n }), throttled.send())).await;
        assert_eq!((answer.final_step().as_str(), elapsed), ("get_issue-cached", secs(0)), "{n}");
    }
    assert_eq!(throttled.executions(), 1, "the second was not sent");

    let (answer, elapsed) = timed(tools.call("get_issue", json!({"n": 3}), throttled.send())).await;
    assert_eq!(
        (answer.value().map(String::as_str), elapsed),
        (Some("ok"), secs(7)),
        "without a copy it waits"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pause_no_longer_than_the_backoff_is_worth_a_live_answer() {
    let tools = caller(&env(0.0));
    for n in [1, 2] {
        tools.call("get_issue", json!({ "n": n }), Script::healthy().send()).await;
    }
    let throttled = Script::failing([busy(1)]);

    let (first, second) = tokio::join!(
        timed(tools.call("get_issue", json!({"n": 1}), throttled.send())),
        timed(tools.call("get_issue", json!({"n": 2}), throttled.send())),
    );

    assert_eq!((first.0.final_step().as_str(), first.1), ("get_issue", secs(1)));
    assert_eq!((second.0.final_step().as_str(), second.1), ("get_issue", secs(1)));
}

#[tokio::test(start_paused = true)]
async fn no_server_silences_a_tool_for_longer_than_the_policy_allows() {
    let tools = caller(&env(0.0));
    let throttled = Script::failing([busy(24 * 3600)]);
    let call = async |n| tools.call("create_issue", json!({ "n": n }), throttled.send()).await;

    call(1).await;
    advance(secs(299)).await;
    let (answer, elapsed) = timed(call(2)).await;

    assert_eq!((answer.value().map(String::as_str), elapsed), (Some("ok"), secs(1)));
}

#[tokio::test(start_paused = true)]
async fn a_503_that_names_a_time_is_heeded_too_and_still_counts() {
    let tools = caller(&env(0.0));
    let down = Script::down(FailureSignals {
        retry_after: Some(secs(120)),
        ..FailureSignals::http(503, "maintenance")
    });

    for n in 0..3 {
        tools.call("search_issues", json!({ "query": "x", "n": n }), down.send()).await;
    }

    assert_eq!(
        (down.executions(), tools.breaker_status("search_issues").unwrap().failures),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_that_would_have_to_wait_too_long_is_queued() {
    let queue = std::sync::Arc::new(MemoryQueue::new(10));
    let tools = ToolCaller::new(Settings { durable: Some(queue), ..settings(&env(0.0)) }).unwrap();
    let throttled = Script::down(busy(120));

    for n in 1..=2 {
        let answer = tools.call("create_issue", json!({ "n": n }), throttled.send()).await;
        assert_eq!(served(&answer).by, "queue");
    }
    assert_eq!(throttled.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_comes_back_after_a_pause_has_no_more_time_than_is_left() {
    // Whether the pause is waited for at once or as before a retry is chance here; the deadline is
    // not.
    let tools = caller(&Env::new().with_rng(Rng::seeded(1)));
    let pause =
        FailureSignals { retry_after: Some(ms(59_900)), ..FailureSignals::http(429, "slow down") };
    for n in 0..50 {
        let tool = format!("get_{n}");
        let once = Call { retried_outside: true, ..Call::new(nothing()) };
        tools.call(&tool, once, Script::down(pause.clone()).send()).await;

        let (_, took) = timed(tools.call(&tool, nothing(), |_| std::future::pending())).await;

        assert!(took <= secs(60), "{tool} took {took:?} of 60 s");
    }
}
