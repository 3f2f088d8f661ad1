//! One client: a connection of its own, a session where the era has one, one call at a time, every
//! answer checked.

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use seawall_bench::Setup;
use tokio::net::TcpStream;

use super::targets::Target;

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"overhead","version":"1"}}}"#;
const META: &str = r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"overhead","version":"1"}}"#;
/// How much is looked at on either end of an answer; what lies between is the letter that the tool
/// gives.
const ENDS: usize = 512;

/// How a server is spoken to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

/// What a call gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Large,
}

impl Size {
    /// The tool that gives it.
    pub(crate) fn tool(self) -> &'static str {
        match self {
            Size::Small => "small",
            Size::Large => "large",
        }
    }

    fn at_least(self) -> usize {
        match self {
            Size::Small => 440,
            Size::Large => 1_000_000,
        }
    }
}

/// One client.
pub(crate) struct Session {
    sender: SendRequest<Full<Bytes>>,
    headers: HeaderMap,
    path: &'static str,
    /// A call, from after its id.
    call: String,
    size: Size,
    next: u64,
}

impl Session {
    /// Connects, and shakes hands where the era does that.
    pub(crate) async fn open(target: &Target, size: Size) -> Setup<Self> {
        let tcp = TcpStream::connect(target.address).await?;
        tcp.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(tcp)).await?;
        tokio::spawn(connection);
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(&target.address.to_string())?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if let Some(token) = &target.token {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}"))?);
        }
        let name = format!("{}{}", target.prefix, size.tool());
        let meta = if target.era == Era::Modern { META } else { "" };
        let call = format!(
            r#","method":"tools/call","params":{{"name":"{name}","arguments":{{"city":"Oslo"}}{meta}}}}}"#
        );
        let mut session = Self { sender, headers, path: target.path, call, size, next: 0 };
        match target.era {
            Era::Legacy => session.shake_hands().await?,
            Era::Modern => {
                session.headers.insert(VERSION, HeaderValue::from_static("2026-07-28"));
                session.headers.insert("mcp-method", HeaderValue::from_static("tools/call"));
                session.headers.insert("mcp-name", HeaderValue::from_str(&name)?);
            }
        }
        Ok(session)
    }

    async fn shake_hands(&mut self) -> Setup<()> {
        let response = self.send(Method::POST, Bytes::from_static(INITIALIZE.as_bytes())).await?;
        if let Some(session) = response.headers().get(SESSION).cloned() {
            self.headers.insert(SESSION, session);
        }
        let answer = response.into_body().collect().await?.to_bytes();
        let answer = std::str::from_utf8(&answer)?;
        let version =
            answer.split_once(r#""protocolVersion":""#).and_then(|(_, rest)| rest.split_once('"'));
        let (version, _) = version.ok_or_else(|| format!("no handshake: {answer}"))?;
        self.headers.insert(VERSION, HeaderValue::from_str(version)?);
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let response = self.send(Method::POST, Bytes::from_static(initialized.as_bytes())).await?;
        response.into_body().collect().await?;
        Ok(())
    }

    async fn send(&mut self, method: Method, body: Bytes) -> Setup<Response<Incoming>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = http::Uri::from_static(self.path);
        request.headers_mut().clone_from(&self.headers);
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }

    /// One call; whether it was answered as it had to be.
    pub(crate) async fn call(&mut self) -> Setup<bool> {
        self.next += 1;
        let id = format!(r#""id":{}"#, self.next);
        let body = [r#"{"jsonrpc":"2.0","#, &id, &self.call].concat();
        let response = self.send(Method::POST, body.into()).await?;
        let is_ok = response.status() == StatusCode::OK;
        let seen = Seen::read(response.into_body()).await?;
        Ok(is_ok && seen.bytes >= self.size.at_least() && seen.answers(&id))
    }

    /// Ends the session, so that nobody keeps it.
    pub(crate) async fn close(mut self) -> Setup<()> {
        if self.headers.contains_key(SESSION) {
            self.send(Method::DELETE, Bytes::new()).await?.into_body().collect().await?;
        }
        Ok(())
    }
}

/// What is kept of an answer: its size, and where everything stands that is not the letter.
#[derive(Default)]
struct Seen {
    bytes: usize,
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Seen {
    async fn read(mut body: Incoming) -> Setup<Self> {
        let mut seen = Self::default();
        while let Some(frame) = body.frame().await {
            let frame = frame?;
            let Some(piece) = frame.data_ref() else { continue };
            seen.bytes += piece.len();
            let wanted = piece.len().min(ENDS - seen.first.len().min(ENDS));
            seen.first.extend_from_slice(&piece[..wanted]);
            let rest = &piece[wanted..];
            seen.last.extend_from_slice(&rest[rest.len().saturating_sub(ENDS)..]);
            let old = seen.last.len().saturating_sub(ENDS);
            seen.last.drain(..old);
        }
        Ok(seen)
    }

    /// Whether it is the result of this call, and not of one that failed.
    fn answers(&self, id: &str) -> bool {
        let ends = [self.first.as_slice(), &self.last].map(String::from_utf8_lossy);
        let has = |text: &str| ends.iter().any(|end| end.contains(text));
        let has_id = ends.iter().any(|end| {
            let follows = end.split_once(id).and_then(|(_, rest)| rest.chars().next());
            follows.is_some_and(|next| !next.is_ascii_digit())
        });
        has_id && has(r#""result":"#) && !has(r#""isError":true"#) && !has(r#""error":"#)
    }
}
