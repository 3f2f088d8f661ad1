//! Tests of the fast clock, apart from its sources because loom compiles those too.

use std::time::Duration;

use super::clock::{FastClock, nanos};
use super::counter::Anchor;

/// A counter with four counts per nanosecond.
fn anchor() -> Anchor {
    Anchor::new(1 << 30)
}

#[test]
fn nothing_is_told_before_the_first_reading() {
    let anchor = anchor();
    assert_eq!([0, 1, 4_000_000, 1 << 63].map(|count| anchor.nanos(count)), [None; 4]);
}

#[test]
fn between_two_readings_the_counter_tells_and_a_little_too_little() {
    let anchor = anchor();
    anchor.set(8_000, 5_000, 8_000);

    assert_eq!(anchor.nanos(8_000), Some(5_000));
    let told = anchor.nanos(8_000 + 4 * 999_999).unwrap();
    assert!((5_000 + 998_900..5_000 + 999_999).contains(&told), "{told}");
}

#[test]
fn it_is_believed_for_a_millisecond_and_never_backwards() {
    let anchor = anchor();
    anchor.set(8_000_000, 5_000, 8_000_000);

    assert_eq!(anchor.nanos(8_000_000 + 4_000_000), None);
    for leap in [7_999_999, 0, u64::MAX, 1 << 60] {
        assert_eq!(anchor.nanos(leap), None, "{leap}");
    }
}

#[test]
fn after_a_leap_the_next_reading_sets_it_right() {
    let anchor = anchor();
    for count in [8_000_000, 1 << 60, 10] {
        anchor.set(count, 7_000, count);
        let told = anchor.nanos(count + 4_000).unwrap();
        assert!((7_998..=8_000).contains(&told), "{told} after {count}");
    }
}

#[test]
fn who_was_interrupted_tells_nothing() {
    let anchor = anchor();
    anchor.set(8_000, 5_000, 8_000 + 4_000_000 / 1024);
    assert!(anchor.nanos(12_000).is_some());

    anchor.set(20_000, 900_000_000, 20_000 + 4_000_000 / 1024 + 1);
    assert!(anchor.nanos(24_000).unwrap() < 10_000);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the clock is compared with the system's")]
fn the_fast_clock_follows_the_systems_within_microseconds() {
    let fast = FastClock::new();
    let mut told = 0;
    while fast.began.elapsed() < Duration::from_millis(20) {
        let before = nanos(fast.began.elapsed());
        let now = fast.nanos();
        let after = nanos(fast.began.elapsed());

        assert!((before.saturating_sub(3_000)..=after).contains(&now), "{before} {now} {after}");
        assert!(now >= told, "alone it never turns back: {told} {now}");
        told = now;
    }
}
