//! Faults that the configuration adds to the calls of a server, `[servers.x.chaos]`: they take the
//! way of every other failure, and nothing false is told of them.

use std::sync::Arc;

use seawall::Rng;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::kit::{Served, until};
use super::server::{End, Faulty, call, failure, text};

/// A gateway before a server that is well, whose calls meet these faults.
async fn served(server: &Faulty, chaos: &str, more: &str) -> Served {
    let policies =
        "[defaults]\nretry = { attempts = 3, base = \"10ms\" }\nloop = { mode = \"off\" }\n";
    server.served(&format!("{policies}{more}[servers.gh.chaos]\n{chaos}\n")).await
}

async fn well() -> Faulty {
    Faulty::start(|_, _, _| End::Text("there")).await
}

#[tokio::test]
async fn an_added_error_is_retried_and_counted_as_the_servers_own() {
    let server = well().await;
    let served =
        served(&server, "error_rate = 0.5\nseed = 7", "breaker = { failures = 0 }\n").await;
    let session = served.session("/mcp/gh").await;
    let mut good = 0;
    for id in 0..20 {
        good +=
            usize::from(text(&call(&session, "get_issue", json!({ "id": id })).await) == "there");
    }
    // Half of the attempts fail, and each call has three.
    assert!((14..20).contains(&good), "{good}");
    assert_eq!(server.calls("get_issue"), good, "what is struck is not sent");
}

#[tokio::test]
async fn the_same_seed_strikes_the_same_calls() {
    let server = well().await;
    let mut ends: Vec<Vec<bool>> = Vec::new();
    for seed in [7, 7, 8] {
        let retry = "breaker = { failures = 0 }\n[tools.\"gh/*\"]\nretry = { attempts = 1 }\nfallback = []\n";
        let served = served(&server, &format!("error_rate = 0.5\nseed = {seed}"), retry).await;
        let session = served.session("/mcp/gh").await;
        let mut played = Vec::new();
        for id in 0..30 {
            played.push(text(&call(&session, "get_issue", json!({ "id": id })).await) == "there");
        }
        ends.push(played);
    }
    assert_eq!(ends[0], ends[1]);
    assert_ne!(ends[0], ends[2]);
}

#[tokio::test]
async fn added_errors_open_the_breaker() {
    let server = well().await;
    let breaker = "fallback = []\nbreaker = { failures = 3, cooldown = \"60s\" }\n";
    let served = served(&server, "error_rate = 1.0", breaker).await;
    let session = served.session("/mcp/gh").await;
    let mut last = Value::Null;
    for id in 0..3 {
        last = call(&session, "get_issue", json!({ "id": id })).await;
    }
    assert_eq!((&failure(&last)["code"], server.calls("get_issue")), (&json!("CIRCUIT_OPEN"), 0));
}

/// A call that was struck was not sent. It is told as one that may have been executed, or as one
/// that was not: both are true. One that was sent is never told as not executed.
#[tokio::test]
async fn a_write_is_never_told_as_not_executed_if_it_was() {
    let server = well().await;
    for chaos in ["error_rate = 0.4", "crash_rate = 0.4", "hang_rate = 0.4"] {
        let before = server.calls("create_issue");
        let more = "timeout = \"300ms\"\nbreaker = { failures = 0 }\n[tools.\"gh/create_issue\"]\nuncertain_write_hold = \"0s\"\n[reconnect]\nbase = \"10ms\"\n";
        let served = served(&server, chaos, more).await;
        let session = served.session("/mcp/gh").await;
        let (mut done, mut failed) = (0, 0);
        for id in 0..20 {
            let answer =
                call(&session, "create_issue", json!({ "title": format!("{chaos} {id}") })).await;
            match text(&answer) {
                "there" => done += 1,
                _ => failed += 1,
            }
        }
        let executed = server.calls("create_issue") - before;
        assert_eq!(
            executed, done,
            "{chaos}: what failed was never sent, what was sent was answered"
        );
        assert!(failed > 2 && done > 2, "{chaos}: {failed} failed, {done} done");
    }
}

