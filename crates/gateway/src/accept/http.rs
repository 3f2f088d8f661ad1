//! The HTTP listener: who may connect, how long they may take, and which era they speak.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::guard::Guard;
use super::respond::{self, Body};
use super::sessions::Sessions;
use super::{legacy, modern, versions};
use crate::gateway::Gateway;
use crate::wire::build::Error;
use crate::wire::names::Era;
use crate::wire::{Message, Reject, header, limits};

/// A listener for clients.
pub struct Listener {
    gateway: Arc<Gateway>,
    guard: Guard,
    sessions: Arc<Sessions>,
    tcp: TcpListener,
}

impl Listener {
    /// Binds an address. One that others can reach needs authentication, which is not there yet.
    pub async fn bind(gateway: Arc<Gateway>, address: SocketAddr, guard: Guard) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            let text = format!(
                "refusing to listen on {address}: everyone who reaches it could use every tool, and this version has no \
                 authentication; listen on 127.0.0.1 and put a proxy that authenticates in front"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let tcp = TcpListener::bind(address).await?;
        Ok(Self { gateway, guard, sessions: Arc::default(), tcp })
    }

    /// The address it listens on.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves until the gateway drains; then lets every connection finish what it began.
    pub async fn serve(self) {
        let draining = self.gateway.lifecycle.draining.clone();
        let room = Arc::new(Semaphore::new(limits::CONNECTIONS));
        let face = Arc::new(Face { gateway: self.gateway, guard: self.guard, sessions: self.sessions });
        let mut sweep = tokio::time::interval(Duration::from_secs(60));
        loop {
            tokio::select! {
                () = draining.cancelled() => break,
                _ = sweep.tick() => face.sweep(),
                accepted = self.tcp.accept() => match (accepted, Arc::clone(&room).try_acquire_owned()) {
                    (Ok((tcp, _)), Ok(permit)) => {
                        let connection = Arc::clone(&face);
                        face.gateway.lifecycle.connect(async move {
                            connection.connection(tcp).await;
                            drop(permit);
                        });
                    }
                    // Too many: closing at once is clearer than a connection that never answers.
                    (Ok(_), Err(_)) => {}
                    // No descriptors left, most likely: others must close first.
                    (Err(_), _) => tokio::time::sleep(Duration::from_millis(50)).await,
                },
            }
        }
        face.gateway.lifecycle.closing.cancelled().await;
        for session in face.sessions.remove_all() {
            session.session.close().await;
        }
    }
}

/// What every connection of a listener shares.
struct Face {
    gateway: Arc<Gateway>,
    guard: Guard,
    sessions: Arc<Sessions>,
}

impl Face {
    fn sweep(&self) {
        for session in self.sessions.remove_idle() {
            tokio::spawn(async move { session.session.close().await });
        }
    }

    async fn connection(self: Arc<Self>, tcp: TcpStream) {
        let _slower = tcp.set_nodelay(true);
        let face = Arc::clone(&self);
        let service = service_fn(move |request| {
            let face = Arc::clone(&face);
            async move { Ok::<_, std::convert::Infallible>(face.answer(request).await) }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(limits::HEADER_TIME).max_buf_size(64 << 10);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits::STREAMS)
            .keep_alive_interval(Duration::from_secs(30));
        let connection = builder.serve_connection(TokioIo::new(tcp), service);
        tokio::pin!(connection);
        let lifecycle = &self.gateway.lifecycle;
        tokio::select! {
            _ = connection.as_mut() => return,
            () = lifecycle.draining.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        let _over = lifecycle.ended.run_until_cancelled(connection).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if let Err(why) = self.guard.check(request.uri(), request.headers()) {
            return respond::refuse(StatusCode::FORBIDDEN, why);
        }
        let Some(route) = self.gateway.route(request.uri().path()).cloned() else {
            return respond::refuse(StatusCode::NOT_FOUND, "there is nothing here; MCP is at /mcp and /mcp/<server>");
        };
        let (parts, body) = request.into_parts();
        let version = parts.headers.get(header::VERSION).map(|value| value.to_str().unwrap_or("?"));
        let is_modern = version == Some(crate::wire::names::MODERN);
        match parts.method {
            Method::POST => {}
            Method::GET if !is_modern => return legacy::get(&self.sessions, &parts),
            Method::DELETE if !is_modern => return legacy::delete(&self.sessions, &parts).await,
            _ => return not_allowed(is_modern),
        }
        if let Some(refusal) = unreadable(&parts.headers) {
            return refusal;
        }
        let message = match read(body).await {
            Ok(bytes) => Message::parse(bytes),
            Err(response) => return *response,
        };
        match message {
            Ok(message) if versions::era(&message, version) == Era::Modern => {
                modern::post(&route, &parts, message).await
            }
            Ok(message) => legacy::post(&self.sessions, &route, &parts, message).await,
            Err(reject) => respond::error(StatusCode::BAD_REQUEST, None, &Error::from(&reject)),
        }
    }
}

fn not_allowed(is_modern: bool) -> Response<Body> {
    let mut response = respond::refuse(StatusCode::METHOD_NOT_ALLOWED, "this method is not used here");
    let allowed = if is_modern { "POST" } else { "GET, POST, DELETE" };
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// A body that is not plain JSON is not read.
fn unreadable(headers: &http::HeaderMap) -> Option<Response<Body>> {
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Some(respond::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a compressed body is not read here"));
    }
    let is_json = headers.get(CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json")
    });
    (!is_json).then(|| respond::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json"))
}

/// Reads a body within limits of size and time.
async fn read(mut body: Incoming) -> Result<Bytes, Box<Response<Body>>> {
    let too_large = || {
        let error = Error::from(&Reject::Size(limits::FROM_CLIENT));
        Box::new(respond::error(StatusCode::PAYLOAD_TOO_LARGE, None, &error))
    };
    if body.size_hint().lower() > limits::FROM_CLIENT as u64 {
        return Err(too_large());
    }
    let begun = tokio::time::Instant::now();
    let mut whole = BytesMut::new();
    loop {
        let earned = Duration::from_secs(whole.len() as u64 / limits::BODY_RATE);
        let frame = match tokio::time::timeout_at(begun + limits::BODY_TIME + earned, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => return Ok(whole.freeze()),
            Ok(Some(Err(_))) => return Err(Box::new(respond::refuse(StatusCode::BAD_REQUEST, "the body broke off"))),
            Err(_) => return Err(Box::new(respond::refuse(StatusCode::REQUEST_TIMEOUT, "the body came too slowly"))),
        };
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > limits::FROM_CLIENT {
            return Err(too_large());
        }
        if whole.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        whole.extend_from_slice(&data);
    }
}
