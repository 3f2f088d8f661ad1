//! Decides the time between two readings of the system's clock: by the CPU's counter, for a
//! millisecond at most.
//!
//! Reading the counter takes a third of the time that reading the system's clock takes. But its
//! rate is known only roughly, and it may leap where the system's clock does not: after a sleep, on
//! another core, under another host. So it only measures the time since the last reading of the
//! system's clock, and is trusted for a millisecond after it.

use super::atomic::{AtomicU64, Ordering};

/// How many nanoseconds the counter is trusted after a reading.
const BELIEVED: u64 = 1_000_000;

/// The value of one count, and the last reading of the system's clock.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Anchor {
    /// Nanoseconds in 2^32 counts, lowered by a thousandth: the counter then runs slow, and the
    /// next reading of the system's clock never turns time back.
    worth: u64,
    /// How many counts the counter is trusted after a reading.
    window: u64,
    /// The count from which on the last reading no longer holds.
    until: AtomicU64,
    /// The nanoseconds to add to the counted time.
    ahead: AtomicU64,
}

impl Anchor {
    /// The anchor of a counter with so many nanoseconds in 2^32 counts. It has no reading yet.
    pub(crate) fn new(worth: u64) -> Self {
        let window = (u128::from(BELIEVED) << 32) / u128::from(worth.max(1));
        Self {
            worth: worth - worth / 1024,
            window: u64::try_from(window).unwrap_or(u64::MAX),
            until: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
        }
    }

    /// The time in nanoseconds at `count`, if the last reading still holds.
    #[inline]
    pub(crate) fn nanos(&self, count: u64) -> Option<u64> {
        // Acquire, and loaded first: `ahead` is then at least as new as `until`.
        let left = self.until.load(Ordering::Acquire).wrapping_sub(count);
        let is_believed = left.wrapping_sub(1) < self.window;
        is_believed.then(|| self.ahead.load(Ordering::Relaxed).wrapping_add(self.counted(count)))
    }

    /// Notes that the system's clock showed `nanos` between the counts `before` and `after`. Only
    /// one thread at a time may call this.
    pub(crate) fn set(&self, before: u64, nanos: u64, after: u64) {
        // A thread that was interrupted between the readings does not know when the clock was read.
        if after.wrapping_sub(before) > self.window / 1024 {
            return;
        }
        // `ahead` before `until`, with Release: a reader that trusts the new window sees its
        // offset.
        self.ahead.store(nanos.wrapping_sub(self.counted(after)), Ordering::Relaxed);
        self.until.store(after.wrapping_add(self.window), Ordering::Release);
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "differences are taken modulo 2^64")]
    fn counted(&self, count: u64) -> u64 {
        ((u128::from(count) * u128::from(self.worth)) >> 32) as u64
    }
}
