//! Decides the present time: the one clock that every policy reads.
//!
//! Time is monotonic and injected. A [`Moment`] is a count of nanoseconds since its clock began, so
//! moments of different clocks must not be mixed; clones of one clock agree.

use std::any::TypeId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::counter::Anchor;

/// A point in time, as nanoseconds since its [`Clock`] began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub(crate) u64);

impl Moment {
    /// The time from `earlier` to `self`, zero if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `by` earlier, saturating at the beginning.
    pub(crate) fn minus(self, by: Duration) -> Moment {
        Moment(self.0.saturating_sub(nanos(by)))
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
    duration
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(duration.subsec_nanos()))
}

/// A duration in whole milliseconds, as warnings and log lines show it.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration in whole seconds, rounded up and at least 1: the `retryAfter` of a failure.
pub fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
}

/// A monotonic clock. Waiting always uses tokio's timer, whichever clock is read.
///
/// ```
/// # use seawall::Clock;
/// # use std::time::Duration;
/// let clock = Clock::manual();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(clock.now().since(before), Duration::from_secs(5));
/// ```
#[derive(Clone, Debug)]
pub struct Clock(ClockSource);

#[derive(Clone, Debug)]
enum ClockSource {
    Tokio(tokio::time::Instant),
    Fast(Arc<FastClock>),
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// Follows tokio's clock, so that a paused runtime pauses every policy with it.
    pub fn tokio() -> Self {
        Self(ClockSource::Tokio(tokio::time::Instant::now()))
    }

    /// Follows the system's clock, read once a millisecond; in between the CPU's counter tells the
    /// time, which takes 10 ns instead of 25. It is right within two microseconds, and within a
    /// millisecond where the counter misbehaves. It does not follow a paused tokio clock.
    pub fn fast() -> Self {
        Self(ClockSource::Fast(Arc::new(FastClock::new())))
    }

    /// Moves only when [`Clock::advance`] is called; for tests of code that never waits.
    pub fn manual() -> Self {
        Self(ClockSource::Manual(Arc::new(AtomicU64::new(0))))
    }

    /// The current moment.
    #[inline]
    pub fn now(&self) -> Moment {
        match &self.0 {
            ClockSource::Tokio(origin) => Moment(nanos(origin.elapsed())),
            ClockSource::Fast(fast) => Moment(fast.nanos()),
            ClockSource::Manual(now) => Moment(now.load(Ordering::Relaxed)),
        }
    }

    /// Moves a manual clock forward; the other clocks move by themselves and ignore the call.
    pub fn advance(&self, by: Duration) {
        if let ClockSource::Manual(now) = &self.0 {
            now.fetch_add(nanos(by), Ordering::Relaxed);
        }
    }
}

impl Default for Clock {
    /// [`Clock::fast`], unless tokio's time can be paused in this build, as in tests: then
    /// [`Clock::tokio`].
    fn default() -> Self {
        if tokio_can_pause() { Self::tokio() } else { Self::fast() }
    }
}

/// The system's clock, and the CPU counter that tells the time between two readings of it.
#[derive(Debug)]
pub(super) struct FastClock {
    anchor: Anchor,
    counter: quanta::Clock,
    pub(super) began: Instant,
    /// Held by the thread that reads the system's clock.
    reading: Mutex<()>,
}

impl FastClock {
    #[allow(clippy::disallowed_methods, reason = "this is where it is read")]
    pub(super) fn new() -> Self {
        let counter = quanta::Clock::new();
        let anchor = Anchor::new(counter.delta_as_nanos(0, 1 << 32));
        Self { anchor, counter, began: Instant::now(), reading: Mutex::new(()) }
    }

    #[inline]
    pub(super) fn nanos(&self) -> u64 {
        self.anchor.nanos(self.counter.raw()).unwrap_or_else(|| self.read())
    }

    #[cold]
    fn read(&self) -> u64 {
        let reading = self.reading.try_lock();
        let before = self.counter.raw();
        let now = nanos(self.began.elapsed());
        // While another thread sets the anchor, this one uses its own reading of the system's clock
        // and leaves the anchor alone: `Anchor::set` allows one writer.
        if reading.is_ok() {
            self.anchor.set(before, now, self.counter.raw());
        }
        now
    }
}

/// Whether tokio was built so that its time can be paused (its feature `test-util`): `pause` below
/// is tokio's function if tokio has it, and otherwise the one in this file.
#[allow(unused_imports, clippy::wildcard_imports, reason = "finds what may not be there")]
fn tokio_can_pause() -> bool {
    fn gives<R: 'static>(_: fn() -> R) -> TypeId {
        TypeId::of::<R>()
    }
    // The glob import of this block shadows the `pause` of the module if tokio has one; if not, the
    // name resolves to the one in this file.
    use tokio::time::*;
    gives(pause) == TypeId::of::<()>()
}

/// The return type of the stand-in for `tokio::time::pause`.
struct NoPause;

#[allow(dead_code, reason = "used where tokio has none")]
fn pause() -> NoPause {
    NoPause
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
    fn moments_saturate() {
        let start = Clock::manual().now();
        assert_eq!(start.since(start.plus(Duration::MAX)), Duration::ZERO);
    }

    #[test]
    fn tests_can_pause_time_and_so_the_default_clock_follows_tokio() {
        assert!(tokio_can_pause(), "a dependency of the tests asks for it");
        assert!(matches!(Clock::default().0, ClockSource::Tokio(_)));
    }
}
