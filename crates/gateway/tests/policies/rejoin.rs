//! The identical call made again: by a client that cancelled, was cut off, timed out in silence, or
//! came back.

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
    let body =
        json!({"jsonrpc": "2.0", "id": 50, "method": "tools/call", "params": params}).to_string();
    let left = async {
        until("the call runs", async || server.calls(tool) > before).await;
        session
            .tell("notifications/cancelled", json!({"requestId": 50, "reason": "too slow"}))
            .await;
    };
    let (response, ()) = tokio::join!(session.raw(&body), left);
    assert_eq!(response.status(), 202, "nobody waits for an answer");
}

fn rejoined(answer: &Value) -> bool {
    answer["result"]["_meta"]["seawall/served"]["by"] == "rejoined"
}

/// The tool's own text, behind the word that it is an earlier call's.
fn own_text(answer: &Value) -> &str {
    assert!(
        text(answer).starts_with("This is the answer of the identical call made before."),
        "{answer}"
    );
    answer["result"]["content"][1]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test]
async fn the_answer_to_a_call_that_was_given_up_goes_to_the_same_call_made_again_and_it_runs_once()
{
    for mode in ["cancel", "finish"] {
        let go = Arc::new(Semaphore::new(0));
        let held = Arc::clone(&go);
        let server = Faulty::start(move |_, count, _| match count {
            1 => End::Held(Arc::clone(&held), "made 1"),
            _ => End::Text("made again"),
        })
        .await;
        let served =
            server.served(&format!("[tools.\"gh/create_issue\"]\non_abandon = \"{mode}\"\n")).await;
        let session = served.session("/mcp/gh").await;
        give_up(&session, &server, "create_issue").await;
        // Made again while the first still runs: it waits for that one.
        let over = async {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            go.add_permits(1);
        };
        let (answer, ()) = soon(async {
            tokio::join!(call(&session, "create_issue", json!({"title": "x"})), over)
        })
        .await;
        assert!(rejoined(&answer), "{mode}: {answer}");
        assert_eq!((own_text(&answer), server.calls("create_issue")), ("made 1", 1), "{mode}");
        assert_eq!(server.cancelled(), u32::from(mode == "cancel"), "{mode}");
        // It was given: after a moment the next identical call is a new one.
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        let answer = call(&session, "create_issue", json!({"title": "x"})).await;
        assert_eq!((text(&answer), rejoined(&answer)), ("made again", false), "{mode}");
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
        assert_eq!((text(&answer), rejoined(&answer)), ("own", false));
    }
    go.add_permits(1);
    let answer = call(&one, "create_issue", json!({"title": "x"})).await;
    assert_eq!((own_text(&answer), rejoined(&answer)), ("made 1", true));
}

#[tokio::test]
async fn a_call_that_takes_longer_than_its_client_waits_is_answered_before_and_handed_over_when_it_is_made_again()
 {
    let go = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&go);
    let server = Faulty::start(move |_, _, _| End::Held(Arc::clone(&held), "done at last")).await;
    let served = server.served("[tools.\"gh/create_issue\"]\nclient_timeout = \"1s\"\n").await;
    let session = served.session("/mcp/gh").await;
    let answer = call(&session, "create_issue", json!({})).await;
    let told = "create_issue is still running on gh. Its result is kept: the identical call, made again, waits for it and does not execute it a second time.";
    assert_eq!((text(&answer), &failure(&answer)["code"]), (told, &json!("TIMEOUT")));
    go.add_permits(1);
    let answer = call(&session, "create_issue", json!({})).await;
    assert_eq!(
        (own_text(&answer), rejoined(&answer), server.calls("create_issue")),
        ("done at last", true, 1),
        "{answer}"
    );
}

