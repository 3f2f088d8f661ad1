//! Answers that come after their client gave up.

use std::sync::Arc;

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::kit::{Session, soon, until};
use super::server::{End, Faulty, call, failure, text};

/// A call that its client gives up once the server works on it.
async fn give_up(session: &Session<'_>, server: &Faulty, tool: &str) {
    let before = server.calls(tool);
    let params = json!({"name": tool, "arguments": {"title": "x"}});
    let body = json!({"jsonrpc": "2.0", "id": 50, "method": "tools/call", "params": params}).to_string();
    let left = async {
        until("the call runs", async || server.calls(tool) > before).await;
        session.tell("notifications/cancelled", json!({"requestId": 50, "reason": "too slow"})).await;
    };
    let (response, ()) = tokio::join!(session.raw(&body), left);
    assert_eq!(response.status(), 202, "nobody waits for an answer");
}

fn late(answer: &Value) -> bool {
    answer["result"]["_meta"]["seawall/served"]["by"] == "late"
}

#[tokio::test]
async fn the_answer_to_a_call_that_was_given_up_goes_to_the_same_call_made_again_and_it_runs_once() {
    for mode in ["cancel", "finish"] {
        let go = Arc::new(Semaphore::new(0));
        let held = Arc::clone(&go);
        let server = Faulty::start(move |_, count, _| match count {
            1 => End::Held(Arc::clone(&held), "made 1"),
            _ => End::Text("made again"),
        })
        .await;
        let served = server.served(&format!("[tools.\"gh/create_issue\"]\non_abandon = \"{mode}\"\n")).await;
        let session = served.session("/mcp/gh").await;
        give_up(&session, &server, "create_issue").await;
        // Made again while the first still runs: it waits for that one.
        let over = async {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            go.add_permits(1);
        };
        let (answer, ()) =
            soon(async { tokio::join!(call(&session, "create_issue", json!({"title": "x"})), over) }).await;
        assert!(late(&answer), "{mode}: {answer}");
        assert_eq!((text(&answer), server.calls("create_issue")), ("made 1", 1), "{mode}");
        assert_eq!(server.cancelled(), u32::from(mode == "cancel"), "{mode}");
        // It was given once: the next identical call is a new one.
        let answer = call(&session, "create_issue", json!({"title": "x"})).await;
        assert_eq!((text(&answer), late(&answer)), ("made again", false), "{mode}");
    }
}

#[tokio::test]
async fn a_late_answer_is_nobody_elses_and_no_other_calls() {
    let go = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&go);
    let server = Faulty::start(move |_, count, _| match count {
        1 => End::Held(Arc::clone(&held), "made 1"),
        _ => End::Text("own"),
    })
    .await;
    let served = server.served("[tools.\"gh/create_issue\"]\non_abandon = \"finish\"\n").await;
    let (one, two) = (served.session("/mcp/gh").await, served.session("/mcp/gh").await);
    give_up(&one, &server, "create_issue").await;
    for answer in [
        call(&two, "create_issue", json!({"title": "x"})).await,
        call(&one, "create_issue", json!({"title": "y"})).await,
    ] {
        assert_eq!((text(&answer), late(&answer)), ("own", false));
    }
    go.add_permits(1);
    let answer = call(&one, "create_issue", json!({"title": "x"})).await;
    assert_eq!((text(&answer), late(&answer)), ("made 1", true));
}

#[tokio::test]
async fn a_call_that_takes_longer_than_its_client_waits_is_answered_before_and_handed_over_when_it_is_made_again() {
    let go = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&go);
    let server = Faulty::start(move |_, _, _| End::Held(Arc::clone(&held), "done at last")).await;
    let served = server.served("[tools.\"gh/create_issue\"]\nclient_cap = \"1s\"\n").await;
    let session = served.session("/mcp/gh").await;
    let answer = call(&session, "create_issue", json!({})).await;
    let told = "create_issue is still running on gh. Its result is kept: the identical call, made again, waits for it and does not execute it a second time.";
    assert_eq!((text(&answer), &failure(&answer)["code"]), (told, &json!("TIMEOUT")));
    go.add_permits(1);
    let answer = call(&session, "create_issue", json!({})).await;
    assert_eq!((text(&answer), late(&answer), server.calls("create_issue")), ("done at last", true, 1), "{answer}");
}

#[tokio::test]
async fn that_a_call_still_runs_is_told_in_the_form_of_all_failures() {
    let server = Faulty::start(|_, _, _| End::Hang).await;
    let policies = "[tools.\"gh/create_issue\"]\nclient_cap = \"1s\"\n[messages]\nformat = \"json\"\n";
    let served = server.served(policies).await;
    let session = served.session("/mcp/gh").await;
    let answer = call(&session, "create_issue", json!({})).await;
    let object: Value = serde_json::from_str(text(&answer)).expect("the error object");
    assert_eq!((&object["code"], &object["retryAfter"]), (&json!("TIMEOUT"), &json!(1)), "{answer}");
    assert_eq!(answer["result"]["structuredContent"], *failure(&answer), "{answer}");
}

#[tokio::test]
async fn a_call_that_still_runs_when_it_is_made_again_is_not_executed_again() {
    let go = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&go);
    let server = Faulty::start(move |_, _, _| End::Held(Arc::clone(&held), "done at last")).await;
    let served = server.served("[tools.\"gh/create_issue\"]\nclient_cap = \"1s\"\n").await;
    let session = served.session("/mcp/gh").await;
    let mut told = 0;
    let answer = loop {
        let answer = call(&session, "create_issue", json!({})).await;
        if late(&answer) {
            break answer;
        }
        assert!(text(&answer).starts_with("create_issue is still running on gh."), "{answer}");
        told += 1;
        go.add_permits(usize::from(told == 2));
    };
    assert_eq!(told, 2, "the third call is handed the answer");
    assert_eq!((text(&answer), server.calls("create_issue")), ("done at last", 1), "{answer}");
}

#[tokio::test]
async fn calls_that_differ_in_numbers_too_large_to_read_are_different_calls() {
    let server =
        Faulty::start(|_, count, _| if count == 1 { End::After(600, "made 1") } else { End::Text("own") }).await;
    let served = server.served("[tools.\"gh/create_issue\"]\non_abandon = \"finish\"\n").await;
    let session = served.session("/mcp/gh").await;
    let body = |id: u32, number: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"create_issue","arguments":{{"n":{number}}}}}}}"#
        )
    };
    let left = async {
        until("the call runs", async || server.calls("create_issue") > 0).await;
        session.tell("notifications/cancelled", json!({"requestId": 50})).await;
    };
    let first = body(50, "123456789012345678901");
    tokio::join!(session.raw(&first), left);
    let second = body(51, "123456789012345678902");
    let answer = session.raw(&second).await.into_body().collect().await.unwrap().to_bytes();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("own") && !answer.contains("late"), "{answer}");
}

#[tokio::test]
async fn where_nothing_is_kept_the_server_is_told_and_the_same_write_is_in_doubt() {
    let server = Faulty::start(|_, _, _| End::Hang).await;
    let served = server.served("[tools.\"gh/create_issue\"]\non_abandon = \"forget\"\n").await;
    let session = served.session("/mcp/gh").await;
    give_up(&session, &server, "create_issue").await;
    until("the server is told", async || server.cancelled() == 1).await;
    let answer = call(&session, "create_issue", json!({"title": "x"})).await;
    assert_eq!((&failure(&answer)["mayHaveExecuted"], server.calls("create_issue")), (&json!(true), 1), "{answer}");
}
