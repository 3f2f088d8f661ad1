//! Decides whether an event has listeners: their number, in one atomic that outlives the stream.

use std::sync::Arc;

use super::atomic::{AtomicUsize, Ordering};

/// The number of listeners; zero at first.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Arc<AtomicUsize>);

impl Listeners {
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        // Relaxed suffices here and below: the number only decides whether an event is built. A
        // listener that joins at the same time may miss that event; the channel orders the others.
        self.0.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn join(&self) -> Listening {
        self.0.fetch_add(1, Ordering::Relaxed);
        Listening(Arc::clone(&self.0))
    }
}

/// One listener; dropping it takes it off the count. It does not keep the stream alive.
#[derive(Debug)]
pub(crate) struct Listening(Arc<AtomicUsize>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
