//! A conversation over streamable HTTP, in both eras: one POST per message, an answer as JSON or as
//! a stream.

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
use super::http_client::HttpClient;
use super::response::{self, ResponseEvents, body, is_plain, is_stream};
use super::{Connection, UpstreamFailure, lost_session};
use crate::protocol::build::{INVALID_PARAMS, INVALID_REQUEST};
use crate::protocol::names::{Era, PROTOCOL_VERSION};
use crate::protocol::server_info::ServerInfo;
use crate::protocol::{Id, Message, MessageKind, Reject, header, limits, scan};

const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// How often in a row a broken stream is taken up again.
const RESUMES: u32 = 5;
/// How long to wait before that when the server does not say.
const RESUME_AFTER: Duration = Duration::from_secs(1);
/// How long when it does: not without any pause, and not for ever.
const RESUME_WITHIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));
/// A stream that lasted this long was not sent away.
const LASTING: Duration = Duration::from_secs(10);
/// Notifications and answers to one server that are on their way at a time.
const TELLING: usize = 64;

/// One HTTP conversation.
pub struct HttpConnection {
    client: HttpClient,
    url: Uri,
    headers: HeaderMap,
    session: Mutex<Option<HeaderValue>>,
    agreed: OnceLock<(Era, HeaderValue)>,
    ended: CancellationToken,
    telling: Semaphore,
}

type HttpReply = Result<Message, UpstreamFailure>;

impl HttpConnection {
    /// A conversation with the server at `url`, with the operator's headers on every request.
    pub fn new(client: HttpClient, url: Uri, headers: HeaderMap, ended: CancellationToken) -> Self {
        let (session, agreed, telling) =
            (Mutex::new(None), OnceLock::new(), Semaphore::new(TELLING));
        Self { client, url, headers, session, agreed, ended, telling }
    }

    /// From now on requests carry what was agreed on.
    pub fn agree(&self, info: &ServerInfo) {
        let version = HeaderValue::from_str(&info.version).unwrap_or(HeaderValue::from_static(""));
        let _once = self.agreed.set((info.era, version));
    }

    fn session(&self) -> Option<HeaderValue> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn request(&self, method: Method, accept: HeaderValue, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        headers.insert(ACCEPT, accept);
        if let Some((Era::Legacy, version)) = self.agreed.get() {
            headers.insert(header::VERSION, version.clone());
        }
        if let Some(session) = self.session() {
            headers.insert(header::SESSION, session);
        }
        headers.extend(self.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        request
    }

    async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, UpstreamFailure> {
        response::send(&self.client, request).await
    }

    /// One request and its answer; everything else that comes on its stream goes to the
    /// conversation.
    pub async fn exchange(
        &self,
        connection: &Arc<Connection>,
        number: u64,
        request: &Message,
        bytes: Bytes,
        mirrored: &CallHeaders,
    ) -> HttpReply {
        let mut post = self.request(Method::POST, BOTH, bytes);
        post.headers_mut().insert(CONTENT_TYPE, JSON);
        post.headers_mut().extend(modern_headers(request));
        post.headers_mut().extend(mirrored.iter().cloned());
        let response = self.send(post).await.inspect_err(|failure| {
            if failure.was_not_sent() {
                connection.retire(failure);
            }
        })?;
        connection.hear();
        if request.method() == "initialize"
            && let Some(session) = response.headers().get(header::SESSION)
        {
            *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.clone());
        }
        if !response.status().is_success() {
            let had_session = request.method() != "initialize" && self.session().is_some();
            let reply = refused(response, number, had_session).await;
            if let Err(UpstreamFailure::SessionLost) = &reply {
                // Of this request it is certain that the server did not look at it; of others that
                // are under way it is not.
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

    /// Reads a stream until the answer comes, taking it up again where it breaks if the server
    /// allows that.
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

    /// Opens the stream of messages that belong to no request, or takes one up again. `None`: the
    /// server has none.
    async fn resume(
        &self,
        place: &ResumePoint,
    ) -> Result<Option<Response<Incoming>>, UpstreamFailure> {
        let mut get = self.request(Method::GET, STREAM, Bytes::new());
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

    /// A notification or an answer: nothing comes back.
    pub async fn tell(&self, message: Bytes, mirrored: &CallHeaders) {
        let Ok(_turn) = self.telling.acquire().await else { return };
        let mut post = self.request(Method::POST, BOTH, message.clone());
        post.headers_mut().insert(CONTENT_TYPE, JSON);
        if let Ok(message) = Message::parse(message) {
            post.headers_mut().extend(modern_headers(&message));
        }
        post.headers_mut().extend(mirrored.iter().cloned());
        if let Ok(response) = self.send(post).await {
            let _drained = body(response, limits::FROM_SERVER).await;
        }
    }

    /// Listens to what a legacy server says by itself, as long as the conversation lasts.
    pub fn listen(&self, connection: &Arc<Connection>) {
        let (connection, ended) = (Arc::downgrade(connection), self.ended.clone());
        let http = Self {
            client: self.client.clone(),
            url: self.url.clone(),
            headers: self.headers.clone(),
            session: Mutex::new(self.session()),
            agreed: self.agreed.clone(),
            ended: ended.clone(),
            telling: Semaphore::new(TELLING),
        };
        tokio::spawn(async move { ended.run_until_cancelled(http.read_general(connection)).await });
    }

    /// Streams that are cut when nothing was said are normal. They are opened again: as soon as the
    /// server wants if it says when, else later each time.
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
            let delete = self.request(Method::DELETE, BOTH, Bytes::new());
            let _gone = tokio::time::timeout(limits::CHILD_GRACE, self.send(delete)).await;
        }
    }
}

/// Where a stream broke, and how long to wait.
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

/// The headers that mirror a modern request.
fn modern_headers(request: &Message) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(version) = request.meta_json(PROTOCOL_VERSION).and_then(scan::text) {
        headers.insert(header::VERSION, header::encode(&version));
        headers.insert(header::METHOD, header::encode(request.method()));
        if let Some(name) = named(request) {
            headers.insert(header::NAME, header::encode(&name));
        }
    }
    headers
}

/// What a request is about: a tool, a prompt, a resource, a task.
pub(crate) fn named(request: &Message) -> Option<std::borrow::Cow<'_, str>> {
    match request.method() {
        "tools/call" | "prompts/get" => request.field_text("name"),
        "resources/read" => request.field_text("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => request.field_text("taskId"),
        _ => None,
    }
}

/// A status that is no success: the protocol's own answer if the body is one for this request. A
/// server that is too busy or broken says so with its status and the pause it names, whatever its
/// error is, unless that blames the request.
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

/// Whether an answer stays the same however often the request is made: a result, or what is wrong
/// with the request.
fn is_final(answer: &Message) -> bool {
    let code =
        answer.field_json("code").and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
    answer.kind() == MessageKind::Result
        || code.is_some_and(|code: i64| (INVALID_PARAMS..=INVALID_REQUEST).contains(&code))
}
