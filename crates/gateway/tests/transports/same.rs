//! What is the same over every transport: the handshake, the lists, calls, questions, progress,
//! calling off, and an honest word when the server dies.

use seawall_testkit::fixture::{Eras, Script, serve_lines};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, duplex, split};

use super::client::{Client, FACES, Face, PATIENCE};
use super::server::{KINDS, Kind, Server};

/// What the fixture answers on stdio, without a gateway.
async fn on_stdio(method: &str, params: Value) -> Value {
    let (near, far) = duplex(1 << 20);
    tokio::spawn(async move {
        let (reader, writer) = split(far);
        serve_lines(reader, writer, Eras::Legacy).await
    });
    let (reader, mut writer) = split(near);
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    writer.write_all(format!("{request}\n").as_bytes()).await.unwrap();
    let line = BufReader::new(reader).lines().next_line().await.unwrap().unwrap();
    serde_json::from_str::<Value>(&line).unwrap()["result"].take()
}

#[tokio::test]
async fn a_client_is_told_the_same_as_on_stdio() {
    let info =
        on_stdio("initialize", json!({ "protocolVersion": "2025-06-18", "capabilities": {} }))
            .await;
    assert_eq!(info["protocolVersion"], "2025-06-18");
    for (face, kind) in FACES.iter().flat_map(|face| KINDS.map(|kind| (*face, kind))) {
        let server = Server::start(kind);
        let mut client = Client::of(face, &server.url()).await;

        let greeting = client.greet().await;

        assert_eq!(greeting, info, "{face:?} {kind:?}");
        for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
            let direct = on_stdio(method, json!({})).await;
            assert_eq!(
                client.request(method, json!({})).await["result"],
                direct,
                "{face:?} {kind:?} {method}"
            );
        }
    }
}

#[tokio::test]
async fn a_call_reaches_the_server_as_it_is_and_its_answer_comes_back() {
    for (face, kind) in FACES.iter().flat_map(|face| KINDS.map(|kind| (*face, kind))) {
        let server = Server::start(kind);
        let mut client = Client::of(face, &server.url()).await;
        client.greet().await;
        let params = json!({ "name": "echo_meta", "arguments": { "a": [1, null], "big": "ä\n".repeat(100_000) } });

        let first = client.begin("tools/call", params.clone()).await;
        let second = client.begin("tools/call", json!({ "name": "test_error_handling" })).await;

        // Two calls at once: each answer carries the id of its own question.
        let failed = client.answer(&second).await;
        assert_eq!(failed["result"]["isError"], true, "{face:?} {kind:?}");
        assert!(
            client.answer(&first).await["result"]["structuredContent"] == params,
            "{face:?} {kind:?}"
        );
    }
}

#[tokio::test]
async fn a_server_asks_the_client_and_gets_its_answer() {
    for (face, kind) in FACES.iter().flat_map(|face| KINDS.map(|kind| (*face, kind))) {
        let server = Server::start(kind);
        let mut client = Client::of(face, &server.url()).await;
        client.greet().await;
        asked_and_answered(&mut client).await;
    }
}

async fn asked_and_answered(client: &mut Client) {
    let call = client
        .begin("tools/call", json!({ "name": "test_input_required_result_elicitation" }))
        .await;
    let question = client.hear("elicitation/create").await;
    assert_eq!(question["params"]["message"], "What is your name?");
    let answer = json!({ "action": "accept", "content": { "name": "Ada" } });
    client.say(json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer })).await;
    assert_eq!(client.answer(&call).await["result"]["content"][0]["text"], "Hello, Ada!");
}

#[tokio::test]
async fn a_server_that_takes_a_post_only_when_its_call_is_done_can_still_be_answered() {
    let server = Server::scripted(Kind::Sse, Script { holds_posts: true, ..Script::default() });
    let mut client = Client::of(Face::Run, &server.url()).await;
    client.greet().await;
    asked_and_answered(&mut client).await;
}

