//! What servers that do it wrong come to: a clear word to whoever waits, and nothing worse.

use std::collections::HashMap;

use seawall_testkit::fixture::{Misdeed, Script};
use serde_json::{Value, json};

use super::client::{Client, Face};
use super::server::{Kind, Server};

/// One byte more than a server may say at once.
const TOO_MUCH: usize = (16 << 20) + 1;

fn instead(misdeed: Misdeed) -> Script {
    Script {
        instead: HashMap::from([("test_simple_text".to_owned(), misdeed)]),
        ..Script::default()
    }
}

/// What a call comes to whose server misbehaves, and whether the next one works.
async fn call_of(server: &Server) -> String {
    let mut client = Client::of(Face::Run, &server.url()).await;
    client.greet().await;
    let answer = client.call("test_simple_text", json!({})).await;
    assert_eq!(answer["isError"], true, "{answer}");
    assert_eq!(
        client.call("test_tool_with_logging", json!({})).await["content"][0]["text"],
        "Logged three times."
    );
    answer["content"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_is_too_large_ends_the_conversation_with_a_clear_word() {
    let half = "x".repeat(TOO_MUCH / 2 + 1);
    for (kind, misdeed) in [
        (Kind::Ws, Misdeed::Text("x".repeat(TOO_MUCH))),
        (Kind::Ws, Misdeed::Pieces(vec![half.clone(), half.clone()])),
        (Kind::Sse, Misdeed::Text("x".repeat(TOO_MUCH))),
        (Kind::Sse, Misdeed::Pieces(vec![half.clone(), half])),
    ] {
        let server = Server::scripted(kind, instead(misdeed));
        assert_eq!(
            call_of(&server).await,
            "test_simple_text failed on it: \"sent a message that cannot be read: larger than 16777216 bytes, \
             the most that passes; ask it for less\". It changes nothing, so repeating is safe.",
        );
        let opened = if kind == Kind::Ws { "open" } else { "GET /sse" };
        assert_eq!(
            server.seen.count(opened),
            2,
            "the call is made once, and the next one has a conversation of its own"
        );
    }
}

#[tokio::test]
async fn a_binary_frame_is_refused() {
    let server =
        Server::scripted(Kind::Ws, instead(Misdeed::Binary(b"{\"jsonrpc\":\"2.0\"}".to_vec())));
    assert_eq!(
        call_of(&server).await,
        "test_simple_text failed on it: \"sent a message that cannot be read: not a JSON-RPC 2.0 message: it came \
         as a binary frame, not as text\". 3 attempts were made. It changes nothing, so repeating is safe.",
    );
    server.saw("close 1003", 3).await;
}

#[tokio::test]
async fn what_is_no_message_ends_the_conversation_with_a_clear_word() {
    for kind in [Kind::Ws, Kind::Sse] {
        let server = Server::scripted(kind, instead(Misdeed::Text("[hello]".to_owned())));
        let text = call_of(&server).await;
        assert!(
            text.starts_with(
                "test_simple_text failed on it: \"sent a message that cannot be read: "
            ),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_post_that_is_refused_fails_its_call_alone() {
    let server = Server::scripted(Kind::Sse, instead(Misdeed::Status(429)));
    let text = "test_simple_text was not executed: it is at its rate limit. The same call can be repeated later.";
    assert_eq!(call_of(&server).await, text);
    assert_eq!(server.seen.count("GET /sse"), 1, "the conversation goes on");
}

/// The error that a handshake with this server ends with.
async fn refused(server: &Value) -> String {
    let mut client = Client::configured(server);
    client.initialize().await["error"]["message"].as_str().expect("it is let in").to_owned()
}

/// What a client is told about a server that may still come.
async fn awaited(server: &Value) -> String {
    let mut client = Client::configured(server);
    client.initialize().await["result"]["instructions"]
        .as_str()
        .expect("it is told something")
        .to_owned()
}

#[tokio::test]
async fn an_address_for_messages_of_another_origin_is_refused() {
    let other = Server::start(Kind::Sse);
    let endpoint = format!("http://{}/messages?client={{client}}", other.address);
    let server =
        Server::scripted(Kind::Sse, Script { endpoint: Some(endpoint), ..Script::default() });

    let error = refused(&json!({ "url": server.url() })).await;

    assert_eq!(
        error,
        "server \"it\" refused the handshake: the address it names for messages is not of its own origin",
    );
    server.saw("gone", 1).await;
    assert_eq!(server.seen.lines(), ["GET /sse", "gone"]);
    assert_eq!(other.seen.lines(), [""; 0]);
}

#[tokio::test]
async fn an_address_for_messages_may_be_absolute_or_relative() {
    for endpoint in ["messages?client={client}", "http://{address}/messages?client={client}"] {
        let server = Server::scripted(
            Kind::Sse,
            Script { endpoint: Some(endpoint.to_owned()), ..Script::default() },
        );
        let mut client = Client::of(Face::Run, &server.url()).await;
        assert_eq!(client.greet().await["serverInfo"]["name"], "seawall-fixture");
    }
}

#[tokio::test]
async fn the_operators_headers_go_with_every_request() {
    for kind in [Kind::Ws, Kind::Sse] {
        let key = Some(("x-key".to_owned(), "secret".to_owned()));
        let server = Server::scripted(kind, Script { key, ..Script::default() });

        let mut client =
            Client::configured(&json!({ "url": server.url(), "headers": { "X-Key": "secret" } }));
        client.greet().await;
        assert_eq!(client.call("test_simple_text", json!({})).await.get("isError"), None);

        let error =
            refused(&json!({ "url": server.url(), "headers": { "X-Key": "guessed" } })).await;
        assert_eq!(error, "server \"it\" answered with HTTP status 401", "{kind:?}");
    }
}

#[tokio::test]
async fn a_websocket_that_is_not_one_of_mcp_is_refused() {
    for subprotocol in ["", "graphql-ws"] {
        let script = Script { subprotocol: Some(subprotocol.to_owned()), ..Script::default() };
        let server = Server::scripted(Kind::Ws, script);
        let error = refused(&json!({ "url": server.url() })).await;
        assert_eq!(
            error,
            "server \"it\" refused the handshake: it does not speak \"mcp\" on its WebSocket"
        );
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_or_speaks_something_else_is_told_apart() {
    let mut dead = Server::start(Kind::Ws);
    dead.kill().await;
    let text = awaited(&json!({ "url": dead.url() })).await;
    let needs_attention = "**MCP servers that failed to load (tools unavailable — needs attention):** it: Cannot connect to ws://127.0.0.1:";
    assert!(text.starts_with(needs_attention), "{text}");

    let http = Server::start(Kind::Sse);
    let error = refused(&json!({ "url": format!("ws://{}/ws", http.address) })).await;
    assert_eq!(
        error,
        "server \"it\" refused the handshake: it answers as plain HTTP, not as a WebSocket"
    );

    let ws = Server::start(Kind::Ws);
    let text = awaited(&json!({ "url": format!("http://{}/sse", ws.address) })).await;
    assert!(text.contains("could not be reached: "), "{text}");
}
