//! Servers in processes of their own that are killed and come back at the same address; on a WebSocket as in S3.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpSocket;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::kit::process::SEAWALL;
use crate::kit::{Entry, Gateway, Legacy, text, until, within};
use crate::{AT_ONCE, ONCE, failed};

/// A place that nobody else takes while no server listens there: bound, but not listening.
fn place() -> (TcpSocket, String) {
    let kept = TcpSocket::new_v4().unwrap();
    kept.set_reuseaddr(true).unwrap();
    kept.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = kept.local_addr().unwrap().to_string();
    (kept, address)
}

/// Starts the fixture on one of its faces, once it listens.
async fn started(face: &str, address: &str) -> Child {
    let program = Path::new(SEAWALL).with_file_name("seawall-fixture");
    assert!(program.exists(), "{} is missing: run `cargo build --workspace` first", program.display());
    let mut command = Command::new(program);
    command.args([face, address]).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    within(20, "the server listens", lines.next_line()).await.unwrap().expect("it ended at once");
    child
}

async fn simple(client: &Legacy) -> Value {
    client.call("test_simple_text", json!({})).await
}

const SIMPLE: &str = "This is a simple text response for testing.";

#[tokio::test]
async fn t14_s3_pending_calls_fail_at_once_and_calls_made_meanwhile_wait_for_the_server() {
    let (_kept, address) = place();
    let mut server = started("--ws", &address).await;
    let policies = format!("{ONCE}[tools.\"a/slow\"]\neffect = \"write\"\n");
    let gateway = Gateway::serve_with(&policies, &[Entry::url("a", &format!("ws://{address}/ws"))]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let counters = async || client.call("counters", json!({})).await["result"]["structuredContent"]["calls"].clone();

    let pending = futures_util::future::join_all((0..3).map(|_| client.call("slow", json!({"ms": 60_000}))));
    let killing = async {
        until(10, "three calls are under way", async || counters().await == 3).await;
        server.start_kill().unwrap();
        Instant::now()
    };
    let (answers, killed) = tokio::join!(pending, killing);
    assert!(killed.elapsed() < AT_ONCE, "at once, not after {:?}", killed.elapsed());
    for answer in &answers {
        let failure = failed(answer);
        assert_eq!((&failure["code"], &failure["retryable"]), (&json!("CONNECTION_LOST"), &json!(true)), "{answer}");
        assert_eq!(failure["mayHaveExecuted"], true);
    }
    server.wait().await.unwrap();

    // It is away for three tries: 500 ms, 1 s, 2 s, give or take.
    let waiting = futures_util::future::join_all((0..3).map(|_| simple(&client)));
    let revive = async {
        until(10, "the third try is ahead", async || gateway.said("attempt 3 in ")).await;
        started("--ws", &address).await
    };
    let (answers, _server) = tokio::join!(waiting, revive);
    assert!(answers.iter().all(|answer| text(answer) == SIMPLE), "{answers:?}");
    let delays: Vec<u64> = (1..=3).map(|attempt| delay(&gateway, attempt)).collect();
    for (delay, nominal) in delays.iter().zip([500, 1_000, 2_000]) {
        assert!(delay * 10 >= nominal * 8 && delay * 10 <= nominal * 12, "{delays:?}");
    }
    // The same session goes on, and nothing was sent twice: the new server saw these three.
    assert_eq!(counters().await, 3);
    gateway.stop().await;
}

/// The delay before a try, as the log tells it.
fn delay(gateway: &Gateway, attempt: u32) -> u64 {
    let log = gateway.log.lock().unwrap();
    let told = format!("attempt {attempt} in ");
    let line = log.iter().find_map(|line| line.split(&told).nth(1)).unwrap_or_else(|| panic!("{log:?}"));
    line.trim_end_matches(" ms").parse().unwrap()
}

/// What a client sees of a server that is killed ten times.
async fn killed_ten_times(face: &'static str, scheme: &str, path: &str) {
    let (_kept, place) = place();
    let mut server = started(face, &place).await;
    // No copy stands in where the server takes a moment longer to come back.
    let settings = "[reconnect]\nbase = \"20ms\"\nmax = \"100ms\"\n[defaults]\nfallback = []\n";
    let gateway = Gateway::serve_with(settings, &[Entry::url("a", &format!("{scheme}://{place}{path}"))]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let tools = client.request("tools/list", json!({})).await["result"]["tools"].to_string();
    for _ in 0..10 {
        server.kill().await.unwrap();
        let answer;
        (answer, server) = tokio::join!(simple(&client), started(face, &place));
        // Either it was noticed that the server is gone, and the call waited; or the call was the one that noticed.
        if answer["result"]["isError"] == true {
            assert_eq!(failed(&answer)["code"], "CONNECTION_LOST", "{answer}");
            assert_eq!(text(&simple(&client).await), SIMPLE);
        } else {
            assert_eq!(text(&answer), SIMPLE);
        }
        assert_eq!(client.request("tools/list", json!({})).await["result"]["tools"].to_string(), tools);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_server_on_a_websocket_that_is_killed_ten_times_serves_one_session() {
    killed_ten_times("--ws", "ws", "/ws").await;
}

#[tokio::test]
async fn a_server_on_http_that_is_killed_ten_times_serves_one_session() {
    killed_ten_times("--listen", "http", "/mcp").await;
}

#[tokio::test]
async fn a_server_on_sse_that_is_killed_ten_times_serves_one_session() {
    killed_ten_times("--sse", "http", "/sse").await;
}

#[tokio::test]
async fn r35_calls_to_a_server_on_http_that_refuses_connections_wait_for_it() {
    let (_kept, address) = place();
    let mut server = started("--listen", &address).await;
    let gateway = Gateway::serve_with(ONCE, &[Entry::url("a", &format!("http://{address}/mcp"))]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    assert_eq!(text(&simple(&client).await), SIMPLE);
    server.kill().await.unwrap();
    // Who finds out waits, and so do the calls after it; only what went into a connection that was just dying is told.
    let find_out = async || loop {
        let answer = simple(&client).await;
        if answer["result"]["isError"] != true || failed(&answer)["mayHaveExecuted"] == false {
            return answer;
        }
    };
    let waiting = futures_util::future::join_all((0..3).map(|_| find_out()));
    let revive = async {
        until(10, "the second try is ahead", async || gateway.said("attempt 2 in ")).await;
        started("--listen", &address).await
    };
    let (answers, _server) = tokio::join!(waiting, revive);
    assert!(answers.iter().all(|answer| text(answer) == SIMPLE), "{answers:?}");
    gateway.stop().await;
}
