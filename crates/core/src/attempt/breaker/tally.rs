//! Decides how many calls succeeded lately, counted without a lock: each thread in a stripe of its
//! own, or nearly so.
//!
//! A thread that owns its stripe counts in one word whose address does not depend on the time, so
//! the processor need not wait for the clock to find it. When a new bucket begins, the count of
//! that word moves into the stripe's ring.

use super::Moment;
use super::stripe::{self, OWNED, SHARED};
use super::sync::{AtomicU64, Ordering};
use super::window::{BUCKETS, Buckets};
use crate::model::policy::breaker::WindowRule;

/// The newest bucket of a stripe's owner: its number since the clock began (upper half) and its
/// count (lower half).
#[derive(Debug)]
#[repr(align(128))]
struct Newest(AtomicU64);

/// Buckets of the same form, on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct BucketRing([AtomicU64; BUCKETS]);

/// The successes within the window.
#[derive(Debug)]
pub(crate) struct SuccessCount {
    buckets: Buckets,
    newest: Box<[Newest; OWNED]>,
    rings: Box<[BucketRing; SHARED]>,
}

impl SuccessCount {
    pub(crate) fn new(rule: &WindowRule) -> Self {
        let newest = |_| Newest(AtomicU64::new(0));
        let ring = |_| BucketRing(std::array::from_fn(|_| AtomicU64::new(0)));
        Self {
            buckets: Buckets::of(rule),
            newest: Box::new(std::array::from_fn(newest)),
            rings: Box::new(std::array::from_fn(ring)),
        }
    }

    /// Counts a success.
    #[inline]
    pub(crate) fn add(&self, now: Moment) {
        self.add_in(stripe::own(), now);
    }

    /// Counts a success in `stripe`: either the calling thread owns it, or it is shared.
    #[inline]
    pub(crate) fn add_in(&self, stripe: usize, now: Moment) {
        let number = upper(self.buckets.number(now));
        let Some(Newest(newest)) = self.newest.get(stripe) else {
            return self.keep(stripe, number, 1);
        };
        // A plain load and store: an owned stripe has one writer, so no increment can be lost.
        let seen = newest.load(Ordering::Relaxed);
        if seen >> 32 != number {
            self.turn(stripe, seen, number);
        }
        // After four billion successes in one bucket its count wraps to zero.
        let count = if seen >> 32 == number { seen.wrapping_add(1) } else { number << 32 | 1 };
        // Release: a reader that sees a new bucket here finds the one before it in the ring.
        newest.store(count, Ordering::Release);
    }

    /// The successes in the window at `now`. A bucket that is just moving into a ring may count
    /// twice but is never missed: missing successes could open a breaker.
    pub(crate) fn sum(&self, now: Moment) -> u32 {
        let latest = upper(self.buckets.number(now));
        // Newest words before rings, with Acquire: read the other way round, a bucket that moves in
        // between would be missed.
        let newest = self.newest.iter().map(|Newest(bucket)| bucket.load(Ordering::Acquire));
        let kept = self
            .rings
            .iter()
            .flat_map(|BucketRing(ring)| ring)
            .map(|bucket| bucket.load(Ordering::Relaxed));
        let in_window =
            newest.chain(kept).filter(|bucket| back(latest, bucket >> 32) < self.buckets.used);
        in_window.fold(0, |sum, bucket| sum.saturating_add(bucket as u32))
    }

    /// Clears all counts. An owner that counts at this very moment may write its bucket back: its
    /// recent successes then count until they leave the window. Failures are not kept here.
    pub(crate) fn clear(&self) {
        let newest = self.newest.iter().map(|Newest(bucket)| bucket);
        for bucket in newest.chain(self.rings.iter().flat_map(|BucketRing(ring)| ring)) {
            bucket.store(0, Ordering::Relaxed);
        }
    }

    /// Starts a new bucket for the owner of a stripe: the bucket it has `seen` moves into the ring,
    /// if it may still count.
    #[cold]
    #[inline(never)]
    fn turn(&self, stripe: usize, seen: u64, number: u64) {
        if back(number, seen >> 32) < BUCKETS as u64 {
            self.keep(stripe, seen >> 32, upper(seen));
        }
    }

    /// Adds to a bucket of a ring, which several threads may do at once.
    #[inline(never)]
    fn keep(&self, stripe: usize, number: u64, count: u64) {
        let bucket = &self.rings[stripe % SHARED].0[Buckets::place(number)];
        let counted = |seen: u64| {
            if seen >> 32 == number { seen.wrapping_add(count) } else { number << 32 | count }
        };
        let _ =
            bucket.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seen| Some(counted(seen)));
    }
}

/// The lower half of a number; the numbers of buckets repeat after four billion.
#[inline]
fn upper(number: u64) -> u64 {
    number & u64::from(u32::MAX)
}

/// How many buckets `number` lies before `latest`; very many if it lies after it.
fn back(latest: u64, number: u64) -> u64 {
    upper(latest.wrapping_sub(number))
}
