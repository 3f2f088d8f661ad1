//! Decides how HTTP serves the legacy era: sessions, and answers as JSON or on a resumable stream.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::admission;
use super::attended::{AttendedCall, CallEnd};
use super::refused;
use super::respond::{self, Body, EventFormat};
use super::sessions::{HttpSession, ResumedStream, Sessions};
use crate::authz::CallOrigin;
use crate::call::authorize::{answer_to, may_hear, may_resume};
use crate::call::dispatch;
use crate::client::caller::Caller;
use crate::client::event_id::StreamRequest;
use crate::client::stream::{ClientStream, NextEvent};
use crate::protocol::build::{self, RpcError};
use crate::protocol::names::LEGACY;
use crate::protocol::{Message, MessageKind, header, limits, sse};
use crate::route::Route;
use crate::upstream::call::GatewayCall;

/// How soon a client may come back to a broken stream.
const RETRY: Duration = Duration::from_secs(1);

/// Handles one POST.
pub(super) async fn post(
    sessions: &Sessions,
    route: &Arc<Route>,
    origin: &Arc<CallOrigin>,
    parts: &Parts,
    message: Message,
) -> Response<Body> {
    if message.method() == "initialize" && !parts.headers.contains_key(header::SESSION) {
        // Boxed, here and below, so that a call carries only what every call needs.
        return Box::pin(initialize(sessions, route, origin, parts, message)).await;
    }
    let session = match find(sessions, origin, parts, message.id()) {
        Ok(session) => session,
        Err(response) => return *response,
    };
    if !origin.headers.is_empty() {
        session.session.headers.renew(&origin.headers);
    }
    let keep =
        RecordOnDone { sessions, id: text(&parts.headers, header::SESSION).unwrap_or_default() };
    match message.kind() {
        MessageKind::Request if RecordOnDone::matters(&message) => {
            Box::pin(keep.request(&session, origin, message)).await
        }
        MessageKind::Request => request(&session, origin, message, limits::KEEP_ALIVE).await,
        MessageKind::Notification => {
            let hear = Box::pin(may_hear(&session.route(), origin, &message)).await;
            let may_hear = |server: &str| hear.iter().any(|name| name == server);
            Box::pin(session.session.notified(&message, may_hear)).await;
            respond::empty(StatusCode::ACCEPTED)
        }
        MessageKind::Result | MessageKind::Error => {
            let message = match session.session.asker(&message) {
                Some(server) => {
                    Box::pin(answer_to(&session.route(), origin, &server, message)).await
                }
                None => message,
            };
            session.session.answered(message);
            respond::empty(StatusCode::ACCEPTED)
        }
    }
}

async fn initialize(
    sessions: &Sessions,
    route: &Arc<Route>,
    origin: &Arc<CallOrigin>,
    parts: &Parts,
    message: Message,
) -> Response<Body> {
    let version = message.field_text("protocolVersion").unwrap_or_default().into_owned();
    let Some(place) = sessions.place() else {
        let error = RpcError::new(
            build::OVERLOADED,
            format!("over {} sessions are open", limits::SESSIONS),
        );
        return respond::error(StatusCode::OK, message.id(), &error);
    };
    let session = Arc::new(HttpSession::new(
        route,
        parts.uri.path(),
        &version,
        Arc::clone(&origin.caller),
        place,
    ));
    let mut leaving = NewSession { session: Some(&session) };
    let mut response = request(&session, origin, message, limits::HANDSHAKE * 4).await;
    // A failed handshake leaves no session behind.
    if !session.session.is_greeted() {
        session.session.close().await;
        return match origin.refused() {
            Some(refusal) => admission::set(response, refusal),
            None => response,
        };
    }
    if let Ok(id) = HeaderValue::from_str(&sessions.add(Arc::clone(&session)).await) {
        response.headers_mut().insert(header::SESSION, id);
    }
    leaving.session = None;
    response
}

