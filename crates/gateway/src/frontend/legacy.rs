//! The legacy era on HTTP: sessions, answers as JSON or as a stream that a client can come back to.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::modern::client;
use super::refused;
use super::respond::{self, Body, EventFormat};
use super::sessions::{HttpSession, ResumedStream, Sessions};
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

/// One POST.
pub(super) async fn post(
    sessions: &Sessions,
    route: &Arc<Route>,
    parts: &Parts,
    message: Message,
) -> Response<Body> {
    if message.method() == "initialize" && !parts.headers.contains_key(header::SESSION) {
        return initialize(sessions, route, parts, message).await;
    }
    let session = match find(sessions, parts, message.id()) {
        Ok(session) => session,
        Err(response) => return *response,
    };
    let keep =
        RecordOnDone { sessions, id: text(&parts.headers, header::SESSION).unwrap_or_default() };
    match message.kind() {
        MessageKind::Request if RecordOnDone::matters(&message) => {
            keep.request(&session, message).await
        }
        MessageKind::Request => request(&session, message, limits::KEEP_ALIVE).await,
        MessageKind::Notification => {
            session.session.notified(&message).await;
            respond::empty(StatusCode::ACCEPTED)
        }
        MessageKind::Result | MessageKind::Error => {
            session.session.answered(message);
            respond::empty(StatusCode::ACCEPTED)
        }
    }
}

async fn initialize(
    sessions: &Sessions,
    route: &Arc<Route>,
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
        client(&parts.headers),
        place,
    ));
    let mut leaving = NewSession { session: Some(&session) };
    let mut response = request(&session, message, limits::HANDSHAKE * 4).await;
    // A handshake that failed leaves no session behind.
    if !session.session.is_greeted() {
        session.session.close().await;
        return response;
    }
    if let Ok(id) = HeaderValue::from_str(&sessions.add(Arc::clone(&session)).await) {
        response.headers_mut().insert(header::SESSION, id);
    }
    leaving.session = None;
    response
}

/// A request that changes what a session has come to be: it is kept before the client hears that it
/// was done.
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

    async fn request(&self, session: &Arc<HttpSession>, message: Message) -> Response<Body> {
        let response = request(session, message, limits::KEEP_ALIVE).await;
        self.sessions.keep(self.id, session).await;
        response
    }
}

/// A client that leaves before it knows its session can never come back to it: dropping this ends
/// everything in it.
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
    let found = sessions.find(session, parts.uri.path());
    found.ok_or_else(|| {
        refuse(StatusCode::NOT_FOUND, "there is no such session; send initialize again")
    })
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

/// One request: runs to its end whether or not the client stays, because a client may come back for
/// the answer. What takes longer than `patience` is answered on a stream.
async fn request(
    session: &Arc<HttpSession>,
    message: Message,
    patience: Duration,
) -> Response<Body> {
    let stream = ClientStream::resumable(session.is_primed);
    let call = GatewayCall::new(message, session.session.sink(&stream));
    stream.belongs_to(&call);
    let Some(id) = call.request.id().cloned() else { return respond::empty(StatusCode::ACCEPTED) };
    let began = match session.session.calls().begin(&id, &call.cancel, call.request.raw().len()) {
        Ok(began) => began,
        Err(error) => return respond::error(StatusCode::OK, Some(&id), &error),
    };
    let asked = StreamRequest { id: id.detached(), is_call: call.request.method() == "tools/call" };
    let (owner, to) = (Arc::clone(session), Arc::clone(&stream));
    tokio::spawn(async move {
        let caller = Caller::Legacy(Arc::clone(&owner.session), Arc::clone(&to));
        let answer = dispatch(&owner.route, &caller, call).await;
        drop(began);
        match answer {
            Some(answer) => to.answer(answer),
            None => to.end(),
        }
        owner.make_room();
    });
    let mut reader = stream.reader(0);
    let mut first = tokio::time::timeout(patience, reader.next()).await;
    if matches!(first, Ok(NextEvent::Ended)) && stream.is_over() {
        // It may have been paused, and answered before anybody noticed: the answer is there all the
        // same.
        reader = stream.reader(0);
        first = Ok(reader.try_next().unwrap_or(NextEvent::Ended));
    }
    let first = match first {
        Ok(NextEvent::Said(said)) if said.last => {
            return respond::json(StatusCode::OK, said.message);
        }
        Ok(NextEvent::Ended) if stream.is_over() => return respond::empty(StatusCode::ACCEPTED),
        Ok(NextEvent::Said(said)) => Some(said),
        Ok(NextEvent::Ended) | Err(_) => None,
    };
    let name = session.name(session.keep(&stream), Some(asked));
    let priming = session.is_primed.then(|| sse::priming(&name.at(0), RETRY));
    respond::stream(EventFormat { reader, first, work: None, number: Some(name), priming })
}

/// One GET: the stream of what belongs to no request, or one that the client lost.
pub(super) fn get(sessions: &Sessions, parts: &Parts) -> Response<Body> {
    let session = match find(sessions, parts, None) {
        Ok(session) => session,
        Err(response) => return *response,
    };
    let resumed = match text(&parts.headers, header::LAST_EVENT) {
        None => {
            ResumedStream::Stream(session.name(0, None), Arc::clone(&session.session.general), 0)
        }
        Some(event) => session.resume(event),
    };
    let (name, stream, place) = match resumed {
        ResumedStream::Stream(name, stream, place) => (name, stream, place),
        ResumedStream::Interrupted(asked) => return interrupted(&session.route, &asked),
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
    respond::stream(EventFormat { reader, first: None, work: None, number: Some(name), priming })
}

/// The end of a stream whose request was under way when a former self of this gateway ended: a
/// client that comes back to it would else wait for an answer that nobody has. Its event has no id,
/// because there is nothing after it to come back to.
fn interrupted(route: &Route, asked: &StreamRequest) -> Response<Body> {
    let stream = Arc::new(ClientStream::default());
    stream.answer(refused::interrupted(route, asked));
    let reader = stream.reader(0);
    respond::stream(EventFormat { reader, first: None, work: None, number: None, priming: None })
}

/// One DELETE: the session is over.
pub(super) async fn delete(sessions: &Sessions, parts: &Parts) -> Response<Body> {
    match find(sessions, parts, None) {
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
