//! Attempts: budgets, pauses, lines, silences.

use loom::sync::Arc;
use loom::thread;

use super::{Moment, SECOND, balance, line, retry_after, silence};

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
fn a_longer_pause_beside_the_end_of_a_shorter_one_is_kept() {
    loom::model(|| {
        let (pause, now) =
            (Arc::new(retry_after::ServerPause::default()), Moment::default().plus(SECOND));
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
        let (pause, now) = (Arc::new(retry_after::ServerPause::default()), Moment::default());
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
        let line = Arc::new(line::WaitingLine::default());
        // Whoever got it stays.
        let joins = |line: &line::WaitingLine| line.join_within(1).map(std::mem::forget).is_some();
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
        let line = Arc::new(line::WaitingLine::default());
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

#[test]
fn a_silence_that_two_complete_counts_once() {
    loom::model(|| {
        let (silence, began) = (Arc::new(silence::Silence::default()), Moment::default());
        let now = began.plus(SECOND);
        assert!(!silence.is_long(began, now, 2 * SECOND));
        let other = thread::spawn({
            let silence = silence.clone();
            move || silence.is_long(now, now.plus(SECOND), 2 * SECOND)
        });
        let here = silence.is_long(now, now.plus(SECOND), 2 * SECOND);

        assert!(here ^ other.join().unwrap());
    });
}

#[test]
fn a_word_beside_a_silence_is_heard_or_comes_too_early_but_loses_nothing_later() {
    loom::model(|| {
        let (silence, began) = (Arc::new(silence::Silence::default()), Moment::default());
        let other = thread::spawn({
            let silence = silence.clone();
            move || silence.end()
        });
        assert!(!silence.is_long(began, began.plus(SECOND), 2 * SECOND));
        other.join().unwrap();

        silence.end();
        assert!(
            !silence.is_long(began.plus(SECOND), began.plus(2 * SECOND), 2 * SECOND),
            "what was noted is forgotten"
        );
    });
}
