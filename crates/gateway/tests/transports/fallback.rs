//! A server whose transport was not stated: streamable HTTP is tried first, SSE where that is
//! refused.

use serde_json::json;

use super::client::{Client, Face};
use super::server::{Kind, Server};

#[tokio::test]
async fn a_server_that_refuses_streamable_http_is_spoken_to_over_sse_and_that_is_remembered() {
    let server = Server::start(Kind::Sse);
    let mut client =
        Client::served(&json!({ "url": format!("http://{}/mcp", server.address) })).await;

    client.greet().await;
    let called = client.call("test_simple_text", json!({})).await;
    let mut other = client.beside();
    other.greet().await;
    let called_again = other.call("test_simple_text", json!({})).await;

    assert_eq!(called, called_again);
    assert_eq!(called["content"][0]["text"], "This is a simple text response for testing.");
    // Both eras were refused, once; then each conversation is a stream.
    assert_eq!(server.seen.lines()[..3], ["POST /mcp", "POST /mcp", "GET /mcp"]);
    assert_eq!((server.seen.count("POST /mcp"), server.seen.count("GET /mcp")), (2, 2));
}

#[tokio::test]
async fn a_server_that_speaks_streamable_http_now_is_spoken_to_so() {
    let mut server = Server::start(Kind::Sse);
    let mut client =
        Client::served(&json!({ "url": format!("http://{}/mcp", server.address) })).await;
    client.greet().await;
    server.kill().await;
    server.saw("gone", 1).await;
    server.renew();

    for _ in 0..2 {
        let mut other = client.beside();
        assert_eq!(other.greet().await["serverInfo"]["name"], "seawall-fixture");
        assert_eq!(other.call("test_simple_text", json!({})).await.get("isError"), None);
    }
}

#[tokio::test]
async fn a_stated_transport_is_the_only_one_tried() {
    let server = Server::start(Kind::Sse);
    let url = format!("http://{}/mcp", server.address);

    let mut client = Client::configured(&json!({ "type": "http", "url": url }));

    let error = client.initialize().await["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(error, "server \"it\" answered with HTTP status 405");
    assert_eq!(server.seen.lines(), ["POST /mcp", "POST /mcp"]);
}

#[tokio::test]
async fn a_server_that_speaks_neither_is_told_so_with_both_reasons() {
    let mut server = Server::start(Kind::Sse);
    server.kill().await;
    server.renew();
    let mut client = Client::of(Face::Run, &format!("http://{}/wrong", server.address)).await;

    let error = client.initialize().await["error"]["message"].as_str().unwrap().to_owned();

    assert_eq!(
        error,
        "server \"it\" refused the handshake: as streamable HTTP it answered with HTTP status 404; as SSE it answered \
         with HTTP status 404",
    );
}
