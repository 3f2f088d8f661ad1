//! A server that is not there, a client that has to be waited for, and a call that has had its last
//! attempt.

use super::kit::*;
use seawall::*;
use std::sync::Arc;

fn policy(name: &str) -> Policy {
    Preset::Default.policy(&ToolFacts::named(name), &Tiers::default())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_starting_or_down_is_told_as_such_and_not_asked_again() {
    for (transport, reason, code, text) in [
        (
            TransportFailure::Starting,
            "",
            ErrorCode::ServerStarting,
            "gh__get_issue was not executed: gh is starting. The same call can be repeated in 4s.",
        ),
        (
            TransportFailure::Starting,
            "its process ended (exit status: 3)",
            ErrorCode::ServerStarting,
            "gh__get_issue was not executed: gh is starting (\"its process ended (exit status: 3)\"). The same call can be repeated in 4s.",
        ),
        (
            TransportFailure::Down,
            "there is no program \"x\"",
            ErrorCode::ServerUnavailable,
            "gh__get_issue was not executed: gh is down (\"there is no program 'x'\"). It stays down until a person acts.",
        ),
        (
            TransportFailure::GivenUp,
            "Maximum reconnection attempts (20) reached",
            ErrorCode::RetryExhausted,
            "gh__get_issue was not executed: gh is down (\"Maximum reconnection attempts (20) reached\"). It stays down until a person acts.",
        ),
    ] {
        let pipeline = Pipeline::new(settings(&env(0.0))).unwrap();
        pipeline
            .server(
                "gh",
                ServerPolicy { connection: Some(BreakerPolicy::default()), ..Default::default() },
            )
            .unwrap();
        let tool = pipeline.tool("gh", "get_issue", policy("get_issue")).unwrap();
        let retry_after =
            (transport == TransportFailure::Starting).then_some(std::time::Duration::from_secs(4));
        let signals =
            FailureSignals { retry_after, ..FailureSignals::transport(transport, reason) };
        let script = Script::down(signals);
        let call = Call { prefix: "gh__".into(), ..Call::new(nothing()) };
        for _ in 0..7 {
            let answer = pipeline
                .run(
                    &tool,
                    &call.clone().in_session(format!("{:?}", script.executions())),
                    script.send(),
                )
                .await;
            let report = report(&answer);
            assert_eq!(
                (report.code, report.message.as_str(), report.may_have_executed),
                (code, text, false)
            );
            assert_eq!(report.code.is_retryable(), code == ErrorCode::ServerStarting);
        }
        assert_eq!(
            script.executions(),
            7,
            "tried once each time, and never counted against the server"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_own_client_has_more_time() {
    let pipeline = Pipeline::new(settings(&env(0.0))).unwrap();
    pipeline.server("s", ServerPolicy::default()).unwrap();
    let tool = pipeline.tool("s", "ask", policy("ask")).unwrap();
    let held = Arc::new(CallControl::default());
    let send = |_| {
        let held = held.clone();
        async move {
            tokio::time::sleep(secs(50)).await;
            let question = held.question();
            tokio::time::sleep(secs(300)).await;
            drop(question);
            tokio::time::sleep(secs(9)).await;
            Ok("done".to_owned())
        }
    };
    let call = Call { control: Some(held.clone()), ..Call::new(nothing()) };
    let answer = pipeline.run(&tool, &call, send).await;
    assert!(matches!(answer.outcome, Outcome::Live(_)), "{answer:?}");
    assert_eq!(answer.elapsed.as_secs(), 359);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_client_was_asked_has_the_time_of_the_questions_more_and_no_more() {
    // Each question: when it comes after the one before, and how long it stays open.
    for (questions, limit, ends) in [
        (vec![(10, 0)], None, 60),
        (vec![(10, 5)], None, 65),
        (vec![(10, 5), (20, 7)], None, 72),
        (vec![(59, 100)], None, 160),
        (vec![(10, 100_000)], None, 660),
        (vec![(10, 30), (10, 100_000)], Some(40), 100),
        (vec![(10, 100_000)], Some(0), 60),
    ] {
        let pipeline = Pipeline::new(settings(&env(0.0))).unwrap();
        pipeline.server("s", ServerPolicy::default()).unwrap();
        let tool = pipeline.tool("s", "ask", policy("ask")).unwrap();
        let control = Arc::new(CallControl::default());
        if let Some(limit) = limit {
            control.limit_questions(secs(limit));
        }
        let call = Call { control: Some(control.clone()), ..Call::new(nothing()) };
        let send = |_| {
            let (control, questions) = (control.clone(), questions.clone());
            async move {
                for (after, open) in questions {
                    tokio::time::sleep(secs(after)).await;
                    let _question = control.question();
                    tokio::time::sleep(secs(open)).await;
                }
                std::future::pending::<Result<String, FailureSignals>>().await
            }
        };
        let answer = tokio::time::timeout(secs(10_000), pipeline.run(&tool, &call, send))
            .await
            .expect("for ever");
        let told = (report(&answer).code, answer.elapsed.as_secs());
        assert_eq!(told, (ErrorCode::Timeout, ends), "{questions:?} {limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_had_its_last_attempt_is_not_tried_again() {
    let pipeline = Pipeline::new(settings(&env(0.0))).unwrap();
    pipeline.server("s", ServerPolicy::default()).unwrap();
    let tool = pipeline.tool("s", "get_x", policy("get_x")).unwrap();
    let held = Arc::new(CallControl::default());
    let call = Call { control: Some(held.clone()), ..Call::new(nothing()) };
    let script = Script::down(
        FailureSignals::transport(TransportFailure::Lost, "connection reset").with_sent(Sent::Yes),
    );

    held.make_last();
    let answer = pipeline.run(&tool, &call, script.send()).await;

    assert_eq!((script.executions(), report(&answer).code), (1, ErrorCode::ConnectionLost));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_no_time_is_not_told_as_one_whose_server_could_not_be_reached() {
    for tool in ["create_issue", "get_issue"] {
        let (tools, script) = (caller(&env(0.0)), Script::healthy());
        let call = Call::new(nothing()).within(std::time::Duration::ZERO);
        let answer = tools.call(tool, call, script.send()).await;

        let text = format!(
            "{tool} was not executed: its time was up before its server was asked. Repeating is safe."
        );
        assert_eq!(
            (report(&answer).message.as_str(), report(&answer).code),
            (text.as_str(), ErrorCode::Timeout)
        );
        assert_eq!((report(&answer).may_have_executed, script.executions()), (false, 0));
    }
}
