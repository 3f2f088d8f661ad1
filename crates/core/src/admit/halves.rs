//! Decides when the two halves of a call key are visible to other threads: both or neither.

use super::atomic::{AtomicU64, Ordering};

/// The halves of a key once computed. Every thread that sets them sets the same values.
#[derive(Debug, Default)]
pub(crate) struct Halves {
    /// Written last and read first, so that a reader that finds it finds the other half too. Zero
    /// means not computed, or one key in 2⁶⁴, which is then computed each time.
    first: AtomicU64,
    second: AtomicU64,
}

impl Halves {
    #[inline]
    pub(crate) fn get(&self) -> Option<(u64, u64)> {
        // Pairs with the Release store in `set`: a first half that is not zero makes the second
        // visible.
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
