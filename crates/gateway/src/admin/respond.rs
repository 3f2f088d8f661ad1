//! Responses of the admin API: JSON, Prometheus text, or a page.

use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{Either, Full};
use serde_json::{Value, json};

use crate::admin::errors::AdminRefusal;

/// A response: a whole body, or an event stream.
pub(super) type AdminResponse = Response<Either<Full<Bytes>, UnsyncBoxBody<Bytes, Infallible>>>;

/// A duration in whole milliseconds.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The time of an event that happened `ago`: milliseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "a person is told when it was; nothing is decided by it"
)]
pub(super) fn when(ago: Duration) -> Option<u64> {
    SystemTime::now().checked_sub(ago)?.duration_since(UNIX_EPOCH).ok().map(millis)
}

/// The text for an unknown path.
pub(super) const NOTHING_HERE: &str = "there is nothing here; there are / (the dashboard), /resilience/breakers, /resilience/tools, /resilience/servers, /resilience/queue, /resilience/fleet, /resilience/events, /resilience/reload, /resilience/policy/TOOL, /config, /metrics, /healthz and /readyz";

/// A JSON response.
pub(super) fn json(status: StatusCode, value: &Value) -> AdminResponse {
    text(status, "application/json", value.to_string())
}

/// An error response.
pub(super) fn error(status: StatusCode, why: &str) -> AdminResponse {
    json(status, &json!({"error": why}))
}

/// A 403 response that names the refused part of the request.
pub(super) fn barred(what: AdminRefusal, why: &str) -> AdminResponse {
    json(StatusCode::FORBIDDEN, &json!({"error": why, "refused": what}))
}

/// A 405 response that names the allowed methods.
pub(super) fn not_allowed(allowed: &'static str) -> AdminResponse {
    let mut answer = error(StatusCode::METHOD_NOT_ALLOWED, "this method is not used here");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

/// The response to a Prometheus scrape.
pub(super) fn metrics(scrape: String) -> AdminResponse {
    text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", scrape)
}

/// A response with this body, never cached and never guessed to be of another kind.
pub(super) fn text(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
) -> AdminResponse {
    let mut answer = Response::new(Either::Left(Full::new(body.into())));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    answer
}
