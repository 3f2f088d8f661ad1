//! Which losses are one: a call that was under way when a server was lost, and is lost too, was
//! lost with it.
//!
//! Without that, one process that dies with five calls under way would look like five failures in a
//! row.

use std::sync::atomic::{AtomicU64, Ordering};

use super::UpstreamFailure;

/// Numbers are given once in a process, so that a breaker that hears of many conversations can
/// compare them.
static GIVEN: AtomicU64 = AtomicU64::new(0);

/// The losses of one conversation, or of all conversations with one server.
#[derive(Debug, Default)]
pub struct Incidents(AtomicU64);

impl Incidents {
    /// The last one so far; zero if there was none. What begins now is no part of it.
    pub fn last(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The failure of a call that began when `before` was the last incident: one that ended others
    /// too says so, and one of a server that was there and is not took nothing, so whoever asks
    /// again waits for it.
    pub fn judged(&self, before: u64, failure: UpstreamFailure, is_over: bool) -> UpstreamFailure {
        let is_everybodys = match &failure {
            UpstreamFailure::Unreachable(_) => return UpstreamFailure::NotTaken,
            UpstreamFailure::Lost(_) => true,
            UpstreamFailure::Broken(_) => is_over,
            _ => false,
        };
        match is_everybodys {
            true => {
                UpstreamFailure::Struck { incident: self.lost(before), failure: Box::new(failure) }
            }
            false => failure,
        }
    }

    /// The incident that ended a call which began when `before` was the last one.
    fn lost(&self, before: u64) -> u64 {
        let next = GIVEN.fetch_add(1, Ordering::Relaxed) + 1;
        match self.0.compare_exchange(before, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => next,
            Err(meanwhile) => meanwhile,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_overlap_with_a_loss_are_part_of_it_and_later_ones_are_not() {
        let (here, elsewhere) = (Incidents::default(), Incidents::default());
        let (one, another) = (here.last(), here.last());

        let first = here.lost(one);
        let after = here.last();
        assert_eq!(here.lost(another), first);
        let second = here.lost(after);
        assert!(second > first);
        assert_eq!(here.lost(one), second, "one that was under way all the time");
        assert!(elsewhere.lost(elsewhere.last()) > second, "numbers are never used twice");
    }
}
