//! Decides the time between two readings of the system's clock: by the CPU's counter, for a
//! millisecond at most.
//!
//! A reading of the counter takes a third of the time that a reading of the system's clock does.
//! But its rate is known only roughly, and it may leap where the system knows better: after a
//! sleep, on another core, under another host. So it only ever measures what has passed since the
//! system's clock was read last; whatever it shows, it is believed for a millisecond.

use super::atomic::{AtomicU64, Ordering};

/// How long the counter is believed.
const BELIEVED: u64 = 1_000_000;

/// What one count is worth, and what was read last.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Anchor {
    /// Nanoseconds in 2^32 counts: a thousandth too few, so that the next reading of the system's
    /// clock turns no time back that was counted.
    worth: u64,
    /// Counts that are believed after a reading.
    window: u64,
    /// The count from which on it is not believed any more.
    until: AtomicU64,
    /// What to add to the counted time.
    ahead: AtomicU64,
}

impl Anchor {
    /// Of a counter with so many nanoseconds in 2^32 counts. Nothing is believed yet.
    pub(crate) fn new(worth: u64) -> Self {
        let window = (u128::from(BELIEVED) << 32) / u128::from(worth.max(1));
        Self {
            worth: worth - worth / 1024,
            window: u64::try_from(window).unwrap_or(u64::MAX),
            until: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
        }
    }

    /// The time in nanoseconds when the counter shows `count`, if that can be told from the last
    /// reading.
    #[inline]
    pub(crate) fn nanos(&self, count: u64) -> Option<u64> {
        // Acquired first: what is to be added is then at least as new.
        let left = self.until.load(Ordering::Acquire).wrapping_sub(count);
        let is_believed = left.wrapping_sub(1) < self.window;
        is_believed.then(|| self.ahead.load(Ordering::Relaxed).wrapping_add(self.counted(count)))
    }

    /// The system's clock showed `nanos` when the counter had shown `before` and not yet `after`.
    /// Only one at a time may tell.
    pub(crate) fn set(&self, before: u64, nanos: u64, after: u64) {
        // Who was interrupted meanwhile does not know when it was.
        if after.wrapping_sub(before) > self.window / 1024 {
            return;
        }
        self.ahead.store(nanos.wrapping_sub(self.counted(after)), Ordering::Relaxed);
        self.until.store(after.wrapping_add(self.window), Ordering::Release);
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "differences are taken modulo 2^64")]
    fn counted(&self, count: u64) -> u64 {
        ((u128::from(count) * u128::from(self.worth)) >> 32) as u64
    }
}
