//! An operator at the admin of a running gateway.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use super::kit::{Served, soon};
use super::prometheus::Scrape;

/// The token of every gateway here.
pub(crate) const TOKEN: &str = "open-sesame-1001";

/// Lets operators in, with the token.
pub(crate) const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"open-sesame-1001\"\n";

/// One operator.
pub(crate) struct AdminApi {
    pub(crate) url: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl AdminApi {
    pub(crate) fn at(url: &str) -> Self {
        Self { url: url.to_owned(), client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// The admin of a gateway, as its log tells.
    pub(crate) fn of(served: &Served) -> Self {
        let log = served.log.lock().unwrap();
        let url =
            log.iter().find_map(|line| line.split("admin at ").nth(1)).expect("no admin listener");
        Self::at(&url.replace("0.0.0.0", "127.0.0.1"))
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (StatusCode, String) {
        self.send_with(method, path, headers, "").await
    }

    /// The headers of an answer.
    pub(crate) async fn headers(&self, path: &str) -> HeaderMap {
        let request = Request::builder().uri(format!("{}{path}", self.url));
        let response = soon(self.client.request(request.body(Full::default()).unwrap()));
        response.await.unwrap().headers().clone()
    }

    /// With a body.
    pub(crate) async fn send_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (StatusCode, String) {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response =
            soon(self.client.request(request.body(Full::from(body.to_owned())).unwrap()))
                .await
                .unwrap();
        let status = response.status();
        let body = soon(response.into_body().collect()).await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        let (status, body) = self.send(Method::GET, path, &[]).await;
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    /// What the breakers are, and everything about them.
    pub(crate) async fn breakers(&self) -> Value {
        let (status, answer) = self.get("/resilience/breakers").await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    pub(crate) async fn scrape(&self) -> Scrape {
        let (status, text) = self.send(Method::GET, "/metrics", &[]).await;
        assert_eq!(status, 200, "{text}");
        Scrape::parse(&text)
    }

    pub(crate) async fn reset(&self, tool: &str, headers: &[(&str, &str)]) -> (StatusCode, Value) {
        let (status, body) =
            self.send(Method::POST, &format!("/resilience/breakers/{tool}/reset"), headers).await;
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    /// A change by somebody who has the key.
    pub(crate) async fn change(&self, method: Method, path: &str, body: &str) -> (u16, Value) {
        let (status, body) = self.send_with(method, path, &[("x-api-key", TOKEN)], body).await;
        (
            status.as_u16(),
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")),
        )
    }

    pub(crate) async fn force(&self, tool: &str, state: &str) -> (u16, Value) {
        let body = serde_json::json!({ "state": state }).to_string();
        self.change(Method::POST, &format!("/resilience/breakers/{tool}/force"), &body).await
    }

    /// Reads events as they happen.
    pub(crate) async fn tap(
        &self,
        query: &str,
        headers: &[(&str, &str)],
    ) -> Result<Tap, StatusCode> {
        let mut request = Request::builder().uri(format!("{}/resilience/events{query}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response =
            soon(self.client.request(request.body(Full::default()).unwrap())).await.unwrap();
        if response.status() != 200 {
            return Err(response.status());
        }
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Ok(Tap { body: response.into_body(), text: String::new() })
    }
}

/// Somebody who reads events as they happen.
pub(crate) struct Tap {
    body: Incoming,
    text: String,
}

impl Tap {
    /// The next piece of the stream, whatever it is; nothing when it has ended.
    pub(crate) async fn piece(&mut self) -> Option<String> {
        loop {
            if let Some((piece, rest)) = self.text.split_once("\n\n") {
                let (piece, rest) = (piece.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(piece);
            }
            let frame = soon(self.body.frame()).await?.expect("the stream broke off");
            self.text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }

    /// The next event, with its id checked. Signs of life are no reason to wait for ever.
    pub(crate) async fn event(&mut self) -> Option<Value> {
        soon(self.next_event()).await
    }

    async fn next_event(&mut self) -> Option<Value> {
        loop {
            let piece = self.piece().await?;
            let field = |name: &str| piece.lines().find_map(|line| line.strip_prefix(name));
            if let Some(data) = field("data: ") {
                let event: Value = serde_json::from_str(data).unwrap();
                assert_eq!(event["id"].as_str(), field("id: "), "{piece}");
                return Some(event);
            }
        }
    }

    /// The events up to one that is the last of these.
    pub(crate) async fn until(&mut self, is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.event().await.unwrap_or_else(|| panic!("it ended after {events:?}"));
            events.push(event);
            if events.last().is_some_and(&is_last) {
                return events;
            }
        }
    }
}
