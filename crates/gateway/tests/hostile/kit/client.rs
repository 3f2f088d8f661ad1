//! Clients that behave: one of the legacy era with a session, and requests of the modern era.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use ::http::{Method, Response};
use bytes::Bytes;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::http::{self, Answer};
use super::{Gateway, text, until};

/// A legacy client.
pub(crate) struct Legacy {
    pub(crate) address: SocketAddr,
    pub(crate) path: String,
    pub(crate) session: String,
    next: AtomicU64,
}

pub(crate) fn initialize() -> Value {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}, "roots": {}},
        "clientInfo": {"name": "hostile", "version": "1"}});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
}

pub(crate) fn tool_call(id: impl Into<Value>, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": params})
}

impl Legacy {
    /// A client with a session on `path`.
    pub(crate) async fn connect(gateway: &Gateway, path: &str) -> Self {
        let answer = http::post(gateway.address, path, &[], initialize().to_string()).await;
        assert!(answer.message().get("result").is_some(), "{}", answer.text());
        let session = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
        let client = Self {
            address: gateway.address,
            path: path.to_owned(),
            session,
            next: AtomicU64::new(1_000),
        };
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(client.post(initialized.to_string()).await.status, 202);
        client
    }

    /// A client that comes with the id of a session.
    #[allow(dead_code, reason = "needed where the gateway itself is ended")]
    pub(crate) fn known(gateway: &Gateway, path: &str, session: &str) -> Self {
        let (path, session) = (path.to_owned(), session.to_owned());
        Self { address: gateway.address, path, session, next: AtomicU64::new(1_000) }
    }

    pub(crate) fn headers(&self) -> [(&str, &str); 2] {
        [("mcp-session-id", &self.session), ("mcp-protocol-version", "2025-11-25")]
    }

    /// One POST in the session.
    pub(crate) async fn post(&self, body: impl Into<Bytes>) -> Answer {
        http::post(self.address, &self.path, &self.headers(), body).await
    }

    /// A request without params that matter.
    pub(crate) async fn request(&self, method: &str, params: Value) -> Value {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.post(
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        )
        .await
        .message()
    }

    /// A tool call and its answer.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let answer = self.post(tool_call(id, tool, arguments).to_string()).await.message();
        assert_eq!(answer["id"], id);
        answer
    }

    /// A tool call whose response is not read yet.
    pub(crate) async fn begin(&self, id: u64, tool: &str, arguments: Value) -> Response<Incoming> {
        let body = tool_call(id, tool, arguments).to_string();
        let plain = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        let headers: Vec<_> = plain.into_iter().chain(self.headers()).collect();
        http::send(self.address, Method::POST, &self.path, &headers, body.into()).await
    }

    /// Waits until a counter of the scripted server has come to this.
    pub(crate) async fn counted(&self, counter: &str, at_least: u64) {
        let count = async || {
            self.call("counters", json!({})).await["result"]["structuredContent"][counter].as_u64()
        };
        until(10, counter, async || count().await.unwrap() >= at_least).await;
    }

    /// A call that must work; on an endpoint with several servers `tool` says which.
    pub(crate) async fn works(&self, tool: &str) {
        let answer = self.call(tool, json!({"text": "still here"})).await;
        assert_eq!(text(&answer), "still here");
    }
}

/// A modern request as its client would send it; `params` gets its `_meta`.
pub(crate) fn modern_request(id: impl Into<Value>, method: &str, mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

pub(crate) fn modern_headers(request: &Value) -> Vec<(&'static str, String)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let named = text(&request["params"]["name"]).map(|name| ("mcp-name", name));
    let plain = [
        ("content-type", "application/json".to_owned()),
        ("accept", "application/json, text/event-stream".to_owned()),
        ("mcp-protocol-version", "2026-07-28".to_owned()),
        ("mcp-method", text(&request["method"]).unwrap()),
    ];
    plain.into_iter().chain(named).collect()
}

/// A modern request whose response is not read yet.
pub(crate) async fn modern_begin(
    address: SocketAddr,
    path: &str,
    request: &Value,
) -> Response<Incoming> {
    let headers = modern_headers(request);
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    http::send(address, Method::POST, path, &headers, request.to_string().into()).await
}

/// A modern tool call and everything that came back.
pub(crate) async fn modern(gateway: &Gateway, path: &str, tool: &str, arguments: Value) -> Answer {
    let request = modern_request(1, "tools/call", json!({"name": tool, "arguments": arguments}));
    http::whole(modern_begin(gateway.address, path, &request).await).await
}
