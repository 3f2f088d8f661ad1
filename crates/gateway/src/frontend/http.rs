//! Decides which HTTP requests reach the gateway, and whether they speak the legacy or the modern
//! era.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http::header::ALLOW;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use super::admission;
use super::body::{self, BodyLimits, NoBody};
use super::connection::{self, ConnectionLimit, ConnectionPermit};
use super::guard::OriginGuard;
use super::refused::{self, RefusedId, RefusedMessage};
use super::respond::{self, Body};
use super::sessions::Sessions;
use super::{legacy, modern, records, versions};
use crate::authz::CallOrigin;
use crate::gateway::Gateway;
use crate::protocol::budget::ByteBudget;
use crate::protocol::names::Era;
use crate::protocol::{Outline, Reject, header, limits};
use crate::route::Route;
use crate::runtime::log;
use crate::runtime::turn::OneTurn;
use crate::store::journal::JournalPlace;

/// A listener for clients.
pub(crate) struct HttpListener {
    gateway: Arc<Gateway>,
    guard: OriginGuard,
    sessions: Arc<Sessions>,
    room: BodyLimits,
    tcp: TcpListener,
}

/// The refusal to listen on an address that other machines can reach, where everybody may call.
pub(crate) fn refusal(address: SocketAddr, has_identity: bool) -> Option<String> {
    (!address.ip().is_loopback() && !has_identity).then(|| {
        format!(
            "refusing to listen on {address}: everyone who reaches it could use every tool; say who may call \
             ([[identity.jwt]] or [[identity.api_keys]]), or listen on 127.0.0.1"
        )
    })
}

impl HttpListener {
    /// Binds an address. An address that other machines can reach needs identity.
    pub(crate) async fn bind(
        gateway: Arc<Gateway>,
        address: SocketAddr,
        guard: OriginGuard,
    ) -> io::Result<Self> {
        if let Some(why) = refusal(address, gateway.all().access.identity.is_some()) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let tcp = TcpListener::bind(address).await?;
        let room = BodyLimits {
            largest: gateway.now().config.max_request,
            budget: ByteBudget::new(limits::REQUEST_BYTES),
        };
        let folder = gateway.all().catalog_cache.sessions();
        gateway.note_writes(&records::place(tcp.local_addr()?), JournalPlace::ForOne);
        let sessions = Arc::new(Sessions::new(&gateway, folder.as_deref(), tcp.local_addr()?));
        Ok(Self { gateway, guard, sessions, room, tcp })
    }

    /// The address that the listener is bound to.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves until the gateway drains; then lets every connection finish its requests.
    pub(crate) async fn serve(self) {
        let draining = self.gateway.lifecycle.draining.clone();
        let places = ConnectionLimit::new(limits::CONNECTIONS);
        let frontend = Arc::new(HttpServer {
            gateway: self.gateway,
            guard: self.guard,
            sessions: self.sessions,
            room: self.room,
        });
        let idle = frontend.gateway.now().config.session_idle;
        let mut sweep = tokio::time::interval(limits::SESSION_LOOK.min(idle / 4));
        let mut changes = frontend.gateway.changes();
        loop {
            tokio::select! {
                () = draining.cancelled() => break,
                _ = sweep.tick() => frontend.sweep(),
                Ok(()) = changes.changed() => frontend.move_sessions(),
                accepted = places.accept(&self.tcp) => if let Some((tcp, _, place)) = accepted {
                    frontend.gateway.lifecycle.connect(Arc::clone(&frontend).connection(place, tcp));
                },
            }
        }
        // New connections are refused at once from here on, instead of waiting for the end of the
        // shutdown.
        drop(self.tcp);
        frontend.gateway.lifecycle.closing.cancelled().await;
        for session in frontend.sessions.remove_all() {
            session.session.close().await;
        }
    }
}

/// The state that all connections of a listener share.
struct HttpServer {
    gateway: Arc<Gateway>,
    guard: OriginGuard,
    sessions: Arc<Sessions>,
    room: BodyLimits,
}