#[tokio::test]
async fn a_client_that_gives_up_twice_after_the_same_time_is_answered_before_it_does_so_again() {
    let server = Faulty::start(|tool, count, _| match (tool, count) {
        ("get_issue", 1) => End::Text("a copy"),
        _ => End::Hang,
    })
    .await;
    let served = server.served("").await;
    let session = served.session("/mcp/gh").await;
    call(&session, "get_issue", json!({"n": 1})).await;
    for id in [91, 92] {
        let params = json!({"name": "list_issues", "arguments": {"n": id}});
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
            .to_string();
        let given_up = async {
            tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
            session.tell("notifications/cancelled", json!({"requestId": id})).await;
        };
        tokio::join!(session.raw(&body), given_up);
    }
    // It waits for 1.5 s, and has its answer before: that the call runs on, or a copy if there is
    // one.
    let answer = call(&session, "create_issue", json!({})).await;
    assert!(text(&answer).starts_with("create_issue is still running on gh."), "{answer}");
    assert_eq!(server.cancelled(), 2, "what runs on is not called off");
    let answer = call(&session, "get_issue", json!({"n": 1})).await;
    let served_by = &answer["result"]["_meta"]["seawall/served"]["by"];
    assert_eq!(
        (&answer["result"]["content"][1]["text"], served_by),
        (&json!("a copy"), &json!("cached")),
        "{answer}"
    );
    let other = served.session("/mcp/gh").await;
    let patient = tokio::time::timeout(
        std::time::Duration::from_secs(3),
        call(&other, "create_issue", json!({"n": 2})),
    );
    assert!(patient.await.is_err(), "another client is waited for");
}

#[tokio::test]
async fn that_a_call_still_runs_is_told_in_the_form_of_all_failures() {
    let server = Faulty::start(|_, _, _| End::Hang).await;
    let policies =
        "[tools.\"gh/create_issue\"]\nclient_timeout = \"1s\"\n[messages]\nformat = \"json\"\n";
    let served = server.served(policies).await;
    let session = served.session("/mcp/gh").await;
    let answer = call(&session, "create_issue", json!({})).await;
    let object: Value = serde_json::from_str(text(&answer)).expect("the error object");
    assert_eq!(
        (&object["code"], &object["retryAfter"]),
        (&json!("TIMEOUT"), &json!(1)),
        "{answer}"
    );
    assert_eq!(answer["result"]["structuredContent"], *failure(&answer), "{answer}");
}

#[tokio::test]
async fn a_call_that_still_runs_when_it_is_made_again_is_not_executed_again() {
    let go = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&go);
    let server = Faulty::start(move |_, _, _| End::Held(Arc::clone(&held), "done at last")).await;
    let served = server.served("[tools.\"gh/create_issue\"]\nclient_timeout = \"1s\"\n").await;
    let session = served.session("/mcp/gh").await;
    let mut told = 0;
    let answer = loop {
        let answer = call(&session, "create_issue", json!({})).await;
        if rejoined(&answer) {
            break answer;
        }
        assert!(text(&answer).starts_with("create_issue is still running on gh."), "{answer}");
        told += 1;
        go.add_permits(usize::from(told == 2));
    };
    assert_eq!(told, 2, "the third call is handed the answer");
    assert_eq!((own_text(&answer), server.calls("create_issue")), ("done at last", 1), "{answer}");
}

#[tokio::test]
async fn calls_that_differ_in_numbers_too_large_to_read_are_different_calls() {
    let server =
        Faulty::start(
            |_, count, _| if count == 1 { End::After(600, "made 1") } else { End::Text("own") },
        )
        .await;
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
    assert!(answer.contains("own") && !answer.contains("rejoined"), "{answer}");
}

#[tokio::test]
async fn where_nothing_is_kept_the_server_is_told_and_the_same_write_is_in_doubt() {
    let server = Faulty::start(|_, _, _| End::Hang).await;
    let served = server.served("[tools.\"gh/create_issue\"]\non_abandon = \"forget\"\n").await;
    let session = served.session("/mcp/gh").await;
    give_up(&session, &server, "create_issue").await;
    until("the server is told", async || server.cancelled() == 1).await;
    let answer = call(&session, "create_issue", json!({"title": "x"})).await;
    assert_eq!(
        (&failure(&answer)["mayHaveExecuted"], server.calls("create_issue")),
        (&json!(true), 1),
        "{answer}"
    );
}

/// The same write again and again, each from a POST of its own under an id of its own.
async fn write(session: &Session<'_>, id: i64) -> Value {
    session
        .ask(id, "tools/call", json!({"name": "create_issue", "arguments": {"title": "x"}}))
        .await
}

/// A server whose first write is held until it is let go; later ones are made at once.
async fn holding() -> (Faulty, Arc<Semaphore>) {
    let go = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&go);
    let server = Faulty::start(move |_, count, _| match count {
        1 => End::Held(Arc::clone(&held), "made 1"),
        _ => End::Text("made again"),
    })
    .await;
    (server, go)
}

async fn runs(server: &Faulty) {
    until("the call runs", async || server.calls("create_issue") == 1).await;
}

