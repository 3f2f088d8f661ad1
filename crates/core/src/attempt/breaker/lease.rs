//! Decides which thread owns which stripe: one thread at a time, and the next owner sees the writes
//! of the one before.

use super::stripe::OWNED;
use super::sync::{AtomicU32, Ordering};

/// One bit for each stripe that is free.
#[derive(Debug)]
pub(super) struct Leases(AtomicU32);

impl Leases {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new((1 << OWNED) - 1))
    }

    /// Takes a free stripe, if there is one.
    pub(super) fn take(&self) -> Option<usize> {
        // `free & (free - 1)` clears the lowest bit; at zero no stripe is free.
        let without_lowest = |free: u32| free.checked_sub(1).map(|less| free & less);
        // Acquire pairs with the Release in `give_back`: the last owner's writes are visible.
        let free =
            self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, without_lowest).ok()?;
        Some(free.trailing_zeros() as usize)
    }

    /// Frees an owned stripe.
    pub(super) fn give_back(&self, own: usize) {
        self.0.fetch_or(1 << own, Ordering::Release);
    }
}
