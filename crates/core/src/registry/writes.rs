//! Decides whether something was written to a server since an answer was asked for.

use super::atomic::{AtomicU64, Ordering};

/// How many writes a server may have executed.
#[derive(Debug, Default)]
pub(crate) struct WriteCount(AtomicU64);

impl WriteCount {
    /// As many as are over. Who asks the server after this is answered with what they left.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// One more is over.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}
