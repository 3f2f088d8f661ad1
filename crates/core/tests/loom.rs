//! The lock-free parts under every interleaving of two or three threads.
//!
//! The very sources of the library are compiled here against loom's atomics and locks.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that is surprised should stop")]
#![allow(dead_code, unused_imports, unreachable_pub, reason = "the sources are used in part")]

#[path = "../src/attempt/balance.rs"]
mod balance;
#[path = "../src/attempt/breaker/gate.rs"]
mod gate;
#[path = "../src/model/invalid.rs"]
mod invalid;
#[path = "../src/attempt/breaker/policy.rs"]
mod policy;
#[path = "../src/model/rng.rs"]
mod rng;
#[path = "../src/attempt/breaker/states.rs"]
mod states;
#[path = "../src/attempt/breaker/stripe.rs"]
mod stripe;
#[path = "../src/attempt/breaker/tally.rs"]
mod tally;
#[path = "../src/admit/tat.rs"]
mod tat;
#[path = "../src/model/time.rs"]
mod time;
#[path = "../src/attempt/breaker/window.rs"]
mod window;

/// Where the sources look for each other.
mod model {
    pub(crate) use super::{invalid, rng, time};
}

/// What the library takes from the standard library, taken from loom.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

use gate::Gate;
use loom::sync::atomic;
use policy::{BreakerPolicy, WindowRule};
use rng::Rng;
use seawall::{Mode, Status};
use states::{Ended, States};
use time::{Clock, Moment, nanos};

use loom::sync::Arc;
use loom::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn gate(failures: u32) -> Arc<Gate> {
    let policy = BreakerPolicy::new(failures, SECOND);
    Arc::new(Gate::new(States::new(policy, std::sync::Arc::new(Rng::fixed(0.0)))))
}

fn status(gate: &Gate) -> Status {
    gate.look(|guarded| guarded.states.status())
}

#[test]
fn of_two_calls_after_the_cooldown_one_probes() {
    loom::model(|| {
        let (gate, clock) = (gate(1), Clock::manual());
        let ticket = gate.admit(&clock, SECOND).verdict.unwrap();
        gate.record(&clock, ticket, Ended::Badly);
        clock.advance(SECOND);

        let other = thread::spawn({
            let (gate, clock) = (gate.clone(), clock.clone());
            move || gate.admit(&clock, SECOND).verdict.is_ok()
        });
        let here = gate.admit(&clock, SECOND).verdict.is_ok();

        assert!(here ^ other.join().unwrap(), "exactly one");
    });
}

#[test]
fn a_probe_dropped_beside_an_admission_is_neither_lost_nor_doubled() {
    loom::model(|| {
        let (gate, clock) = (gate(1), Clock::manual());
        let ticket = gate.admit(&clock, SECOND).verdict.unwrap();
        gate.record(&clock, ticket, Ended::Badly);
        clock.advance(SECOND);
        let probe = gate.admit(&clock, SECOND).verdict.unwrap();

        let other = thread::spawn({
            let (gate, clock) = (gate.clone(), clock.clone());
            move || gate.record(&clock, probe, Ended::Unknown)
        });
        let here = gate.admit(&clock, SECOND).verdict;
        other.join().unwrap();

        assert_eq!(status(&gate), Status::HalfOpen);
        assert_eq!(gate.admit(&clock, SECOND).verdict.is_ok(), here.is_err(), "one place, taken once");
    });
}

#[test]
fn failures_of_two_threads_are_all_counted_and_open_once() {
    loom::model(|| {
        let (gate, clock) = (gate(2), Clock::manual());
        let tickets = [gate.admit(&clock, SECOND).verdict.unwrap(), gate.admit(&clock, SECOND).verdict.unwrap()];

        let other = thread::spawn({
            let (gate, clock) = (gate.clone(), clock.clone());
            move || gate.record(&clock, tickets[0], Ended::Badly).is_some()
        });
        let here = gate.record(&clock, tickets[1], Ended::Badly).is_some();

        assert!(here ^ other.join().unwrap(), "exactly one transition is told");
        assert_eq!(status(&gate), Status::Open);
        assert!(gate.admit(&clock, SECOND).verdict.is_err(), "and seen by the next admission");
    });
}

