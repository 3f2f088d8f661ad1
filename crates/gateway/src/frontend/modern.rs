//! Decides how HTTP serves the modern era: every POST carries its whole state, and closing the
//! response cancels the call.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Response, StatusCode};
use seawall::Question;

use super::admission;
use super::attended::CallWork;
use super::respond::{self, Body, EventFormat};
use super::versions;
use crate::authz::CallOrigin;
use crate::call::dispatch;
use crate::client::caller::Caller;
use crate::client::stream::{ClientStream, NextEvent};
use crate::protocol::build::{self, RpcError};
use crate::protocol::pieces::TwoPieces;
use crate::protocol::{Message, MessageKind, header, limits};
use crate::route::Route;
use crate::upstream::Connection;
use crate::upstream::call::{ClientSink, GatewayCall};
use crate::upstream::http::named;

/// Handles one POST.
pub(super) async fn post(
    route: &Arc<Route>,
    origin: &Arc<CallOrigin>,
    parts: &Parts,
    message: Message,
) -> Response<Body> {
    match message.kind() {
        MessageKind::Notification => respond::empty(StatusCode::ACCEPTED),
        MessageKind::Result | MessageKind::Error => respond::refuse(
            StatusCode::BAD_REQUEST,
            "a client of this protocol revision is asked nothing, so it has nothing to answer",
        ),
        MessageKind::Request => {
            match mirrors(&parts.headers, &message).and_then(|()| versions::check(&message)) {
                Ok(()) => request(route, origin, parts, message).await,
                Err(error) => respond::error(bad_status(error.code), message.id(), &error),
            }
        }
    }
}

async fn request(
    route: &Arc<Route>,
    origin: &Arc<CallOrigin>,
    parts: &Parts,
    message: Message,
) -> Response<Body> {
    let stream = Arc::new(ClientStream::default());
    let params =
        parts.headers.iter().filter(|(name, _)| name.as_str().starts_with(header::PARAM_PREFIX));
    let client = Arc::clone(&origin.caller);
    let call = GatewayCall {
        client: Arc::clone(&client),
        origin: Arc::clone(origin),
        mirrored: Some(params.map(|(name, value)| (name.clone(), value.clone())).collect()),
        ..GatewayCall::new(message, Arc::new(RequestStreamSink { stream: Arc::clone(&stream) }))
    };
    stream.belongs_to(&call);
    // A call that was allowed has its answer; what a client listens to ends with its token.
    let ends = origin.expires().filter(|_| call.request.method() == "subscriptions/listen");
    let (route, caller) = (Arc::clone(route), Caller::Modern(client));
    let mut work: CallWork = Box::pin(async move { dispatch(&route, &caller, call).await });
    let mut reader = stream.reader(0);
    let (first, is_over) = tokio::select! {
        // Biased: a finished call goes first, so that a quick answer becomes plain JSON and no
        // stream.
        biased;
        answer = &mut work => {
            // Only now, when nobody waits for news of the stream: it would wake this very task.
            stream.finish(answer);
            (reader.try_next(), true)
        }
        next = reader.next() => (Some(next), false),
        () = tokio::time::sleep(limits::KEEP_ALIVE) => (None, false),
    };
    let work = (!is_over)
        .then(|| -> respond::StreamedCall { Box::pin(async move { stream.finish(work.await) }) });
    match first {
        Some(NextEvent::Said(said)) if said.last => {
            let response = respond::json(status(&said.message), said.message);
            match origin.refused() {
                Some(refusal) => admission::set(response, refusal),
                None => response,
            }
        }
        Some(NextEvent::Ended) => respond::empty(StatusCode::ACCEPTED),
        Some(NextEvent::Said(said)) => respond::stream(EventFormat {
            reader,
            first: Some(said),
            work,
            number: None,
            priming: None,
            ends,
        }),
        None => respond::stream(EventFormat {
            reader,
            first: None,
            work,
            number: None,
            priming: None,
            ends,
        }),
    }
}

/// Checks that the headers repeat the body: software that reads only one of them must see the same
/// call.
fn mirrors(headers: &HeaderMap, request: &Message) -> Result<(), RpcError> {
    let version = versions::stated(request)?;
    mirror(headers, header::VERSION, Some(&version))?;
    mirror(headers, header::METHOD, Some(request.method()))?;
    mirror(headers, header::NAME, named(request).as_deref())
}

fn mirror(headers: &HeaderMap, name: HeaderName, body: Option<&str>) -> Result<(), RpcError> {
    let wrong = |text: String| Err(RpcError::new(build::HEADER_MISMATCH, text));
    let mut values = headers.get_all(&name).iter();
    let value = values.next();
    if values.next().is_some() {
        return wrong(format!("the header {name} stands twice"));
    }
    match (value.map(|value| header::decode(value.as_bytes())), body) {
        (Some(Some(said)), Some(body)) if said == body => Ok(()),
        (Some(_), Some(_)) => wrong(format!("the header {name} says something else than the body")),
        (None, Some(_)) => wrong(format!("the header {name} is missing")),
        (_, None) => Ok(()),
    }
}

fn bad_status(code: i64) -> StatusCode {
    if code == build::METHOD_NOT_FOUND { StatusCode::NOT_FOUND } else { StatusCode::BAD_REQUEST }
}

/// The HTTP status of an answer: a few errors have their own.
fn status(answer: &TwoPieces) -> StatusCode {
    // A cheap test on the first bytes, so that large results are not parsed for their status.
    let begins_with_error = |piece: &Bytes| {
        memchr::memmem::find(&piece[..piece.len().min(4096)], b"\"error\"").is_some()
    };
    if !answer.parts().into_iter().any(begins_with_error) {
        return StatusCode::OK;
    }
    let Ok(message) = Message::parse(answer.whole()) else { return StatusCode::OK };
    if message.kind() != MessageKind::Error {
        return StatusCode::OK;
    }
    match message.field_json("code") {
        Some(b"-32601") => StatusCode::NOT_FOUND,
        Some(b"-32020" | b"-32021" | b"-32022") => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// The sink to a modern client: the stream of its own request.
pub(super) struct RequestStreamSink {
    pub(super) stream: Arc<ClientStream>,
}

impl ClientSink for RequestStreamSink {
    fn notify(&self, _link: &Arc<Connection>, notification: Message) {
        self.stream.notify(notification.raw().clone());
    }

    fn say(&self, notification: Message) {
        self.stream.notify(notification.into_raw());
    }

    fn ask(&self, connection: &Arc<Connection>, question: Message, _open: Option<Question>) {
        connection.refuse(&question, "a client of this protocol revision cannot be asked anything");
    }

    fn is_open(&self) -> bool {
        true
    }
}
