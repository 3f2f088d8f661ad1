//! The state of a connection at the moment a caller is woken.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use tokio_util::sync::CancellationToken;

use super::Connection;
use crate::protocol::{Id, Message, Reject, build};
use crate::upstream::call::{GatewayCall, NoClient};
use crate::upstream::{UpstreamFailure, Wire, pipe::PipeWriter};

/// A waker that checks whether the connection is alive at the very moment it wakes its task.
#[derive(Default)]
struct Watch {
    connection: OnceLock<Arc<Connection>>,
    was_told: AtomicBool,
    lived: AtomicBool,
}

impl Wake for Watch {
    fn wake(self: Arc<Self>) {
        self.was_told.store(true, Ordering::Relaxed);
        self.lived.store(
            self.connection.get().is_some_and(|connection| connection.is_alive()),
            Ordering::Relaxed,
        );
    }
}

#[test]
fn whoever_hears_that_a_conversation_is_over_finds_it_dead() {
    let (pipe, _outgoing) = PipeWriter::new();
    let connection =
        Connection::new("it", Wire::Pipe(pipe), Arc::new(NoClient), CancellationToken::new());
    let watch = Arc::new(Watch::default());
    assert!(watch.connection.set(Arc::clone(&connection)).is_ok());
    let waker = Waker::from(Arc::clone(&watch));
    let mut asking = pin!(connection.ask("tools/list", b"{}"));
    let mut context = Context::from_waker(&waker);
    assert!(asking.as_mut().poll(&mut context).is_pending());

    connection.lose(UpstreamFailure::Lost("it is gone".to_owned()));

    assert!(watch.was_told.load(Ordering::Relaxed));
    // Otherwise the next call would be sent into the dead connection.
    assert!(!watch.lived.load(Ordering::Relaxed));
    let Poll::Ready(answer) = asking.as_mut().poll(&mut context) else {
        panic!("it waits for ever")
    };
    assert_eq!(answer.unwrap_err(), UpstreamFailure::Lost("it is gone".to_owned()));
}

/// A client's call.
fn call() -> GatewayCall {
    let request = build::request(&Id::number(1), "tools/call", br#"{"name":"x"}"#);
    GatewayCall::new(Message::parse(request).unwrap(), Arc::new(NoClient))
}

fn incident(answer: Result<Message, UpstreamFailure>) -> Option<u64> {
    answer.unwrap_err().signals().incident
}

#[tokio::test]
async fn what_ends_a_conversation_is_one_incident_for_all_calls_in_it_and_the_next_is_another() {
    let lose = async |failure: UpstreamFailure| {
        let (pipe, _outgoing) = PipeWriter::new();
        let connection =
            Connection::new("it", Wire::Pipe(pipe), Arc::new(NoClient), CancellationToken::new());
        let calls = [call(), call(), call()];
        let [first, second, third] = &calls;
        let lost = async { connection.lose(failure) };
        let (first, second, third, ()) = tokio::join!(
            connection.request(first),
            connection.request(second),
            connection.request(third),
            lost
        );
        assert!(first.as_ref().is_err_and(|failure| !failure.was_not_sent()));
        [first, second, third].map(incident)
    };

    let death = lose(UpstreamFailure::Lost("its process ended".to_owned())).await;
    let nonsense = lose(UpstreamFailure::Broken(Reject::Depth)).await;

    assert!(death[0].is_some() && death.iter().all(|incident| *incident == death[0]), "{death:?}");
    assert!(
        nonsense[0] > death[0] && nonsense.iter().all(|incident| *incident == nonsense[0]),
        "{nonsense:?}"
    );
}
