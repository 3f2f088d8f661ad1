//! A breaker's window against a plain list of calls.

use proptest::prelude::*;
use seawall::*;
use std::time::Duration;

const SLOW: u64 = 50;

/// One call: the pause before it and how long it takes, in milliseconds, and whether it fails.
fn calls() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
    let pause = prop_oneof![9 => 0..500u64, 1 => 0..30_000u64];
    prop::collection::vec(
        (pause, prop_oneof![Just(1), Just(SLOW), Just(SLOW + 1)], any::<bool>()),
        1..100,
    )
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn a_window_opens_exactly_when_its_list_does(
        calls in calls(), length in 1..20_000u64, min_calls in 1..9u32, failure_rate in 0.05..=1.0f64,
        slow_rate in proptest::option::of(0.05..=1.0f64),
    ) {
        let clock = Clock::manual();
        let slow = slow_rate.map(|rate| SlowRule { after: Duration::from_millis(SLOW), rate });
        let window = WindowRule { length: Duration::from_millis(length), min_calls, failure_rate, slow };
        let policy = BreakerPolicy { failures: 0, window: Some(window), ..BreakerPolicy::default() };
        let breaker = Breaker::new("b", policy, &Env::new().with_clock(clock.clone())).unwrap();
        // The window's edge follows buckets whose length is a power of two, an eighth of the window
        // at most.
        let nanos = length * 1_000_000;
        let bucket = (nanos / 8).max(1).ilog2();
        let used = nanos.div_ceil(1 << bucket);
        let (mut now, mut seen) = (0, Vec::new());
        for (pause, takes, fails) in calls {
            clock.advance(Duration::from_millis(pause));
            let permit = breaker.admit().unwrap();
            clock.advance(Duration::from_millis(takes));
            now += (pause + takes) * 1_000_000;
            let is_slow = slow_rate.is_some() && takes > SLOW;
            seen.push((now, fails, is_slow));
            if fails { permit.badly() } else { permit.well() }

            let counted: Vec<_> = seen.iter().filter(|(at, ..)| (now >> bucket) - (at >> bucket) < used).collect();
            let share = |is: fn(&(u64, bool, bool)) -> bool| counted.iter().filter(|call| is(call)).count() as f64 / counted.len() as f64;
            let is_bad = share(|call| call.1) >= failure_rate || slow_rate.is_some_and(|rate| share(|call| call.2) >= rate);
            let opens = counted.len() >= min_calls as usize && is_bad;
            prop_assert_eq!(breaker.status() == BreakerStatus::Open, opens, "{} calls count", counted.len());
            if opens {
                breaker.reset();
                seen.clear();
            }
        }
    }
}
