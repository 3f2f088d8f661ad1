//! What a lost connection means to the fixture's HTTP face: the end of a modern call, nothing to a
//! legacy one.
#![allow(clippy::unwrap_used, reason = "a broken fixture shall fail the test")]

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use seawall_testkit::fixture::{Eras, serve_http};
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::timeout};

/// How long a test waits for what must happen.
const SOON: Duration = Duration::from_secs(10);

async fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_http(listener, Eras::Both));
    address
}

/// Sends one request on a connection of its own, which closes when the response is dropped.
async fn send(
    address: SocketAddr,
    method: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Response<Incoming> {
    let client: Client<HttpConnector, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    let mut request = Request::builder().method(method).uri(format!("http://{address}/mcp"));
    request = request
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.request(request.body(Full::from(body.to_string())).unwrap()).await.unwrap()
}

async fn modern_call(address: SocketAddr, name: &str, params: Value) -> Response<Incoming> {
    let headers =
        [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", name)];
    let mut params = params;
    params["name"] = json!(name);
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    send(address, "POST", &headers, &body).await
}

async fn cancelled(address: SocketAddr) -> u64 {
    let body = modern_call(address, "counters", json!({}))
        .await
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    answer["result"]["structuredContent"]["cancelled"].as_u64().unwrap()
}

/// The next piece of an event stream, as text.
async fn piece(response: &mut Response<Incoming>) -> Option<String> {
    let frame = timeout(SOON, response.frame()).await.unwrap()?.unwrap();
    Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
}

#[tokio::test]
async fn a_modern_call_is_cancelled_when_its_response_is_closed() {
    let address = start().await;
    let params = json!({ "arguments": { "ms": 60_000 }, "_meta": { "progressToken": 1 } });
    let mut response = modern_call(address, "slow", params).await;
    assert!(piece(&mut response).await.unwrap().contains("notifications/progress"));
    assert_eq!(cancelled(address).await, 0);
    drop(response);
    timeout(SOON, async { while cancelled(address).await == 0 {} }).await.unwrap();
}

#[tokio::test]
async fn a_legacy_call_outlives_its_connection_and_is_answered_to_the_next() {
    let address = start().await;
    let greeting = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
    let greeting = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": greeting });
    let opened = send(address, "POST", &[], &greeting).await;
    let session = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    opened.into_body().collect().await.unwrap();
    let headers = [("mcp-session-id", session.as_str())];

    let params = json!({ "name": "test_reconnection" });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let mut response = send(address, "POST", &headers, &call).await;
    let primed = piece(&mut response).await.unwrap();
    let id = primed.lines().next().unwrap().strip_prefix("id: ").unwrap();
    assert_eq!(piece(&mut response).await, None, "the server hangs up");

    let resuming = [headers[0], ("last-event-id", id)];
    let mut resumed = send(address, "GET", &resuming, &Value::Null).await;
    assert!(piece(&mut resumed).await.unwrap().contains("retry: "));
    assert!(piece(&mut resumed).await.unwrap().contains("\"id\":1"));
    assert_eq!(piece(&mut resumed).await, None, "the stream ends with the answer");
    assert_eq!(cancelled(address).await, 0);

    assert_eq!(send(address, "DELETE", &headers, &Value::Null).await.status(), StatusCode::OK);
    assert_eq!(send(address, "POST", &headers, &call).await.status(), StatusCode::NOT_FOUND);
}
