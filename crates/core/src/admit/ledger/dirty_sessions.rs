//! Decides without a lock that the loop guard knows nothing of a session, so that a healthy session
//! neither hashes its name nor takes a lock because other sessions have failures.

use std::time::Duration;

use super::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::time::clock::{Clock, Moment};

/// Several sessions share a mark; that costs a needless lookup and nothing else.
pub(super) const DIRTY_MARKS: usize = 256;
const CLEAN: u64 = 0;

/// When a call was last remembered for the sessions behind each mark, and how many marks are set.
#[derive(Debug)]
pub(super) struct DirtySessions {
    times: Box<[AtomicU64; DIRTY_MARKS]>,
    set: AtomicUsize,
}

impl DirtySessions {
    pub(super) fn new() -> Self {
        Self {
            times: Box::new(std::array::from_fn(|_| AtomicU64::new(CLEAN))),
            set: AtomicUsize::new(0),
        }
    }

    /// DirtySessions the session at `now`.
    pub(super) fn set(&self, session: &str, now: Moment) {
        let (mark, now) = (self.of(session), now.0.max(1));
        let newer = |seen: u64| (seen != CLEAN).then(|| seen.max(now));
        if mark.fetch_update(Ordering::AcqRel, Ordering::Relaxed, newer).is_ok() {
            return;
        }
        // Counted before the mark is set: a reader that finds the mark set may rely on the count.
        self.set.fetch_add(1, Ordering::Relaxed);
        if mark.fetch_max(now, Ordering::AcqRel) != CLEAN {
            // Another thread set the mark meanwhile and counted it.
            self.set.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the guard may know something of the session.
    #[inline]
    pub(super) fn is_set(&self, session: &str) -> bool {
        !self.are_clean() && self.of(session).load(Ordering::Relaxed) != CLEAN
    }

    /// Whether no mark is set.
    #[inline]
    pub(super) fn are_clean(&self) -> bool {
        self.set.load(Ordering::Relaxed) == 0
    }

    /// Clears the session's mark if it is older than `age`, unless another thread sets it
    /// meanwhile.
    pub(super) fn wipe_older(&self, session: &str, age: Duration, clock: &Clock) {
        let mark = self.of(session);
        let seen = mark.load(Ordering::Relaxed);
        // Compared with the time seen: a mark renewed since has another time and stays.
        let wipe = || mark.compare_exchange(seen, CLEAN, Ordering::Acquire, Ordering::Relaxed);
        if seen != CLEAN && clock.now().since(Moment(seen)) >= age && wipe().is_ok() {
            self.set.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[inline]
    fn of(&self, session: &str) -> &AtomicU64 {
        &self.times[place(session)]
    }
}

/// Hashes only the length and both ends of the name: session names differ there, and reading them
/// takes no real hash.
#[inline]
pub(super) fn place(session: &str) -> usize {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let name = session.as_bytes();
    let ends = match (name.first_chunk(), name.last_chunk()) {
        (Some(first), Some(last)) => {
            u64::from_le_bytes(*first).wrapping_mul(SPREAD) ^ u64::from_le_bytes(*last)
        }
        _ => name.iter().fold(0, |all, &byte| all << 8 | u64::from(byte)),
    };
    // The upper bits depend on every bit below.
    (ends ^ name.len() as u64).wrapping_mul(SPREAD).to_be_bytes()[0].into()
}
