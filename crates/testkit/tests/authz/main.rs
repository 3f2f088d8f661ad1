//! The authorizers, keys and key servers of the testkit do what tests of the gateway rely on.
#![allow(clippy::unwrap_used, reason = "a broken authorizer shall fail the test")]

mod bridge;
mod http;
mod keys;
mod real;
mod scripted;

use envoy_types::pb::envoy::service::auth::v3::authorization_client::AuthorizationClient;
use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;
use envoy_types::pb::envoy::service::auth::v3::{CheckRequest, CheckResponse};
use seawall_testkit::authz::check_request;
use serde_json::{Value, json};
use tonic::Status;

/// Asks an authorizer on a connection of its own.
async fn ask(url: &str, request: CheckRequest) -> Result<CheckResponse, Status> {
    let client = AuthorizationClient::connect(url.to_owned()).await;
    let mut client = client.map_err(|error| Status::unavailable(format!("{error:?}")))?;
    Ok(client.check(request).await?.into_inner())
}

/// A call of a tool by somebody, as CAIPE's gateway tells of it.
fn call(server: &str, tool: &str, sub: &str, headers: &[(&str, &str)]) -> CheckRequest {
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": tool, "arguments": {}}});
    let metadata = if sub.is_empty() { json!({}) } else { json!({"caipe.auth": {"sub": sub}}) };
    check_request(&format!("/mcp/{server}"), headers, &body, &metadata)
}

/// `status.code` and the body of a denial.
fn verdict(response: &CheckResponse) -> (i32, &str) {
    let code = response.status.as_ref().map_or(-1, |status| status.code);
    match &response.http_response {
        Some(HttpResponse::DeniedResponse(denied)) => (code, &denied.body),
        _ => (code, ""),
    }
}

/// The status and the body of an HTTP answer, by hand.
async fn fetch(address: std::net::SocketAddr, request: &str) -> std::io::Result<(u16, String)> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut tcp = tokio::net::TcpStream::connect(address).await?;
    tcp.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    tcp.read_to_string(&mut text).await?;
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}