impl HttpServer {
    fn sweep(&self) {
        // Frees answers that no client came back for, even if no new call needs the room.
        let (all, idle) = (self.gateway.all(), self.gateway.now().config.session_idle);
        all.policies.pipeline.sweep();
        all.give_back(idle);
        for session in self.sessions.remove_idle() {
            tokio::spawn(async move { session.session.close().await });
        }
        for session in self.sessions.idle_for(idle) {
            let supervisors = session.session.give_back();
            if !supervisors.is_empty() {
                log::line(&format!(
                    "a session was idle for {idle:?}: its servers are stopped; its next call starts them"
                ));
            }
            for supervisor in supervisors {
                tokio::spawn(async move { supervisor.close().await });
            }
        }
    }

    /// Another configuration is in force.
    fn move_sessions(&self) {
        for lost in self.sessions.move_all() {
            lost.session.retire();
        }
    }

    async fn connection(
        self: Arc<Self>,
        place: ConnectionPermit,
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) {
        let lifecycle = Arc::clone(&self.gateway.lifecycle);
        let answer = move |request| {
            let frontend = Arc::clone(&self);
            async move { frontend.answer(request).await }
        };
        let (draining, ended) = (&lifecycle.draining, &lifecycle.ended);
        OneTurn::new(connection::serve(place, io, draining, ended, answer)).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if let Err(foreign) = self.guard.check(request.uri(), request.headers()) {
            return respond::refuse(StatusCode::FORBIDDEN, foreign.why());
        }
        if let Some(metadata) = admission::metadata(&self.gateway, &request) {
            return metadata;
        }
        let (parts, sent) = request.into_parts();
        match self.admitted(&parts).await {
            Ok((route, origin)) => self.answer_to(&route, &origin, &parts, sent).await,
            Err(refusal) => *refusal,
        }
    }

    /// The route of a request and where it comes from, if its client may use that route. Who asks
    /// is found out first: a stranger learns nothing about what is here.
    async fn admitted(
        &self,
        parts: &Parts,
    ) -> Result<(Arc<Route>, Arc<CallOrigin>), Box<Response<Body>>> {
        // One configuration decides who asks and what is here.
        let now = self.gateway.now();
        let access = &now.all.access;
        let origin = admission::admit(access, self.gateway.tracer(), parts).await?;
        let Some(route) = now.route(parts.uri.path()) else {
            return Err(Box::new(respond::refuse(
                StatusCode::NOT_FOUND,
                "there is nothing here; MCP is at /mcp and /mcp/<server>",
            )));
        };
        admission::may_use(access, route, origin.principal.as_ref(), None)?;
        Ok((Arc::clone(route), origin))
    }

    async fn answer_to(
        &self,
        route: &Arc<Route>,
        origin: &Arc<CallOrigin>,
        parts: &Parts,
        sent: Incoming,
    ) -> Response<Body> {
        let version = parts.headers.get(header::VERSION).map(|value| value.to_str().unwrap_or("?"));
        let is_modern = version == Some(crate::protocol::names::MODERN);
        match parts.method {
            Method::POST => {}
            Method::GET if !is_modern => {
                return Box::pin(legacy::get(&self.sessions, origin, parts)).await;
            }
            Method::DELETE if !is_modern => {
                return Box::pin(legacy::delete(&self.sessions, origin, parts)).await;
            }
            _ => return not_allowed(is_modern),
        }
        if let Some(refusal) = body::unreadable(&parts.headers) {
            return refusal;
        }
        let message = match body::read(sent, &self.room).await {
            Ok(bytes) => refused::parsed(bytes),
            Err(NoBody::Broken(response)) => return *response,
            Err(NoBody::Untaken(untaken, outline)) => Err((untaken, outline)),
        };
        let (untaken, outline) = match message {
            Ok(message) => {
                let who = origin.principal.as_ref();
                if let Err(refusal) = admission::may_use(&route.access, route, who, Some(&message))
                {
                    return *refusal;
                }
                return match versions::era(&message, version) {
                    Era::Modern => modern::post(route, origin, parts, message).await,
                    Era::Legacy => {
                        legacy::post(&self.sessions, route, origin, parts, message).await
                    }
                };
            }
            Err(untaken) => untaken,
        };
        let outline = Outline { is_modern: outline.is_modern || is_modern, ..outline };
        self.refuse(route, origin, parts, &untaken, &outline)
    }

