//! A connection over streamable HTTP, in both eras: one POST per message, answered with JSON or an
//! event stream.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use seawall::{Backoff, Rng};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connection::CallHeaders;
use super::response::{self, ResponseEvents, body, is_plain, is_stream};
use super::{Connection, UpstreamFailure, lost_session, redirect};
use crate::protocol::build::{INVALID_PARAMS, INVALID_REQUEST};
use crate::protocol::names::{Era, PROTOCOL_VERSION};
use crate::protocol::server_info::ServerInfo;
use crate::protocol::{Id, Message, MessageKind, Reject, header, limits, scan};
use crate::runtime::http_client::HttpClient;
use crate::upstream::call::GatewayCall;

const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// How often in a row a broken stream is resumed.
const RESUMES: u32 = 5;
/// The pause before a resume if the server names none.
const RESUME_AFTER: Duration = Duration::from_secs(1);
/// The bounds of a pause that the server names.
const RESUME_WITHIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));
/// A stream that lasted this long was not refused: the backoff starts over.
const LASTING: Duration = Duration::from_secs(10);
/// Notifications and answers in flight to one server at a time.
const TELLING: usize = 64;

/// One connection over HTTP.
pub struct HttpConnection {
    client: HttpClient,
    url: Uri,
    /// Where the server answers instead, if it redirected the handshake there.
    moved: OnceLock<Uri>,
    headers: HeaderMap,
    session: Mutex<Option<HeaderValue>>,
    agreed: OnceLock<(Era, HeaderValue)>,
    /// The headers of every POST, once the handshake has settled them.
    settled: OnceLock<HeaderMap>,
    ended: CancellationToken,
    telling: Semaphore,
}

type HttpReply = Result<Message, UpstreamFailure>;

impl HttpConnection {
    /// A connection to the server at `url`, with the operator's headers on every request.
    pub fn new(client: HttpClient, url: Uri, headers: HeaderMap, ended: CancellationToken) -> Self {
        let (session, agreed, settled) = (Mutex::new(None), OnceLock::new(), OnceLock::new());
        let (moved, telling) = (OnceLock::new(), Semaphore::new(TELLING));
        Self { client, url, moved, headers, session, agreed, settled, ended, telling }
    }

    /// Notes the handshake: from now on requests carry the agreed protocol revision.
    pub fn agree(&self, info: &ServerInfo) {
        let version = HeaderValue::from_str(&info.version).unwrap_or(HeaderValue::from_static(""));
        let _once = self.agreed.set((info.era, version));
    }

    fn session(&self) -> Option<HeaderValue> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn request(&self, method: Method, headers: HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        request.uri_mut().clone_from(self.moved.get().unwrap_or(&self.url));
        *request.headers_mut() = headers;
        request
    }

    /// A request that carries a message. Its headers are made once: the session and the revision
    /// are those of the handshake.
    fn post(&self, body: Bytes) -> Request<Full<Bytes>> {
        let made = || {
            let mut headers = self.headers(BOTH);
            headers.insert(CONTENT_TYPE, JSON);
            headers
        };
        let headers = match self.agreed.get() {
            Some(_) => self.settled.get_or_init(made).clone(),
            None => made(),
        };
        self.request(Method::POST, headers, body)
    }

    /// The headers of every request.
    fn headers(&self, accept: HeaderValue) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(ACCEPT, accept);
        if let Some((Era::Legacy, version)) = self.agreed.get() {
            headers.insert(header::VERSION, version.clone());
        }
        if let Some(session) = self.session() {
            headers.insert(header::SESSION, session);
        }
        headers.extend(self.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        headers
    }

    async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, UpstreamFailure> {
        if self.agreed.get().is_some() {
            return response::send(&self.client, request).await;
        }
        // Boxed: only the handshake is redirected.
        let (response, url) = Box::pin(redirect::send(&self.client, request)).await?;
        if response.status().is_success() && url != self.url {
            let _once = self.moved.set(url);
        }
        Ok(response)
    }

