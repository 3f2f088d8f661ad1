//! Batches: what their failures prove, and when they count against their server.

use super::kit::*;
use seawall::*;
use serde_json::{Value, json};
use std::future::pending;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

fn ids(arguments: &Value) -> Vec<u64> {
    arguments["ids"].as_array().unwrap().iter().filter_map(Value::as_u64).collect()
}

/// Calls a batch of 1, 2 and 3 that does its items in order, and fails once, at item 3. What was
/// done, in order.
async fn fails_at_the_third(
    tools: &ToolCaller<String>,
    failure: FailureSignals,
) -> (Answer<String>, Vec<u64>) {
    let (done, failed) = (Mutex::new(Vec::new()), AtomicU32::new(0));
    let send = |attempt: Attempt| {
        let run = || {
            for id in ids(&attempt.arguments) {
                if id == 3 && failed.fetch_add(1, Ordering::SeqCst) == 0 {
                    return Err(failure.clone());
                }
                done.lock().unwrap().push(id);
            }
            Ok("done".to_owned())
        };
        std::future::ready(run())
    };
    let answer = tools.call("batch_create_issues", json!({"ids": [1, 2, 3]}), send).await;
    let done = done.lock().unwrap().clone();
    (answer, done)
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_writes_that_a_status_ended_half_way_is_not_done_again() {
    for failure in [
        FailureSignals::http(429, "GitHub API: 429 Too Many Requests"),
        FailureSignals { retry_after: Some(secs(1)), ..FailureSignals::http(429, "slow down") },
        FailureSignals::text("429 Too Many Requests"),
        FailureSignals::http(403, "rate limit exceeded"),
        FailureSignals::http(503, "down"),
        FailureSignals::http(422, "no such issue"),
    ] {
        // Nor is it repeated as a whole.
        let tools = with_tool(settings(&env(0.0)), "batch_create_issues", |policy| {
            policy.retry.attempts = 3
        });

        let (answer, done) = fails_at_the_third(&tools, failure.clone()).await;

        assert_eq!(done, [1, 2], "{failure:?}");
        let report = report(&answer);
        assert!(
            report.may_have_executed && !report.message.contains("not executed"),
            "{}",
            report.message
        );
        assert!(report.message.contains("may have been executed"), "{}", report.message);
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_may_be_repeated_goes_on_one_by_one_and_says_what_may_have_been_done() {
    let idempotent = || {
        with_tool(settings(&env(0.0)), "batch_create_issues", |policy| {
            policy.effect = Effect::Idempotent
        })
    };
    let (answer, done) =
        fails_at_the_third(&idempotent(), FailureSignals::http(429, "slow down")).await;
    assert_eq!((served(&answer).by.as_str(), done), ("split_batch", vec![1, 2, 1, 2, 3]));

    let too_long =
        FailureSignals { retry_after: Some(secs(400)), ..FailureSignals::http(429, "slow down") };
    let (answer, done) = fails_at_the_third(&idempotent(), too_long).await;
    assert_eq!((report(&answer).may_have_executed, done), (true, vec![1, 2]));
    assert!(!report(&answer).message.contains("not executed"), "{}", report(&answer).message);
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_writes_of_which_nothing_was_sent_is_done_one_by_one() {
    for failure in [
        FailureSignals::transport(TransportFailure::Refused, "connection refused"),
        FailureSignals::transport(TransportFailure::UnknownHost, "no such host"),
        // Whoever says so knows.
        FailureSignals::http(429, "slow down").with_sent(Sent::Never),
    ] {
        let sent = Mutex::new(Vec::new());
        let send = |attempt: Attempt| {
            let ids = ids(&attempt.arguments);
            sent.lock().unwrap().push(ids.clone());
            std::future::ready(if ids.len() > 1 {
                Err(failure.clone())
            } else {
                Ok("done".to_owned())
            })
        };
        let answer =
            caller(&env(0.0)).call("batch_create_issues", json!({"ids": [1, 2]}), send).await;
        assert_eq!(served(&answer).by, "split_batch");
        assert_eq!(*sent.lock().unwrap(), [vec![1, 2], vec![1], vec![2]]);
    }
    // Of a batch of one, a status says all.
    let refused = Script::down(FailureSignals::http(429, "slow down"));
    let answer =
        caller(&env(0.0)).call("batch_create_issues", json!({"ids": [1]}), refused.send()).await;
    assert!(!report(&answer).may_have_executed);
}

fn batch_of(effect: Effect, budget: BudgetPolicy) -> ToolCaller<String> {
    let policy = ServerPolicy { budget, ..ServerPolicy::default() };
    let options = CallerOptions { policy, ..CallerOptions::default() };
    let tools = ToolCaller::with_options(settings(&env(0.0)), options).unwrap();
    tools
        .tool(ToolFacts { effect: Some(effect), ..ToolFacts::named("batch_label") }, |_| ())
        .unwrap();
    tools
}

/// Calls three different batches in a row; how many attempts were made, and what the breaker has
/// seen.
async fn three_batches<F>(
    tools: &ToolCaller<String>,
    send: impl Fn(Attempt) -> F,
) -> (u32, BreakerStatus)
where
    F: Future<Output = Result<String, FailureSignals>>,
{
    let sent = AtomicU32::new(0);
    for n in 0..3 {
        let counted = |attempt| {
            sent.fetch_add(1, Ordering::SeqCst);
            send(attempt)
        };
        tools
            .call(
                "batch_label",
                Call::new(json!({"ids": [n, 7]})).in_session(format!("{n}")),
                counted,
            )
            .await;
    }
    (sent.into_inner(), tools.breaker_status("batch_label").unwrap().status)
}

#[tokio::test(start_paused = true)]
async fn batches_that_hang_open_their_breaker_at_two() {
    for effect in [Effect::ReadOnly, Effect::Idempotent, Effect::Write] {
        let tools = batch_of(effect, BudgetPolicy::DEFAULT);
        assert_eq!(
            three_batches(&tools, |_| pending()).await,
            (2, BreakerStatus::Open),
            "{effect:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn batches_whose_items_nobody_pays_for_open_their_breaker_at_two() {
    let tools = batch_of(Effect::Idempotent, BudgetPolicy { share: 0.0, floor: 0, saved: 0 });
    let down = |_| std::future::ready(Err(FailureSignals::http(503, "down")));
    assert_eq!(three_batches(&tools, down).await, (2, BreakerStatus::Open));
}

#[tokio::test(start_paused = true)]
async fn batches_whose_first_item_has_too_little_time_open_their_breaker_at_two() {
    let tools = batch_of(Effect::Idempotent, BudgetPolicy::DEFAULT);
    let late = async |attempt: Attempt| {
        tokio::time::sleep(if ids(&attempt.arguments).len() > 1 { secs(50) } else { secs(60) })
            .await;
        Err(FailureSignals::http(503, "down"))
    };
    assert_eq!(three_batches(&tools, late).await, (2 + 2, BreakerStatus::Open));
}

#[tokio::test(start_paused = true)]
async fn every_attempt_of_a_batch_counts_if_no_item_follows_the_last() {
    let tools = with_tool(settings(&env(0.0)), "batch_label", |policy| {
        (policy.effect, policy.retry.attempts) = (Effect::Idempotent, 3);
        policy.attempt_timeout = Some(secs(25));
    });
    let answer = tools.call("batch_label", json!({"ids": [1, 2]}), |_| pending()).await;
    let breaker = tools.breaker_status("batch_label").unwrap();
    assert_eq!((answer.attempts, breaker.status), (3, BreakerStatus::Open));
}

/// Calls a batch of three that its tool finds too large with `whole`; what was sent.
async fn too_large(
    effect: Effect,
    whole: Result<&str, FailureSignals>,
) -> (Answer<String>, Vec<usize>) {
    let error_text = |text: &String| (text != "done").then(|| text.clone());
    let own = Settings { error_text, ..settings(&env(0.0)) };
    let tools = with_tool(own, "batch_create_issues", |policy| policy.effect = effect);
    let sent = Mutex::new(Vec::new());
    let send = |attempt: Attempt| {
        let items = ids(&attempt.arguments).len();
        sent.lock().unwrap().push(items);
        std::future::ready(if items > 1 {
            whole.clone().map(str::to_owned)
        } else {
            Ok("done".to_owned())
        })
    };
    let answer = tools.call("batch_create_issues", json!({"ids": [1, 2, 3]}), send).await;
    let sent = sent.into_inner().unwrap();
    (answer, sent)
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_too_large_is_done_one_by_one_if_nothing_of_it_was_done() {
    let validator =
        "MCP error -32602: Input validation error: Array must contain at most 2 element(s)";
    let too_long = "ids\n  List should have at most 2 items after validation, not 3 [type=too_long, input_value=[1, 2, 3]]";
    let in_sdk = format!(
        "Error executing tool batch_create_issues: 1 validation error for batch_create_issuesArguments\n{too_long}"
    );
    let in_fastmcp = format!("1 validation error for call[batch_create_issues]\n{too_long}");
    for whole in [
        Err(FailureSignals::http(413, "Payload Too Large")),
        Err(FailureSignals::rpc(-32602, "ids: must be 1 to 2 items, not 3")),
        Ok(validator),
        Ok(in_sdk.leak()),
        Ok(in_fastmcp.leak()),
    ] {
        let (answer, sent) = too_large(Effect::Write, whole.clone()).await;
        assert_eq!(
            (served(&answer).by.as_str(), sent),
            ("split_batch", vec![3, 1, 1, 1]),
            "{whole:?}"
        );
    }
    // Words alone prove nothing: they may speak of a later step.
    let of_a_later_step = "1 validation error for Labels\nids\n  List should have at most 2 items [type=too_long, input_value=3]";
    for whole in [
        Ok("MCP error: at most 2 items"),
        Ok(of_a_later_step),
        Err(FailureSignals::http(422, "at most 2 items")),
    ] {
        let (answer, sent) = too_large(Effect::Write, whole.clone()).await;
        assert_eq!(sent, [3], "{whole:?} {answer:?}");
        let (answer, sent) = too_large(Effect::Idempotent, whole.clone()).await;
        assert_eq!(
            (served(&answer).by.as_str(), sent),
            ("split_batch", vec![3, 1, 1, 1]),
            "{whole:?}"
        );
    }
    let (answer, sent) =
        too_large(Effect::Idempotent, Err(FailureSignals::rpc(-32602, "no such repository"))).await;
    assert_eq!(
        (report(&answer).code, sent),
        (ErrorCode::ValidationError, vec![3]),
        "another mistake stays one"
    );
}
