//! Servers that rest: stopped when nobody uses them, not started before somebody does, and nobody
//! notices.

use serde_json::{Value, json};

use crate::kit::client::{modern_begin, modern_request};
use crate::kit::process::processes;
use crate::kit::{Entry, Gateway, Legacy, http, text, until};
use crate::{Ledger, leave};

fn resting(ledger: &Ledger, line: &str) -> Entry {
    Entry::scripted("a", &["--tag", "$TAG", "--ledger", ledger.path()]).with(line)
}

#[tokio::test]
async fn a_server_that_nobody_uses_is_stopped_and_the_next_call_starts_it_again() {
    let ledger = Ledger::new();
    let gateway = Gateway::serve(&[resting(&ledger, "idle_stop = \"2s\"")]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    client.request("logging/setLevel", json!({"level": "debug"})).await;
    let list = client.request("tools/list", json!({})).await["result"].clone();
    for round in 1..=2 {
        client.works("echo").await;
        assert_eq!(ledger.count("start"), round);
        until(10, "it is stopped", async || processes(gateway.tag()).is_empty()).await;
        // A list is no reason to start it: it is what it was.
        assert_eq!(client.request("tools/list", json!({})).await["result"], list);
        assert!(processes(gateway.tag()).is_empty());
    }
    assert_eq!(ledger.count(r#""logging/setLevel" {"level":"debug"}"#), 2, "{:?}", ledger.lines());
    until(5, "it is told", async || {
        gateway.said("a: not used for 2s, stopped; the next call starts it")
    })
    .await;
    assert!(!gateway.said("attempt"), "to rest is no failure: {:?}", gateway.log.lock().unwrap());
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_that_nobody_uses_gives_its_servers_back_and_goes_on_with_new_ones() {
    let ledger = Ledger::new();
    let servers = [resting(&ledger, ""), Entry::scripted("b", &["--tag", "$TAG"]).shared()];
    let gateway = Gateway::serve_with("session_idle = \"1s\"", &servers).await;
    let idle = Legacy::connect(&gateway, "/mcp").await;
    idle.request("logging/setLevel", json!({"level": "debug"})).await;
    // On a busy machine the list also says that its server is starting.
    let list = async || idle.request("tools/list", json!({})).await["result"]["tools"].clone();
    let before = list().await;
    for round in 1..=2 {
        idle.works("a__echo").await;
        idle.works("b__echo").await;
        assert_eq!(ledger.count("start"), round);
        until(10, "its own server is stopped", async || processes(gateway.tag()).len() == 1).await;
        assert_eq!(list().await, before);
    }
    assert!(
        gateway
            .said("a session was idle for 1s: its servers are stopped; its next call starts them")
    );
    assert!(!gateway.said("attempt"), "to rest is no failure: {:?}", gateway.log.lock().unwrap());
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_with_a_call_or_a_stream_is_not_idle() {
    let ledger = Ledger::new();
    let gateway = Gateway::serve_with("session_idle = \"200ms\"", &[resting(&ledger, "")]).await;
    let at_work = Legacy::connect(&gateway, "/mcp/a").await;
    // Its server would be gone before it answers.
    assert_eq!(text(&at_work.call("delay", json!({"ms": 2_000, "text": "done"})).await), "done");
    let listening = Legacy::connect(&gateway, "/mcp/a").await;
    let headers = listening.headers();
    let get =
        http::send(listening.address, ::http::Method::GET, "/mcp/a", &headers, Default::default());
    let stream = get.await;
    listening.works("echo").await;
    let starts = ledger.count("start");
    // The other session rests meanwhile, so time has passed.
    until(10, "one of two is stopped", async || processes(gateway.tag()).len() == 1).await;
    listening.works("echo").await;
    assert_eq!(ledger.count("start"), starts);
    drop(stream);
    until(10, "the other too", async || processes(gateway.tag()).is_empty()).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_server_at_work_is_not_stopped() {
    let ledger = Ledger::new();
    let gateway = Gateway::serve(&[resting(&ledger, "idle_stop = \"100ms\"")]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    // Whether it rested before the call came is not what this is about.
    let under_way = async {
        client.counted("delayed", 1).await;
        ledger.count("start")
    };
    let (answer, starts) =
        tokio::join!(client.call("delay", json!({"ms": 4_000, "text": "done"})), under_way);
    assert_eq!((text(&answer), ledger.count("start")), ("done", starts));
    gateway.stop().await;
}

#[tokio::test]
async fn a_server_whose_resource_is_watched_is_not_stopped() {
    let ledger = Ledger::new();
    let gateway = Gateway::serve(&[resting(&ledger, "idle_stop = \"100ms\"")]).await;
    let (watching, idle) =
        (Legacy::connect(&gateway, "/mcp/a").await, Legacy::connect(&gateway, "/mcp/a").await);
    watching.request("resources/subscribe", json!({"uri": "file:///a"})).await;
    idle.works("echo").await;
    until(10, "the one that only called is stopped", async || processes(gateway.tag()).len() == 1)
        .await;
    let starts = ledger.count("start");
    watching.works("echo").await;
    assert_eq!(ledger.count("start"), starts);
    gateway.stop().await;
}

#[tokio::test]
async fn calls_that_come_as_their_server_is_stopped_are_answered() {
    let ledger = Ledger::new();
    let gateway = Gateway::serve(&[resting(&ledger, "idle_stop = \"10ms\"")]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    for _ in 0..30 {
        client.works("echo").await;
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_lazy_server_is_started_by_the_first_call_and_not_by_the_handshake() {
    let ledger = Ledger::new();
    let gateway = Gateway::serve(&[resting(&ledger, "lazy = true\nkeep_warm = \"0s\"")]).await;
    let first = Legacy::connect(&gateway, "/mcp/a").await;
    let list = first.request("tools/list", json!({})).await["result"].clone();
    leave(&first).await;
    until(10, "it is gone with its client", async || processes(gateway.tag()).is_empty()).await;

    let second = Legacy::connect(&gateway, "/mcp/a").await;
    assert_eq!(second.request("tools/list", json!({})).await["result"], list);
    assert_eq!(ledger.count("start"), 1);
    second.works("echo").await;
    assert_eq!((ledger.count("start"), ledger.count("hello")), (2, 2));
    gateway.stop().await;
}

#[tokio::test]
async fn two_clients_of_a_shared_server_have_one_process_that_rests_when_neither_calls() {
    let ledger = Ledger::new();
    let gateway = Gateway::serve(&[resting(&ledger, "idle_stop = \"2s\"").shared()]).await;
    let (one, two) =
        (Legacy::connect(&gateway, "/mcp/a").await, Legacy::connect(&gateway, "/mcp/a").await);
    one.works("echo").await;
    two.works("echo").await;
    assert_eq!(ledger.count("start"), 1);
    until(10, "it is stopped", async || processes(gateway.tag()).is_empty()).await;
    two.works("echo").await;
    one.works("echo").await;
    assert_eq!(ledger.count("start"), 2);
    gateway.stop().await;
}

/// A call of a stateless client that can be asked something, so that it needs a conversation alone
/// while it runs.
async fn stateless(gateway: &Gateway, tool: &str, arguments: Value) -> Value {
    let mut request =
        modern_request(1, "tools/call", json!({"name": tool, "arguments": arguments}));
    request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({"elicitation": {}});
    http::whole(modern_begin(gateway.address, "/mcp/a", &request).await).await.message()
}

#[tokio::test]
async fn a_burst_of_a_stateless_client_leaves_one_process_and_that_rests_when_nobody_calls() {
    let ledger = Ledger::new();
    let servers = [resting(&ledger, "keep_warm = \"100ms\"")];
    let gateway = Gateway::serve_with("session_idle = \"4s\"", &servers).await;
    let burst =
        (0..4).map(|n| stateless(&gateway, "delay", json!({"ms": 500 + n, "text": "done"})));
    futures_util::future::join_all(burst).await;
    let starts = ledger.count("start");
    assert!(starts >= 4, "calls at once need processes of their own: {starts}");
    until(10, "one is left", async || processes(gateway.tag()).len() == 1).await;
    assert_eq!(text(&stateless(&gateway, "echo", json!({"text": "here"})).await), "here");
    assert_eq!(ledger.count("start"), starts, "the first one was there");
    until(20, "none is left", async || processes(gateway.tag()).is_empty()).await;
    assert_eq!(text(&stateless(&gateway, "echo", json!({"text": "again"})).await), "again");
    gateway.stop().await;
}
