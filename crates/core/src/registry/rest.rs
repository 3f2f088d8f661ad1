//! Decides whether a shared value is at rest: no other owner holds it, and nothing in it is worth
//! keeping.

use super::atomic::{Ordering, fence};
use super::sync::Arc;

/// Counts the owners first and reads the value second: an owner gone by then made its last write
/// before.
pub(super) fn is_at_rest<V>(shared: &Arc<V>, is_empty: impl FnOnce(&V) -> bool) -> bool {
    let is_alone = Arc::strong_count(shared) == 1;
    // The count is a relaxed load. The fence pairs with the Release by which `Arc` drops an owner,
    // so that the owner's last write is visible.
    fence(Ordering::Acquire);
    is_alone && is_empty(shared)
}
