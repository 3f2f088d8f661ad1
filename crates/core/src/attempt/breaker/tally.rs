//! Decides how many calls went well lately, counted without a lock: a ring of buckets for each of a few threads.

use std::cell::Cell;

use super::sync::{AtomicU64, Ordering};
use super::window::{BUCKETS, Buckets};
use super::{Moment, WindowRule};

/// Threads share stripes, but neighbours do not share cache lines.
const STRIPES: usize = 8;

/// One ring; each bucket is its number since the clock began (upper half) and its count (lower half).
#[derive(Debug)]
#[repr(align(128))]
struct Stripe([AtomicU64; BUCKETS]);

/// The successes of the last `length`.
#[derive(Debug)]
pub(crate) struct Tally {
    ring: Buckets,
    stripes: Box<[Stripe; STRIPES]>,
}

impl Tally {
    pub(crate) fn new(rule: &WindowRule) -> Self {
        let stripe = |_| Stripe(std::array::from_fn(|_| AtomicU64::new(0)));
        Self { ring: Buckets::of(rule), stripes: Box::new(std::array::from_fn(stripe)) }
    }

    /// Counts a success.
    #[inline]
    pub(crate) fn add(&self, now: Moment) {
        let number = self.ring.number(now);
        let bucket = &self.stripes[own_stripe() % STRIPES].0[Buckets::place(number)];
        let mut seen = bucket.load(Ordering::Relaxed);
        loop {
            // After four billion successes in one bucket its count starts again.
            let counted = if seen >> 32 == upper(number) { seen.wrapping_add(1) } else { upper(number) << 32 | 1 };
            match bucket.compare_exchange_weak(seen, counted, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }

    /// The successes that still count at `now`.
    pub(crate) fn sum(&self, now: Moment) -> u32 {
        let newest = self.ring.number(now);
        let numbers = (0..self.ring.used).filter_map(|back| newest.checked_sub(back));
        numbers.map(|number| self.count_of(number)).fold(0, u32::saturating_add)
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        for bucket in self.stripes.iter().flat_map(|stripe| &stripe.0) {
            bucket.store(0, Ordering::Relaxed);
        }
    }

    fn count_of(&self, number: u64) -> u32 {
        let buckets = self.stripes.iter().map(|stripe| stripe.0[Buckets::place(number)].load(Ordering::Relaxed));
        buckets.filter(|bucket| bucket >> 32 == upper(number)).fold(0, |sum, bucket| sum.saturating_add(bucket as u32))
    }
}

/// As much of a bucket's number as fits; it repeats after four billion buckets.
fn upper(number: u64) -> u64 {
    number & u64::from(u32::MAX)
}

/// Each thread keeps to one stripe.
#[inline]
fn own_stripe() -> usize {
    const NONE: usize = usize::MAX;
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<usize> = const { Cell::new(NONE) };
    }
    if OWN.get() == NONE {
        OWN.set(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % STRIPES);
    }
    OWN.get()
}
