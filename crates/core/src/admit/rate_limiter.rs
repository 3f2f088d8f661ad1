//! Decides whether a call keeps within a rate (GCRA): `count` calls per `per`, with `burst` of them
//! at once at most.

use std::time::Duration;

use super::gcra::Gcra;
use crate::model::invalid::Invalid;
use crate::model::policy::rate::Rate;
use crate::time::clock::{Clock, Moment, nanos};

/// A rate limiter. Shared by reference; granting and refusing both touch one atomic word.
///
/// ```
/// # use seawall::{Clock, Rate, RateLimiter};
/// # use std::time::Duration;
/// let clock = Clock::manual();
/// let limiter = RateLimiter::new(Rate::per_second(1), &clock)?;
/// assert_eq!(limiter.check(), Ok(()));
/// assert_eq!(limiter.check(), Err(Duration::from_secs(1)));
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(limiter.check(), Ok(()));
/// # Ok::<(), seawall::Invalid>(())
/// ```
#[derive(Debug)]
pub struct RateLimiter {
    arrival: Gcra,
    clock: Clock,
}

impl RateLimiter {
    /// A rate limiter that has seen no call yet, so the whole burst is free.
    pub fn new(rate: Rate, clock: &Clock) -> Result<Self, Invalid> {
        rate.validate()?;
        let cell = rate.cell();
        let arrival = Gcra::new(cell, cell.saturating_mul(u64::from(rate.burst)));
        Ok(Self { arrival, clock: clock.clone() })
    }

    /// Takes a permit now, or returns the wait until one is free.
    #[inline]
    pub fn check(&self) -> Result<(), Duration> {
        match self.arrival.book(self.clock.now().0, 0) {
            Ok(_) => Ok(()),
            Err(wait) => Err(Duration::from_nanos(wait)),
        }
    }

    /// Leaves this limiter a share of the rate, above 0, to 1; the burst shrinks with it, to one
    /// permit at least.
    pub(crate) fn set_share(&self, share: f64) {
        self.arrival.set_share(share);
    }

    /// Gives a permit back that was taken for now and not used.
    pub(crate) fn give_back(&self) {
        self.arrival.give_back();
    }

    /// The wait of a call behind `ahead` others that have not taken their permits yet.
    pub(crate) fn wait_behind(&self, ahead: u32) -> Duration {
        Duration::from_nanos(self.arrival.wait(self.clock.now().0, u64::from(ahead)))
    }

    /// Takes the next permit if it comes within `patience`, and returns the wait until then. A
    /// caller that leaves while it waits does not give its permit back: two calls could then share
    /// one moment.
    #[inline]
    pub fn book(&self, patience: Duration) -> Result<Duration, Duration> {
        self.book_at(self.clock.now(), patience)
    }

    /// As [`Self::book`], for a caller that has read the clock.
    #[inline]
    pub(crate) fn book_at(&self, now: Moment, patience: Duration) -> Result<Duration, Duration> {
        let wait = self.arrival.book(now.0, nanos(patience));
        wait.map(Duration::from_nanos).map_err(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_the_next_waits_for_its_cell() {
        let clock = Clock::manual();
        let limit = RateLimiter::new(Rate::per_second(4), &clock).unwrap();

        assert!((0..4).all(|_| limit.check().is_ok()));
        assert_eq!(limit.check(), Err(Duration::from_millis(250)));
        clock.advance(Duration::from_millis(250));
        assert_eq!(limit.check(), Ok(()));
        assert_eq!(limit.check(), Err(Duration::from_millis(250)));
    }

    #[test]
    fn waiters_are_lined_up_and_the_impatient_book_nothing() {
        let limit = RateLimiter::new(Rate::per_second(1), &Clock::manual()).unwrap();
        let secs = Duration::from_secs;

        assert_eq!(limit.book(secs(10)), Ok(secs(0)));
        assert_eq!(limit.book(secs(10)), Ok(secs(1)));
        assert_eq!(limit.book(secs(1)), Err(secs(2)));
        assert_eq!(limit.book(secs(10)), Ok(secs(2)));
    }

    #[test]
    fn a_share_of_a_rate_is_a_slower_rate_with_a_smaller_burst() {
        let clock = Clock::manual();
        let limit = RateLimiter::new(Rate::per_second(8), &clock).unwrap();
        limit.set_share(0.25);
        assert!((0..2).all(|_| limit.check().is_ok()));
        assert_eq!(limit.check(), Err(Duration::from_millis(500)));
        limit.set_share(0.001);
        clock.advance(Duration::from_secs(3600));
        assert_eq!(limit.check(), Ok(()), "the least burst is one");
        assert_eq!(limit.check(), Err(Duration::from_secs(125)));
        limit.set_share(1.0);
        clock.advance(Duration::from_secs(3600));
        assert!((0..8).all(|_| limit.check().is_ok()));
        assert_eq!(limit.check(), Err(Duration::from_millis(125)));
    }

    #[test]
    fn bad_rates_name_their_field() {
        let field = |rate: Rate| RateLimiter::new(rate, &Clock::manual()).unwrap_err().field;
        let good = Rate::per_second(1);

        assert_eq!(field(Rate::per_second(0)), "count");
        assert_eq!(field(Rate { burst: 0, ..good }), "burst");
        assert_eq!(field(Rate { per: Duration::ZERO, ..good }), "per");
        assert_eq!(
            field(Rate { count: u32::MAX, per: Duration::from_nanos(1), burst: 1 }),
            "count"
        );
    }
}
