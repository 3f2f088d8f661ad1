//! Decides how many bytes the gateway may hold at once, over all clients: a share is taken before
//! bytes are held and returned when they are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// The limit in bytes, and the bytes that are held.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    limit: usize,
    held: AtomicUsize,
}

impl ByteBudget {
    /// A budget of `limit` bytes.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, held: AtomicUsize::new(0) })
    }

    /// A share that holds no bytes yet.
    pub(crate) fn share(self: &Arc<Self>) -> BudgetShare {
        BudgetShare { budget: Arc::clone(self), bytes: 0 }
    }

    /// The limit in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}

/// Bytes that are held under a budget; returned on drop.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl BudgetShare {
    /// Takes `by` more bytes; takes none and returns `false` if they do not fit.
    pub(crate) fn grow(&mut self, by: usize) -> bool {
        // Relaxed is enough: the counter guards no other memory, and check and addition are one
        // atomic step.
        let fits = |held: usize| held.checked_add(by).filter(|held| *held <= self.budget.limit);
        let has_grown =
            self.budget.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if has_grown {
            self.bytes += by;
        }
        has_grown
    }

    /// Ties the share to the bytes: it is returned when their last clone or slice is dropped.
    pub(crate) fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(CountedBytes { bytes, _share: self })
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

struct CountedBytes {
    bytes: Bytes,
    _share: BudgetShare,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_not_taken_and_what_is_let_go_is_given_back() {
        let budget = ByteBudget::new(100);
        let (mut first, mut second) = (budget.share(), budget.share());
        assert!(first.grow(60) && second.grow(40));
        assert!(!second.grow(1) && !second.grow(usize::MAX));
        let bytes = first.hold(Bytes::from_static(b"held"));
        let part = bytes.slice(1..2);
        drop(bytes);
        assert!(!second.grow(1), "a part keeps the whole");
        drop(part);
        assert!(second.grow(60));
        drop(second);
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
    }
}