    /// Answers a message that is not taken. If its sender waits for an answer, the HTTP status is
    /// 200: clients end their session over HTTP errors.
    fn refuse(
        &self,
        route: &Route,
        origin: &CallOrigin,
        parts: &Parts,
        untaken: &RefusedMessage,
        outline: &Outline,
    ) -> Response<Body> {
        let told = untaken.tell(route, outline);
        let is_first = outline.method.as_deref() == Some("initialize")
            && !parts.headers.contains_key(header::SESSION);
        let needs_session =
            !outline.is_modern && !is_first && !matches!(told, RefusedId::Nobody(_));
        let session = match needs_session
            .then(|| legacy::find(&self.sessions, origin, parts, outline.id.as_ref()))
            .transpose()
        {
            Ok(session) => session,
            Err(response) => return *response,
        };
        match (told, session) {
            (RefusedId::Sender(answer), _) => respond::json(StatusCode::OK, answer),
            (RefusedId::Server(answer), Some(session)) => {
                session.session.answered(answer);
                respond::empty(StatusCode::ACCEPTED)
            }
            (RefusedId::Server(_), None) => {
                respond::refuse(StatusCode::BAD_REQUEST, "nobody asked for this answer")
            }
            (RefusedId::Nobody(error), _) => {
                let is_large = matches!(untaken, RefusedMessage::Rejected(Reject::Size(_)));
                let status =
                    if is_large { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST };
                respond::error(status, None, &error)
            }
        }
    }
}

fn not_allowed(is_modern: bool) -> Response<Body> {
    let mut response =
        respond::refuse(StatusCode::METHOD_NOT_ALLOWED, "this method is not used here");
    let allowed = if is_modern { "POST" } else { "GET, POST, DELETE" };
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::Instant;

    use super::*;
    use crate::config::Config;

    /// A connection to a listener whose servers do not answer, and when it was opened.
    fn connected() -> (DuplexStream, Instant) {
        let config = Config::for_command(None, vec!["none".to_owned()]).unwrap();
        let (gateway, sessions) = (
            Gateway::new(&config, crate::store::catalog_cache::CatalogCache::default(), None)
                .unwrap(),
            Arc::default(),
        );
        let room = BodyLimits {
            largest: limits::FROM_CLIENT,
            budget: ByteBudget::new(limits::REQUEST_BYTES),
        };
        let (near, far) = tokio::io::duplex(1024);
        tokio::spawn(
            Arc::new(HttpServer { gateway, guard: OriginGuard::default(), sessions, room })
                .connection(ConnectionLimit::new(1).place().unwrap(), far),
        );
        (near, Instant::now())
    }

    async fn closed_after(mut near: DuplexStream, opened: Instant) -> u64 {
        let mut rest = Vec::new();
        let _reset = near.read_to_end(&mut rest).await;
        opened.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_says_nothing_or_not_enough_is_closed_after_ten_seconds() {
        for start in ["", "P", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r", "GET /mcp HTTP/1.1\r\nhost: "] {
            let (mut near, opened) = connected();
            near.write_all(start.as_bytes()).await.unwrap();
            assert_eq!(closed_after(near, opened).await, 10, "{start:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_drips_is_given_up_after_ten_seconds() {
        let (mut near, opened) = connected();
        for byte in b"PRI * HTTP/2.0\r\n\r\n" {
            tokio::time::sleep(Duration::from_millis(900)).await;
            if near.write_all(&[*byte]).await.is_err() {
                break;
            }
        }
        assert!(opened.elapsed() < Duration::from_secs(12));
        assert!(closed_after(near, opened).await < 12);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_of_http_2_that_is_not_used_is_closed_after_a_minute() {
        let (mut near, opened) = connected();
        near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let head = b"\x82\x86\x84\x01\x09localhost";
        let frame = [&[0, 0, u8::try_from(head.len()).unwrap(), 1, 5, 0, 0, 0, 1], head.as_slice()]
            .concat();
        near.write_all(&frame).await.unwrap();
        let after = closed_after(near, opened).await;
        assert_eq!(after, 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_its_answers_is_given_up() {
        let (mut near, opened) = connected();
        // More answers than the pipe holds.
        let _stuck = tokio::time::timeout(Duration::from_secs(9), async {
            while near.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.is_ok() {}
        })
        .await;
        let gave_up = async { while near.write_all(b" ").await.is_ok() {} };
        gave_up.await;
        let after = opened.elapsed().as_secs();
        assert_eq!(after, 60);
    }
}