/// Requests that change the session's state: the session record is written before the client gets
/// the answer.
struct RecordOnDone<'a> {
    sessions: &'a Sessions,
    id: &'a str,
}

impl RecordOnDone<'_> {
    fn matters(request: &Message) -> bool {
        matches!(
            request.method(),
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
        )
    }

    async fn request(
        &self,
        session: &Arc<HttpSession>,
        origin: &Arc<CallOrigin>,
        message: Message,
    ) -> Response<Body> {
        let response = request(session, origin, message, limits::KEEP_ALIVE).await;
        self.sessions.keep(self.id, session).await;
        response
    }
}

/// A session whose id the client does not know yet: if the client leaves now it can never come
/// back, so dropping this guard ends the session.
struct NewSession<'a> {
    session: Option<&'a HttpSession>,
}

impl Drop for NewSession<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session {
            session.session.leave();
        }
    }
}

/// The session that a request names.
pub(super) fn find(
    sessions: &Sessions,
    origin: &CallOrigin,
    parts: &Parts,
    id: Option<&crate::protocol::Id>,
) -> Result<Arc<HttpSession>, Box<Response<Body>>> {
    let refuse = |status, text: &str| {
        Box::new(respond::error(status, id, &RpcError::new(build::INVALID_REQUEST, text)))
    };
    let version = text(&parts.headers, header::VERSION);
    if version.is_some_and(|version| !LEGACY.contains(&version)) {
        return Err(refuse(StatusCode::BAD_REQUEST, "this MCP-Protocol-Version is not supported"));
    }
    let Some(session) = text(&parts.headers, header::SESSION) else {
        return Err(refuse(
            StatusCode::BAD_REQUEST,
            "the header Mcp-Session-Id is missing; send initialize first",
        ));
    };
    // A session belongs to whoever opened it; for everybody else it does not exist.
    let is_own = |session: &Arc<HttpSession>| {
        origin.principal.is_none() || session.session.identity == origin.caller
    };
    let found = sessions.find(session, parts.uri.path()).filter(is_own);
    found.ok_or_else(|| {
        refuse(StatusCode::NOT_FOUND, "there is no such session; send initialize again")
    })
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

/// Runs one request to its end even if the client leaves, for the client may come back for the
/// answer. If no answer is there within `patience`, the response becomes an event stream.
async fn request(
    session: &Arc<HttpSession>,
    origin: &Arc<CallOrigin>,
    message: Message,
    patience: Duration,
) -> Response<Body> {
    let stream = ClientStream::resumable(session.is_primed);
    let call = GatewayCall {
        origin: Arc::clone(origin),
        ..GatewayCall::new(message, session.session.sink(&stream))
    };
    stream.belongs_to(&call);
    let Some(id) = call.request.id().cloned() else { return respond::empty(StatusCode::ACCEPTED) };
    let began = match session.session.calls().begin(&id, &call.cancel, call.request.raw().len()) {
        Ok(began) => began,
        Err(error) => return respond::error(StatusCode::OK, Some(&id), &error),
    };
    let kept = (!session.route().access.is_all_open()).then(|| call.request.clone());
    let asked = StreamRequest { id: id.detached(), is_call: call.request.method() == "tools/call" };
    let (owner, to) = (Arc::clone(session), Arc::clone(&stream));
    let (route, caller) =
        (owner.route(), Caller::Legacy(Arc::clone(&owner.session), Arc::clone(&to)));
    let work = Box::pin(async move { dispatch(&route, &caller, call).await });
    let mut call = AttendedCall::new(work, CallEnd { owner, to, began });
    let mut reader = stream.reader(0);
    let mut first = tokio::select! {
        // Biased: a finished call goes first, so that a quick answer becomes plain JSON and no
        // stream.
        biased;
        answer = call.answer() => {
            call.end(answer);
            Some(reader.try_next().unwrap_or(NextEvent::Ended))
        }
        next = reader.next() => Some(next),
        () = tokio::time::sleep(patience) => None,
    };
    drop(call);
    if matches!(first, Some(NextEvent::Ended)) && stream.is_over() {
        // A server may have paused the stream, and the answer may have arrived before this reader
        // saw it: a new reader finds the answer.
        reader = stream.reader(0);
        first = Some(reader.try_next().unwrap_or(NextEvent::Ended));
    }
    let first = match first {
        Some(NextEvent::Said(said)) if said.last => {
            return respond::json(StatusCode::OK, said.message);
        }
        Some(NextEvent::Ended) if stream.is_over() => return respond::empty(StatusCode::ACCEPTED),
        Some(NextEvent::Said(said)) => Some(said),
        Some(NextEvent::Ended) | None => None,
    };
    let name = session.name(session.keep(&stream, kept), Some(asked));
    let priming = session.is_primed.then(|| sse::priming(&name.at(0), RETRY));
    respond::stream(EventFormat {
        reader,
        first,
        work: None,
        number: Some(name),
        priming,
        ends: None,
    })
}

/// Handles one GET: the session's general stream, or a stream that the client lost.
pub(super) async fn get(
    sessions: &Sessions,
    origin: &Arc<CallOrigin>,
    parts: &Parts,
) -> Response<Body> {
    let session = match find(sessions, origin, parts, None) {
        Ok(session) => session,
        Err(response) => return *response,
    };
    let resumed = match text(&parts.headers, header::LAST_EVENT) {
        None => {
            ResumedStream::Stream(session.name(0, None), Arc::clone(&session.session.general), 0)
        }
        Some(event) => session.resume(event),
    };
    if let ResumedStream::Stream(name, ..) = &resumed
        && let Some(request) = match name.number {
            // What servers say of their own accord is for who may still greet them.
            0 => session.session.greeting(),
            number => session.request_of(number),
        }
        && let Err(refusal) = may_resume(&session.route(), origin, request).await
    {
        let error = respond::error(StatusCode::FORBIDDEN, None, &refusal.error(""));
        return admission::set(error, &refusal.http());
    }
    let (name, stream, place) = match resumed {
        ResumedStream::Stream(name, stream, place) => (name, stream, place),
        ResumedStream::Interrupted(asked) => return interrupted(&session.route(), &asked),
        ResumedStream::Nothing => {
            return respond::refuse(StatusCode::NOT_FOUND, "there is no such event to go on from");
        }
    };
    let reader = match name.number {
        0 => stream.only_reader(Some(place).filter(|place| *place > 0)),
        _ => Some(stream.reader(place)),
    };
    let Some(reader) = reader else {
        return respond::refuse(
            StatusCode::CONFLICT,
            "this session has a stream already; there can be one",
        );
    };
    let priming = session.is_primed.then(|| sse::priming(&name.at(reader.place()), RETRY));
    // A call that was allowed has its answer; everything else is for clients whose token holds.
    let ends = origin.expires().filter(|_| name.number == 0);
    let number = Some(name);
    respond::stream(EventFormat { reader, first: None, work: None, number, priming, ends })
}

/// Ends a stream whose request was in flight when the previous process of this gateway ended: a
/// client that comes back to it would wait for ever. The event has no id, for there is nothing
/// after it to resume.
fn interrupted(route: &Route, asked: &StreamRequest) -> Response<Body> {
    let stream = Arc::new(ClientStream::default());
    stream.answer(refused::interrupted(route, asked));
    let reader = stream.reader(0);
    respond::stream(EventFormat {
        reader,
        first: None,
        work: None,
        number: None,
        priming: None,
        ends: None,
    })
}

/// Handles one DELETE: ends the session.
pub(super) async fn delete(
    sessions: &Sessions,
    origin: &CallOrigin,
    parts: &Parts,
) -> Response<Body> {
    match find(sessions, origin, parts, None) {
        Ok(session) => {
            if let Some(id) = text(&parts.headers, header::SESSION) {
                sessions.remove(id);
            }
            session.session.end().await;
            respond::empty(StatusCode::OK)
        }
        Err(response) => *response,
    }
}
