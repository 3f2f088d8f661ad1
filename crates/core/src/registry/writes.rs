//! Decides whether a server has seen a write since a read was sent.

use super::atomic::{AtomicU64, Ordering};

/// How many writes a server may have executed.
#[derive(Debug, Default)]
pub(crate) struct WriteCount(AtomicU64);

impl WriteCount {
    /// The number of writes that are over. A read sent after this load sees their effects.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Counts a write that is over.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}
