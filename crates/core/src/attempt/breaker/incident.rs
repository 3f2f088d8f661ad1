//! Decides whether a breaker has counted an incident: one loss that ends several calls counts once.

use super::sync::{AtomicU64, Ordering};

/// The last incident that was counted; none at first.
#[derive(Debug, Default)]
pub(super) struct Incident(AtomicU64);

impl Incident {
    /// Whether the incident was counted before; marks it as counted.
    pub(super) fn is_known(&self, number: u64) -> bool {
        // Incident numbers grow, so a number not above the last one counted belongs to the same
        // incident or an earlier one. Zero stands for none, hence the one added.
        let number = number.saturating_add(1);
        self.0.fetch_max(number, Ordering::Relaxed) >= number
    }
}