    /// Sends one request and returns its answer; other messages on the answer's stream go to
    /// `connection`.
    pub async fn exchange(
        &self,
        connection: &Arc<Connection>,
        number: u64,
        call: &GatewayCall,
        bytes: Bytes,
    ) -> HttpReply {
        let request = &call.request;
        let mut post = self.post(bytes);
        mirror(request, post.headers_mut());
        let mirrored = call.mirrored.as_deref().unwrap_or_default();
        post.headers_mut().extend(mirrored.iter().cloned());
        call.allowed.apply(post.headers_mut());
        if let Some(trace) = &call.trace {
            trace.context.put(post.headers_mut());
        }
        let response = self.send(post).await.inspect_err(|failure| {
            if failure.was_not_sent() {
                connection.retire(failure);
            }
        })?;
        connection.hear();
        // Only the answer to `initialize` may set the session.
        if request.method() == "initialize"
            && let Some(session) = response.headers().get(header::SESSION)
        {
            *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.clone());
        }
        if !response.status().is_success() {
            let had_session = request.method() != "initialize" && self.session().is_some();
            let reply = refused(response, number, had_session).await;
            if let Err(UpstreamFailure::SessionLost) = &reply {
                // The server certainly did not look at this request; other requests in flight may
                // have run. So the connection is retired, not lost.
                connection.retire(&UpstreamFailure::SessionLost);
            }
            return reply;
        }
        is_plain(response.headers())?;
        if is_stream(response.headers()) {
            return self.read_answer(connection, number, response).await;
        }
        let answer = Message::parse(body(response, limits::FROM_SERVER).await?)?;
        if answer.id().and_then(Id::as_number) == Some(number) {
            Ok(answer)
        } else {
            Err(UpstreamFailure::Broken(Reject::Shape(
                "the answer carries another id than the request",
            )))
        }
    }

    /// Reads a stream until the answer comes; resumes a broken stream if the server gave an event
    /// id.
    async fn read_answer(
        &self,
        connection: &Arc<Connection>,
        number: u64,
        response: Response<Incoming>,
    ) -> HttpReply {
        let mut place = ResumePoint::default();
        let mut response = Some(response);
        let mut tries = 0;
        loop {
            if let Some(response) = response.take() {
                let mut events = ResponseEvents::new(response.into_body());
                while let Some(message) = next(&mut events, &mut place).await? {
                    tries = 0;
                    if answers(&message, number) {
                        return Ok(message);
                    }
                    connection.receive(message, Some(number));
                }
            }
            tries += 1;
            if place.id.is_none() || tries > RESUMES {
                return Err(UpstreamFailure::Lost("the stream ended before the answer".to_owned()));
            }
            connection.paused(number);
            tokio::time::sleep(place.pause()).await;
            response = self.resume(&place).await.ok().flatten();
        }
    }

    /// Opens the stream of messages that belong to no request, or resumes a stream. `None`: the
    /// server offers none.
    async fn resume(
        &self,
        place: &ResumePoint,
    ) -> Result<Option<Response<Incoming>>, UpstreamFailure> {
        let mut get = self.request(Method::GET, self.headers(STREAM), Bytes::new());
        if let Some(id) = place.id.as_deref().and_then(|id| HeaderValue::from_str(id).ok()) {
            get.headers_mut().insert(header::LAST_EVENT, id);
        }
        let response = self.send(get).await?;
        is_plain(response.headers())?;
        if let 408 | 409 | 425 | 429 | 500 | 502..=599 = response.status().as_u16() {
            return Err(response::refusal(response).await.0);
        }
        Ok((response.status() == StatusCode::OK && is_stream(response.headers()))
            .then_some(response))
    }

    /// Sends a notification or an answer to a server's question; the response is drained and
    /// ignored.
    pub async fn tell(&self, message: Bytes, mirrored: &CallHeaders) {
        let Ok(_turn) = self.telling.acquire().await else { return };
        let mut post = self.post(message.clone());
        if let Ok(message) = Message::parse(message) {
            mirror(&message, post.headers_mut());
        }
        post.headers_mut().extend(mirrored.iter().cloned());
        if let Ok(response) = self.send(post).await {
            let _drained = body(response, limits::FROM_SERVER).await;
        }
    }

    /// Listens to messages that a legacy server sends of its own accord, until the connection ends.
    pub fn listen(&self, connection: &Arc<Connection>) {
        let (connection, ended) = (Arc::downgrade(connection), self.ended.clone());
        // A copy without the connection: the listening task must not keep the connection alive.
        let http = Self {
            client: self.client.clone(),
            url: self.url.clone(),
            moved: self.moved.clone(),
            headers: self.headers.clone(),
            session: Mutex::new(self.session()),
            agreed: self.agreed.clone(),
            settled: OnceLock::new(),
            ended: ended.clone(),
            telling: Semaphore::new(TELLING),
        };
        tokio::spawn(async move { ended.run_until_cancelled(http.read_general(connection)).await });
    }

    /// Keeps the general stream open. A stream that breaks without a message is normal and is
    /// reopened: after the pause that the server names, else with a growing backoff.
    async fn read_general(&self, connection: Weak<Connection>) {
        let (mut place, rng, mut in_vain) = (ResumePoint::default(), Rng::new(), 0);
        loop {
            let began = Instant::now();
            let mut is_asked_for = false;
            in_vain += 1;
            match self.resume(&place).await {
                Ok(Some(response)) => {
                    let mut events = ResponseEvents::new(response.into_body());
                    while let Ok(Some(message)) = next(&mut events, &mut place).await {
                        in_vain = 0;
                        // Held for one message only, so that the connection can be dropped while
                        // this task waits.
                        let Some(connection) = connection.upgrade() else { return };
                        connection.receive(message, None);
                    }
                    is_asked_for = place.retry.is_some();
                }
                Ok(None) => return,
                Err(_) => {}
            }
            if began.elapsed() > LASTING {
                in_vain = 0;
            }
            let backoff =
                if is_asked_for { Duration::ZERO } else { Backoff::RECONNECT.delay(in_vain, &rng) };
            tokio::time::sleep(place.pause().max(backoff)).await;
        }
    }

    /// Tells a legacy server that the session is over.
    pub async fn close(&self) {
        if self.session().is_some() {
            let delete = self.request(Method::DELETE, self.headers(BOTH), Bytes::new());
            let _gone = tokio::time::timeout(limits::CHILD_GRACE, self.send(delete)).await;
        }
    }
}

