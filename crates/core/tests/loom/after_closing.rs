//! The places of a breaker that has just closed: none is given twice, none is lost, and the
//! lock-free path comes back.

use std::time::Duration;

use loom::sync::Arc;
use loom::thread;

use super::gate::Gate;
use super::states::{CallEnd, StateMachine};
use super::{BreakerPolicy, Clock, Rng, SECOND};

/// Just closed again, with this many places.
fn recovered(slow_start: u32) -> (Arc<Gate>, Clock) {
    let policy = BreakerPolicy { slow_start, ..BreakerPolicy::new(1, SECOND) };
    let gate = Arc::new(Gate::new(StateMachine::new(policy, std::sync::Arc::new(Rng::fixed(0.0)))));
    let clock = Clock::manual();
    for (ended, then) in [(CallEnd::Badly, SECOND), (CallEnd::Well, Duration::ZERO)] {
        let ticket = gate.admit(&clock, SECOND).verdict.unwrap();
        gate.record(&clock, ticket, ended);
        clock.advance(then);
    }
    (gate, clock)
}

#[test]
fn the_last_place_of_a_ramp_goes_to_one_of_two() {
    loom::model(|| {
        let (gate, clock) = recovered(1);
        let other = thread::spawn({
            let (gate, clock) = (gate.clone(), clock.clone());
            move || gate.admit(&clock, SECOND).verdict.is_ok()
        });
        let here = gate.admit(&clock, SECOND).verdict.is_ok();

        assert!(here ^ other.join().unwrap(), "exactly one");
        assert!(gate.peek(&clock).is_some());
    });
}

#[test]
fn an_attempt_dropped_beside_an_admission_to_a_ramp_frees_one_place() {
    loom::model(|| {
        let (gate, clock) = recovered(1);
        let ticket = gate.admit(&clock, SECOND).verdict.unwrap();
        let other = thread::spawn({
            let (gate, clock) = (gate.clone(), clock.clone());
            move || gate.record(&clock, ticket, CallEnd::Unknown)
        });
        let here = gate.admit(&clock, SECOND).verdict;
        other.join().unwrap();

        assert_eq!(
            gate.admit(&clock, SECOND).verdict.is_ok(),
            here.is_err(),
            "one place, taken once"
        );
    });
}

#[test]
fn a_ramp_ends_for_both_who_come_after_it_and_for_who_is_still_under_way() {
    loom::model(|| {
        let (gate, clock) = recovered(1);
        let under_way = gate.admit(&clock, SECOND).verdict.unwrap();
        clock.advance(SECOND);
        let other = thread::spawn({
            let (gate, clock) = (gate.clone(), clock.clone());
            move || {
                gate.record(&clock, under_way, CallEnd::Well);
                gate.admit(&clock, SECOND).verdict.is_ok()
            }
        });
        assert!(gate.admit(&clock, SECOND).verdict.is_ok());
        assert!(other.join().unwrap());

        assert!(gate.admits_at_a_glance().is_some(), "without a lock from now on");
    });
}
