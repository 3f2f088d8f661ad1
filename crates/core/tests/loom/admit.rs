//! Admission: rates, marks, writes in doubt, and the key of a call.

use loom::sync::Arc;
use loom::thread;
use seawall::{CallKey, Keys};

use super::halves::Halves;
use super::{Clock, SECOND, dirty_sessions, gcra, uncertain};

#[test]
fn the_last_place_of_a_rate_goes_to_one_of_two() {
    loom::model(|| {
        let arrival = Arc::new(gcra::Gcra::new(10, 10));
        let other = thread::spawn({
            let arrival = arrival.clone();
            move || arrival.book(0, 0).is_ok()
        });
        let here = arrival.book(0, 0).is_ok();

        assert!(here ^ other.join().unwrap());
        assert_eq!(arrival.book(0, 0), Err(10));
    });
}

/// No marks, and a clock on which a second has passed: the very first moment is no time to be
/// marked at.
fn no_marks() -> (Arc<dirty_sessions::DirtySessions>, Clock) {
    let clock = Clock::manual();
    clock.advance(SECOND);
    (Arc::new(dirty_sessions::DirtySessions::new()), clock)
}

#[test]
fn a_session_marked_by_two_is_marked_for_each_at_once() {
    loom::model(|| {
        let (marks, clock) = no_marks();
        let is_marked = |marks: &dirty_sessions::DirtySessions, now| {
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
        let (marks, clock) = no_marks();
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
        let (marks, clock) = no_marks();
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

fn note(doubts: &uncertain::UncertainWrites, key: CallKey) {
    doubts.note(key, (&"caller".into(), &"session".into()), &"server".into(), 10 * SECOND, false);
}

#[test]
fn a_write_in_doubt_is_held_back_while_it_is_noted_anew() {
    let key = Keys::default().key(&["tool"], &serde_json::Value::Null);
    loom::model(move || {
        let doubts = Arc::new(uncertain::UncertainWrites::new(Clock::manual()));
        note(&doubts, key);
        let other = thread::spawn({
            let doubts = doubts.clone();
            move || note(&doubts, key)
        });
        assert!(doubts.check(&"session".into(), || key).is_some());
        other.join().unwrap();
    });
}

#[test]
fn a_look_beside_a_new_doubt_ends_the_old_one_only() {
    let keys = Keys::default();
    let [old, new] = ["old", "new"].map(|tool| keys.key(&[tool], &serde_json::Value::Null));
    loom::model(move || {
        let clock = Clock::manual();
        let doubts = Arc::new(uncertain::UncertainWrites::new(clock.clone()));
        note(&doubts, old);
        let looked = clock.now();
        clock.advance(SECOND);
        let other = thread::spawn({
            let doubts = doubts.clone();
            move || note(&doubts, new)
        });
        doubts.looked((&"caller".into(), &"session".into()), "server", looked);
        other.join().unwrap();

        assert!(
            doubts.check(&"session".into(), || new).is_some()
                && doubts.check(&"session".into(), || old).is_none()
        );
    });
}

#[test]
fn a_place_given_back_beside_a_booking_takes_no_other_along() {
    loom::model(|| {
        let arrival = Arc::new(gcra::Gcra::new(10, 20));
        arrival.book(0, 0).unwrap();
        let other = thread::spawn({
            let arrival = arrival.clone();
            move || arrival.give_back()
        });
        arrival.book(0, 0).unwrap();
        other.join().unwrap();

        assert!(arrival.book(0, 0).is_ok(), "what was given back is there");
        assert!(arrival.book(0, 0).is_err(), "and no more than that");
    });
}

#[test]
fn a_key_is_known_as_a_whole_or_not_at_all() {
    loom::model(|| {
        let halves = Arc::new(Halves::default());
        let known = |halves: &Halves| {
            let known = halves.get();
            if known.is_none() {
                halves.set(7, 8);
            }
            known.unwrap_or((7, 8))
        };
        let other = thread::spawn({
            let halves = halves.clone();
            move || known(&halves)
        });
        assert_eq!(known(&halves), (7, 8));
        assert_eq!(other.join().unwrap(), (7, 8));

        assert_eq!(halves.get(), Some((7, 8)));
    });
}
