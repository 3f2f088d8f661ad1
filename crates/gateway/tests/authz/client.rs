//! A client that shows something: a token, a key, or nothing.

use serde_json::{Value, json};

use crate::kit::client::{initialize, modern_headers, modern_request, tool_call};
use crate::kit::http::{self, Answer};
use crate::kit::{Gateway, within};

/// A client of one endpoint, with the headers that it sends along.
pub(crate) struct Client<'a> {
    gateway: &'a Gateway,
    path: &'static str,
    headers: Vec<(String, String)>,
}

impl<'a> Client<'a> {
    /// A client that shows nothing.
    pub(crate) fn new(gateway: &'a Gateway, path: &'static str) -> Self {
        Self { gateway, path, headers: Vec::new() }
    }

    /// The same with one more header.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with a token.
    pub(crate) fn bearer(self, token: &str) -> Self {
        self.with("authorization", &format!("Bearer {token}"))
    }

    fn headers<'h>(&'h self, more: &[(&'h str, &'h str)]) -> Vec<(&'h str, &'h str)> {
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        own.chain(more.iter().copied()).collect()
    }

    /// One POST.
    pub(crate) async fn post(&self, more: &[(&str, &str)], body: &Value) -> Answer {
        let headers = self.headers(more);
        let address = self.gateway.address;
        within(20, "an answer", http::post(address, self.path, &headers, body.to_string())).await
    }

    /// The answer to `initialize`.
    pub(crate) async fn greet(&self) -> Answer {
        self.post(&[], &initialize()).await
    }

    /// The id of a new session.
    pub(crate) async fn session(&self) -> String {
        let answer = self.greet().await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let session = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(&[("mcp-session-id", &session)], &initialized).await.status, 202);
        session
    }

    /// A request in a session.
    pub(crate) async fn ask(&self, session: &str, method: &str, params: Value) -> Answer {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        self.post(&[("mcp-session-id", session)], &body).await
    }

    /// A call in a session; its HTTP status is 200.
    pub(crate) async fn call(&self, session: &str, tool: &str, arguments: Value) -> Value {
        let body = tool_call(7, tool, arguments);
        let answer = self.post(&[("mcp-session-id", session)], &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.message()
    }

    /// A modern request.
    pub(crate) async fn modern(&self, method: &str, params: Value) -> Answer {
        let request = modern_request(7, method, params);
        let headers = modern_headers(&request);
        let more: Vec<(&str, &str)> =
            headers.iter().skip(2).map(|(name, value)| (*name, value.as_str())).collect();
        self.post(&more, &request).await
    }

    /// A modern call of a tool.
    pub(crate) async fn modern_call(&self, tool: &str, arguments: Value) -> Answer {
        self.modern("tools/call", json!({"name": tool, "arguments": arguments})).await
    }
}
