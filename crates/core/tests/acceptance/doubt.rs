//! A write that may have been executed is not sent again before somebody looked, or some time
//! passed.

use std::sync::Arc;

use super::kit::*;
use seawall::*;
use serde_json::{Value, json};

fn lost() -> FailureSignals {
    FailureSignals::transport(TransportFailure::Lost, "connection reset").with_sent(Sent::Yes)
}

fn title(title: &str) -> Value {
    json!({ "title": title })
}

/// A caller whose write of `title("a")` may have been executed, and the tool's script.
async fn in_doubt() -> (ToolCaller<String>, Script) {
    let (tools, script) = (caller(&env(0.0)), Script::failing([lost()]));
    tools.call("list_issues", nothing(), Script::healthy().send()).await;
    let answer = tools.call("create_issue", title("a"), script.send()).await;
    assert!(report(&answer).may_have_executed);
    (tools, script)
}

/// How often the tool was executed when the same call was made again.
async fn repeated(tools: &ToolCaller<String>, script: &Script) -> u32 {
    tools.call("create_issue", title("a"), script.send()).await;
    script.executions()
}

#[tokio::test(start_paused = true)]
async fn a_write_that_may_have_run_is_not_sent_again_before_somebody_looked() {
    let (tools, script) = in_doubt().await;
    advance(secs(4)).await;

    let answer = tools.call("create_issue", title("a"), script.send()).await;
    let told = report(&answer);
    assert_eq!(
        (told.code, told.may_have_executed, told.attempts),
        (ErrorCode::WriteUncertain, true, 0)
    );
    assert_eq!(told.retry_after, None, "it must not be repeated blindly, so nobody is told when");
    assert_eq!(
        told.message,
        "create_issue was not sent: the same call may have been executed 4s ago. list_issues can show whether it took effect; after such a look, or in 56s, it is sent again."
    );
    assert_eq!(script.executions(), 1);

    // Another write is another matter.
    tools.call("create_issue", title("b"), script.send()).await;
    assert_eq!((script.executions(), repeated(&tools, &script).await), (2, 2));

    tools.call("list_issues", nothing(), Script::healthy().send()).await;
    assert_eq!(repeated(&tools, &script).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_look_shows_nothing_of_a_write_that_timed_out_and_may_still_run() {
    let (tools, script) = (
        caller(&env(0.0)),
        Script::failing([FailureSignals::transport(TransportFailure::Timeout, "no answer")]),
    );
    tools.call("create_issue", title("a"), script.send()).await;
    advance(secs(1)).await;
    tools.call("list_issues", nothing(), Script::healthy().send()).await;
    let answer = tools.call("create_issue", title("a"), script.send()).await;
    assert_eq!(
        report(&answer).message,
        "create_issue was not sent: the same call may have been executed 1s ago and may still be running. list_issues can show whether it took effect, once it has ended. In 59s it is sent again."
    );
    assert_eq!(script.executions(), 1);
    advance(secs(59)).await;
    assert_eq!(repeated(&tools, &script).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_no_client_reads_is_no_look() {
    let (tools, script) = in_doubt().await;
    let control = Arc::new(CallControl::default());
    let left = Call { control: Some(Arc::clone(&control)), ..nothing().into() };
    control.leave();
    tools.call("list_issues", left, Script::healthy().send()).await;
    assert_eq!(repeated(&tools, &script).await, 1);
    tools.call("list_issues", nothing(), Script::healthy().send()).await;
    assert_eq!(repeated(&tools, &script).await, 2);
}

#[tokio::test(start_paused = true)]
async fn after_a_while_the_same_write_is_sent_again_however_often_it_was_asked_for() {
    let (tools, script) = in_doubt().await;
    for _ in 0..59 {
        advance(secs(1)).await;
        assert_eq!(repeated(&tools, &script).await, 1);
    }
    advance(secs(1)).await;
    assert_eq!(repeated(&tools, &script).await, 2);
}

#[tokio::test(start_paused = true)]
async fn only_an_answer_that_the_server_gives_now_is_a_look() {
    let (tools, script) = in_doubt().await;
    let failed = tools
        .call("list_issues", nothing(), Script::down(FailureSignals::http(503, "down")).send())
        .await;
    assert_eq!(served(&failed).by, "cached");
    assert_eq!(repeated(&tools, &script).await, 1);

    tools.call("create_issue", title("c"), script.send()).await;
    assert_eq!(repeated(&tools, &script).await, 2, "a write shows nothing");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_began_before_the_write_ended_is_no_look() {
    let (tools, script) = (caller(&env(0.0)), Script::failing([lost()]));
    let slow = |_| async {
        tokio::time::sleep(secs(2)).await;
        Ok("as it was before".to_owned())
    };
    let write = async {
        advance(secs(1)).await;
        tools.call("create_issue", title("a"), script.send()).await
    };
    let (read, _) = tokio::join!(tools.call("list_issues", nothing(), slow), write);
    assert!(read.value().is_some());
    assert_eq!(repeated(&tools, &script).await, 1);
}

#[tokio::test(start_paused = true)]
async fn other_callers_neither_look_for_this_one_nor_are_held_back_with_it() {
    let pipeline = Pipeline::new(settings(&env(0.0))).unwrap();
    pipeline.server("gh", ServerPolicy::default()).unwrap();
    let tool = |name: &str| {
        let policy = Preset::Default.policy(&ToolFacts::named(name), &Tiers::default());
        pipeline.tool("gh", name, policy).unwrap()
    };
    let (create, list) = (tool("create_issue"), tool("list_issues"));
    let of = |who: &'static str| Call::new(title("a")).by(who).in_session(who);
    let script = Script::failing([lost()]);

    pipeline.run(&create, &of("me"), script.send()).await;
    pipeline.run(&list, &of("you"), Script::healthy().send()).await;
    pipeline.run(&create, &of("me"), script.send()).await;
    assert_eq!(script.executions(), 1);
    assert!(pipeline.run(&create, &of("you"), script.send()).await.value().is_some());
}

#[tokio::test(start_paused = true)]
async fn what_may_be_repeated_or_certainly_did_not_run_is_not_held_back() {
    for (name, failure) in [
        (
            "create_issue",
            FailureSignals::transport(TransportFailure::Refused, "connection refused"),
        ),
        ("create_issue", FailureSignals::http(422, "title is missing").with_sent(Sent::Never)),
        ("get_issue", lost()),
    ] {
        let (tools, script) = (caller(&env(0.0)), Script::down(failure));
        tools.call(name, nothing(), script.send()).await;
        let before = script.executions();
        tools.call(name, nothing(), script.send()).await;
        assert!(script.executions() > before, "{name}");
    }
    let (tools, script) = (
        with_tool(settings(&env(0.0)), "create_issue", |it| it.uncertain_write_hold = None),
        Script::down(lost()),
    );
    assert_eq!((repeated(&tools, &script).await, repeated(&tools, &script).await), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_caller_left_while_it_ran_is_in_doubt_and_one_that_waited_is_not() {
    let tools = caller(&env(0.0));
    let left = tokio::time::timeout(
        ms(10),
        tools.call("create_issue", title("a"), |_| std::future::pending()),
    )
    .await;
    assert!(left.is_err());
    let script = Script::healthy();
    assert_eq!(repeated(&tools, &script).await, 0);

    // This one was refused, and its caller left in the pause before the next attempt.
    let busy = Script::failing([FailureSignals::transport(
        TransportFailure::Refused,
        "connection refused",
    )]);
    let left =
        tokio::time::timeout(ms(10), tools.call("create_issue", title("b"), busy.send())).await;
    assert!(left.is_err());
    assert!(tools.call("create_issue", title("b"), busy.send()).await.value().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_which_one_item_may_have_run_is_not_made_again_as_a_whole() {
    let tools = caller(&env(0.0));
    let calls = Script::healthy();
    let send = |attempt: Attempt| {
        let _ = calls.execute();
        let ids = attempt.arguments["ids"].as_array().map_or(0, Vec::len);
        std::future::ready(match attempt.arguments["ids"][0].as_u64() {
            _ if ids > 1 => {
                Err(FailureSignals::transport(TransportFailure::Refused, "connection refused"))
            }
            Some(3) => Err(lost()),
            _ => Ok("done".to_owned()),
        })
    };
    let ids = json!({"ids": [1, 2, 3]});
    assert_eq!(served(&tools.call("batch_label", ids.clone(), send).await).by, "split_batch");
    let before = calls.executions();
    assert!(report(&tools.call("batch_label", ids, send).await).may_have_executed);
    assert_eq!(calls.executions(), before);
}

fn refused() -> FailureSignals {
    FailureSignals::transport(TransportFailure::Refused, "connection refused")
}

#[tokio::test(start_paused = true)]
async fn a_callers_own_step_that_wrote_makes_what_was_read_before_it_unfresh() {
    let tools = caller(&env(0.0));
    tools.tool(ToolFacts::named("list_issues"), |it| it.cache.fresh = Some(secs(300))).unwrap();
    let (reads, down) = (Script::healthy(), Script::down(refused()));
    let list = || tools.call("list_issues", nothing(), reads.send());
    list().await;
    list().await;
    assert_eq!(reads.executions(), 1);

    // One that certainly did not arrive changed nothing.
    let away = [Step::new("create_issue-backup", || async { Err(refused()) })];
    tools.call_with("create_issue", title("a"), &away, down.send()).await;
    list().await;
    assert_eq!(reads.executions(), 1);

    let backup = [Step::new("create_issue-backup", || async { Ok("created".to_owned()) })];
    assert_eq!(
        served(&tools.call_with("create_issue", title("a"), &backup, down.send()).await).by,
        "backup"
    );
    list().await;
    assert_eq!(reads.executions(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_caller_left_while_a_step_of_its_own_ran_is_in_doubt() {
    let (tools, down, sent) = (caller(&env(0.0)), Script::down(refused()), Script::healthy());
    let counted = sent.clone();
    let slow = [Step::new("create_issue-backup", move || {
        let created = counted.execute();
        async {
            tokio::time::sleep(secs(5)).await;
            created
        }
    })];
    for _ in 0..3 {
        let call = tools.call_with("create_issue", title("a"), &slow, down.send());
        let _left_or_held = tokio::time::timeout(secs(3), call).await;
    }

    assert_eq!(sent.executions(), 1);
    let held = tools.call_with("create_issue", title("a"), &slow, down.send()).await;
    assert_eq!(
        (report(&held).code, report(&held).may_have_executed),
        (ErrorCode::WriteUncertain, true)
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_is_held_back_for_another_sessions_write_can_look_for_himself() {
    let (tools, script) = (caller(&env(0.0)), Script::failing([lost()]));
    let create = |session: &str| {
        tools.call("create_issue", Call::new(title("x")).in_session(session), script.send())
    };
    let look = |session: &str| {
        tools.call(
            "list_issues",
            Call::new(nothing()).in_session(session),
            Script::healthy().send(),
        )
    };
    assert!(report(&create("a").await).may_have_executed);
    assert!(report(&create("b").await).message.contains("after it, or in 60s, it is sent again"));

    look("b").await;
    assert!(create("b").await.value().is_some());
    let held = create("a").await;
    assert_eq!(
        (report(&held).code, script.executions()),
        (ErrorCode::WriteUncertain, 2),
        "a has not looked"
    );
    look("a").await;
    assert!(create("a").await.value().is_some());
}
