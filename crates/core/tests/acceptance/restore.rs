//! A breaker that comes back from a snapshot remembers what it saw, for as long as it would have,
//! and tells what callers meet.

use crate::kit::*;
use seawall::*;
use std::time::Duration;

fn breaker(env: &Env) -> Breaker {
    Breaker::new("b", BreakerPolicy::default(), env).unwrap()
}

fn fail(breaker: &Breaker, times: u32) {
    (0..times).for_each(|_| breaker.admit().unwrap().badly());
}

fn stored(
    status: BreakerStatus,
    mode: BreakerMode,
    failures: u32,
    ago: Option<Duration>,
) -> BreakerSnapshot {
    let remaining = (status == BreakerStatus::Open).then_some(secs(5));
    BreakerSnapshot { status, mode, failures, last_failure_ago: ago, remaining, trips: 1, level: 0 }
}

#[tokio::test(start_paused = true)]
async fn a_row_of_failures_is_as_old_after_a_restart_as_before() {
    for (ago, then, opens) in [
        (Some(secs(3600)), secs(0), false),
        (Some(secs(601)), secs(0), false),
        (Some(secs(600)), secs(0), true),
        (Some(secs(590)), secs(10), true),
        (Some(secs(590)), secs(11), false),
        (Some(Duration::MAX), secs(0), false),
        (None, secs(600), true),
        (None, secs(601), false),
    ] {
        let breaker = breaker(&env(0.0));
        breaker.restore(&stored(BreakerStatus::Closed, BreakerMode::Auto, 4, ago));
        advance(then).await;

        fail(&breaker, 1);

        assert_eq!(breaker.status() == BreakerStatus::Open, opens, "{ago:?}, and {then:?} later");
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_what_was_restored_tells_the_same() {
    for status in [BreakerStatus::Closed, BreakerStatus::Open] {
        let breaker = breaker(&env(0.0));
        let before = stored(status, BreakerMode::Auto, 4, Some(secs(300)));
        breaker.restore(&before);
        assert_eq!(breaker.snapshot(), before);

        advance(secs(2)).await;
        assert_eq!(breaker.snapshot().last_failure_ago, Some(secs(302)));
    }
}

#[tokio::test(start_paused = true)]
async fn restoring_tells_what_callers_meet_whoever_decides() {
    use BreakerStatus::{Closed, Open};
    for (status, mode, told) in [
        (Closed, BreakerMode::ForcedOpen, vec!["[CircuitBreaker] b: closed → open"]),
        (Open, BreakerMode::ForcedOpen, vec!["[CircuitBreaker] b: closed → open"]),
        (Open, BreakerMode::Auto, vec!["[CircuitBreaker] b: closed → open"]),
        (Open, BreakerMode::Disabled, vec![]),
        (Closed, BreakerMode::Auto, vec![]),
    ] {
        let env = env(0.0);
        let mut listener = env.events.subscribe();
        let breaker = breaker(&env);

        breaker.restore(&stored(status, mode, 4, Some(secs(1))));

        let heard: Vec<String> = listener.drain().iter().map(|event| event.to_string()).collect();
        assert_eq!(heard, told, "{status}, {mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_restored_cooldown_is_longer_than_the_longest() {
    let cooldown = Cooldown::growing(secs(30), secs(300));
    let breaker =
        Breaker::new("b", BreakerPolicy { cooldown, ..BreakerPolicy::default() }, &env(1.0))
            .unwrap();
    let odd = BreakerSnapshot {
        remaining: Some(Duration::MAX),
        level: 40,
        ..stored(BreakerStatus::Open, BreakerMode::Auto, 5, None)
    };

    breaker.restore(&odd);
    assert_eq!(breaker.snapshot().remaining, Some(secs(300)));
    advance(secs(300)).await;
    fail(&breaker, 1);
    assert_eq!(
        breaker.snapshot().remaining,
        Some(secs(300)),
        "its probe failed: once more, jitter included"
    );
}
