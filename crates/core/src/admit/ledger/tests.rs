//! Tests of marks and uncertain writes, apart from their sources because loom compiles those too.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::dirty_sessions::{DIRTY_MARKS, DirtySessions, place};
use super::key::Keys;
use super::uncertain::{HeldBack, LOOKS, MOST, UncertainWrites};
use crate::time::clock::Clock;

#[test]
fn a_mark_is_wiped_when_its_time_is_up_and_only_then() {
    let (marks, clock, age) = (DirtySessions::new(), Clock::manual(), Duration::from_secs(600));
    marks.set("s", clock.now());
    clock.advance(age - Duration::from_secs(1));
    marks.wipe_older("s", age, &clock);
    assert!(marks.is_set("s"));

    marks.set("s", clock.now());
    clock.advance(Duration::from_secs(1));
    marks.wipe_older("s", age, &clock);
    assert!(marks.is_set("s"), "the newest counts");

    clock.advance(age);
    marks.wipe_older("s", age, &clock);
    assert!(!marks.is_set("s"));
    assert!(marks.are_clean());
}

#[test]
fn names_of_every_form_are_spread() {
    let forms: [fn(u32) -> String; 4] = [
        |n| format!("{n}"),
        |n| format!("session-{n:06}"),
        |n| format!("{n:06}-of-the-morning-shift"),
        |n| format!("{:08x}-0000-4000-8000-{:012x}", n.wrapping_mul(2_654_435_761), n),
    ];
    for form in forms {
        let places: std::collections::HashSet<usize> = (0..1000).map(|n| place(&form(n))).collect();
        assert!(
            places.len() > DIRTY_MARKS / 2,
            "{} places for names like {}",
            places.len(),
            form(7)
        );
    }
}

#[test]
fn strangers_cannot_fill_it_and_it_empties_itself() {
    let (clock, keys) = (Clock::manual(), Keys::default());
    let (doubts, session) = (UncertainWrites::new(clock.clone()), "s".into());
    let key = |n: usize| keys.key(&["t"], &json!(n));
    for n in 0..MOST * 2 {
        doubts.note(key(n), (&"me".into(), &session), &"gh".into(), Duration::from_secs(60), false);
    }
    assert_eq!(doubts.check(&session, || key(MOST - 1)), None, "the oldest gave way");
    clock.advance(Duration::from_secs(20));
    let (age, left) = (Duration::from_secs(20), Duration::from_secs(40));
    assert_eq!(
        doubts.check(&session, || key(MOST)),
        Some(HeldBack { age, left, is_queued: false, still_runs: false })
    );
    clock.advance(Duration::from_secs(40));
    assert_eq!(doubts.check(&session, || key(MOST)), None);
    assert!(doubts.is_empty());
}

#[test]
fn what_waits_in_a_queue_stays_held_back_until_it_has_left() {
    let (clock, keys) = (Clock::manual(), Keys::default());
    let doubts = UncertainWrites::new(clock.clone());
    let (key, me, session, server) =
        (keys.key(&["t"], &json!(1)), "me".into(), "s".into(), "gh".into());
    let who = (&me, &session);
    let is_queued = || doubts.check(&session, || key).map(|held| held.is_queued);
    assert!(doubts.note_queued(key, who, &server, Duration::from_secs(60)));
    assert!(!doubts.note_queued(key, who, &server, Duration::from_secs(60)));
    doubts.note(key, who, &server, Duration::from_secs(60), false);
    clock.advance(Duration::from_secs(50));
    doubts.looked(who, "gh", clock.now());
    assert_eq!(is_queued(), Some(true), "a look does not show what is still to come");

    doubts.left_queue(key);
    assert_eq!(is_queued(), Some(false));
    clock.advance(Duration::from_secs(60));
    assert_eq!(is_queued(), None);

    doubts.note_queued(key, who, &server, Duration::from_secs(60));
    clock.advance(Duration::from_secs(3600));
    assert_eq!(is_queued(), Some(true));
    doubts.forget(key, &session);
    assert!(doubts.is_empty());
    doubts.note_queued(key, who, &server, Duration::from_secs(60));
    clock.advance(Duration::from_secs(24 * 60 * 60));
    assert_eq!(is_queued(), None, "nothing is remembered for ever");
}

#[test]
fn who_has_most_makes_room_and_what_is_queued_last() {
    let (clock, keys) = (Clock::manual(), Keys::default());
    let doubts = UncertainWrites::new(clock.clone());
    let (lasts, session, server) = (Duration::from_secs(60), "s".into(), "gh".into());
    let key = |caller: &str, n: usize| keys.key(&[caller], &json!(n));
    let note = |caller: &str, n| {
        doubts.note(key(caller, n), (&caller.into(), &session), &server, lasts, false)
    };
    note("quiet", 0);
    doubts.note_queued(key("loud", 0), (&"loud".into(), &session), &server, lasts);
    (1..MOST * 3).for_each(|n| note("loud", n));

    assert!(
        doubts.check(&session, || key("quiet", 0)).is_some(),
        "others do not make anybody forget"
    );
    assert!(doubts.check(&session, || key("loud", 0)).is_some_and(|held| held.is_queued));
    assert_eq!(doubts.check(&session, || key("loud", MOST * 2)), None, "the oldest gave way");
    assert!(doubts.check(&session, || key("loud", MOST * 3 - 1)).is_some());
}

#[test]
fn a_look_lifts_a_doubt_for_the_session_that_looked_and_ends_it_for_the_one_that_left_it() {
    let (clock, keys) = (Clock::manual(), Keys::default());
    let doubts = UncertainWrites::new(clock.clone());
    let (key, lasts) = (keys.key(&["t"], &json!(1)), Duration::from_secs(60));
    let names: [Arc<str>; 4] = ["me", "a", "b", "c"].map(Into::into);
    let [me, a, b, c] = &names;
    let held = |session| doubts.check(session, || key).is_some();
    doubts.note(key, (me, a), &"gh".into(), lasts, false);

    doubts.looked((me, b), "gh", clock.now());
    assert_eq!([held(a), held(b), held(c)], [true, false, true]);
    doubts.looked((c, a), "gh", clock.now());
    assert!(held(a), "another caller's session of the same name");
    (0..LOOKS * 3)
        .for_each(|n| doubts.looked((me, &format!("other {n}").into()), "gh", clock.now()));
    assert!(held(b), "so many are not remembered");

    // Uncertain once more: b's earlier check no longer counts.
    doubts.looked((me, b), "gh", clock.now());
    doubts.note(key, (me, b), &"gh".into(), lasts, false);
    assert_eq!([held(a), held(b)], [true, true]);
    doubts.looked((me, b), "gh", clock.now());
    assert_eq!([held(a), held(b)], [true, false], "a has not looked yet");
    doubts.looked((me, a), "gh", clock.now());
    assert!(doubts.is_empty());
}
