//! How a conversation begins: in the client's own era if the server speaks it, else in the other.
//!
//! A legacy client's server is asked with `initialize` first, a modern client's with `server/discover`. Where the
//! transport was guessed and HTTP refuses both, the server may be one of before streamable HTTP. What a server turned
//! out to speak is remembered as a hint, so that the question that fails is not asked each time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::time::Instant;

use super::http::Http;
use super::{Failure, Link, Server, Wire, beginning, child, sse, ws};
use crate::config::{Secret, Transport};
use crate::protocol::edit::{Object, quoted};
use crate::protocol::names::{self, CLIENT_CAPABILITIES, CLIENT_INFO, Era, MODERN, PROTOCOL_VERSION};
use crate::protocol::server_info::Hello;
use crate::protocol::{Kind, Message, hash, limits, scan};
use crate::upstream::call::Outlet;

/// What a client brings to a handshake.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The era to try first.
    pub prefer: Era,
    /// The params of `initialize`.
    pub initialize: Bytes,
    /// The `_meta` of modern requests.
    pub meta: Bytes,
}

impl Opening {
    /// The revision that the client asked for.
    pub fn version(&self) -> String {
        let version =
            Object::of(&self.initialize).get("protocolVersion").and_then(scan::text).map(|text| text.into_owned());
        version.unwrap_or_default()
    }

    /// The name under which is remembered what a server says to clients like this one.
    pub fn key(&self, server: &Server) -> String {
        let params = Object::of(&self.initialize);
        let era = if self.prefer == Era::Modern { b"modern" } else { b"legacy" };
        let part = |name| params.get(name).unwrap_or_default();
        let client = hash::key(&[era, part("protocolVersion"), part("capabilities")]);
        format!("{}-{client}", server.remembered_as())
    }
}

/// How a try to shake hands ended.
enum Tried {
    Agreed(Hello),
    /// The server does not speak this era, or says nothing at all.
    NotSpoken(Failure),
}

/// Why no conversation began.
struct Refused {
    failure: Failure,
    /// The address takes no POST in either era, which is how a server answers that speaks SSE only.
    takes_no_post: bool,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self { failure, takes_no_post: false }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        refused.failure
    }
}

impl Server {
    /// Tries once to open a conversation; what belongs to no call goes to `general`.
    pub(super) async fn shake(&self, opening: &Opening, general: &Arc<dyn Outlet>) -> Result<Arc<Link>, Failure> {
        let Some(older) = &self.older else { return Ok(self.begin(&self.transport, opening, general).await?) };
        if self.is_older.load(Ordering::Acquire) {
            match self.begin(older, opening, general).await {
                // It was renewed since: it is asked from the start.
                Err(Refused { failure: Failure::Status { .. } | Failure::Handshake(_), .. }) => {
                    self.is_older.store(false, Ordering::Release);
                }
                opened => return Ok(opened?),
            }
        }
        match self.begin(&self.transport, opening, general).await {
            Err(Refused { failure, takes_no_post: true }) => {
                let opened = self.begin(older, opening, general).await;
                self.is_older.store(opened.is_ok(), Ordering::Release);
                opened.map_err(|again| neither(&failure, again.failure))
            }
            opened => Ok(opened?),
        }
    }

    /// Opens a conversation over one transport.
    async fn begin(
        &self,
        transport: &Transport,
        opening: &Opening,
        general: &Arc<dyn Outlet>,
    ) -> Result<Arc<Link>, Refused> {
        let is_sse = matches!(transport, Transport::Sse { .. });
        let first = if is_sse { Era::Legacy } else { self.only_speaks().unwrap_or(opening.prefer) };
        let link = self.connect(transport, general).await?;
        let time = HandshakeTime::of(transport);
        let refused = match greet(&link, first, opening, time.within(probe_time(first))).await? {
            Tried::Agreed(hello) => return Ok(self.agreed(link, hello)),
            Tried::NotSpoken(failure) => failure,
        };
        if time.is_over() {
            link.close().await;
            return Err(refused.into());
        }
        // Some servers end when they are asked what they do not know.
        let link = if link.is_alive() { link } else { self.connect(transport, general).await? };
        let second = other(first);
        let refused_again = match greet(&link, second, opening, time.within(limits::HANDSHAKE)).await? {
            Tried::Agreed(hello) => {
                self.note_only(second);
                return Ok(self.agreed(link, hello));
            }
            Tried::NotSpoken(failure) => failure,
        };
        if matches!(refused, Failure::Silent(_))
            && !time.is_over()
            && let Tried::Agreed(hello) = greet(&link, first, opening, time.within(limits::HANDSHAKE)).await?
        {
            return Ok(self.agreed(link, hello));
        }
        link.close().await;
        let takes_no_post = is_no_post(&refused) && is_no_post(&refused_again);
        Err(Refused { failure: refused, takes_no_post })
    }

    fn agreed(&self, link: Arc<Link>, hello: Hello) -> Arc<Link> {
        link.agree(hello, self);
        link
    }

