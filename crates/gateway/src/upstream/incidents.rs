//! Decides which losses are one incident: calls in flight that are lost together count as one
//! failure.
//!
//! Without incidents, one process that dies with five calls in flight would look like five failures
//! in a row, and the circuit breaker would open.

use std::sync::atomic::{AtomicU64, Ordering};

use super::UpstreamFailure;

/// Incident numbers are unique in a process: a breaker that hears of many connections compares
/// them.
static GIVEN: AtomicU64 = AtomicU64::new(0);

/// The last incident of one connection, or of all connections to one server.
#[derive(Debug, Default)]
pub struct Incidents(AtomicU64);

impl Incidents {
    /// The number of the last incident; zero if there was none. A call that begins now is no part
    /// of it.
    pub fn last(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The failure of a call that began when `before` was the last incident. A loss that ended
    /// other calls as well carries the incident's number. An unreachable server was there before
    /// and took nothing, so a repeat of the call waits for the reconnection.
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
        // The first lost call sets the number; every other call that began before it finds the
        // number changed and joins that incident. Relaxed is enough: the number guards no other
        // data.
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
