//! Decides until when a server gets no calls: the end of the pause that it asked for
//! (`Retry-After`), in one atomic word.

use super::atomic::{AtomicU64, Ordering};
use crate::time::clock::Moment;

/// The end of the pause that a server asked for; zero: none.
#[derive(Debug, Default)]
pub(crate) struct ServerPause(AtomicU64);

impl ServerPause {
    /// The server gets no call before `until`; a longer pause noted earlier stays.
    pub(crate) fn keep(&self, until: Moment) {
        self.0.fetch_max(until.0, Ordering::Relaxed);
    }

    /// The end of the pause, if the server asked for one that is not known to be over.
    #[inline]
    pub(crate) fn until(&self) -> Option<Moment> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            until => Some(Moment(until)),
        }
    }

    /// The pause that ended at `until` is over, unless a longer one was noted meanwhile.
    pub(crate) fn end(&self, until: Moment) {
        // A failed exchange means that another thread noted a longer pause or ended this one.
        let _changed = self.0.compare_exchange(until.0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}
