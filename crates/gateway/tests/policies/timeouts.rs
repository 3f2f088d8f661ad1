//! Deadlines: how long a call may take, and what becomes of the rest of it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::kit::until;
use super::server::{End, Faulty, call, failure, text};

const TIERS: &str = "[timeouts]\nquick = \"400ms\"\nheavy = \"900ms\"\nheavy_tools = [\"cypher\"]\n[defaults]\nretry = { attempts = 1 }\n";

#[tokio::test]
async fn each_tool_has_the_limit_of_its_tier_and_the_server_hears_that_it_is_over() {
    let server = Faulty::start(|_, _, _| End::Hang).await;
    let served = server.served(TIERS).await;
    let session = served.session("/mcp/gh").await;
    // That it is over no later is told below: a machine that is held up adds to it.
    for (number, (tool, limit)) in [("get_issue", 400), ("cypher", 900)].into_iter().enumerate() {
        let started = Instant::now();
        let answer = call(&session, tool, json!({})).await;
        let took = started.elapsed();
        assert_eq!(failure(&answer)["code"], "TIMEOUT", "{answer}");
        assert!(took >= Duration::from_millis(limit), "{tool}: {took:?}");
        until("the server is told", async || {
            server.cancelled() == u32::try_from(number).unwrap() + 1
        })
        .await;
    }
}

#[tokio::test]
async fn a_late_reply_changes_nothing() {
    let go = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&go);
    let server = Faulty::start(move |_, count, _| match count {
        1 => End::Held(Arc::clone(&held), "late"),
        _ => End::Text("in time"),
    })
    .await;
    let served = server.served(&TIERS.replace("400ms", "3s")).await;
    let session = served.session("/mcp/gh").await;
    assert_eq!(failure(&call(&session, "get_issue", json!({})).await)["code"], "TIMEOUT");
    go.add_permits(1);
    until("the late reply is sent", async || server.finished() == 1).await;
    let answer = call(&session, "get_issue", json!({})).await;
    assert_eq!((text(&answer), server.calls("get_issue")), ("in time", 2));
    assert!(answer["result"].get("_meta").is_none(), "{answer}");
}

#[tokio::test]
async fn gitnexuss_text_names_the_limit_of_the_tools_own_tier() {
    let server = Faulty::start(|_, _, _| End::Hang).await;
    let served = server.served(&format!("preset = \"gitnexus\"\n{TIERS}")).await;
    let session = served.session("/mcp/gh").await;
    for (tool, limit) in [("get_issue", "0.4s"), ("cypher", "0.9s")] {
        let answer = call(&session, tool, json!({})).await;
        let object: serde_json::Value = serde_json::from_str(text(&answer)).unwrap();
        assert_eq!((&object["code"], &object["retryable"]), (&json!("TIMEOUT"), &json!(true)));
        assert_eq!(
            object["message"],
            format!("Tool '{tool}' exceeded timeout of {limit}"),
            "{object}"
        );
    }
}

#[tokio::test]
async fn one_hanging_attempt_leaves_time_for_the_next_where_attempts_have_a_limit() {
    let server =
        Faulty::start(|_, count, _| if count == 1 { End::Hang } else { End::Text("second") }).await;
    let policy = "[defaults]\nattempt_timeout = \"3s\"\nretry = { base = \"20ms\" }\n";
    let served = server.served(policy).await;
    let session = served.session("/mcp/gh").await;
    assert_eq!(text(&call(&session, "get_issue", json!({})).await), "second");
}

#[tokio::test]
async fn a_write_that_only_waited_for_its_server_was_certainly_not_executed() {
    let gone = "[timeouts]\nquick = \"900ms\"\n[servers.gone]\nurl = \"http://127.0.0.1:9/mcp\"\ntype = \"http\"\n";
    let served = super::kit::Served::with(gone).await;
    let session = served.session("/mcp/gone").await;
    for _ in 0..3 {
        let answer = call(&session, "create_issue", json!({})).await;
        assert_eq!(failure(&answer)["mayHaveExecuted"], false, "{answer}");
    }
}
