//! Probes that processes share: a breaker asks before each, and another process's probe closes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use seawall::{Breaker, BreakerPolicy, BreakerStatus, Clock, Env, ProbeLeases};

/// Leases to give, and leases that are out.
#[derive(Debug, Default)]
struct Purse {
    free: AtomicU32,
    out: AtomicU32,
}

impl ProbeLeases for Purse {
    fn take(&self, breaker: &str) -> bool {
        assert_eq!(breaker, "b");
        let less = |free: u32| free.checked_sub(1);
        let is_taken = self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok();
        self.out.fetch_add(is_taken.into(), Ordering::SeqCst);
        is_taken
    }

    fn give_back(&self, _: &str) {
        self.out.fetch_sub(1, Ordering::SeqCst);
    }
}

fn opened(cooldown: u64) -> (Arc<Purse>, Breaker, Clock) {
    let (purse, clock) = (Arc::new(Purse::default()), Clock::manual());
    let env = Env::new().with_clock(clock.clone()).with_probes(purse.clone());
    let policy = BreakerPolicy::new(1, Duration::from_secs(cooldown));
    let breaker = Breaker::new("b", policy, &env).unwrap();
    assert!(!breaker.is_due());
    breaker.admit().unwrap().badly();
    assert!(!breaker.is_due(), "it cools down");
    (purse, breaker, clock)
}

#[test]
fn no_probe_leaves_without_a_lease_and_each_lease_comes_back() {
    let (purse, breaker, clock) = opened(10);
    clock.advance(Duration::from_secs(11));
    assert!(breaker.is_due());
    assert_eq!(breaker.admit().unwrap_err().retry_after, Duration::from_secs(1));
    assert_eq!(breaker.status(), BreakerStatus::Open, "nothing was begun");

    purse.free.store(2, Ordering::SeqCst);
    let probe = breaker.admit().unwrap();
    assert!(probe.is_probe() && !breaker.is_due(), "no second one may leave");
    assert!(breaker.admit().is_err());
    assert_eq!(purse.out.load(Ordering::SeqCst), 1, "the refused one keeps none");
    drop(probe);
    assert_eq!((purse.out.load(Ordering::SeqCst), breaker.is_due()), (0, true));

    purse.free.store(1, Ordering::SeqCst);
    breaker.admit().unwrap().badly();
    assert_eq!((purse.out.load(Ordering::SeqCst), breaker.status()), (0, BreakerStatus::Open));
    clock.advance(Duration::from_secs(60));
    purse.free.store(1, Ordering::SeqCst);
    breaker.admit().unwrap().well();
    assert_eq!((purse.out.load(Ordering::SeqCst), breaker.status()), (0, BreakerStatus::Closed));
    assert!(breaker.admit().is_ok(), "a closed breaker asks nobody");
}

#[test]
fn a_probe_elsewhere_closes_it_with_a_slow_start() {
    let (_, breaker, _) = opened(10);
    breaker.recover();
    assert_eq!(breaker.status(), BreakerStatus::Closed);
    let held: Vec<_> = (0..100).map_while(|_| breaker.admit().ok()).collect();
    assert!((1..100).contains(&held.len()), "{} at once", held.len());
    drop(held);
    let trips = breaker.snapshot().trips;
    breaker.recover();
    assert_eq!((breaker.status(), breaker.snapshot().trips), (BreakerStatus::Closed, trips));
}