#[tokio::test]
async fn a_client_that_times_out_in_silence_and_asks_again_executes_its_write_once() {
    for policy in ["", "on_abandon = \"finish\"\n"] {
        let (server, go) = holding().await;
        let served = server
            .served(&format!("[tools.\"gh/create_issue\"]\nrejoin_after = \"200ms\"\n{policy}"))
            .await;
        let session = served.session("/mcp/gh").await;
        // The first goes on: its client says nothing, keeps the connection, and asks three times
        // more.
        let again = async {
            runs(&server).await;
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            let three =
                async { tokio::join!(write(&session, 2), write(&session, 3), write(&session, 4)) };
            let let_go = async {
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
                go.add_permits(1);
            };
            let ((one, two, three), ()) = tokio::join!(three, let_go);
            [one, two, three]
        };
        let (first, again) = soon(async { tokio::join!(write(&session, 1), again) }).await;
        assert_eq!((text(&first), rejoined(&first)), ("made 1", false), "{policy}");
        for answer in again {
            assert_eq!((own_text(&answer), rejoined(&answer)), ("made 1", true), "{policy}");
        }
        assert_eq!(server.calls("create_issue"), 1, "{policy}");
    }
}

#[tokio::test]
async fn a_wrapper_executes_a_write_once_that_its_client_repeats_in_silence() {
    let (server, go) = holding().await;
    let folder = tempfile::TempDir::new().unwrap();
    let config = folder.path().join("seawall.toml");
    std::fs::write(&config, server.config("[defaults]\nrejoin_after = \"200ms\"\n", "")).unwrap();
    let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
    process.args(["serve", "--stdio", "--no-catalog-cache", "--config"]).arg(&config);
    let mut client = super::kit::Wrapped::start(process);
    client.initialize(json!({})).await;
    client.ask(1, "tools/list", json!({})).await;
    let body = |id: u32| {
        let params = json!({"name": "create_issue", "arguments": {"title": "x"}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
    };
    client.send(&body(2)).await;
    runs(&server).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    client.send(&body(3)).await;
    client.send(&body(4)).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    go.add_permits(1);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let answer = client.message().await;
        seen.push((answer["id"].as_i64().unwrap(), rejoined(&answer)));
    }
    seen.sort_unstable();
    assert_eq!((seen, server.calls("create_issue")), (vec![(2, false), (3, true), (4, true)], 1));
}

#[tokio::test]
async fn a_write_whose_connection_was_cut_is_joined_by_the_same_session_at_once() {
    let (server, go) = holding().await;
    let served = server.served("").await;
    let session = served.session("/mcp/gh").await;
    tokio::select! {
        answer = write(&session, 1) => panic!("{answer}"),
        () = runs(&server) => {}
    }
    // The server takes longer than it may take until the gateway has noticed: who came before that
    // waits for its turn and looks again.
    let let_go = async {
        tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
        go.add_permits(1);
    };
    let (one, two, ()) =
        soon(async { tokio::join!(write(&session, 2), write(&session, 3), let_go) }).await;
    assert_eq!(
        (own_text(&one), own_text(&two), server.calls("create_issue")),
        ("made 1", "made 1", 1)
    );
}

#[tokio::test]
async fn an_answer_that_came_when_its_client_was_cut_off_goes_to_all_who_ask_again_at_once() {
    let (server, go) = holding().await;
    let served = server.served("").await;
    let session = served.session("/mcp/gh").await;
    tokio::select! {
        answer = write(&session, 1) => panic!("{answer}"),
        () = runs(&server) => {}
    }
    go.add_permits(1);
    until("it is made", async || server.finished() > 0).await;
    let (one, two, three) =
        soon(async { tokio::join!(write(&session, 2), write(&session, 3), write(&session, 4)) })
            .await;
    for answer in [one, two, three] {
        assert_eq!(own_text(&answer), "made 1");
    }
    assert_eq!(server.calls("create_issue"), 1);
}

#[tokio::test]
async fn two_identical_writes_of_one_turn_are_two_and_run_one_after_the_other() {
    let server = Faulty::start(|_, _, _| End::After(300, "made")).await;
    let served = server.served("").await;
    let session = served.session("/mcp/gh").await;
    call(&session, "get_issue", json!({})).await;
    let start = tokio::time::Instant::now();
    let (one, two) = soon(async { tokio::join!(write(&session, 1), write(&session, 2)) }).await;
    assert_eq!((rejoined(&one), rejoined(&two), server.calls("create_issue")), (false, false, 2));
    assert!(start.elapsed() >= std::time::Duration::from_millis(600), "they never run at once");
}

#[tokio::test]
async fn a_client_with_an_identity_finds_in_its_next_session_what_it_left_in_the_last() {
    let (server, go) = holding().await;
    let served = server.served("").await;
    let mine = served.session_as("/mcp/gh", Some("Bearer mine")).await;
    tokio::select! {
        answer = write(&mine, 1) => panic!("{answer}"),
        () = runs(&server) => {}
    }
    let theirs = served.session_as("/mcp/gh", Some("Bearer theirs")).await;
    let answer = soon(write(&theirs, 1)).await;
    assert_eq!((text(&answer), rejoined(&answer)), ("made again", false), "somebody else's");
    go.add_permits(1);
    let again = served.session_as("/mcp/gh", Some("Bearer mine")).await;
    let answer = soon(write(&again, 1)).await;
    assert_eq!((own_text(&answer), rejoined(&answer)), ("made 1", true));
}

#[tokio::test]
async fn a_service_that_speaks_for_many_can_narrow_it_or_switch_it_off() {
    for (rejoin, executions) in [("caller", 1), ("session", 2), ("off", 2)] {
        let server = Faulty::start(|_, _, _| End::After(700, "made")).await;
        let policy = format!("[defaults]\nrejoin = \"{rejoin}\"\nrejoin_after = \"100ms\"\n");
        let served = server.served(&policy).await;
        let one = served.session_as("/mcp/gh", Some("Bearer service")).await;
        let two = served.session_as("/mcp/gh", Some("Bearer service")).await;
        call(&one, "get_issue", json!({})).await;
        let later = async {
            runs(&server).await;
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            write(&two, 1).await
        };
        soon(async { tokio::join!(write(&one, 1), later) }).await;
        assert_eq!(server.calls("create_issue"), executions, "{rejoin}");
    }
}

#[tokio::test]
async fn a_modern_client_that_left_gets_no_word_about_a_cancellation_as_the_answer_to_its_next_call()
 {
    let server =
        Faulty::start(|_, count, _| if count <= 2 { End::Hang } else { End::Text("made again") })
            .await;
    let served = server.served("").await;
    served.modern("/mcp/gh", "tools/list", json!({})).await;
    for authorization in [None, Some("Bearer mine")] {
        let title = authorization.unwrap_or("nobody");
        let write = || {
            served.modern_as(
                "/mcp/gh",
                "tools/call",
                json!({"name": "create_issue", "arguments": {"title": title}}),
                authorization,
            )
        };
        let before = server.calls("create_issue");
        tokio::select! {
            answer = write() => assert!(before > 0, "{answer:?}"),
            () = until("it runs", async || server.calls("create_issue") > before) => {}
        }
        let (_, answer) = soon(write()).await;
        let code = failure(&answer)["code"].as_str().unwrap_or_default().to_owned();
        // One that is known waits for the answer of the first, a little; nobody else may have that.
        let expected = if authorization.is_some() { "TIMEOUT" } else { "WRITE_UNCERTAIN" };
        assert_eq!(
            (code.as_str(), &failure(&answer)["mayHaveExecuted"]),
            (expected, &json!(true)),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn a_look_counts_in_every_session_of_a_known_client_unless_it_speaks_for_many() {
    for (rejoin, is_lifted) in [("caller", true), ("session", false)] {
        let server = Faulty::start(|tool, count, _| match (tool, count) {
            ("create_issue", 1) => End::Reset,
            _ => End::Text("fine"),
        })
        .await;
        let served = server.served(&format!("[defaults]\nrejoin = \"{rejoin}\"\n")).await;
        let one = served.session_as("/mcp/gh", Some("Bearer mine")).await;
        one.ask(1, "tools/list", json!({})).await;
        assert_eq!(failure(&write(&one, 2).await)["mayHaveExecuted"], true);
        assert_eq!(failure(&write(&one, 3).await)["code"], "WRITE_UNCERTAIN");
        let two = served.session_as("/mcp/gh", Some("Bearer mine")).await;
        assert_eq!(text(&call(&two, "list_issues", json!({})).await), "fine");
        let again = write(&one, 4).await;
        assert_eq!(text(&again) == "fine", is_lifted, "{rejoin}: {again}");
    }
}
