//! Decides until when a server is left alone: the end of the pause that it asked for, in one atomic
//! word.

use super::atomic::{AtomicU64, Ordering};
use crate::time::clock::Moment;

/// The end of the pause that a server asked for; zero: none.
#[derive(Debug, Default)]
pub(crate) struct ServerPause(AtomicU64);

impl ServerPause {
    /// Nothing is asked before `until`.
    pub(crate) fn keep(&self, until: Moment) {
        self.0.fetch_max(until.0, Ordering::Relaxed);
    }

    /// Whether a pause was asked for and is not known to be over.
    #[inline]
    pub(crate) fn until(&self) -> Option<Moment> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            until => Some(Moment(until)),
        }
    }

    /// It is over, unless there was a longer one meanwhile.
    pub(crate) fn end(&self, until: Moment) {
        // Lost is only what somebody else changed.
        let _changed = self.0.compare_exchange(until.0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}