#[test]
fn a_success_beside_a_failure_leaves_one_or_none_counted() {
    loom::model(|| {
        let (gate, clock) = (gate(2), Clock::manual());
        let tickets = [gate.admit(&clock, SECOND).verdict.unwrap(), gate.admit(&clock, SECOND).verdict.unwrap()];

        let other = thread::spawn({
            let (gate, clock) = (gate.clone(), clock.clone());
            move || gate.record(&clock, tickets[0], Ended::Well)
        });
        gate.record(&clock, tickets[1], Ended::Badly);
        other.join().unwrap();

        assert!(gate.look(|guarded| guarded.states.failures()) <= 1);
        // Whoever comes after both sees the count: one more success clears it, one more failure may open.
        let ticket = gate.admit(&clock, SECOND).verdict.unwrap();
        gate.record(&clock, ticket, Ended::Well);
        assert_eq!(gate.look(|guarded| guarded.states.failures()), 0);
    });
}

#[test]
fn an_operators_switch_beside_an_admission_is_obeyed_after_it() {
    loom::model(|| {
        let (gate, clock) = (gate(1), Clock::manual());
        let other = thread::spawn({
            let gate = gate.clone();
            move || gate.change(|guarded| guarded.mode = Mode::ForcedOpen)
        });
        let _ = gate.admit(&clock, SECOND);
        other.join().unwrap();

        assert!(gate.admit(&clock, SECOND).verdict.is_err());
        gate.change(|guarded| guarded.mode = Mode::Disabled);
        assert!(gate.admit(&clock, SECOND).verdict.is_ok());
    });
}

fn tally() -> Arc<tally::Tally> {
    let rule = WindowRule { length: 10 * SECOND, min_calls: 1, failure_rate: 0.5, slow: None };
    Arc::new(tally::Tally::new(&rule))
}

/// Loom's threads are one to the system, so each is told its stripe here.
fn tallied_by_two(stripes: [usize; 2]) {
    loom::model(move || {
        let (tally, now) = (tally(), Moment::default().plus(3 * SECOND));
        let other = thread::spawn({
            let tally = tally.clone();
            move || tally.add_in(stripes[0], now)
        });
        tally.add_in(stripes[1], now);
        other.join().unwrap();

        assert_eq!(tally.sum(now), 2);
    });
}

#[test]
fn successes_of_two_owners_are_both_tallied() {
    tallied_by_two([0, 1]);
}

#[test]
fn successes_of_two_threads_that_share_a_stripe_are_both_tallied() {
    tallied_by_two([stripe::OWNED, stripe::OWNED]);
}

#[test]
fn a_success_that_moves_into_the_ring_is_never_missed() {
    loom::model(|| {
        let (tally, now) = (tally(), Moment::default().plus(3 * SECOND));
        let later = now.plus(2 * SECOND);
        tally.add_in(0, now);
        tally.add_in(0, now);
        let other = thread::spawn({
            let tally = tally.clone();
            move || tally.sum(later)
        });
        tally.add_in(0, later);
        assert!(other.join().unwrap() >= 2);

        assert_eq!(tally.sum(later), 3);
    });
}

#[test]
fn clearing_beside_an_owner_brings_back_only_its_own() {
    loom::model(|| {
        let (tally, now) = (tally(), Moment::default().plus(3 * SECOND));
        tally.add_in(0, now);
        tally.add_in(1, now);
        let other = thread::spawn({
            let tally = tally.clone();
            move || tally.clear()
        });
        tally.add_in(0, now);
        other.join().unwrap();

        assert!(tally.sum(now) <= 2, "the success of the other stripe stays forgotten");
    });
}

#[test]
fn the_last_token_goes_to_one_of_two() {
    loom::model(|| {
        let balance = Arc::new(balance::Balance::new(balance::TOKEN, 10 * balance::TOKEN));
        let other = thread::spawn({
            let balance = balance.clone();
            move || balance.take()
        });
        let here = balance.take();

        assert!(here ^ other.join().unwrap());
        assert_eq!(balance.left(), 0);
    });
}

#[test]
fn deposits_of_two_threads_are_both_kept_up_to_the_cap() {
    loom::model(|| {
        let balance = Arc::new(balance::Balance::new(0, 2 * balance::TOKEN));
        let other = thread::spawn({
            let balance = balance.clone();
            move || balance.add(balance::TOKEN)
        });
        balance.add(balance::TOKEN);
        other.join().unwrap();

        balance.add(balance::TOKEN);
        assert_eq!(balance.left(), 2 * balance::TOKEN);
    });
}

#[test]
fn the_last_place_of_a_rate_goes_to_one_of_two() {
    loom::model(|| {
        let arrival = Arc::new(tat::Arrival::new(10, 10));
        let other = thread::spawn({
            let arrival = arrival.clone();
            move || arrival.book(0, 0).is_ok()
        });
        let here = arrival.book(0, 0).is_ok();

        assert!(here ^ other.join().unwrap());
        assert_eq!(arrival.book(0, 0), Err(10));
    });
}
