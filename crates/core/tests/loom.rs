//! The lock-free parts under every interleaving of two or three threads.
//!
//! The very sources of the library are compiled here against loom's atomics and locks.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that is surprised should stop")]
#![allow(dead_code, unused_imports, unreachable_pub, reason = "the sources are used in part")]

#[path = "../src/attempt/balance.rs"]
mod balance;
#[path = "../src/model/counter.rs"]
mod counter;
#[path = "../src/admit/doubts.rs"]
mod doubts;
#[path = "../src/attempt/breaker/gate.rs"]
mod gate;
#[path = "../src/model/invalid.rs"]
mod invalid;
#[path = "../src/attempt/breaker/lease.rs"]
mod lease;
#[path = "../src/attempt/line.rs"]
mod line;
#[path = "../src/admit/marks.rs"]
mod marks;
#[path = "../src/attempt/breaker/policy.rs"]
mod policy;
#[path = "../src/attempt/breaker/ramp.rs"]
mod ramp;
#[path = "loom/ramping.rs"]
mod ramping;
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
#[path = "../src/attempt/until.rs"]
mod until;
#[path = "../src/attempt/breaker/window.rs"]
mod window;

/// Where the sources look for each other.
mod model {
    pub(crate) use super::{invalid, rng, time};
}

mod key {
    pub(crate) use seawall::CallKey;
}

/// What the library takes from the standard library, taken from loom.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

use gate::Gate;
use loom::sync::atomic;
use policy::{BreakerPolicy, WindowRule};
use rng::Rng;
use seawall::{CallKey, Keys, Mode, Status};
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
fn a_stripe_has_one_owner_at_a_time() {
    loom::model(|| {
        let leases = Arc::new(lease::Leases::new());
        let other = thread::spawn({
            let leases = leases.clone();
            move || leases.take()
        });
        let here = leases.take();

        assert_ne!(here, other.join().unwrap());
        assert_eq!((0..).map_while(|_| leases.take()).count(), stripe::OWNED - 2);
    });
}

