//! The rate limit, and governor as its oracle.

use governor::Quota;
use governor::clock::FakeRelativeClock;
use proptest::prelude::*;
use seawall::{Clock, Rate, RateLimiter};
use std::num::NonZeroU32;
use std::time::Duration;

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn every_verdict_and_every_wait_is_governors(
        count in 1..50u32, per_ms in 1..2_000u64, burst in 1..20u32, pauses in prop::collection::vec(0..500_000u64, 1..200),
    ) {
        let per = Duration::from_millis(per_ms);
        let cell = per / count;
        prop_assume!(!cell.is_zero());
        let clock = Clock::manual();
        let ours = RateLimiter::new(Rate { count, per, burst }, &clock).unwrap();
        let theirs_clock = FakeRelativeClock::default();
        let quota = Quota::with_period(cell).unwrap().allow_burst(NonZeroU32::new(burst).unwrap());
        let theirs = governor::RateLimiter::direct_with_clock(quota, theirs_clock.clone());

        for pause in pauses {
            let pause = Duration::from_micros(pause);
            clock.advance(pause);
            theirs_clock.advance(pause);
            let expected = theirs.check().map_err(|not_yet| not_yet.wait_time_from(governor::clock::Clock::now(&theirs_clock)));
            prop_assert_eq!(ours.check(), expected);
        }
    }

    #[test]
    fn booked_places_keep_the_rate_in_every_window(
        burst in 1..5u32, pauses in prop::collection::vec(0..300u64, 1..100), patience in 0..2_000u64,
    ) {
        let clock = Clock::manual();
        let cell = Duration::from_millis(100);
        let limit = RateLimiter::new(Rate { count: 10, per: 10 * cell, burst }, &clock).unwrap();
        let (mut now, mut starts) = (Duration::ZERO, Vec::new());

        for pause in pauses {
            now += Duration::from_millis(pause);
            clock.advance(Duration::from_millis(pause));
            if let Ok(wait) = limit.book(Duration::from_millis(patience)) {
                prop_assert!(wait <= Duration::from_millis(patience));
                starts.push(now + wait);
            }
        }

        starts.sort();
        for (first, start) in starts.iter().enumerate() {
            for (last, end) in starts.iter().enumerate().skip(first) {
                let allowed = u128::from(burst) + (*end - *start).as_nanos() / cell.as_nanos();
                prop_assert!((last - first + 1) as u128 <= allowed, "{:?}", starts);
            }
        }
    }
}
