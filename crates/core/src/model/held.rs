//! Decides what a call that runs can be told: that it has more time, or that no further attempt makes sense.

use std::time::Duration;

use super::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a call that runs can be told: that it has more time, or that no further attempt makes sense.
#[derive(Debug, Default)]
pub struct Held {
    more: AtomicU64,
    is_last: AtomicBool,
}

impl Held {
    /// Gives the attempt that is under way this much more time, when its own is over: its client has to be waited
    /// for, and people are slower than servers.
    pub fn give(&self, more: Duration) {
        self.more.fetch_max(u64::try_from(more.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What was given since it was last taken.
    pub(crate) fn take(&self) -> Option<Duration> {
        match self.more.swap(0, Ordering::Relaxed) {
            0 => None,
            more => Some(Duration::from_millis(more)),
        }
    }

    /// No attempt follows the one that is under way: its client left, or the process ends.
    pub fn make_last(&self) {
        self.is_last.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_last(&self) -> bool {
        self.is_last.load(Ordering::Relaxed)
    }
}