/// A crash is one for all calls of its connection: what was sent may have been executed, and is
/// told as that.
#[tokio::test]
async fn a_write_in_flight_when_a_crash_strikes_another_call_is_told_as_perhaps_executed() {
    let go = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&go);
    let server = Faulty::start(move |tool, _, _| match tool {
        "create_issue" => End::Held(Arc::clone(&held), "done"),
        _ => End::Text("there"),
    })
    .await;
    let is_wanted = |seed: &u64| {
        let rng = Rng::seeded(*seed);
        rng.unit() >= 0.5 && rng.unit() < 0.5
    };
    let seed = (0..).find(is_wanted).unwrap();
    let effect = "[tools.\"gh/create_issue\"]\neffect = \"write\"\n";
    let served = served(&server, &format!("crash_rate = 0.5\nseed = {seed}"), effect).await;
    let session = served.session("/mcp/gh").await;
    let other = async {
        until("the write is under way", async || server.calls("create_issue") == 1).await;
        session.ask(8, "tools/call", json!({"name": "get_issue", "arguments": {}})).await
    };
    let (write, _) = tokio::join!(call(&session, "create_issue", json!({"title": "x"})), other);
    go.add_permits(9);
    assert_eq!(failure(&write)["mayHaveExecuted"], true, "{write}");
    assert_eq!(server.calls("create_issue"), 1, "it is not made twice");
}

#[tokio::test]
async fn a_crash_ends_the_process_and_the_server_comes_back() {
    let program = super::kit::program("seawall-fixture");
    let served = Served::with(&format!(
        "[defaults]\nretry = {{ attempts = 4, base = \"10ms\" }}\n[reconnect]\nbase = \"10ms\"\n\
         [servers.it]\ncommand = {program:?}\nargs = [\"--stdio\", \"--era\", \"legacy\"]\nchaos = {{ crash_rate = 0.3, seed = 3 }}\n\
         [tools.\"it/echo\"]\neffect = \"read_only\"\nbreaker = {{ failures = 0 }}\n"
    ))
    .await;
    let session = served.session("/mcp/it").await;
    for id in 0..12 {
        let said = format!("echo {id}");
        let answer = session
            .ask(id + 1, "tools/call", json!({"name": "echo", "arguments": {"text": said}}))
            .await;
        assert!(
            answer["result"]["isError"] != true,
            "a read is tried again on the next process: {answer}"
        );
    }
}

#[tokio::test]
async fn latency_comes_before_each_call_and_lists_are_left_alone() {
    let server = well().await;
    let served = served(&server, "latency = \"200ms\"", "").await;
    let session = served.session("/mcp/gh").await;
    let begun = tokio::time::Instant::now();
    session.ask(1, "tools/list", json!({})).await;
    assert_eq!(text(&call(&session, "get_issue", json!({})).await), "there");
    assert!(begun.elapsed().as_millis() >= 200);
}

#[tokio::test]
async fn it_is_told_loudly_at_the_start_and_to_operators() {
    let server = well().await;
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n";
    let served = served(&server, "error_rate = 1.0\nlatency = \"5ms\"", admin).await;
    let told = "faults are added to its calls on purpose: calls are sent 5ms late, 100 % answered 503; remove it where agents work";
    let log = || served.log.lock().unwrap().join("\n");
    until("it is logged", async || log().contains(told)).await;
    let admin = log()
        .split("admin at http://")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .to_owned();
    let session = served.session("/mcp/gh").await;
    call(&session, "get_issue", json!({})).await;

    let seawall = async |args: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
        let output = command.args(args).args(["--admin", &admin]).output().await.unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let status = seawall(&["status"]).await;
    let row =
        "chaos     faults are added on purpose; gh: calls are sent 5ms late, 100 % answered 503\n";
    assert!(status.contains(row), "{status}");
    let servers: Value = serde_json::from_str(&seawall(&["servers", "--json"]).await).unwrap();
    let struck = servers["servers"]["gh"]["chaos"]["struck"]["error"].as_u64();
    assert_eq!(struck, Some(3), "each attempt: {servers}");
}
