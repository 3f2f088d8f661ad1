//! Decides when the next call fits a rate: the generic cell rate algorithm (GCRA) in one atomic
//! word.

use super::atomic::{AtomicU64, Ordering};

/// The smallest share of a rate: a smaller one would stop its calls for good.
const LEAST_SHARE: f64 = 1e-4;

/// The theoretical arrival time of the next cell, in nanoseconds of the clock, shifted by one burst
/// so that the start of the clock lies a full burst in the past.
#[derive(Debug)]
pub(crate) struct Gcra {
    next: CacheLine,
    /// Nanoseconds that one cell takes at the whole rate.
    whole: u64,
    /// Nanoseconds that one cell takes at the share of the rate that is left to this limiter.
    cell: AtomicU64,
    /// Nanoseconds that a whole burst takes.
    burst: u64,
}

/// A cache line of its own: threads that read the clock and the rate beside this word do not take
/// its line away from a thread that books.
#[derive(Debug)]
#[repr(align(128))]
struct CacheLine(AtomicU64);

impl Gcra {
    pub(crate) fn new(cell: u64, burst: u64) -> Self {
        Self { next: CacheLine(AtomicU64::new(0)), whole: cell, cell: AtomicU64::new(cell), burst }
    }

    /// Leaves this limiter a share of the rate. The time of a burst stays, so its cells shrink with
    /// the share; one always fits.
    pub(crate) fn set_share(&self, share: f64) {
        let slower = self.whole as f64 / share.clamp(LEAST_SHARE, 1.0);
        self.cell.store(slower as u64, Ordering::Relaxed);
    }

    /// Nanoseconds of a cell, and of a burst.
    fn sizes(&self) -> (u64, u64) {
        let cell = self.cell.load(Ordering::Relaxed);
        (cell, self.burst.max(cell))
    }

    /// The wait at `now` for a cell behind `ahead` others that are not booked yet.
    pub(crate) fn wait(&self, now: u64, ahead: u64) -> u64 {
        let next = self.next.0.load(Ordering::Relaxed).max(now);
        let (cell, burst) = self.sizes();
        let booked = next.saturating_add(cell.saturating_mul(ahead.saturating_add(1)));
        booked.saturating_sub(now.saturating_add(burst))
    }

    /// Books the next cell if it may start within `patience` nanoseconds of `now`, and returns the
    /// wait. Otherwise books nothing and returns the wait that the cell would need.
    #[inline]
    pub(crate) fn book(&self, now: u64, patience: u64) -> Result<u64, u64> {
        // A cell may start once the cells booked before it leave room for it within the burst.
        // Relaxed is enough: the word is the whole state, and no other memory is published through
        // it.
        let (cell, burst) = self.sizes();
        let mut next = self.next.0.load(Ordering::Relaxed);
        loop {
            let booked = next.max(now).saturating_add(cell);
            let wait = booked.saturating_sub(now.saturating_add(burst));
            if wait > patience {
                return Err(wait);
            }
            match self.next.0.compare_exchange_weak(
                next,
                booked,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(wait),
                Err(seen) => next = seen,
            }
        }
    }

    /// Gives a booked cell back. That cannot add to the burst: time that has passed counts once,
    /// since `book` takes a `next` in the past for `now`.
    pub(crate) fn give_back(&self) {
        let (cell, _) = self.sizes();
        let less = |next: u64| Some(next.saturating_sub(cell));
        let _ = self.next.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}
