//! Decides what the ledger knows of one exact call of one caller, and how that answers the same
//! call made again.
//!
//! | the first call | the identical call |
//! |---|---|
//! | in flight, its client connected | a read runs beside it, a write after it |
//! | in flight, its client gone | joins it and gets its answer |
//! | answered, the answer unread | gets the answer |
//! | has asked its client a question | is asked the same question |
//! | uncertain: may have been executed | is refused until the client has checked, or for a while |
//! | queued | is refused while the first waits in the queue |
//! | failed again and again | is refused as a loop |
//!
//! `in_flight` and `entry` hold the first four, `uncertain` the next two, `loops` the last.

mod dirty_sessions;
pub(crate) mod entry;
pub(crate) mod in_flight;
pub(crate) mod loops;
#[cfg(test)]
mod tests;
pub(crate) mod uncertain;

use super::{atomic, key, sync};
use crate::time::clock::Clock;
use in_flight::{InFlight, Lead};
use loops::LoopGuard;
use uncertain::UncertainWrites;

/// The ledger of identical calls: calls in flight, unread answers, uncertain writes and looping
/// calls.
#[derive(Debug)]
pub(crate) struct Ledger<T> {
    pub(crate) loops: LoopGuard,
    pub(crate) uncertain: UncertainWrites,
    pub(crate) in_flight: InFlight<T>,
}

/// The lead of a call that goes on; `Some` if others may follow it and must be told its end.
pub(crate) type Leading<'a, T> = Option<Lead<'a, T>>;

impl<T: Clone> Ledger<T> {
    pub(crate) fn new(weigh: fn(&T) -> usize, clock: &Clock) -> Self {
        Self {
            loops: LoopGuard::new(clock.clone()),
            uncertain: UncertainWrites::new(clock.clone()),
            in_flight: InFlight::new(weigh, clock.clone()),
        }
    }
}
