//! Servers in processes of their own that are killed and come back at the same address.

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::kit::process::SEAWALL;
use crate::kit::upstream::{honest, write};
use crate::kit::{Asked, Entry, Gateway, Legacy, Upstream, text, until, within};
use crate::{AT_ONCE, Ledger, ONCE, failed};

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
    assert!(
        program.exists(),
        "{} is missing: run `cargo build --workspace` first",
        program.display()
    );
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
async fn pending_calls_fail_at_once_and_calls_made_meanwhile_wait_for_the_server() {
    let (_kept, address) = place();
    let mut server = started("--ws", &address).await;
    let policies = format!("{ONCE}[tools.\"a/slow\"]\neffect = \"write\"\n");
    let gateway =
        Gateway::serve_with(&policies, &[Entry::url("a", &format!("ws://{address}/ws"))]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let counters = async || {
        client.call("counters", json!({})).await["result"]["structuredContent"]["calls"].clone()
    };

    let pending = futures_util::future::join_all(
        (0..3).map(|n| client.call("slow", json!({"ms": 60_000, "n": n}))),
    );
    let killing = async {
        until(10, "three calls are under way", async || counters().await == 3).await;
        server.start_kill().unwrap();
        Instant::now()
    };
    let (answers, killed) = tokio::join!(pending, killing);
    assert!(killed.elapsed() < AT_ONCE, "at once, not after {:?}", killed.elapsed());
    for answer in &answers {
        let failure = failed(answer);
        assert_eq!(
            (&failure["code"], &failure["retryable"]),
            (&json!("CONNECTION_LOST"), &json!(true)),
            "{answer}"
        );
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

#[tokio::test]
async fn gitnexuss_agents_are_told_at_once_that_the_connection_is_lost_and_a_retry_is_let_through()
{
    let (_kept, address) = place();
    let mut server = started("--ws", &address).await;
    let settings = "preset = \"gitnexus\"\n[reconnect]\nbase = \"2s\"\n";
    let gateway =
        Gateway::serve_with(settings, &[Entry::url("a", &format!("ws://{address}/ws"))]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    assert_eq!(text(&simple(&client).await), SIMPLE);
    server.kill().await.unwrap();
    until(10, "it is missed", async || gateway.said("attempt 1 in ")).await;
    // More than would open the breaker: nothing was sent, so nobody failed.
    for _ in 0..7 {
        let asked = Instant::now();
        let answer = simple(&client).await;
        assert!(
            asked.elapsed() < Duration::from_secs(2),
            "at once, not after {:?}",
            asked.elapsed()
        );
        let failure = failed(&answer);
        assert_eq!(
            (&failure["code"], &failure["retryable"]),
            (&json!("CONNECTION_LOST"), &json!(true)),
            "{answer}"
        );
        assert!(failure["retryAfter"].as_u64() >= Some(1), "{answer}");
        assert_eq!(failure["mayHaveExecuted"], false, "{answer}");
        let told: Value = serde_json::from_str(text(&answer)).unwrap();
        assert!(told["message"].as_str().unwrap().starts_with("Connection lost: "), "{told}");
        assert!(
            told["suggestion"].as_str().unwrap().starts_with("Ensure GitNexus is running"),
            "{told}"
        );
    }
    let mut server = started("--ws", &address).await;
    until(30, "a retry works", async || simple(&client).await["result"]["isError"] != true).await;
    gateway.stop().await;

    // What the file says is nearer than the preset.
    let settings = "preset = \"gitnexus\"\n[reconnect]\nwait = \"30s\"\n";
    let gateway =
        Gateway::serve_with(settings, &[Entry::url("a", &format!("ws://{address}/ws"))]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    assert_eq!(text(&simple(&client).await), SIMPLE);
    server.kill().await.unwrap();
    until(10, "it is missed", async || gateway.said("attempt 1 in ")).await;
    let (answer, _server) = tokio::join!(simple(&client), started("--ws", &address));
    assert_eq!(text(&answer), SIMPLE, "it was waited for");
    gateway.stop().await;
}

/// The delay before a try, as the log tells it.
fn delay(gateway: &Gateway, attempt: u32) -> u64 {
    let log = gateway.log.lock().unwrap();
    let told = format!("attempt {attempt} in ");
    let line =
        log.iter().find_map(|line| line.split(&told).nth(1)).unwrap_or_else(|| panic!("{log:?}"));
    line.trim_end_matches(" ms").parse().unwrap()
}

/// What a client sees of a server that is killed ten times.
async fn killed_ten_times(face: &'static str, scheme: &str, path: &str) {
    let (_kept, place) = place();
    let mut server = started(face, &place).await;
    // No copy stands in where the server takes a moment longer to come back.
    let settings = "[reconnect]\nbase = \"20ms\"\nmax = \"100ms\"\n[defaults]\nfallback = []\n";
    let gateway =
        Gateway::serve_with(settings, &[Entry::url("a", &format!("{scheme}://{place}{path}"))])
            .await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let tools = client.request("tools/list", json!({})).await["result"]["tools"].to_string();
    for _ in 0..10 {
        server.kill().await.unwrap();
        let answer;
        (answer, server) = tokio::join!(simple(&client), started(face, &place));
        // Either it was noticed that the server is gone, and the call waited; or the call was the
        // one that noticed.
        if answer["result"]["isError"] == true {
            assert_eq!(failed(&answer)["code"], "CONNECTION_LOST", "{answer}");
            assert_eq!(text(&simple(&client).await), SIMPLE);
        } else {
            assert_eq!(text(&answer), SIMPLE);
        }
        assert_eq!(
            client.request("tools/list", json!({})).await["result"]["tools"].to_string(),
            tools
        );
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
async fn calls_to_a_server_on_http_that_refuses_connections_wait_for_it() {
    let (_kept, address) = place();
    let mut server = started("--listen", &address).await;
    let gateway =
        Gateway::serve_with(ONCE, &[Entry::url("a", &format!("http://{address}/mcp"))]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    assert_eq!(text(&simple(&client).await), SIMPLE);
    server.kill().await.unwrap();
    // Who finds out waits, and so do the calls after it; only what went into a connection that was
    // just dying is told.
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

#[tokio::test]
async fn a_server_that_is_back_is_used_within_seconds_while_clients_call_whatever_the_backoff_is() {
    let (_kept, address) = place();
    let mut server = started("--listen", &address).await;
    let settings = format!("{ONCE}[reconnect]\nbase = \"60s\"\nmax = \"60s\"\nwait = \"1s\"\n");
    let gateway =
        Gateway::serve_with(&settings, &[Entry::url("a", &format!("http://{address}/mcp"))]).await;
    let clients =
        futures_util::future::join_all((0..3).map(|_| Legacy::connect(&gateway, "/mcp/a"))).await;
    for client in &clients {
        assert_eq!(text(&simple(client).await), SIMPLE);
    }
    server.kill().await.unwrap();
    let gone = Instant::now();
    // The first notices; for all of them the next try that nobody asks for is a minute away.
    while gone.elapsed() < Duration::from_secs(6) {
        let answers = futures_util::future::join_all(clients.iter().map(simple)).await;
        assert!(answers.iter().all(|answer| answer["result"]["isError"] == true), "{answers:?}");
    }
    let _server = started("--listen", &address).await;
    let back = Instant::now();
    for client in &clients {
        until(5, "it is used", async || simple(client).await["result"]["isError"].is_null()).await;
    }
    assert!(back.elapsed() < Duration::from_secs(5), "{:?}", back.elapsed());
    gateway.stop().await;
}

#[tokio::test]
async fn calls_try_a_server_that_is_away_one_at_a_time_and_every_two_seconds_at_most() {
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = Arc::clone(&times);
    // It closes every connection without a word.
    let upstream = Upstream::start(move |asked: Asked, tcp: TcpStream| {
        let noted = Arc::clone(&noted);
        async move {
            if asked.is("initialize") {
                noted.lock().unwrap().push(Instant::now());
            }
            drop(tcp);
        }
    })
    .await;
    let settings = format!("{ONCE}[reconnect]\nbase = \"60s\"\nmax = \"60s\"\nwait = \"500ms\"\n");
    let entry = Entry::url("a", &upstream.url).with("type = \"http\"");
    let gateway = Gateway::serve_with(&settings, &[entry]).await;
    let clients =
        futures_util::future::join_all((0..4).map(|_| Legacy::connect(&gateway, "/mcp/a"))).await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(9) {
        futures_util::future::join_all(
            clients.iter().map(|client| client.call("echo", json!({"text": "x"}))),
        )
        .await;
    }
    let times = times.lock().unwrap().clone();
    let asked: Vec<_> = times.iter().filter(|at| **at > began).collect();
    assert!((2..=6).contains(&asked.len()), "{} tries in 9 s", asked.len());
    let pauses: Vec<_> = asked.windows(2).map(|pair| *pair[1] - *pair[0]).collect();
    assert!(pauses.iter().all(|pause| *pause >= Duration::from_millis(1900)), "{pauses:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn calls_start_a_process_that_cannot_start_every_five_seconds_at_most() {
    let ledger = Ledger::new();
    let ready = ledger.path.with_file_name("ready");
    let args = ["--tag", "$TAG", "--ledger", ledger.path(), "--needs", ready.to_str().unwrap()];
    let settings = format!("{ONCE}[reconnect]\nbase = \"60s\"\nmax = \"60s\"\nwait = \"500ms\"\n");
    let gateway = Gateway::serve_with(&settings, &[Entry::scripted("a", &args)]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    until(10, "it was started", async || ledger.count("start") > 0).await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(12) {
        client.call("echo", json!({"text": "x"})).await;
    }
    // Each try starts it once for each era.
    let starts = ledger.count("start");
    assert!((2..=8).contains(&starts), "{starts} starts in 12 s");
    std::fs::write(&ready, "").unwrap();
    let began = Instant::now();
    until(8, "it is used", async || {
        client.call("echo", json!({"text": "x"})).await["result"]["isError"].is_null()
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    gateway.stop().await;
}

#[tokio::test]
async fn a_remote_handshake_that_is_swallowed_ends_after_thirty_seconds() {
    let swallowed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&swallowed);
    let relay = Upstream::start(move |asked: Asked, mut tcp: TcpStream| {
        let count = Arc::clone(&count);
        async move {
            let is_first = asked.is("initialize") && count.fetch_add(1, Ordering::SeqCst) == 0;
            match is_first {
                true => std::future::pending().await,
                false => drop(write(&mut tcp, &honest(&asked)).await),
            }
        }
    })
    .await;
    let entry = Entry::url("a", &relay.url).with("type = \"http\"");
    let gateway = Gateway::serve_with(ONCE, &[entry]).await;
    let began = Instant::now();
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    until(40, "it works", async || {
        client.call("echo", json!({"text": "x"})).await["result"]["isError"].is_null()
    })
    .await;
    let took = began.elapsed();
    assert!(took > Duration::from_secs(20) && took < Duration::from_secs(45), "{took:?}");
    assert_eq!(swallowed.load(Ordering::SeqCst), 2, "tried once more");
    gateway.stop().await;
}
