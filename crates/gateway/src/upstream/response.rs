//! HTTP responses: a body within limits, an event stream, or a refusal that can be reported.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};

use super::{UpstreamFailure, beginning, redirect};
use crate::protocol::lines::fitted;
use crate::protocol::{Message, Reject, limits, sse};
use crate::runtime::http_client::HttpClient;

/// Sends a request; a failure says whether the request can have arrived.
pub(super) async fn send(
    client: &HttpClient,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, UpstreamFailure> {
    client.request(request).await.map_err(|error| {
        let text = causes(&error);
        if error.is_connect() {
            UpstreamFailure::Unreachable(text)
        } else {
            UpstreamFailure::Lost(text)
        }
    })
}

/// Whether the body is an event stream.
pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Refuses a compressed body: the gateway inflates nothing, so a small body cannot become a huge
/// one.
pub(super) fn is_plain(headers: &HeaderMap) -> Result<(), UpstreamFailure> {
    match headers.get_all(CONTENT_ENCODING).iter().all(|encoding| encoding == "identity") {
        true => Ok(()),
        false => {
            Err(UpstreamFailure::Broken(Reject::Shape("it is compressed, which was not asked for")))
        }
    }
}

/// Reads a body within `limit` into one buffer: a list of one-byte pieces would cost many times its
/// content.
pub(super) async fn body(
    response: Response<Incoming>,
    limit: usize,
) -> Result<Bytes, UpstreamFailure> {
    is_plain(response.headers())?;
    let mut body = response.into_body();
    let said = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| UpstreamFailure::Lost(causes(&error)))?.into_data()
        else {
            continue;
        };
        if whole.len() + data.len() > limit {
            return Err(UpstreamFailure::Broken(Reject::Size(limit)));
        }
        // One small piece is the whole body: it is passed on without a copy.
        if whole.is_empty() && body.is_end_stream() && data.len() <= limits::COPIED {
            return Ok(data);
        }
        if whole.is_empty() {
            // The announced length is the server's claim: it reserves no more than `limit`.
            whole.reserve(said.clamp(data.len(), limit));
        }
        whole.extend_from_slice(&data);
    }
    Ok(fitted(whole))
}

/// The failure for an HTTP error status; and the message in the body, if it is one.
pub(super) async fn refusal(response: Response<Incoming>) -> (UpstreamFailure, Option<Message>) {
    let status = response.status().as_u16();
    let retry_after = retry_after(response.headers());
    let redirect = redirect::named(status, response.headers());
    let body = body(response, limits::SSE_FIELD).await.unwrap_or_default();
    let message = Message::parse(body.clone()).ok();
    let text = match &message {
        Some(message) => {
            message.field_text("message").map(|text| text.into_owned()).unwrap_or_default()
        }
        None => redirect.unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned()),
    };
    (UpstreamFailure::Status { status, text: beginning(&text), retry_after }, message)
}

/// The `Retry-After` header, as the server sent it.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<String> {
    headers.get(RETRY_AFTER).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::to_owned)
}

/// An error with its causes, outermost first.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// The events of a stream.
pub(super) struct ResponseEvents {
    body: Incoming,
    decoder: sse::SseDecoder,
}

impl ResponseEvents {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, decoder: sse::SseDecoder::new(limits::FROM_SERVER) }
    }

    /// The next event; `None` when the stream ends or breaks.
    pub(super) async fn next(&mut self) -> Result<Option<sse::SseEvent>, UpstreamFailure> {
        loop {
            if let Some(event) = self.decoder.event()? {
                return Ok(Some(event));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(piece) = frame.data_ref() {
                        self.decoder.push(piece);
                    }
                }
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }
}
