//! Decides which thread owns which stripe: one at a time, and the next one finds what the one
//! before has written.

use super::stripe::OWNED;
use super::sync::{AtomicU32, Ordering};

/// A bit for each stripe that nobody owns.
#[derive(Debug)]
pub(super) struct Leases(AtomicU32);

impl Leases {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new((1 << OWNED) - 1))
    }

    /// Takes a stripe that nobody owns, if there is one.
    pub(super) fn take(&self) -> Option<usize> {
        let without_lowest = |free: u32| free.checked_sub(1).map(|less| free & less);
        // Acquires what the owner before has written.
        let free =
            self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, without_lowest).ok()?;
        Some(free.trailing_zeros() as usize)
    }

    /// Gives an owned stripe back.
    pub(super) fn give_back(&self, own: usize) {
        self.0.fetch_or(1 << own, Ordering::Release);
    }
}
