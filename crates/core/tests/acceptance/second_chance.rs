//! A read that hangs gets a second attempt at half of its time, and one that is only slow is still
//! waited for.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::kit::*;
use seawall::*;
use serde_json::json;

/// Calls a tool whose first attempt takes `first` and whose others take `others`; gives its answer
/// and how often it was asked.
async fn called(
    tools: &ToolCaller<String>,
    tool: &str,
    first: Duration,
    others: Duration,
) -> (Answer<String>, u32) {
    let asked = AtomicU32::new(0);
    let send = |_| {
        let number = asked.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            tokio::time::sleep(if number == 1 { first } else { others }).await;
            Ok(format!("answer {number}"))
        }
    };
    let answer = tools.call(tool, json!({"n": 1}), send).await;
    (answer, asked.load(Ordering::SeqCst))
}

const NEVER: Duration = Duration::from_secs(100_000);

#[tokio::test(start_paused = true)]
async fn a_read_that_hangs_is_asked_again_at_half_of_its_time_and_one_that_is_slow_is_waited_for() {
    for (first, others, value, seconds, asked) in [
        (secs(29), secs(1), Some("answer 1"), 29, 1),
        (secs(40), NEVER, Some("answer 1"), 40, 2),
        (NEVER, secs(5), Some("answer 2"), 35, 2),
        (NEVER, NEVER, None, 60, 2),
    ] {
        let (answer, times) = called(&caller(&env(0.0)), "get_issue", first, others).await;
        let told = (answer.value().map(String::as_str), answer.elapsed.as_secs(), times);
        assert_eq!(told, (value, seconds, asked), "{first:?} {others:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_hangs_is_asked_once() {
    let (answer, times) = called(&caller(&env(0.0)), "create_issue", NEVER, secs(1)).await;
    assert_eq!((report(&answer).code, times), (ErrorCode::Timeout, 1));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_held_is_served_when_the_second_half_is_spent_too() {
    let tools = caller(&env(0.0));
    called(&tools, "get_issue", secs(1), NEVER).await;
    let (answer, times) = called(&tools, "get_issue", NEVER, NEVER).await;
    assert_eq!((served(&answer).by.as_str(), answer.elapsed.as_secs(), times), ("cached", 60, 2));
}

#[tokio::test(start_paused = true)]
async fn one_call_that_hangs_is_one_failure_however_often_it_was_asked() {
    let tools = caller(&env(0.0));
    for n in 0..5 {
        let hang = |_| std::future::pending::<Result<String, FailureSignals>>();
        let answer = tools.call("get_issue", json!({ "n": n }), hang).await;
        assert_eq!(report(&answer).code, ErrorCode::Timeout, "call {n}: the breaker opens at five");
    }
    let (answer, times) = called(&tools, "get_issue", NEVER, NEVER).await;
    assert_eq!((report(&answer).code, times), (ErrorCode::CircuitOpen, 0));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_probed_is_asked_once_at_a_time() {
    let tools = caller(&env(0.0));
    open_breaker(&tools, "get_issue").await;
    tokio::time::sleep(secs(30)).await;
    let (_, times) = called(&tools, "get_issue", NEVER, secs(1)).await;
    assert_eq!(times, 1);
}
