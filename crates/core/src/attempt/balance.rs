//! Decides which retry gets the last token: a bounded count in thousandths that is never overdrawn.

use super::atomic::{AtomicU64, Ordering};

/// One whole token.
pub(crate) const TOKEN: u64 = 1000;

/// A count between zero and `cap`; taking a token checks and subtracts in one atomic step.
#[derive(Debug)]
pub(crate) struct Balance {
    thousandths: AtomicU64,
    cap: u64,
}

impl Balance {
    pub(crate) fn new(start: u64, cap: u64) -> Self {
        Self { thousandths: AtomicU64::new(start.min(cap)), cap }
    }

    /// Adds up to the cap. A full balance is only read, so healthy traffic does not contend here.
    pub(crate) fn add(&self, amount: u64) {
        let full = |now: u64| (now < self.cap).then(|| now.saturating_add(amount).min(self.cap));
        let _ = self.thousandths.fetch_update(Ordering::Relaxed, Ordering::Relaxed, full);
    }

    /// Takes one token if there is one.
    pub(crate) fn take(&self) -> bool {
        let enough = |now: u64| now.checked_sub(TOKEN);
        self.thousandths.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough).is_ok()
    }

    /// The balance, in thousandths of a token.
    pub(crate) fn left(&self) -> u64 {
        self.thousandths.load(Ordering::Relaxed)
    }
}