#[test]
fn the_next_owner_of_a_stripe_counts_on_from_the_one_before() {
    loom::model(|| {
        let (leases, tally, now) = (Arc::new(lease::Leases::new()), tally(), Moment::default().plus(3 * SECOND));
        let last = (0..).map_while(|_| leases.take()).last().unwrap();
        let other = thread::spawn({
            let (leases, tally) = (leases.clone(), tally.clone());
            move || {
                tally.add_in(last, now);
                leases.give_back(last);
            }
        });
        let next = leases.take().inspect(|&own| tally.add_in(own, now));
        other.join().unwrap();

        assert_eq!(tally.sum(now), 1 + u32::from(next.is_some()));
    });
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

#[test]
fn a_longer_pause_beside_the_end_of_a_shorter_one_is_kept() {
    loom::model(|| {
        let (pause, now) = (Arc::new(until::Pause::default()), Moment::default().plus(SECOND));
        pause.keep(now);
        let other = thread::spawn({
            let pause = pause.clone();
            move || pause.end(now)
        });
        pause.keep(now.plus(SECOND));
        other.join().unwrap();

        assert_eq!(pause.until(), Some(now.plus(SECOND)));
    });
}

#[test]
fn of_two_pauses_at_once_the_longer_one_is_kept() {
    loom::model(|| {
        let (pause, now) = (Arc::new(until::Pause::default()), Moment::default());
        let other = thread::spawn({
            let pause = pause.clone();
            move || pause.keep(now.plus(2 * SECOND))
        });
        pause.keep(now.plus(SECOND));
        other.join().unwrap();

        assert_eq!(pause.until(), Some(now.plus(2 * SECOND)));
    });
}

#[test]
fn the_last_place_in_line_goes_to_one_of_two() {
    loom::model(|| {
        let line = Arc::new(line::Line::default());
        // Whoever got it stays.
        let joins = |line: &line::Line| line.join_within(1).map(std::mem::forget).is_some();
        let other = thread::spawn({
            let line = line.clone();
            move || joins(&line)
        });
        let here = joins(&line);

        assert!(here ^ other.join().unwrap());
        assert_eq!(line.length(), 1);
    });
}

#[test]
fn who_has_left_a_line_is_not_counted_and_who_stands_in_it_is() {
    loom::model(|| {
        let line = Arc::new(line::Line::default());
        let other = thread::spawn({
            let line = line.clone();
            move || drop(line.join())
        });
        let place = line.join_within(2).unwrap();
        assert!(place.ahead <= 1);
        assert!((1..=2).contains(&line.length()));
        other.join().unwrap();

        assert_eq!(line.length(), 1);
        drop(place);
        assert_eq!(line.length(), 0);
    });
}

/// No marks, and a clock on which a second has passed: the very first moment is no time to be marked at.
fn marks() -> (Arc<marks::Marks>, Clock) {
    let clock = Clock::manual();
    clock.advance(SECOND);
    (Arc::new(marks::Marks::new()), clock)
}

#[test]
fn a_session_marked_by_two_is_marked_for_each_at_once() {
    loom::model(|| {
        let (marks, clock) = marks();
        let is_marked = |marks: &marks::Marks, now| {
            marks.set("s", now);
            marks.is_set("s")
        };
        let other = thread::spawn({
            let (marks, now) = (marks.clone(), clock.now());
            move || is_marked(&marks, now)
        });
        assert!(is_marked(&marks, clock.now()));
        assert!(other.join().unwrap());

        clock.advance(SECOND);
        marks.wipe_older("s", SECOND, &clock);
        assert!(marks.are_clean(), "it was counted once");
    });
}

#[test]
fn a_session_marked_anew_beside_the_wiping_stays_marked() {
    loom::model(|| {
        let (marks, clock) = marks();
        marks.set("s", clock.now());
        clock.advance(SECOND);
        let other = thread::spawn({
            let (marks, clock) = (marks.clone(), clock.clone());
            move || marks.wipe_older("s", SECOND, &clock)
        });
        marks.set("s", clock.now());
        assert!(marks.is_set("s"));
        other.join().unwrap();
        assert!(marks.is_set("s"));

        clock.advance(SECOND);
        marks.wipe_older("s", SECOND, &clock);
        assert!(marks.are_clean());
    });
}

#[test]
fn a_mark_wiped_by_two_takes_no_other_along() {
    loom::model(|| {
        let (marks, clock) = marks();
        marks.set("old", clock.now());
        clock.advance(SECOND);
        marks.set("young", clock.now());
        let other = thread::spawn({
            let (marks, clock) = (marks.clone(), clock.clone());
            move || marks.wipe_older("old", SECOND, &clock)
        });
        marks.wipe_older("old", SECOND, &clock);
        other.join().unwrap();

        assert!(marks.is_set("young") && !marks.is_set("old"));
    });
}

fn note(doubts: &doubts::Doubts, key: CallKey) {
    doubts.note(key, &"session".into(), &"server".into(), 10 * SECOND);
}

#[test]
fn a_write_in_doubt_is_held_back_while_it_is_noted_anew() {
    let key = Keys::default().key(&["tool"], &serde_json::Value::Null);
    loom::model(move || {
        let doubts = Arc::new(doubts::Doubts::new(Clock::manual()));
        note(&doubts, key);
        let other = thread::spawn({
            let doubts = doubts.clone();
            move || note(&doubts, key)
        });
        assert!(doubts.check(|| key).is_some());
        other.join().unwrap();
    });
}

#[test]
fn a_look_beside_a_new_doubt_ends_the_old_one_only() {
    let keys = Keys::default();
    let [old, new] = ["old", "new"].map(|tool| keys.key(&[tool], &serde_json::Value::Null));
    loom::model(move || {
        let clock = Clock::manual();
        let doubts = Arc::new(doubts::Doubts::new(clock.clone()));
        note(&doubts, old);
        let looked = clock.now();
        clock.advance(SECOND);
        let other = thread::spawn({
            let doubts = doubts.clone();
            move || note(&doubts, new)
        });
        doubts.looked("session", "server", looked);
        other.join().unwrap();

        assert!(doubts.check(|| new).is_some() && doubts.check(|| old).is_none());
    });
}

#[test]
fn a_new_reading_of_the_clock_is_never_taken_with_the_time_of_the_old() {
    const NANOSECOND: u64 = 1 << 32;
    loom::model(|| {
        let anchor = Arc::new(counter::Anchor::new(NANOSECOND));
        anchor.set(1_000, 1_000, 1_000);
        // The system slept for an hour, and the counter with it.
        let other = thread::spawn({
            let anchor = anchor.clone();
            move || anchor.set(2_000_000, 3_600_000_000_000, 2_000_000)
        });
        let told = anchor.nanos(2_000_500);
        other.join().unwrap();

        assert!(told.is_none_or(|nanos| nanos >= 3_600_000_000_000), "{told:?}");
        assert!(anchor.nanos(2_000_500).is_some());
    });
}
