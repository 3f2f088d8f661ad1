//! The body of an admin request: a small JSON object, or nothing.

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};

use super::respond::{self, AdminResponse};
use crate::frontend::body::throw_away;
use crate::protocol::limits;

/// The body that forces a breaker's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForcedState {
    pub(super) state: BreakerWish,
}

/// The state that an operator wants for a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BreakerWish {
    Open,
    Closed,
    Auto,
}

/// Reads a body as `T`; the error quotes `allowed`, the valid bodies. An empty body counts as an
/// empty object.
pub(super) async fn read<T: DeserializeOwned>(
    body: impl Body<Data = Bytes> + Unpin,
    allowed: &str,
) -> Result<T, Box<AdminResponse>> {
    let bytes = whole(body).await.map_err(|(status, why)| Box::new(respond::error(status, why)))?;
    let json = if bytes.trim_ascii().is_empty() { b"{}" } else { &*bytes };
    let wrong = |_| {
        Box::new(respond::error(StatusCode::BAD_REQUEST, &format!("the body must be {allowed}")))
    };
    // Parsed as an object first: serde would also take an array with the fields in order for a
    // struct.
    let object: Map<String, Value> = serde_json::from_slice(json).map_err(wrong)?;
    serde_json::from_value(Value::Object(object)).map_err(wrong)
}

async fn whole(
    mut body: impl Body<Data = Bytes> + Unpin,
) -> Result<Bytes, (StatusCode, &'static str)> {
    const TOO_LARGE: (StatusCode, &str) =
        (StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than anything that is asked for here");
    // One deadline for the whole body: a client that sends it byte by byte gains no time.
    let until = Instant::now() + limits::HEADER_TIME;
    if body.size_hint().lower() > limits::ADMIN_BODY as u64 {
        throw_away(body).await;
        return Err(TOO_LARGE);
    }
    let mut whole = BytesMut::new();
    loop {
        let frame = match timeout_at(until, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => return Ok(whole.freeze()),
            Ok(Some(Err(_))) => return Err((StatusCode::BAD_REQUEST, "the body broke off")),
            Err(_) => return Err((StatusCode::REQUEST_TIMEOUT, "the body came too slowly")),
        };
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > limits::ADMIN_BODY {
            throw_away(body).await;
            return Err(TOO_LARGE);
        }
        whole.extend_from_slice(&data);
    }
}
