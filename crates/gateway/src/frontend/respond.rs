//! Decides the form of HTTP responses: JSON at once, or an event stream that stays open as long as
//! messages follow.

use std::convert::Infallible;
use std::pin::Pin;

use bytes::Bytes;
use bytes::buf::Chain;
use futures_util::stream::unfold;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::Frame;
use tokio::time::Instant;

use crate::client::event_id::StreamName;
use crate::client::stream::{NextEvent, StreamEvent, StreamReader};
use crate::protocol::build::{self, RpcError};
use crate::protocol::pieces::TwoPieces;
use crate::protocol::{Id, limits, sse};

/// The body of every response.
pub(super) type Body = Either<Full<Data>, UnsyncBoxBody<Data, Infallible>>;

/// The data of body frames.
type Data = Chain<Bytes, Bytes>;

/// One message as JSON.
pub(super) fn json(status: StatusCode, message: impl Into<TwoPieces>) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(message.into().into_buf())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A status without a body.
pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(TwoPieces::default().into_buf())));
    *response.status_mut() = status;
    response
}

/// A JSON-RPC error about a request.
pub(super) fn error(status: StatusCode, id: Option<&Id>, error: &RpcError) -> Response<Body> {
    json(status, build::error(id, error))
}

/// A JSON-RPC error about a request whose id is not known.
pub(super) fn refuse(status: StatusCode, text: &str) -> Response<Body> {
    error(status, None, &RpcError::new(build::INVALID_REQUEST, text))
}

/// The future of a streamed call: it is polled with the stream and dropped with it.
pub(super) type StreamedCall = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An event stream and its format.
pub(super) struct EventFormat {
    /// The reader of the client's stream.
    pub reader: StreamReader,
    /// An event that was read already.
    pub first: Option<StreamEvent>,
    /// The call, if it lives only as long as the stream.
    pub work: Option<StreamedCall>,
    /// The stream's name for event ids, if a client may come back to it.
    pub number: Option<StreamName>,
    /// The event that opens the stream, if the protocol revision has one.
    pub priming: Option<Bytes>,
    /// When the stream ends, because its reader's token does.
    pub ends: Option<Instant>,
}

/// A piece of the response body.
struct BodyPiece {
    data: TwoPieces,
    /// Whether the end of the event follows in a piece of its own.
    is_open: bool,
    /// Whether the stream ends with this event.
    is_last: bool,
}

impl From<Bytes> for BodyPiece {
    fn from(data: Bytes) -> Self {
        Self { data: data.into(), is_open: false, is_last: false }
    }
}

/// An event stream.
pub(super) fn stream(events: EventFormat) -> Response<Body> {
    let frames = unfold((Some(events), None::<bool>), |(events, end)| async move {
        if let Some(is_last) = end {
            let frame = Frame::data(TwoPieces::from(Bytes::from_static(sse::END)).into_buf());
            return Some((Ok::<_, Infallible>(frame), (events.filter(|_| !is_last), None)));
        }
        let mut events = events?;
        let BodyPiece { data, is_open, is_last } = events.next().await?;
        let goes_on = is_open || !is_last;
        Some((
            Ok(Frame::data(data.into_buf())),
            (goes_on.then_some(events), is_open.then_some(is_last)),
        ))
    });
    let mut response =
        Response::new(Either::Right(UnsyncBoxBody::new(StreamBody::new(frames).boxed_unsync())));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl EventFormat {
    /// The next piece of the stream.
    async fn next(&mut self) -> Option<BodyPiece> {
        if let Some(priming) = self.priming.take() {
            return Some(priming.into());
        }
        if let Some(said) = self.first.take() {
            return Some(self.event(&said));
        }
        loop {
            let work = async {
                match &mut self.work {
                    Some(work) => work.await,
                    None => std::future::pending().await,
                }
            };
            let expiry = async {
                match self.ends {
                    Some(ends) => tokio::time::sleep_until(ends).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = expiry => return None,
                // The call is polled first: a server that sends messages without pause would
                // otherwise keep its own answer from being taken.
                () = work => self.work = None,
                next = self.reader.next() => return match next {
                    NextEvent::Said(said) => Some(self.event(&said)),
                    NextEvent::Ended => None,
                },
                () = tokio::time::sleep(limits::KEEP_ALIVE) => return Some(Bytes::from_static(sse::COMMENT).into()),
            }
        }
    }

    fn event(&self, said: &StreamEvent) -> BodyPiece {
        let id = self.number.as_ref().map(|name| name.at(said.place));
        let is_open = said.message.size() > limits::COPIED;
        let data = match is_open {
            true => sse::large_event(id.as_deref(), &said.message),
            false => sse::event(id.as_deref(), &said.message).into(),
        };
        BodyPiece { data, is_open, is_last: said.last }
    }
}
