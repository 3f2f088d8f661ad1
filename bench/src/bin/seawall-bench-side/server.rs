//! The server behind every proxy: answers both eras of MCP on one thread, as fast as hyper can.
//!
//! Its two tools give a constant each; `small` is half a kilobyte and `large` a megabyte, of one
//! letter.

use std::borrow::Cow;
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;

use bytes::buf::Chain;
use bytes::{Buf as _, Bytes};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::{accept, listen};

const MODERN: &str = "2026-07-28";
/// What the answer adds around the text is about a tenth of the small one.
const SMALL: usize = 440;
const LARGE: usize = 1_000_000;

/// The head with the id, and the constant that follows: a megabyte is not copied for each answer.
type Body = Full<Chain<Bytes, Bytes>>;

/// Serves until the process ends.
pub(crate) async fn serve() -> Result<(), Box<dyn Error + Send + Sync>> {
    let answers = Arc::new(Answers::new());
    let listener = listen().await?;
    loop {
        let tcp = accept(&listener).await?;
        let answers = Arc::clone(&answers);
        let service = service_fn(move |request| {
            let answers = Arc::clone(&answers);
            async move { Ok::<_, Infallible>(answers.answer(request).await) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(tcp), service));
    }
}

/// What is read of a request.
#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
}

/// The constants.
struct Answers {
    initialize: Bytes,
    discover: Bytes,
    tools: Bytes,
    nothing: Bytes,
    unknown: Bytes,
    /// Small and large, for each era.
    legacy: [Bytes; 2],
    modern: [Bytes; 2],
}

impl Answers {
    fn new() -> Self {
        let info = json!({"name": "overhead", "version": "1"});
        let tool = |name| {
            json!({"name": name, "description": "Gives a constant", "inputSchema": {"type": "object"},
                   "annotations": {"readOnlyHint": true}})
        };
        Self {
            initialize: tail(
                json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}),
            ),
            discover: tail(
                json!({"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "serverInfo": info,
                                  "resultType": "complete"}),
            ),
            tools: tail(json!({"tools": [tool("small"), tool("large")], "resultType": "complete"})),
            nothing: tail(json!({})),
            unknown: Bytes::from_static(br#","error":{"code":-32601,"message":"unknown"}}"#),
            legacy: [SMALL, LARGE].map(|size| tail(text(size))),
            modern: [SMALL, LARGE].map(|size| {
                let mut result = text(size);
                result["resultType"] = "complete".into();
                tail(result)
            }),
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        match parts.method {
            Method::POST => {}
            Method::DELETE => return empty(StatusCode::OK),
            _ => return empty(StatusCode::METHOD_NOT_ALLOWED),
        }
        let Ok(body) = body.collect().await else { return empty(StatusCode::BAD_REQUEST) };
        let body = body.to_bytes();
        let Ok(asked) = serde_json::from_slice::<Asked<'_>>(&body) else {
            return empty(StatusCode::BAD_REQUEST);
        };
        match (asked.id, self.tail(&asked, &parts.headers)) {
            (None, _) => empty(StatusCode::ACCEPTED),
            (Some(id), tail) => {
                let head = Bytes::from([r#"{"jsonrpc":"2.0","id":"#, id.get()].concat());
                let mut response = Response::new(Full::new(head.chain(tail)));
                response
                    .headers_mut()
                    .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                if asked.method == "initialize" {
                    response
                        .headers_mut()
                        .insert("mcp-session-id", HeaderValue::from_static("overhead"));
                }
                response
            }
        }
    }

    fn tail(&self, asked: &Asked<'_>, headers: &HeaderMap) -> Bytes {
        let is_modern =
            headers.get("mcp-protocol-version").is_some_and(|version| version == MODERN);
        let name = asked.params.as_ref().and_then(|params| params.name.as_deref());
        let [small, large] = if is_modern { &self.modern } else { &self.legacy };
        let tail = match (asked.method.as_ref(), name) {
            ("tools/call", Some("small")) => small,
            ("tools/call", Some("large")) => large,
            ("tools/list", _) => &self.tools,
            ("initialize", _) => &self.initialize,
            ("server/discover", _) => &self.discover,
            ("ping", _) => &self.nothing,
            _ => &self.unknown,
        };
        tail.clone()
    }
}

fn text(size: usize) -> Value {
    json!({"content": [{"type": "text", "text": "x".repeat(size)}], "isError": false})
}

/// What follows the id.
fn tail(result: Value) -> Bytes {
    format!(r#","result":{result}}}"#).into()
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::new().chain(Bytes::new())));
    *response.status_mut() = status;
    response
}