    async fn connect(&self, transport: &Transport, general: &Arc<dyn Outlet>) -> Result<Arc<Link>, Failure> {
        let general = Arc::clone(general);
        match transport {
            Transport::Stdio { .. } => child::start(self, transport, general).await,
            Transport::Http { url, headers, .. } => {
                let ended = self.lifecycle.ended.child_token();
                let http = Http::new(self.http.get()?, url.clone(), header_map(headers)?, ended.clone());
                Ok(Link::new(&self.name, Wire::Http(Box::new(http)), general, ended))
            }
            Transport::Sse { url, headers } => sse::open(self, url, header_map(headers)?, general).await,
            Transport::Ws { url, headers } => ws::open(self, url, header_map(headers)?, general).await,
            Transport::Incomplete { .. } => Err(Failure::Impossible(transport.why_incomplete().unwrap_or_default())),
        }
    }
}

/// How long a handshake may take. A command may have to install something before it can answer, so each question to it has
/// its own time; a remote server is there or it is not, and all questions to it have one.
struct HandshakeTime(Option<Instant>);

impl HandshakeTime {
    fn of(transport: &Transport) -> Self {
        let is_process = matches!(transport, Transport::Stdio { .. });
        Self((!is_process).then(|| Instant::now() + limits::REMOTE_HANDSHAKE))
    }

    /// As long as this, or as is left.
    fn within(&self, most: Duration) -> Duration {
        self.0.map_or(most, |end| most.min(end.saturating_duration_since(Instant::now())))
    }

    fn is_over(&self) -> bool {
        self.within(Duration::MAX).is_zero()
    }
}

/// The server speaks neither streamable HTTP nor SSE; if that is why, both reasons are told.
fn neither(http: &Failure, sse: Failure) -> Failure {
    match sse {
        Failure::Status { .. } | Failure::Handshake(_) => {
            Failure::Handshake(format!("as streamable HTTP it {http}; as SSE it {sse}"))
        }
        sse => sse,
    }
}

fn is_no_post(failure: &Failure) -> bool {
    matches!(failure, Failure::Status { status: 400 | 404 | 405, .. })
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

/// Shakes hands in one era.
async fn greet(link: &Arc<Link>, era: Era, opening: &Opening, time: Duration) -> Result<Tried, Failure> {
    let discover = [br#"{"_meta":"#.as_slice(), &opening.meta, b"}"].concat();
    let asked = async {
        match era {
            Era::Legacy => link.ask("initialize", &opening.initialize).await,
            Era::Modern => link.ask("server/discover", &discover).await,
        }
    };
    match tokio::time::timeout(time, asked).await {
        Ok(Ok(answer)) if answer.kind() == Kind::Result => Ok(understood(era, &answer)),
        Ok(Ok(answer)) => {
            let text = answer.field_text("message").unwrap_or_default();
            Ok(Tried::NotSpoken(Failure::Handshake(beginning(&text))))
        }
        Ok(Err(failure @ Failure::Status { status: 400 | 404 | 405 | 406 | 415, .. })) => Ok(Tried::NotSpoken(failure)),
        Ok(Err(failure @ Failure::Lost(_))) => Ok(Tried::NotSpoken(failure)),
        Ok(Err(failure)) => Err(failure),
        Err(_) => Ok(Tried::NotSpoken(Failure::Silent(time))),
    }
}

fn understood(era: Era, answer: &Message) -> Tried {
    let Some(body) = answer.body() else {
        return Tried::NotSpoken(Failure::Handshake("an answer without a result".to_owned()));
    };
    let result = answer.slice(body);
    let version = match era {
        Era::Legacy => answer.field_text("protocolVersion").map(|version| version.into_owned()),
        Era::Modern => answer.field("supportedVersions").and_then(|versions| {
            let mut versions = scan::elements(answer.raw(), versions).into_iter();
            let is_ours = |span: &scan::Span| scan::text(span.of(answer.raw())).as_deref() == Some(names::MODERN);
            versions.find(is_ours).map(|_| names::MODERN.to_owned())
        }),
    };
    match version {
        Some(version) => Tried::Agreed(Hello { era, version, result }),
        None => Tried::NotSpoken(Failure::Handshake("it names no protocol version that is known here".to_owned())),
    }
}

fn header_map(headers: &[(http::HeaderName, Secret)]) -> Result<HeaderMap, Failure> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let mut value = http::HeaderValue::from_str(value.expose()).map_err(|_| {
            Failure::Impossible(format!("the configured header {name} has a value that cannot be sent"))
        })?;
        value.set_sensitive(true);
        map.insert(name.clone(), value);
    }
    Ok(map)
}

/// The `_meta` of every modern request that is made for a client with these `initialize` params.
pub fn meta(initialize: &[u8]) -> Bytes {
    let params = Object::of(initialize);
    let mut meta = Object::default();
    meta.set(PROTOCOL_VERSION, quoted(MODERN));
    meta.set(CLIENT_CAPABILITIES, params.get("capabilities").unwrap_or(b"{}"));
    if let Some(info) = params.get("clientInfo") {
        meta.set(CLIENT_INFO, info);
    }
    meta.json().into()
}
