//! Loops are stopped, and answers stay with those who asked.

use super::kit::*;
use futures_util::future::join_all;
use seawall::*;
use serde_json::json;
use std::sync::Arc;

fn blog(env: &Env) -> ToolCaller<String> {
    ToolCaller::with_options(
        settings(env),
        CallerOptions { preset: Preset::Blog, ..CallerOptions::default() },
    )
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_third_identical_call_is_answered_not_executed() {
    let (tools, script) = (blog(&env(0.0)), Script::healthy());
    let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();

    tools.call("poll", parse(r#"{"a": 1, "b": 2}"#), script.send()).await;
    tools.call("poll", parse(r#"{"b": 2, "a": 1}"#), script.send()).await;
    let third = tools.call("poll", parse(r#"{"a": 1, "b": 2}"#), script.send()).await;

    assert_eq!((report(&third).code, script.executions()), (ErrorCode::LoopDetected, 2));
    let expected = "⚠️ Loop detected: \"poll\" was called repeatedly with the same inputs. Try a different query or break this into smaller steps.";
    assert_eq!(report(&third).classic, expected);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_gets_a_warning_and_a_failing_one_an_error() {
    let is_error = |report: &FailureReport, structured| {
        let result = report.to_tool_result(Rendering {
            style: TextStyle::Classic,
            structured,
            ..Rendering::default()
        });
        assert_eq!(result["_meta"]["seawall/failure"]["code"], "LOOP_DETECTED");
        result["isError"] == true
    };
    let (counts_calls, by_default) = (blog(&env(0.0)), caller(&env(0.0)));
    let (mut repeated, mut failing) = (None, None);
    for _ in 0..4 {
        repeated = Some(counts_calls.call("poll", nothing(), Script::healthy().send()).await);
        failing =
            Some(by_default.call("get_poll", nothing(), Script::down("422 invalid").send()).await);
    }
    let (repeated, failing) = (repeated.unwrap(), failing.unwrap());

    assert_eq!(
        (is_error(report(&repeated), true), is_error(report(&failing), true)),
        (false, true)
    );
    assert!(
        is_error(report(&repeated), false),
        "what breaks a tool's schema is read only as an error"
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_its_server_does_not_have_is_told_as_that() {
    let gone = Script::down(FailureSignals::rpc(-32602, "Tool get_issue not found"));
    let answer = caller(&env(0.0)).call("get_issue", nothing(), gone.send()).await;

    let object = report(&answer).object();
    assert_eq!(
        (&object["code"], &object["retryable"], gone.executions()),
        (&"TOOL_NOT_FOUND".into(), &false.into(), 1)
    );
    assert_eq!(
        report(&answer).error_object(TextStyle::Gitnexus)["message"],
        "Tool 'get_issue' not found"
    );
    assert!(report(&answer).message.contains("has no such tool"), "{}", report(&answer).message);
}

#[tokio::test(start_paused = true)]
async fn sessions_are_apart_and_internal_retries_do_not_count() {
    let tools = blog(&env(0.0));
    for session in ["one", "two"] {
        for _ in 0..2 {
            let flaky = Script::failing(["429"; 2]);
            let answer = tools
                .call("get_issue", Call::new(nothing()).in_session(session), flaky.send())
                .await;
            assert_eq!((answer.value().is_some(), flaky.executions()), (true, 3));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn by_default_only_failing_calls_are_loops() {
    let tools = caller(&env(0.0));
    let snapshot = Script::healthy();
    for _ in 0..20 {
        assert!(tools.call("take_snapshot", nothing(), snapshot.send()).await.value().is_some());
    }

    let wrong = Script::down("404 not found");
    for _ in 0..3 {
        tools.call("get_page", json!({"id": 9}), wrong.send()).await;
    }
    let fourth = tools.call("get_page", json!({"id": 9}), wrong.send()).await;
    assert_eq!((report(&fourth).code, wrong.executions()), (ErrorCode::LoopDetected, 3));
    assert!(report(&fourth).message.contains("failed 3 times"), "{}", report(&fourth).message);

    tools.call("list_pages", nothing(), snapshot.send()).await;
    tools.call("get_page", json!({"id": 9}), wrong.send()).await;
    assert_eq!(wrong.executions(), 4, "any success starts afresh");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_told_to_wait_is_no_loop() {
    let tools = caller(&env(0.0));
    open_breaker(&tools, "get_page").await;
    for _ in 0..5 {
        assert_eq!(
            report(&tools.call("get_page", nothing(), Script::healthy().send()).await).code,
            ErrorCode::CircuitOpen
        );
    }
    advance(secs(30)).await;

    assert!(tools.call("get_page", nothing(), Script::healthy().send()).await.value().is_some());
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_together_are_one_failure() {
    let (tools, down) = (caching(&env(0.0)), Script::down("404 not found"));
    let slow = |_| async {
        tokio::time::sleep(ms(10)).await;
        down.execute()
    };
    for round in 1..=3 {
        let answers = join_all((0..5).map(|_| tools.call("get_issue", nothing(), slow))).await;
        assert_eq!(down.executions(), round, "one asks for all");
        let again = |answer: &Answer<String>| {
            report(answer).message.contains(&format!("failed {round} times"))
        };
        assert_eq!(
            answers.iter().filter(|answer| again(answer)).count(),
            if round == 1 { 0 } else { 5 }
        );
    }
    let refused = tools.call("get_issue", nothing(), slow).await;
    assert!(report(&refused).message.contains("failed 3 times"), "{}", report(&refused).message);
    assert_eq!((report(&refused).code, down.executions()), (ErrorCode::LoopDetected, 3));
}

#[tokio::test(start_paused = true)]
async fn a_tools_own_error_counts_as_failing() {
    let own = Settings {
        error_text: |text: &String| text.starts_with("Error").then(|| text.clone()),
        ..settings(&env(0.0))
    };
    let tools = ToolCaller::new(own).unwrap();
    let answer = || async {
        tools.call("get_page", nothing(), |_| async { Ok("Error: 404".to_owned()) }).await
    };

    for _ in 0..3 {
        assert_eq!(
            answer().await.value().map(String::as_str),
            Some("Error: 404"),
            "passed on unchanged"
        );
    }
    assert_eq!(report(&answer().await).code, ErrorCode::LoopDetected);
}

fn caching(env: &Env) -> ToolCaller<String> {
    let tools = caller(env);
    for name in ["get_issue", "list_issues", "search_issues"] {
        tools.tool(ToolFacts::named(name), |policy| policy.cache.fresh = Some(secs(30))).unwrap();
    }
    tools
}

#[tokio::test(start_paused = true)]
async fn a_cached_answer_is_not_shared_between_callers() {
    let (tools, script) = (caching(&env(0.0)), Script::healthy());
    let ask = |caller: &'static str| {
        tools.call("get_issue", Call::new(json!({"n": 1})).by(caller), script.send())
    };

    ask("alice").await;
    ask("alice").await;
    assert_eq!(script.executions(), 1);
    ask("bob").await;
    assert_eq!(script.executions(), 2);

    advance(secs(30)).await;
    ask("alice").await;
    assert_eq!(script.executions(), 3, "no longer fresh");
}

#[tokio::test(start_paused = true)]
async fn a_cached_answer_is_not_shared_between_servers_or_tools() {
    let pipeline = Pipeline::new(settings(&env(0.0))).unwrap();
    let calls = [("a", "get_issue"), ("b", "get_issue"), ("a", "get_issues"), ("ab", "get_issue")];
    for (server, name) in calls {
        pipeline.server(server, ServerPolicy::default()).unwrap();
        let mut policy = Preset::Default.policy(&ToolFacts::named(name), &Tiers::default());
        policy.cache.fresh = Some(secs(30));
        pipeline.tool(server, name, policy).unwrap();
    }

    // Kept by the first round, and given to whom it belongs in the second.
    for _ in 0..2 {
        for (server, name) in calls {
            let (tool, call) = (pipeline.find(server, name).unwrap(), Call::new(json!({"n": 1})));
            let own = |attempt: Attempt| async move {
                Ok(format!("{}/{}", attempt.server(), attempt.tool()))
            };
            let answer = pipeline.run(&tool, &call, own).await;
            assert_eq!(answer.value(), Some(&format!("{server}/{name}")));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_makes_what_was_read_before_it_unfresh() {
    let (tools, reads, writes) = (caching(&env(0.0)), Script::healthy(), Script::healthy());
    let read_all = || async {
        for tool in ["get_issue", "list_issues", "search_issues"] {
            tools.call(tool, nothing(), reads.send()).await;
        }
        reads.executions()
    };
    read_all().await;
    assert_eq!(read_all().await, 3);

    tools.call("create_issue", nothing(), writes.send()).await;
    assert_eq!(read_all().await, 6);

    let ambiguous = Script::down(FailureSignals::transport(TransportFailure::Timeout, "no answer"));
    tools.call("create_issue", nothing(), ambiguous.send()).await;
    assert_eq!(read_all().await, 9, "a write that may have been executed counts too");

    let refused = Script::down(FailureSignals::transport(TransportFailure::Refused, "refused"));
    tools.call("create_issue", nothing(), refused.send()).await;
    assert_eq!(read_all().await, 9, "one that certainly was not does not");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_began_before_a_write_is_not_kept_as_fresh() {
    let (tools, script) = (caching(&env(0.0)), Script::healthy());
    let slow_read = |_| async {
        tokio::time::sleep(secs(1)).await;
        script.execute()
    };

    tokio::join!(
        tools.call("get_issue", nothing(), slow_read),
        tools.call("create_issue", nothing(), Script::healthy().send())
    );
    tools.call("get_issue", nothing(), script.send()).await;

    assert_eq!(script.executions(), 2);
}

#[tokio::test(start_paused = true)]
async fn errors_are_never_cached() {
    let own = Settings {
        error_text: |text: &String| text.starts_with("Error").then(|| text.clone()),
        ..settings(&env(0.0))
    };
    let tools = with_tool(own, "get_issue", |policy| policy.cache.fresh = Some(secs(30)));

    tools.call("get_issue", nothing(), Script::down("422 invalid").send()).await;
    tools.call("get_issue", nothing(), |_| async { Ok("Error: no".to_owned()) }).await;
    let answer = tools.call("get_issue", nothing(), Script::healthy().send()).await;

    assert_eq!(answer.value().map(String::as_str), Some("ok"));
}

#[tokio::test(start_paused = true)]
async fn identical_reads_at_the_same_time_ask_once() {
    let (tools, script) = (caching(&env(0.0)), Script::healthy());
    let slow = |_| async {
        tokio::time::sleep(secs(1)).await;
        script.execute()
    };

    let answers = join_all((0..20).map(|_| tools.call("get_issue", json!({"n": 1}), slow))).await;

    assert_eq!(script.executions(), 1);
    assert!(answers.iter().all(|answer| answer.value().is_some()));
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_a_failing_read_are_told_and_fall_back_too() {
    let tools = caching(&env(0.0));
    tools.call("get_issue", json!({"n": 1}), Script::healthy().send()).await;
    advance(secs(31)).await;
    let down = Script::down("503 Service Unavailable");
    let slow = |_| async {
        tokio::time::sleep(ms(100)).await;
        down.execute()
    };

    let answers = join_all((0..20).map(|_| tools.call("get_issue", json!({"n": 1}), slow))).await;

    assert_eq!(down.executions(), 3, "one call's attempts");
    assert!(answers.iter().all(|answer| served(answer).by == "cached"));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_left_or_could_not_try_again_does_not_fail_those_who_wait_with_it() {
    let left = FailureSignals::transport(TransportFailure::Left, "its client left");
    let short = Call::new(nothing()).within(secs(1));
    let once = Call { retried_outside: true, ..Call::new(nothing()) };
    let last = Call { control: Some(Arc::default()), ..Call::new(nothing()) };
    last.control.as_ref().unwrap().make_last();
    for (leader, failure) in [
        (Call::new(nothing()), left),
        (short, FailureSignals::http(503, "down")),
        (once, FailureSignals::http(503, "down")),
        (last, FailureSignals::http(503, "down")),
    ] {
        let (tools, script) = (caching(&env(0.0)), Script::failing([failure.clone()]));
        let slow = |_| async {
            tokio::time::sleep(ms(500)).await;
            script.execute()
        };

        let (leader, follower) = tokio::join!(
            tools.call("get_issue", leader, slow),
            tools.call("get_issue", nothing(), slow)
        );

        assert!(leader.report().is_some(), "{leader:?}");
        assert!(follower.value().is_some(), "{failure:?}: {follower:?}");
        assert_eq!(script.executions(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_its_client_left_is_no_loop() {
    let tools = caller(&env(0.0));
    let left = Script::down(FailureSignals::transport(TransportFailure::Left, "its client left"));
    for _ in 0..5 {
        tools.call("get_issue", json!({"n": 1}), left.send()).await;
    }

    assert_eq!(left.executions(), 5);
}
