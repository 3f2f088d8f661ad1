//! What whoever waits on a conversation can rely on at the moment it hears something.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use tokio_util::sync::CancellationToken;

use super::Link;
use crate::call::Nowhere;
use crate::upstream::{Failure, Wire, pipe::Pipe};

/// Looks whether the conversation lives at the very moment somebody is told to look.
#[derive(Default)]
struct Watch {
    link: OnceLock<Arc<Link>>,
    was_told: AtomicBool,
    lived: AtomicBool,
}

impl Wake for Watch {
    fn wake(self: Arc<Self>) {
        self.was_told.store(true, Ordering::Relaxed);
        self.lived.store(self.link.get().is_some_and(|link| link.is_alive()), Ordering::Relaxed);
    }
}

#[test]
fn whoever_hears_that_a_conversation_is_over_finds_it_dead() {
    let (pipe, _outgoing) = Pipe::new();
    let link = Link::new("it", Wire::Pipe(pipe), Arc::new(Nowhere), CancellationToken::new());
    let watch = Arc::new(Watch::default());
    assert!(watch.link.set(Arc::clone(&link)).is_ok());
    let waker = Waker::from(Arc::clone(&watch));
    let mut asking = pin!(link.ask("tools/list", b"{}"));
    let mut context = Context::from_waker(&waker);
    assert!(asking.as_mut().poll(&mut context).is_pending());

    link.lose(Failure::Lost("it is gone".to_owned()));

    assert!(watch.was_told.load(Ordering::Relaxed));
    // Else the next call would be sent into the dead one.
    assert!(!watch.lived.load(Ordering::Relaxed));
    let Poll::Ready(answer) = asking.as_mut().poll(&mut context) else { panic!("it waits for ever") };
    assert_eq!(answer.unwrap_err(), Failure::Lost("it is gone".to_owned()));
}
