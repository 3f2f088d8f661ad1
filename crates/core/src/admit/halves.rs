//! Decides when the two halves of a key are known: both or neither.

use super::atomic::{AtomicU64, Ordering};

/// The halves of a key once they are known. Whoever sets them sets the same.
#[derive(Debug, Default)]
pub(crate) struct Halves {
    /// Set last and read first, so that who finds it finds the other. Zero: not known, or one key
    /// in 2⁶⁴, which is computed each time.
    first: AtomicU64,
    second: AtomicU64,
}

impl Halves {
    #[inline]
    pub(crate) fn get(&self) -> Option<(u64, u64)> {
        match self.first.load(Ordering::Acquire) {
            0 => None,
            first => Some((first, self.second.load(Ordering::Relaxed))),
        }
    }

    #[inline]
    pub(crate) fn set(&self, first: u64, second: u64) {
        self.second.store(second, Ordering::Relaxed);
        self.first.store(first, Ordering::Release);
    }
}
