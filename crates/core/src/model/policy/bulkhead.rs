//! Decides how many attempts run at a time, and how many may wait for a slot.

use std::time::Duration;

use crate::model::invalid::{self, Invalid};

/// How many attempts run at a time, and how many may wait for a slot.
///
/// ```
/// # use seawall::BulkheadPolicy;
/// # use std::time::Duration;
/// let policy = BulkheadPolicy { patience: Duration::from_secs(2), ..BulkheadPolicy::new(4) };
/// assert_eq!((policy.concurrency, policy.waiting), (4, 32));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkheadPolicy {
    /// Attempts in flight at a time; 1 to 100 000.
    pub concurrency: u32,
    /// How many attempts may wait for a slot, up to 1 000 000; further ones are rejected at once.
    pub waiting: u32,
    /// How long an attempt may wait for a slot, within the deadline of its call.
    pub patience: Duration,
}

impl BulkheadPolicy {
    /// `concurrency` at a time, eight times as many waiting, for up to 30 s.
    pub const fn new(concurrency: u32) -> Self {
        Self {
            concurrency,
            waiting: concurrency.saturating_mul(8),
            patience: Duration::from_secs(30),
        }
    }

    /// Checks the settings.
    pub fn validate(&self) -> Result<(), Invalid> {
        invalid::counted("concurrency", self.concurrency, 100_000)?;
        invalid::at_most("waiting", self.waiting, 1_000_000)?;
        invalid::sane("patience", self.patience)
    }
}
