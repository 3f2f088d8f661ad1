//! Decides whether anybody listens: how many there are, in one atomic word that outlives the
//! stream.

use std::sync::Arc;

use super::atomic::{AtomicUsize, Ordering};

/// How many listen; nobody at first.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Arc<AtomicUsize>);

impl Listeners {
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn join(&self) -> Listening {
        self.0.fetch_add(1, Ordering::Relaxed);
        Listening(Arc::clone(&self.0))
    }
}

/// One who listens; dropped, no longer. It does not keep the stream alive.
#[derive(Debug)]
pub(crate) struct Listening(Arc<AtomicUsize>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
