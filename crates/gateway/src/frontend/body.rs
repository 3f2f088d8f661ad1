//! Decides whether the body of a request is read: plain JSON only, within limits of size and time.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;
use tokio::time::{Instant, timeout, timeout_at};

use super::refused::RefusedMessage;
use super::respond::{self, Body};
use crate::protocol::budget::ByteBudget;
use crate::protocol::outline::Outliner;
use crate::protocol::{Outline, Reject, limits, lines};

/// How many bytes of an unwanted body are read and discarded, so that its sender survives to read
/// the refusal.
const THROWN_AWAY: usize = 16 << 20;
/// How long the sender of a discarded body may pause before the refusal is sent.
const PAUSE: Duration = Duration::from_secs(1);

/// How large one body may be, and all bodies together.
#[derive(Clone, Debug)]
pub(super) struct BodyLimits {
    /// The largest body.
    pub largest: usize,
    /// The budget that large bodies draw on while they are held.
    pub budget: Arc<ByteBudget>,
}

/// Why a request has no usable body.
#[derive(Debug)]
pub(super) enum NoBody {
    /// The body broke off or came too slowly.
    Broken(Box<Response<Body>>),
    /// The body is not kept; the outline is all that is known of it.
    Untaken(RefusedMessage, Outline),
}

/// The refusal of a body that is not read at all, by its headers.
pub(super) fn unreadable(headers: &HeaderMap) -> Option<Response<Body>> {
    if headers.get_all(CONTENT_ENCODING).iter().any(|encoding| encoding != "identity") {
        return Some(respond::refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "a compressed body is not read here",
        ));
    }
    let is_json = headers.get(CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json")
    });
    (!is_json).then(|| {
        respond::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json")
    })
}

/// Reads a body within limits of size and time. A body that is too large is still scanned for its
/// request id.
pub(super) async fn read(
    mut body: impl HttpBody<Data = Bytes> + Unpin,
    room: &BodyLimits,
) -> Result<Bytes, NoBody> {
    let mut pace = BodyPace { begun: Instant::now(), taken: 0 };
    let mut whole = BytesMut::new();
    let mut share = room.budget.share();
    while let Some(data) = pace.next(&mut body).await? {
        if whole.len() + data.len() > room.largest {
            let untaken = RefusedMessage::Rejected(Reject::Size(room.largest));
            // Boxed, as below: nearly every body is taken.
            return Err(Box::pin(discard(untaken, [whole.freeze(), data], body, pace)).await);
        }
        // The common case: one small frame is used as it is, without a copy.
        if whole.is_empty() && body.is_end_stream() && data.len() <= limits::COPIED {
            return Ok(data);
        }
        if whole.len() + data.len() > limits::COPIED && !share.grow(data.len()) {
            let untaken = RefusedMessage::Crowded;
            return Err(Box::pin(discard(untaken, [whole.freeze(), data], body, pace)).await);
        }
        whole.extend_from_slice(&data);
    }
    Ok(if whole.len() > limits::COPIED { share.hold(lines::fitted(whole)) } else { whole.freeze() })
}

/// The pace of a body.
struct BodyPace {
    begun: Instant,
    taken: usize,
}

impl BodyPace {
    /// The next frame of a body, within its time.
    async fn next(
        &mut self,
        body: &mut (impl HttpBody<Data = Bytes> + Unpin),
    ) -> Result<Option<Bytes>, NoBody> {
        let broken = |status, text| Err(NoBody::Broken(Box::new(respond::refuse(status, text))));
        loop {
            // Bytes extend the time at `BODY_RATE`, but a sender that was fast may still not pause
            // for longer than `BODY_TIME`.
            let earned = Duration::from_secs(self.taken as u64 / limits::BODY_RATE);
            let until =
                (self.begun + limits::BODY_TIME + earned).min(Instant::now() + limits::BODY_TIME);
            let frame = match timeout_at(until, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => return Ok(None),
                Ok(Some(Err(_))) => return broken(StatusCode::BAD_REQUEST, "the body broke off"),
                Err(_) => return broken(StatusCode::REQUEST_TIMEOUT, "the body came too slowly"),
            };
            if let Ok(data) = frame.into_data() {
                self.taken += data.len();
                return Ok(Some(data));
            }
        }
    }
}

