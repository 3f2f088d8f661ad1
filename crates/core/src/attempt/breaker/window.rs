//! Decides which share of the recent calls failed or was slow: a fixed ring of buckets, O(1) per
//! call.

use super::Moment;
use crate::model::policy::breaker::{SlowRule, WindowRule};

/// The buckets of the ring. A window takes eight to sixteen of them, so its edge is off by at most
/// an eighth of its length.
pub(super) const BUCKETS: usize = 16;

/// Buckets whose length is a power of two, so that finding one takes a shift and no division.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buckets {
    shift: u32,
    /// How many buckets make a window.
    pub(super) used: u64,
}

impl Buckets {
    pub(super) fn of(rule: &WindowRule) -> Self {
        let length = super::nanos(rule.length);
        let shift = (length / 8).max(1).ilog2();
        Self { shift, used: length.div_ceil(1 << shift).clamp(1, BUCKETS as u64) }
    }

    /// The number of the bucket at `now`, counted since the clock began.
    #[inline]
    pub(super) fn number(self, now: Moment) -> u64 {
        now.0 >> self.shift
    }

    /// The place of a bucket in the ring.
    #[inline]
    pub(super) fn place(number: u64) -> usize {
        (number % BUCKETS as u64) as usize
    }
}

/// What opened a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TripCause {
    /// Its calls failed.
    Failures,
    /// Its calls were too slow.
    Slowness,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    calls: u32,
    failures: u32,
    slow: u32,
}

/// The calls in the window that were not plain successes, and their sums.
#[derive(Debug)]
pub(crate) struct Window {
    rule: WindowRule,
    ring: Buckets,
    buckets: [Bucket; BUCKETS],
    /// The number of the newest bucket since the clock began.
    newest: u64,
    sum: Bucket,
}

impl Window {
    pub(crate) fn new(rule: WindowRule) -> Self {
        Self {
            ring: Buckets::of(&rule),
            rule,
            buckets: Default::default(),
            newest: 0,
            sum: Bucket::default(),
        }
    }

    /// Counts a call; returns why the breaker should open, if it should. Every call is judged, also
    /// a success that completes the least number of calls. `tallied`, the successes counted
    /// elsewhere, is read only while the window holds a failed or slow call.
    pub(crate) fn record(
        &mut self,
        now: Moment,
        failed: bool,
        slow: bool,
        tallied: impl FnOnce() -> u32,
    ) -> Option<TripCause> {
        self.advance(self.ring.number(now));
        let bucket = &mut self.buckets[Buckets::place(self.newest)];
        for counts in [bucket, &mut self.sum] {
            counts.calls = counts.calls.saturating_add(1);
            counts.failures = counts.failures.saturating_add(failed.into());
            counts.slow = counts.slow.saturating_add(slow.into());
        }
        if self.is_plain() { None } else { self.is_bad(tallied()) }
    }

    /// Whether the window holds successes only, as of the last call: another one changes nothing.
    pub(crate) fn is_plain(&self) -> bool {
        self.sum.failures == 0 && self.sum.slow == 0
    }

    /// Whether none of the calls in the window at `now` failed or was slow.
    pub(crate) fn is_clean(&self, now: Moment) -> bool {
        let passed = self.ring.number(now).saturating_sub(self.newest);
        passed >= self.ring.used || self.is_plain()
    }

    /// Empties the buckets that have left the window.
    fn advance(&mut self, number: u64) {
        let passed = number.saturating_sub(self.newest).min(self.ring.used);
        for step in 1..=passed {
            let leaving = (self.newest + step).checked_sub(self.ring.used);
            let Some(leaving) = leaving else { continue };
            let expired = std::mem::take(&mut self.buckets[Buckets::place(leaving)]);
            self.sum.calls = self.sum.calls.saturating_sub(expired.calls);
            self.sum.failures = self.sum.failures.saturating_sub(expired.failures);
            self.sum.slow = self.sum.slow.saturating_sub(expired.slow);
        }
        self.newest = self.newest.max(number);
    }

    fn is_bad(&self, tallied: u32) -> Option<TripCause> {
        let calls = self.sum.calls.saturating_add(tallied);
        let share = |count: u32| f64::from(count) / f64::from(calls);
        if calls < self.rule.min_calls {
            None
        } else if share(self.sum.failures) >= self.rule.failure_rate {
            Some(TripCause::Failures)
        } else {
            let is_slow = |slow: SlowRule| share(self.sum.slow) >= slow.rate;
            self.rule.slow.is_some_and(is_slow).then_some(TripCause::Slowness)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn window(min_calls: u32, failure_rate: f64) -> Window {
        Window::new(WindowRule {
            length: Duration::from_secs(10),
            min_calls,
            failure_rate,
            slow: None,
        })
    }

    fn at(seconds: u64) -> Moment {
        Moment::default().plus(Duration::from_secs(seconds))
    }

    #[test]
    fn half_the_calls_failing_opens_only_above_the_minimum() {
        let mut window = window(10, 0.5);

        let opened: Vec<bool> =
            (0..10).map(|n| window.record(at(0), n % 2 == 1, false, || 0).is_some()).collect();

        assert_eq!(opened.iter().position(|&open| open), Some(9));
    }

    #[test]
    fn old_successes_do_not_hide_a_new_outage() {
        let mut window = window(10, 0.5);
        (0..10_000).for_each(|_| assert_eq!(window.record(at(0), false, false, || 0), None));

        let needed = (1..).find(|_| window.record(at(11), true, false, || 0).is_some()).unwrap();

        assert_eq!(needed, 10);
    }

    #[test]
    fn a_success_is_judged_too() {
        let mut window = window(3, 0.5);
        assert_eq!(window.record(at(0), true, false, || 0), None);
        assert_eq!(window.record(at(0), true, false, || 0), None, "there are too few calls");
        let judged = window.record(at(0), false, false, || 0);
        assert_eq!(judged, Some(TripCause::Failures), "two of three failed");
    }

    #[test]
    fn a_success_after_nothing_but_successes_is_not_judged() {
        let mut window = window(1, 0.5);
        let tallied = || unreachable!("the successes counted elsewhere are not needed");
        assert_eq!(window.record(at(0), false, false, tallied), None);
    }
}
