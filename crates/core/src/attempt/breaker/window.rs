//! Decides what share of the recent calls failed or was slow: a fixed ring of buckets, O(1) per call.

use super::{Moment, WindowRule};

/// Ten buckets: the window's edge is off by a tenth of its length at most.
pub(super) const BUCKETS: usize = 10;

/// How long a bucket is.
pub(super) fn bucket_nanos(rule: &WindowRule) -> u64 {
    (super::nanos(rule.length) / BUCKETS as u64).max(1)
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    calls: u32,
    failures: u32,
    slow: u32,
}

/// The calls of the last `length` that were not simply successes, and their sums.
#[derive(Debug)]
pub(crate) struct Window {
    rule: WindowRule,
    bucket_nanos: u64,
    buckets: [Bucket; BUCKETS],
    /// The number of the newest bucket since the clock began.
    newest: u64,
    sum: Bucket,
}

impl Window {
    pub(crate) fn new(rule: WindowRule) -> Self {
        Self { bucket_nanos: bucket_nanos(&rule), rule, buckets: Default::default(), newest: 0, sum: Bucket::default() }
    }

    /// Counts a call; tells whether the breaker should open. Only a bad call can open it, so only then
    /// are the successes that were `tallied` elsewhere asked for.
    pub(crate) fn record(&mut self, now: Moment, failed: bool, slow: bool, tallied: impl FnOnce() -> u32) -> bool {
        self.advance(now.0 / self.bucket_nanos);
        let bucket = &mut self.buckets[(self.newest % BUCKETS as u64) as usize];
        for counts in [bucket, &mut self.sum] {
            counts.calls = counts.calls.saturating_add(1);
            counts.failures = counts.failures.saturating_add(failed.into());
            counts.slow = counts.slow.saturating_add(slow.into());
        }
        (failed || slow) && self.is_bad(tallied())
    }

    fn advance(&mut self, number: u64) {
        let passed = number.saturating_sub(self.newest).min(BUCKETS as u64);
        for step in 1..=passed {
            let expired = std::mem::take(&mut self.buckets[((self.newest + step) % BUCKETS as u64) as usize]);
            self.sum.calls = self.sum.calls.saturating_sub(expired.calls);
            self.sum.failures = self.sum.failures.saturating_sub(expired.failures);
            self.sum.slow = self.sum.slow.saturating_sub(expired.slow);
        }
        self.newest = self.newest.max(number);
    }

    fn is_bad(&self, tallied: u32) -> bool {
        let calls = self.sum.calls.saturating_add(tallied);
        let share = |count: u32| f64::from(count) / f64::from(calls);
        calls >= self.rule.min_calls
            && (share(self.sum.failures) >= self.rule.failure_rate
                || self.rule.slow.is_some_and(|slow| share(self.sum.slow) >= slow.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn window(min_calls: u32, failure_rate: f64) -> Window {
        Window::new(WindowRule { length: Duration::from_secs(10), min_calls, failure_rate, slow: None })
    }

    fn at(seconds: u64) -> Moment {
        Moment::default().plus(Duration::from_secs(seconds))
    }

    #[test]
    fn half_the_calls_failing_opens_only_above_the_minimum() {
        let mut window = window(10, 0.5);

        let opened: Vec<bool> = (0..10).map(|n| window.record(at(0), n % 2 == 1, false, || 0)).collect();

        assert_eq!(opened.iter().position(|&open| open), Some(9));
    }

    #[test]
    fn old_successes_do_not_hide_a_new_outage() {
        let mut window = window(10, 0.5);
        (0..10_000).for_each(|_| assert!(!window.record(at(0), false, false, || 0)));

        let needed = (1..).find(|_| window.record(at(11), true, false, || 0)).unwrap();

        assert_eq!(needed, 10);
    }

    #[test]
    fn a_success_never_opens() {
        let mut window = window(3, 0.5);
        window.record(at(0), true, false, || 0);
        window.record(at(0), true, false, || 0);

        assert!(!window.record(at(0), false, false, || 0));
        assert!(window.record(at(0), true, false, || 0));
    }
}
