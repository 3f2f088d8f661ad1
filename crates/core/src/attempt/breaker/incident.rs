//! Decides whether an incident was counted: one reason for many failures counts once.

use super::sync::{AtomicU64, Ordering};

/// The last incident that was counted; none at first.
#[derive(Debug, Default)]
pub(super) struct Incident(AtomicU64);

impl Incident {
    /// Whether this one was counted before; from now on it is.
    pub(super) fn is_known(&self, number: u64) -> bool {
        // Numbers grow, so one that is not above the last counted is of the same incident, or of
        // one before it. None is 0.
        let number = number.saturating_add(1);
        self.0.fetch_max(number, Ordering::Relaxed) >= number
    }
}
