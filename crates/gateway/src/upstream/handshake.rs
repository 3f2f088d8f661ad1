//! Decides in which era a connection begins: the client's own if the server speaks it, else the
//! other.
//!
//! For a legacy client the server is sent `initialize` first, for a modern client
//! `server/discover`. If the transport was guessed and HTTP refuses both, the server may predate
//! streamable HTTP, and SSE is tried. The era that a server turned out to speak is remembered as a
//! hint, so that later handshakes do not repeat the request that fails.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use tokio::time::Instant;

use super::http::HttpConnection;
use super::{Connection, Server, UpstreamFailure, Wire, beginning, child, sse, websocket};
use crate::config::{Secret, Transport};
use crate::protocol::edit::{JsonObject, quoted};
use crate::protocol::names::{
    self, CLIENT_CAPABILITIES, CLIENT_INFO, Era, MODERN, PROTOCOL_VERSION,
};
use crate::protocol::server_info::ServerInfo;
use crate::protocol::{Message, MessageKind, hash, limits, scan};
use crate::upstream::call::ClientSink;

/// A client's part of a handshake.
#[derive(Clone, Debug)]
pub struct HandshakeParams {
    /// The era to try first.
    pub prefer: Era,
    /// The params of `initialize`.
    pub initialize: Bytes,
    /// The `_meta` of modern requests.
    pub meta: Bytes,
    /// The client's own headers, for servers that get one of them.
    pub headers: ClientHeaders,
}

/// The headers of a client's last request, as far as servers get any of them. A connection that is
/// opened again gets the newest: a client renews its tokens.
#[derive(Clone, Debug, Default)]
pub struct ClientHeaders(Arc<Mutex<HeaderMap>>);

