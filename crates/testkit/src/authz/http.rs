//! An ext_authz server that does what a test says, over HTTP.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use super::port::{Body, Port};
use super::script::{Act, Script};

/// What the server was asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpCheck {
    /// The method.
    pub method: String,
    /// The path, with the query.
    pub path: String,
    /// The headers, with names in lower case; those of one name joined with a comma.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Vec<u8>,
}

impl HttpCheck {
    /// A header by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// What the server says.
#[derive(Clone, Debug)]
pub struct HttpReply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl HttpReply {
    /// This status, no headers, no body.
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Bytes::new() }
    }

    /// With this header too.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With this body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    fn into_wire(self) -> http::Response<Body> {
        let body = Full::new(self.body).map_err(|never| match never {}).boxed_unsync();
        let mut response = http::Response::new(body);
        *response.status_mut() = http::StatusCode::from_u16(self.status)
            .unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        for (name, value) in self.headers {
            if let (Ok(name), Ok(value)) = (
                http::HeaderName::from_bytes(name.as_bytes()),
                http::HeaderValue::from_bytes(value.as_bytes()),
            ) {
                response.headers_mut().append(name, value);
            }
        }
        response
    }
}

/// A server on a loopback port. It answers 200 to everything until it is told otherwise.
pub struct HttpAuthorizer {
    port: Port,
    script: Arc<Script<HttpCheck, HttpReply>>,
}

impl HttpAuthorizer {
    /// Listens on a port that was free.
    pub async fn start() -> io::Result<Self> {
        let script = Arc::new(Script::always(HttpReply::new(200).into()));
        let told = Arc::clone(&script);
        let port =
            Port::open(move |request, reset| Box::pin(answer(Arc::clone(&told), request, reset)));
        Ok(Self { port: port.await?, script })
    }

    /// Where it listens, also while it is stopped.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The same as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Does this with the next request that no earlier `next` is for.
    pub fn next(&self, act: impl Into<Act<HttpReply>>) {
        self.script.push(act.into());
    }

    /// Does this with every request that no `next` is for.
    pub fn always(&self, act: impl Into<Act<HttpReply>>) {
        let act = act.into();
        self.script.set(move |_| act.clone());
    }

    /// Decides each request that no `next` is for.
    pub fn decide(&self, rule: impl Fn(&HttpCheck) -> Act<HttpReply> + Send + Sync + 'static) {
        self.script.set(rule);
    }

    /// Forgets what was said with `next` and not done yet.
    pub fn clear(&self) {
        self.script.clear_queue();
    }

    /// All requests since the start or the last `forget`, in the order in which they came.
    pub fn checks(&self) -> Vec<Arc<HttpCheck>> {
        self.script.asked()
    }

    /// How many these are.
    pub fn count(&self) -> usize {
        self.script.count()
    }

    /// The most requests that were under way at once.
    pub fn peak(&self) -> usize {
        self.script.peak()
    }

    /// How many are under way now.
    pub fn under_way(&self) -> usize {
        self.script.now()
    }

    /// Forgets requests and peak.
    pub fn forget(&self) {
        self.script.forget();
    }

    /// Cuts all connections and refuses new ones.
    pub async fn stop(&self) {
        self.port.shut().await;
    }

    /// Listens again, on the same port.
    pub async fn again(&self) -> io::Result<()> {
        self.port.again().await
    }
}

async fn answer(
    script: Arc<Script<HttpCheck, HttpReply>>,
    request: http::Request<Incoming>,
    reset: CancellationToken,
) -> http::Response<Body> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return HttpReply::new(400).into_wire() };
    let mut headers = BTreeMap::<String, String>::new();
    for (name, value) in &head.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        let known = headers.entry(name.to_string()).or_default();
        if !known.is_empty() {
            known.push_str(", ");
        }
        known.push_str(&value);
    }
    let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let (method, body) = (head.method.to_string(), body.to_bytes().to_vec());
    script.play(HttpCheck { method, path, headers, body }, &reset).await.into_wire()
}
