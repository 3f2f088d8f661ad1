//! The body of a request: within limits of size and time, and only if it is plain JSON.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;
use tokio::time::{Instant, timeout, timeout_at};

use super::respond::{self, Body};
use crate::wire::build::Error;
use crate::wire::{Reject, limits};

/// How much of a body that is too large is taken and thrown away, so that its sender lives to read why.
const THROWN_AWAY: usize = 16 << 20;
/// How long its sender may pause before it is told.
const PAUSE: Duration = Duration::from_secs(1);

/// Why a body is not even begun, if so.
pub(super) fn unreadable(headers: &HeaderMap) -> Option<Response<Body>> {
    if headers.get_all(CONTENT_ENCODING).iter().any(|encoding| encoding != "identity") {
        return Some(respond::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a compressed body is not read here"));
    }
    let is_json = headers.get(CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json")
    });
    (!is_json).then(|| respond::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json"))
}

/// Reads a body within limits of size and time.
pub(super) async fn read(mut body: impl HttpBody<Data = Bytes> + Unpin) -> Result<Bytes, Box<Response<Body>>> {
    if body.size_hint().lower() > limits::FROM_CLIENT as u64 {
        return Err(too_large(body).await);
    }
    let begun = Instant::now();
    let mut whole = BytesMut::new();
    loop {
        // What came fast earns no right to stop.
        let earned = Duration::from_secs(whole.len() as u64 / limits::BODY_RATE);
        let until = (begun + limits::BODY_TIME + earned).min(Instant::now() + limits::BODY_TIME);
        let frame = match timeout_at(until, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => return Ok(whole.freeze()),
            Ok(Some(Err(_))) => return Err(Box::new(respond::refuse(StatusCode::BAD_REQUEST, "the body broke off"))),
            Err(_) => return Err(Box::new(respond::refuse(StatusCode::REQUEST_TIMEOUT, "the body came too slowly"))),
        };
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > limits::FROM_CLIENT {
            return Err(too_large(body).await);
        }
        if whole.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        whole.extend_from_slice(&data);
    }
}

async fn too_large(body: impl HttpBody<Data = Bytes> + Unpin) -> Box<Response<Body>> {
    throw_away(body).await;
    let error = Error::from(&Reject::Size(limits::FROM_CLIENT));
    Box::new(respond::error(StatusCode::PAYLOAD_TOO_LARGE, None, &error))
}

/// Takes what is still on its way, within bounds: a connection that is closed on its sender loses the answer with it.
pub(crate) async fn throw_away(mut body: impl HttpBody<Data = Bytes> + Unpin) {
    let rest = async {
        let mut taken = 0;
        while taken < THROWN_AWAY
            && let Ok(Some(Ok(frame))) = timeout(PAUSE, body.frame()).await
        {
            taken += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    let _in_time = timeout(limits::HEADER_TIME, rest).await;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream::unfold;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    /// A body of `count` pieces, each this long and this long after the one before; then nothing, not even an end.
    fn pieces(count: usize, bytes: usize, pause: Duration) -> impl HttpBody<Data = Bytes> + Unpin {
        StreamBody::new(Box::pin(unfold(0, move |sent| async move {
            if sent == count {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(pause).await;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b' '; bytes]))), sent + 1))
        })))
    }

    async fn refused(body: impl HttpBody<Data = Bytes> + Unpin) -> (StatusCode, Duration) {
        let begun = Instant::now();
        let response = read(body).await.expect_err("it has no end");
        (response.status(), begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_given_up_after_thirty_seconds() {
        let (status, after) = refused(pieces(1_000_000, 1, Duration::from_millis(900))).await;
        assert_eq!((status, after.as_secs()), (StatusCode::REQUEST_TIMEOUT, 30));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_a_kibibyte_a_second_is_waited_for() {
        let (status, _) = refused(pieces(5_000, 1024, Duration::from_secs(1))).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_came_fast_and_stopped_is_given_up_after_thirty_seconds_too() {
        let (status, after) = refused(pieces(1, 3 << 20, Duration::ZERO)).await;
        assert_eq!((status, after.as_secs()), (StatusCode::REQUEST_TIMEOUT, 30));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_large_is_not_taken_for_ever() {
        let (status, after) = refused(pieces(usize::MAX, 1 << 20, Duration::from_millis(100))).await;
        assert_eq!((status, after < Duration::from_secs(3)), (StatusCode::PAYLOAD_TOO_LARGE, true));
        let (status, after) = refused(pieces(usize::MAX, 5 << 20, Duration::from_secs(9))).await;
        assert_eq!((status, after), (StatusCode::PAYLOAD_TOO_LARGE, Duration::from_secs(10)));
    }
}
