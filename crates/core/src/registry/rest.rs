//! Decides whether something shared is at rest: nobody else has it, and nothing is left in it that
//! is worth keeping.

use super::atomic::{Ordering, fence};
use super::sync::Arc;

/// Looks for others first, and then at what they left: whoever is gone by then has left it before.
pub(super) fn is_at_rest<V>(shared: &Arc<V>, is_empty: impl FnOnce(&V) -> bool) -> bool {
    let is_alone = Arc::strong_count(shared) == 1;
    // The count alone does not bring along what was written before it went down.
    fence(Ordering::Acquire);
    is_alone && is_empty(shared)
}