#[tokio::test]
async fn progress_comes_in_order_under_the_clients_own_token() {
    for (face, kind) in FACES.iter().flat_map(|face| KINDS.map(|kind| (*face, kind))) {
        let server = Server::start(kind);
        let mut client = Client::of(face, &server.url()).await;
        client.greet().await;
        let params = json!({ "name": "slow", "arguments": { "ms": 3 }, "_meta": { "progressToken": "mine" } });

        let answer = client.request("tools/call", params).await;

        assert_eq!(answer["result"]["content"][0]["text"], "Took 3 ms.");
        for step in 1..=3 {
            let progress = client.hear("notifications/progress").await;
            let expected = json!({ "progressToken": "mine", "progress": step, "total": 3 });
            assert_eq!(progress["params"], expected, "{face:?} {kind:?}");
        }
    }
}

/// Begins a call that takes ten minutes, and waits until the server is at work.
async fn begin_long_call(client: &mut Client) -> Value {
    let params =
        json!({ "name": "slow", "arguments": { "ms": 600_000 }, "_meta": { "progressToken": 7 } });
    let call = client.begin("tools/call", params).await;
    assert_eq!(client.hear("notifications/progress").await["params"]["progress"], 1);
    call
}

#[tokio::test]
async fn a_call_that_is_cancelled_is_called_off_at_the_server_and_never_answered() {
    for (face, kind) in FACES.iter().flat_map(|face| KINDS.map(|kind| (*face, kind))) {
        let server = Server::start(kind);
        let mut client = Client::of(face, &server.url()).await;
        client.greet().await;
        let call = begin_long_call(&mut client).await;

        let params = json!({ "requestId": call, "reason": "enough" });
        client
            .say(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }))
            .await;

        let cancelled = async {
            while client.call("counters", json!({})).await["structuredContent"]["cancelled"] != 1 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, cancelled).await.expect("it is not called off");
        assert!(client.heard.iter().all(|message| message["id"] != call), "{face:?} {kind:?}");
    }
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_leaves_an_honest_answer_and_is_found_again() {
    for (face, kind) in FACES.iter().flat_map(|face| KINDS.map(|kind| (*face, kind))) {
        let mut server = Server::start(kind);
        let mut client = Client::of(face, &server.url()).await;
        client.greet().await;
        let call = begin_long_call(&mut client).await;

        server.kill().await;
        let answer = client.answer(&call).await;
        server.revive().await;
        let meanwhile = client.call("test_simple_text", json!({})).await;
        let afterwards = client.call("test_simple_text", json!({})).await;

        let failure = &answer["result"]["_meta"]["seawall/failure"];
        assert_eq!(answer["result"]["isError"], true, "{face:?} {kind:?}");
        // It only reads, so it was tried again, until it was clear that the server is away for
        // longer.
        assert!(
            failure["code"] == "SERVER_STARTING" || failure["code"] == "CONNECTION_LOST",
            "{answer}"
        );
        assert!(failure["attempts"].as_u64() >= Some(2), "{answer}");
        assert_eq!(
            (&failure["mayHaveExecuted"], &failure["server"]),
            (&json!(false), &json!("it"))
        );

        // A call made before the gateway has found the server again is held, and sent once: the
        // server that came back saw these two.
        for answer in [meanwhile, afterwards] {
            assert_eq!(
                answer["content"][0]["text"], "This is a simple text response for testing.",
                "{face:?} {kind:?}"
            );
        }
        let counters = client.call("counters", json!({})).await;
        assert_eq!(
            counters["structuredContent"],
            json!({ "calls": 2, "cancelled": 0 }),
            "{face:?} {kind:?}"
        );
    }
}

#[tokio::test]
async fn a_modern_client_reaches_a_server_that_knows_only_the_legacy_transports() {
    for kind in KINDS {
        let server = Server::start(kind);
        let mut client = Client::of(Face::Run, &server.url()).await;
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });

        let discovered = client.request("server/discover", json!({ "_meta": meta })).await;
        let params = json!({ "name": "test_simple_text", "_meta": meta });
        let called = client.request("tools/call", params).await;

        assert_eq!(
            discovered["result"]["supportedVersions"],
            json!(["2026-07-28"]),
            "{kind:?} {discovered}"
        );
        assert_eq!(called["result"]["resultType"], "complete", "{kind:?} {called}");
        assert_eq!(
            called["result"]["content"][0]["text"],
            "This is a simple text response for testing."
        );
    }
}
