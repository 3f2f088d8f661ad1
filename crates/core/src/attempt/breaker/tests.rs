//! Tests of the success count, apart from its source because loom compiles that source too.

use super::tally::SuccessCount;
use super::*;
use crate::model::policy::breaker::WindowRule;

fn at(seconds: u64) -> Moment {
    Moment::default().plus(Duration::from_secs(seconds))
}

#[test]
fn successes_are_tallied_for_the_length_of_the_window() {
    let rule =
        WindowRule { length: Duration::from_secs(10), min_calls: 1, failure_rate: 0.5, slow: None };
    let tally = SuccessCount::new(&rule);
    tally.add(at(0));
    tally.add(at(3));
    tally.add(at(3));

    assert_eq!(
        (tally.sum(at(3)), tally.sum(at(9)), tally.sum(at(11)), tally.sum(at(15))),
        (3, 3, 2, 0)
    );
    tally.add(at(20));
    assert_eq!(tally.sum(at(20)), 1, "an old bucket starts afresh");
    tally.clear();
    assert_eq!(tally.sum(at(20)), 0);
}

#[test]
fn of_more_threads_than_stripes_none_loses_a_success() {
    const THREADS: usize = 3 * (stripe::OWNED + stripe::SHARED);
    let rule =
        WindowRule { length: Duration::from_secs(10), min_calls: 1, failure_rate: 0.5, slow: None };
    let (tally, all_here) = (SuccessCount::new(&rule), std::sync::Barrier::new(THREADS));

    // The second round of threads takes over the stripes of the first.
    for _ in 0..2 {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    tally.add(at(3));
                    all_here.wait();
                    (1..10_000).for_each(|_| tally.add(at(3)));
                });
            }
        });
    }

    assert_eq!(tally.sum(at(3)) as usize, 2 * THREADS * 10_000);
    let is_owner = || std::thread::spawn(stripe::own).join().unwrap() < stripe::OWNED;
    assert!((0..10_000).any(|_| is_owner()), "threads that ended gave theirs back");
}
