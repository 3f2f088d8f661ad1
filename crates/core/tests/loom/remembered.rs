//! What is remembered between calls: writes, names, and who listens.

use std::sync::Arc as Shared;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::listening::Listeners;
use super::names::NameRegistry;
use super::retry_after::ServerPause;
use super::writes::WriteCount;
use super::{Moment, SECOND, rest};

/// Freshness is a count that stands still since the answer was asked for.
#[test]
fn an_answer_asked_for_beside_a_write_is_fresh_only_if_it_shows_it() {
    loom::model(|| {
        let (written, writes) = (Arc::new(AtomicBool::new(false)), Arc::new(WriteCount::default()));
        let other = thread::spawn({
            let (written, writes) = (written.clone(), writes.clone());
            move || {
                written.store(true, Ordering::Relaxed);
                writes.add();
            }
        });
        let asked = writes.count();
        let shows_it = written.load(Ordering::Relaxed);
        other.join().unwrap();

        let is_fresh = asked == writes.count();
        assert!(shows_it || !is_fresh);
    });
}

#[test]
fn no_answer_asked_for_between_two_writes_is_fresh_after_both() {
    loom::model(|| {
        let writes = Arc::new(WriteCount::default());
        let other = thread::spawn({
            let writes = writes.clone();
            move || writes.add()
        });
        let before = writes.count();
        writes.add();
        let asked = writes.count();
        other.join().unwrap();

        assert!(before < asked, "what was read before this write");
        assert_eq!(writes.count(), 2, "what was read before the other");
    });
}

type Known = NameRegistry<String>;

/// Room for one more name; whoever holds what is known by the other keeps it.
fn learn(names: &Known, name: &str) -> Option<Shared<String>> {
    names.learn(
        name,
        |value| Shared::strong_count(value) == 1,
        || Some(Shared::new(name.to_owned())),
    )
}

#[test]
fn a_name_used_beside_a_new_one_is_not_forgotten_while_it_is_held() {
    loom::model(|| {
        let names = Arc::new(Known::new(1));
        drop(learn(&names, "old"));
        let other = thread::spawn({
            let names = names.clone();
            move || learn(&names, "new").is_some()
        });
        let held = names.used("old");
        let is_learned = other.join().unwrap();

        assert!(held.is_some() ^ is_learned, "one of them has the place");
        assert_eq!(names.get("old"), held);
        assert_eq!(names.all().len(), 1);
    });
}

#[test]
fn a_name_that_two_learn_is_one() {
    loom::model(|| {
        let names = Arc::new(Known::new(1));
        let other = thread::spawn({
            let names = names.clone();
            move || learn(&names, "new").unwrap()
        });
        let here = learn(&names, "new").unwrap();

        assert!(Shared::ptr_eq(&here, &other.join().unwrap()));
    });
}

#[test]
fn of_two_names_the_one_used_beside_another_use_outlives_the_other() {
    loom::model(|| {
        let names = Arc::new(Known::new(3));
        for name in ["first", "second", "third"] {
            drop(learn(&names, name));
        }
        let others = ["first", "third"].map(|name| {
            let names = names.clone();
            thread::spawn(move || drop(names.used(name)))
        });
        others.into_iter().for_each(|other| other.join().unwrap());

        assert!(learn(&names, "new").is_some());
        assert_eq!(names.get("second"), None);
    });
}

#[test]
fn a_pause_that_another_keeps_before_it_lets_go_is_not_forgotten() {
    loom::model(|| {
        let (pause, now) = (Arc::new(ServerPause::default()), Moment::default());
        let other = thread::spawn({
            let pause = pause.clone();
            move || pause.keep(now.plus(SECOND))
        });
        assert!(!rest::is_at_rest(&pause, |pause| pause.until().is_none()));
        other.join().unwrap();

        pause.end(now.plus(SECOND));
        assert!(rest::is_at_rest(&pause, |pause| pause.until().is_none()));
    });
}

#[test]
fn one_who_listens_is_counted_whoever_comes_and_goes_meanwhile() {
    loom::model(|| {
        let listeners = Arc::new(Listeners::default());
        let before = listeners.join();
        let others = [
            thread::spawn({
                let listeners = listeners.clone();
                move || drop(listeners.join())
            }),
            thread::spawn(move || drop(before)),
        ];
        let here = listeners.join();
        assert!(listeners.are_there(), "an event now is told");
        others.into_iter().for_each(|other| other.join().unwrap());

        assert!(listeners.are_there(), "and also when the others have left");
        drop(here);
        assert!(!listeners.are_there(), "nothing is built for nobody");
    });
}