/// The point at which a stream broke, and the pause before its resume.
#[derive(Default)]
struct ResumePoint {
    id: Option<String>,
    retry: Option<Duration>,
}

impl ResumePoint {
    fn pause(&self) -> Duration {
        let (least, most) = RESUME_WITHIN;
        self.retry.map_or(RESUME_AFTER, |retry| retry.clamp(least, most))
    }
}

/// The next message of a stream; `None` when the stream ends or breaks.
async fn next(
    events: &mut ResponseEvents,
    place: &mut ResumePoint,
) -> Result<Option<Message>, UpstreamFailure> {
    while let Some(event) = events.next().await? {
        let is_message = event.is_message();
        place.retry = event.retry.or(place.retry);
        place.id = event.id.filter(|id| !id.is_empty()).or(place.id.take());
        if is_message {
            return Ok(Some(Message::parse(event.data)?));
        }
    }
    Ok(None)
}

fn answers(message: &Message, number: u64) -> bool {
    matches!(message.kind(), MessageKind::Result | MessageKind::Error)
        && message.id().and_then(Id::as_number) == Some(number)
}

/// Adds the headers that repeat the method and the name of a modern request.
fn mirror(request: &Message, headers: &mut HeaderMap) {
    if let Some(version) = request.meta_json(PROTOCOL_VERSION).and_then(scan::text) {
        headers.insert(header::VERSION, header::encode(&version));
        headers.insert(header::METHOD, header::encode(request.method()));
        if let Some(name) = named(request) {
            headers.insert(header::NAME, header::encode(&name));
        }
    }
}

/// The name of the tool or prompt, the resource URI or the task id of a request.
pub(crate) fn named(request: &Message) -> Option<std::borrow::Cow<'_, str>> {
    match request.method() {
        "tools/call" | "prompts/get" => request.field_text("name"),
        "resources/read" => request.field_text("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => request.field_text("taskId"),
        _ => None,
    }
}

/// The outcome of an HTTP error status: the JSON-RPC answer in the body, if it answers this
/// request. For a status of an overloaded or broken server the status and its `Retry-After` count
/// instead, unless the answer blames the request.
async fn refused(response: Response<Incoming>, number: u64, had_session: bool) -> HttpReply {
    let is_trouble = matches!(response.status().as_u16(), 408 | 425 | 429 | 500..=599);
    let (failure, message) = response::refusal(response).await;
    let answers_it = message.as_ref().is_some_and(|message| answers(message, number));
    if had_session && lost_session::is_lost(&failure, message.as_ref(), answers_it) {
        return Err(UpstreamFailure::SessionLost);
    }
    match message {
        Some(message) if answers_it && (!is_trouble || is_final(&message)) => Ok(message),
        _ => Err(failure),
    }
}

/// Whether an answer stays the same however often the request is repeated: a result, or an error
/// about the request itself.
fn is_final(answer: &Message) -> bool {
    let code =
        answer.field_json("code").and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
    answer.kind() == MessageKind::Result
        || code.is_some_and(|code: i64| (INVALID_PARAMS..=INVALID_REQUEST).contains(&code))
}
