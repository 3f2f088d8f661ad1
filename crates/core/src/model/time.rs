//! Decides what time it is: the one clock that every policy reads.
//!
//! Time is monotonic and injected. A [`Moment`] is a count of nanoseconds since its clock began, so
//! moments of different clocks must not be mixed; clones of one clock agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A point in time, as nanoseconds since its [`Clock`] began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub(crate) u64);

impl Moment {
    /// The time from `earlier` to `self`, zero if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `by` later, saturating at the end of time.
    #[inline]
    pub fn plus(self, by: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(by)))
    }
}

/// A duration in nanoseconds, saturating after 584 years.
#[inline]
pub(crate) fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(duration.subsec_nanos()))
}

/// A duration in whole milliseconds, as the contract texts and logs show it.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration in whole seconds, rounded up and at least 1: the contract's `retryAfter`.
pub fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
}

/// A monotonic clock. Waiting always uses tokio's timer, whichever clock is read.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Tokio(tokio::time::Instant),
    /// The counter, and what it showed when the clock began.
    Fast(quanta::Clock, u64),
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// Follows tokio's clock, so that a paused runtime pauses every policy with it. The default.
    pub fn tokio() -> Self {
        Self(Source::Tokio(tokio::time::Instant::now()))
    }

    /// Reads the CPU's time stamp counter: about 10 ns a reading instead of 23 ns.
    /// It does not follow a paused tokio clock; meant for servers, not for tests.
    pub fn fast() -> Self {
        let clock = quanta::Clock::new();
        let origin = clock.raw();
        Self(Source::Fast(clock, origin))
    }

    /// Moves only when [`Clock::advance`] is called; for tests of pieces that never wait.
    pub fn manual() -> Self {
        Self(Source::Manual(Arc::new(AtomicU64::new(0))))
    }

    /// The current moment.
    #[inline]
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::Tokio(origin) => Moment(nanos(origin.elapsed())),
            Source::Fast(clock, origin) => Moment(clock.delta_as_nanos(*origin, clock.raw())),
            Source::Manual(now) => Moment(now.load(Ordering::Relaxed)),
        }
    }

    /// Moves a manual clock forward; the other clocks move by themselves and ignore it.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(now) = &self.0 {
            now.fetch_add(nanos(by), Ordering::Relaxed);
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::tokio()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_round_up_and_are_at_least_one() {
        assert_eq!(whole_seconds(Duration::ZERO), 1);
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_millis(12_001)), 13);
        assert_eq!(whole_seconds(Duration::from_secs(30)), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn the_default_clock_follows_a_paused_runtime() {
        let clock = Clock::default();
        let start = clock.now();

        tokio::time::advance(Duration::from_secs(30)).await;

        assert_eq!(clock.now().since(start), Duration::from_secs(30));
    }

    #[test]
    fn the_fast_clock_moves_forward_and_moments_saturate() {
        let clock = Clock::fast();
        let start = clock.now();

        assert!(clock.now() >= start);
        assert_eq!(start.since(start.plus(Duration::MAX)), Duration::ZERO);
    }
}