/// Scans the rest of a body that is not kept, within limits, to learn the id under which its sender
/// waits.
async fn discard(
    untaken: RefusedMessage,
    before: [Bytes; 2],
    mut body: impl HttpBody<Data = Bytes> + Unpin,
    mut pace: BodyPace,
) -> NoBody {
    let mut outliner = Outliner::default();
    before.iter().for_each(|piece| outliner.feed(piece));
    drop(before);
    let until = Instant::now() + limits::BODY_TIME;
    while pace.taken < limits::DISCARDED && !outliner.is_hopeless() {
        match timeout_at(until, pace.next(&mut body)).await {
            Ok(Ok(Some(piece))) => outliner.feed(&piece),
            Ok(Ok(None)) => return NoBody::Untaken(untaken, outliner.finish()),
            // The body broke off or takes too long: the sender is answered now.
            Ok(Err(_)) | Err(_) => break,
        }
    }
    throw_away(body).await;
    NoBody::Untaken(untaken, outliner.finish())
}

/// Reads and discards the bytes that are still on their way, within bounds: if the gateway closed
/// the connection while its client sends, the client would lose the answer too.
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

    /// A body of `count` frames of `bytes` bytes, each `pause` after the one before; then it stalls
    /// without an end.
    fn pieces(count: usize, bytes: usize, pause: Duration) -> impl HttpBody<Data = Bytes> + Unpin {
        StreamBody::new(Box::pin(unfold(0, move |sent| async move {
            if sent == count {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(pause).await;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b' '; bytes]))), sent + 1))
        })))
    }

    fn room(largest: usize, all: usize) -> BodyLimits {
        BodyLimits { largest, budget: ByteBudget::new(all) }
    }

    async fn refused(body: impl HttpBody<Data = Bytes> + Unpin) -> (String, Duration) {
        let begun = Instant::now();
        let why = match read(body, &room(4 << 20, 64 << 20)).await.expect_err("it has no end") {
            NoBody::Broken(response) => response.status().as_str().to_owned(),
            NoBody::Untaken(why, _) => format!("{why:?}"),
        };
        (why, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_given_up_after_thirty_seconds() {
        let (why, after) = refused(pieces(1_000_000, 1, Duration::from_millis(900))).await;
        assert_eq!((why.as_str(), after.as_secs()), ("408", 30));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_a_kibibyte_a_second_is_waited_for() {
        let (why, _) = refused(pieces(5_000, 1024, Duration::from_secs(1))).await;
        assert_eq!(why, "Rejected(Size(4194304))");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_came_fast_and_stopped_is_given_up_after_thirty_seconds_too() {
        let (why, after) = refused(pieces(1, 3 << 20, Duration::ZERO)).await;
        assert_eq!((why.as_str(), after.as_secs()), ("408", 30));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_large_is_not_taken_for_ever() {
        // The body may be a request, so its end is awaited, but neither for ever nor for any size.
        for (bytes, pause) in [(1 << 20, 5), (16 << 20, 1_000), (5 << 20, 9_000)] {
            let (why, after) =
                refused(pieces(usize::MAX, bytes, Duration::from_millis(pause))).await;
            assert_eq!(why, "Rejected(Size(4194304))");
            assert!(after <= Duration::from_secs(60), "{after:?}");
        }
    }

    #[tokio::test]
    async fn large_bodies_share_a_budget_until_they_are_let_go() {
        let room = room(1 << 20, 1 << 20);
        let call = format!(
            r#"{{"params":{{"x":"{}"}},"jsonrpc":"2.0","method":"ping","id":7}}"#,
            "x".repeat(600 << 10)
        );
        let body = || http_body_util::Full::new(Bytes::from(call.clone()));
        let first = read(body(), &room).await.unwrap();
        assert_eq!(first, call);
        let NoBody::Untaken(RefusedMessage::Crowded, outline) =
            read(body(), &room).await.unwrap_err()
        else {
            panic!("it is the second of two that do not fit");
        };
        assert_eq!(outline.id.unwrap().json(), "7");
        drop(first);
        let message = crate::protocol::Message::parse(read(body(), &room).await.unwrap()).unwrap();
        let Err(NoBody::Untaken(RefusedMessage::Crowded, _)) = read(body(), &room).await else {
            panic!("it is held")
        };
        drop(message);
        read(body(), &room).await.unwrap();
    }
}
