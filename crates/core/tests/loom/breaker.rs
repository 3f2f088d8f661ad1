//! Breakers: who probes, what is counted, and by whom.

use loom::sync::Arc;
use loom::thread;

use super::gate::Gate;
use super::incident::Incident;
use super::states::{CallEnd, StateMachine};
use super::{
    BreakerMode, BreakerPolicy, BreakerStatus, Clock, Moment, Rng, SECOND, WindowRule, lease,
    stripe, tally,
};

fn gate(failures: u32) -> Arc<Gate> {
    let policy = BreakerPolicy::new(failures, SECOND);
    Arc::new(Gate::new(StateMachine::new(policy, std::sync::Arc::new(Rng::fixed(0.0)))))
}

fn status(gate: &Gate) -> BreakerStatus {
    gate.look(|guarded| guarded.states.status())
}

#[test]
fn of_two_calls_after_the_cooldown_one_probes() {
    loom::model(|| {
        let (gate, clock) = (gate(1), Clock::manual());
        let ticket = gate.admit(&clock, SECOND).verdict.unwrap();
        gate.record(&clock, ticket, CallEnd::Badly);
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
        gate.record(&clock, ticket, CallEnd::Badly);
        clock.advance(SECOND);
        let probe = gate.admit(&clock, SECOND).verdict.unwrap();

        let other = thread::spawn({
            let (gate, clock) = (gate.clone(), clock.clone());
            move || gate.record(&clock, probe, CallEnd::Unknown)
        });
        let here = gate.admit(&clock, SECOND).verdict;
        other.join().unwrap();

        assert_eq!(status(&gate), BreakerStatus::HalfOpen);
        assert_eq!(
            gate.admit(&clock, SECOND).verdict.is_ok(),
            here.is_err(),
            "one place, taken once"
        );
    });
}

#[test]
fn failures_of_two_threads_are_all_counted_and_open_once() {
    loom::model(|| {
        let (gate, clock) = (gate(2), Clock::manual());
        let tickets = [
            gate.admit(&clock, SECOND).verdict.unwrap(),
            gate.admit(&clock, SECOND).verdict.unwrap(),
        ];

        let other = thread::spawn({
            let (gate, clock) = (gate.clone(), clock.clone());
            move || gate.record(&clock, tickets[0], CallEnd::Badly).is_some()
        });
        let here = gate.record(&clock, tickets[1], CallEnd::Badly).is_some();

        assert!(here ^ other.join().unwrap(), "exactly one transition is told");
        assert_eq!(status(&gate), BreakerStatus::Open);
        assert!(gate.admit(&clock, SECOND).verdict.is_err(), "and seen by the next admission");
    });
}

#[test]
fn a_success_beside_a_failure_leaves_one_or_none_counted() {
    loom::model(|| {
        let (gate, clock) = (gate(2), Clock::manual());
        let tickets = [
            gate.admit(&clock, SECOND).verdict.unwrap(),
            gate.admit(&clock, SECOND).verdict.unwrap(),
        ];

        let other = thread::spawn({
            let (gate, clock) = (gate.clone(), clock.clone());
            move || gate.record(&clock, tickets[0], CallEnd::Well)
        });
        gate.record(&clock, tickets[1], CallEnd::Badly);
        other.join().unwrap();

        assert!(gate.look(|guarded| guarded.states.failures()) <= 1);
        // Whoever comes after both sees the count: one more success clears it, one more failure may
        // open.
        let ticket = gate.admit(&clock, SECOND).verdict.unwrap();
        gate.record(&clock, ticket, CallEnd::Well);
        assert_eq!(gate.look(|guarded| guarded.states.failures()), 0);
    });
}

#[test]
fn an_operators_switch_beside_an_admission_is_obeyed_after_it() {
    loom::model(|| {
        let (gate, clock) = (gate(1), Clock::manual());
        let other = thread::spawn({
            let gate = gate.clone();
            move || gate.change(|guarded| guarded.mode = BreakerMode::ForcedOpen)
        });
        let _ = gate.admit(&clock, SECOND);
        other.join().unwrap();

        assert!(gate.admit(&clock, SECOND).verdict.is_err());
        gate.change(|guarded| guarded.mode = BreakerMode::Disabled);
        assert!(gate.admit(&clock, SECOND).verdict.is_ok());
    });
}

fn tally() -> Arc<tally::SuccessCount> {
    let rule = WindowRule { length: 10 * SECOND, min_calls: 1, failure_rate: 0.5, slow: None };
    Arc::new(tally::SuccessCount::new(&rule))
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
        let (leases, tally, now) =
            (Arc::new(lease::Leases::new()), tally(), Moment::default().plus(3 * SECOND));
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
fn an_incident_that_two_threads_see_counts_once() {
    loom::model(|| {
        let last = Arc::new(Incident::default());
        assert!(!last.is_known(1));
        let other = thread::spawn({
            let last = last.clone();
            move || last.is_known(2)
        });
        let here = last.is_known(2);

        assert!(here ^ other.join().unwrap(), "exactly one counts it");
    });
}

#[test]
fn a_new_incident_beside_a_late_word_of_the_one_before_stays_known() {
    loom::model(|| {
        let last = Arc::new(Incident::default());
        let other = thread::spawn({
            let last = last.clone();
            move || last.is_known(1)
        });
        assert!(!last.is_known(2), "the new one counts");
        other.join().unwrap();

        assert!(last.is_known(1) && last.is_known(2));
    });
}