impl ClientHeaders {
    /// The headers of one request.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self(Arc::new(Mutex::new(headers.clone())))
    }

    /// Notes the headers of a later request.
    pub(crate) fn renew(&self, headers: &HeaderMap) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = headers.clone();
    }

    fn now(&self) -> HeaderMap {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl HandshakeParams {
    /// The protocol revision that the client asked for.
    pub fn version(&self) -> String {
        let version = JsonObject::of(&self.initialize)
            .get("protocolVersion")
            .and_then(scan::text)
            .map(|text| text.into_owned());
        version.unwrap_or_default()
    }

    /// The catalog cache key for this server's answers to clients with the same era, revision and
    /// capabilities.
    pub fn key(&self, server: &Server) -> String {
        let params = JsonObject::of(&self.initialize);
        let era = if self.prefer == Era::Modern { b"modern" } else { b"legacy" };
        let part = |name| params.get(name).unwrap_or_default();
        let client = hash::key(&[era, part("protocolVersion"), part("capabilities")]);
        // What a server says to one account is not for another.
        match server.personal(&self.headers.now()).as_slice() {
            [] => format!("{}-{client}", server.remembered_as()),
            own => format!("{}.{}-{client}", server.remembered_as(), hash::key(own)),
        }
    }
}

/// The outcome of one handshake attempt in one era.
enum HandshakeAttempt {
    Agreed(ServerInfo),
    /// The server does not speak this era, or does not answer at all.
    NotSpoken(UpstreamFailure),
}

/// Why no connection was opened.
struct HandshakeRefused {
    failure: UpstreamFailure,
    /// The URL refuses POST in both eras, as a server does that speaks only SSE.
    takes_no_post: bool,
}

impl From<UpstreamFailure> for HandshakeRefused {
    fn from(failure: UpstreamFailure) -> Self {
        Self { failure, takes_no_post: false }
    }
}

impl From<HandshakeRefused> for UpstreamFailure {
    fn from(refused: HandshakeRefused) -> Self {
        refused.failure
    }
}

impl Server {
    /// Tries once to open a connection; messages that belong to no call go to `general`.
    pub(super) async fn shake(
        &self,
        handshake: &HandshakeParams,
        general: &Arc<dyn ClientSink>,
    ) -> Result<Arc<Connection>, UpstreamFailure> {
        let Some(older) = &self.older else {
            return Ok(self.begin(&self.transport, handshake, general).await?);
        };
        if self.is_older.load(Ordering::Acquire) {
            match self.begin(older, handshake, general).await {
                // The server was upgraded since: start again with streamable HTTP.
                Err(HandshakeRefused {
                    failure: UpstreamFailure::Status { .. } | UpstreamFailure::Handshake(_),
                    ..
                }) => {
                    self.is_older.store(false, Ordering::Release);
                }
                opened => return Ok(opened?),
            }
        }
        match self.begin(&self.transport, handshake, general).await {
            Err(HandshakeRefused { failure, takes_no_post: true }) => {
                let opened = self.begin(older, handshake, general).await;
                self.is_older.store(opened.is_ok(), Ordering::Release);
                opened.map_err(|again| neither(&failure, again.failure))
            }
            opened => Ok(opened?),
        }
    }

    /// Opens a connection over one transport.
    async fn begin(
        &self,
        transport: &Transport,
        handshake: &HandshakeParams,
        general: &Arc<dyn ClientSink>,
    ) -> Result<Arc<Connection>, HandshakeRefused> {
        let is_sse = matches!(transport, Transport::Sse { .. });
        let first =
            if is_sse { Era::Legacy } else { self.only_speaks().unwrap_or(handshake.prefer) };
        let connection = self.connect(transport, handshake, general).await?;
        let time = HandshakeTime::of(transport);
        let refused =
            match greet(&connection, first, handshake, time.within(probe_time(first))).await? {
                HandshakeAttempt::Agreed(info) => return Ok(self.agreed(connection, info)),
                HandshakeAttempt::NotSpoken(failure) => failure,
            };
        if time.is_over() {
            connection.close().await;
            return Err(refused.into());
        }
        // Some servers exit when they get a request that they do not know.
        let connection = if connection.is_alive() {
            connection
        } else {
            self.connect(transport, handshake, general).await?
        };
        let second = other(first);
        let refused_again =
            match greet(&connection, second, handshake, time.within(limits::HANDSHAKE)).await? {
                HandshakeAttempt::Agreed(info) => {
                    // Noted only after the first era failed: a server that speaks both gets each
                    // client in its own era.
                    self.note_only(second);
                    return Ok(self.agreed(connection, info));
                }
                HandshakeAttempt::NotSpoken(failure) => failure,
            };
        // A slow starter may have missed the short probe in the first era: it gets one full attempt
        // more.
        if matches!(refused, UpstreamFailure::Silent(_))
            && !time.is_over()
            && let HandshakeAttempt::Agreed(info) =
                greet(&connection, first, handshake, time.within(limits::HANDSHAKE)).await?
        {
            return Ok(self.agreed(connection, info));
        }
        connection.close().await;
        let takes_no_post = is_no_post(&refused) && is_no_post(&refused_again);
        Err(HandshakeRefused { failure: refused, takes_no_post })
    }

    fn agreed(&self, connection: Arc<Connection>, info: ServerInfo) -> Arc<Connection> {
        connection.agree(info, self);
        connection
    }

    async fn connect(
        &self,
        transport: &Transport,
        handshake: &HandshakeParams,
        general: &Arc<dyn ClientSink>,
    ) -> Result<Arc<Connection>, UpstreamFailure> {
        let general = Arc::clone(general);
        let header_map = |configured: &[(HeaderName, Secret)]| {
            let mut headers = header_map(configured)?;
            headers.extend(self.passed(&handshake.headers.now()));
            Ok::<_, UpstreamFailure>(headers)
        };
        match transport {
            Transport::Stdio { .. } => child::start(self, transport, general).await,
            Transport::Http { url, headers, .. } => {
                let ended = self.lifecycle.ended.child_token();
                let http = HttpConnection::new(
                    self.http.get().map_err(UpstreamFailure::Impossible)?,
                    url.clone(),
                    header_map(headers)?,
                    ended.clone(),
                );
                Ok(Connection::new(&self.name, Wire::Http(Box::new(http)), general, ended))
            }
            Transport::Sse { url, headers } => {
                sse::open(self, url, header_map(headers)?, general).await
            }
            Transport::Ws { url, headers } => {
                websocket::open(self, url, header_map(headers)?, general).await
            }
            Transport::Incomplete { .. } => {
                Err(UpstreamFailure::Impossible(transport.why_incomplete().unwrap_or_default()))
            }
        }
    }
}

/// The time budget of a handshake. A command may have to install something before it can answer, so
/// each request to it has its own timeout; all requests to a remote server, which is up or not,
/// share one deadline.
struct HandshakeTime(Option<Instant>);

impl HandshakeTime {
    fn of(transport: &Transport) -> Self {
        let is_process = matches!(transport, Transport::Stdio { .. });
        Self((!is_process).then(|| Instant::now() + limits::REMOTE_HANDSHAKE))
    }

    /// At most `most`, and no more than the remaining time.
    fn within(&self, most: Duration) -> Duration {
        self.0.map_or(most, |end| most.min(end.saturating_duration_since(Instant::now())))
    }

    fn is_over(&self) -> bool {
        self.within(Duration::MAX).is_zero()
    }
}

/// The failure of a server that refused both streamable HTTP and SSE: both reasons, if SSE was
/// refused as well.
fn neither(http: &UpstreamFailure, sse: UpstreamFailure) -> UpstreamFailure {
    match sse {
        UpstreamFailure::Status { .. } | UpstreamFailure::Handshake(_) => {
            UpstreamFailure::Handshake(format!("as streamable HTTP it {http}; as SSE it {sse}"))
        }
        sse => sse,
    }
}

fn is_no_post(failure: &UpstreamFailure) -> bool {
    matches!(failure, UpstreamFailure::Status { status: 400 | 404 | 405, .. })
}

fn other(era: Era) -> Era {
    match era {
        Era::Legacy => Era::Modern,
        Era::Modern => Era::Legacy,
    }
}

fn probe_time(era: Era) -> Duration {
    if era == Era::Modern { limits::PROBE } else { limits::HANDSHAKE }
}

/// Performs the handshake in one era.
async fn greet(
    connection: &Arc<Connection>,
    era: Era,
    handshake: &HandshakeParams,
    time: Duration,
) -> Result<HandshakeAttempt, UpstreamFailure> {
    let discover = [br#"{"_meta":"#.as_slice(), &handshake.meta, b"}"].concat();
    let asked = async {
        match era {
            Era::Legacy => connection.ask("initialize", &handshake.initialize).await,
            Era::Modern => connection.ask("server/discover", &discover).await,
        }
    };
    match tokio::time::timeout(time, asked).await {
        Ok(Ok(answer)) if answer.kind() == MessageKind::Result => Ok(understood(era, &answer)),
        Ok(Ok(answer)) => {
            let text = answer.field_text("message").unwrap_or_default();
            Ok(HandshakeAttempt::NotSpoken(UpstreamFailure::Handshake(beginning(&text))))
        }
        Ok(Err(failure @ UpstreamFailure::Status { status: 400 | 404 | 405 | 406 | 415, .. })) => {
            Ok(HandshakeAttempt::NotSpoken(failure))
        }
        // A server that dies of the request may still speak the other era, on a new connection.
        Ok(Err(failure @ UpstreamFailure::Lost(_))) => Ok(HandshakeAttempt::NotSpoken(failure)),
        Ok(Err(failure)) => Err(failure),
        Err(_) => Ok(HandshakeAttempt::NotSpoken(UpstreamFailure::Silent(time))),
    }
}

fn understood(era: Era, answer: &Message) -> HandshakeAttempt {
    let Some(body) = answer.body() else {
        return HandshakeAttempt::NotSpoken(UpstreamFailure::Handshake(
            "an answer without a result".to_owned(),
        ));
    };
    let result = answer.slice(body);
    let version = match era {
        Era::Legacy => answer.field_text("protocolVersion").map(|version| version.into_owned()),
        Era::Modern => answer.field("supportedVersions").and_then(|versions| {
            let mut versions = scan::elements(answer.raw(), versions).into_iter();
            let is_ours = |span: &scan::Span| {
                scan::text(span.of(answer.raw())).as_deref() == Some(names::MODERN)
            };
            versions.find(is_ours).map(|_| names::MODERN.to_owned())
        }),
    };
    match version {
        Some(version) => HandshakeAttempt::Agreed(ServerInfo { era, version, result }),
        None => HandshakeAttempt::NotSpoken(UpstreamFailure::Handshake(
            "it names no protocol version that is known here".to_owned(),
        )),
    }
}

fn header_map(headers: &[(http::HeaderName, Secret)]) -> Result<HeaderMap, UpstreamFailure> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let mut value = http::HeaderValue::from_str(value.expose()).map_err(|_| {
            UpstreamFailure::Impossible(format!(
                "the configured header {name} has a value that cannot be sent"
            ))
        })?;
        value.set_sensitive(true);
        map.insert(name.clone(), value);
    }
    Ok(map)
}

/// The `_meta` of every modern request that the gateway makes for a client with these `initialize`
/// params.
pub(crate) fn meta(initialize: &[u8]) -> Bytes {
    let params = JsonObject::of(initialize);
    let mut meta = JsonObject::default();
    meta.set(PROTOCOL_VERSION, quoted(MODERN));
    meta.set(CLIENT_CAPABILITIES, params.get("capabilities").unwrap_or(b"{}"));
    if let Some(info) = params.get("clientInfo") {
        meta.set(CLIENT_INFO, info);
    }
    meta.json().into()
}
