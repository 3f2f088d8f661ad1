//! What the tally counts; it is apart from its source because loom compiles that source too.

use super::tally::Tally;
use super::*;

fn at(seconds: u64) -> Moment {
    Moment::default().plus(Duration::from_secs(seconds))
}

#[test]
fn successes_are_tallied_for_the_length_of_the_window() {
    let rule = WindowRule { length: Duration::from_secs(10), min_calls: 1, failure_rate: 0.5, slow: None };
    let tally = Tally::new(&rule);
    tally.add(at(0));
    tally.add(at(3));
    tally.add(at(3));

    assert_eq!((tally.sum(at(3)), tally.sum(at(9)), tally.sum(at(11)), tally.sum(at(15))), (3, 3, 2, 0));
    tally.add(at(20));
    assert_eq!(tally.sum(at(20)), 1, "an old bucket starts afresh");
    tally.clear();
    assert_eq!(tally.sum(at(20)), 0);
}
