//! Decides what is known of one exact call of one caller, and what that means for the same call
//! made again.
//!
//! | known | the identical call |
//! |---|---|
//! | in flight, and its client is there | a read goes beside it, a write after it |
//! | in flight, and its client has gone | joins it and gets its answer |
//! | answered, and nobody has taken that | gets the answer |
//! | has asked its client something | is asked the same |
//! | uncertain: it may have been executed | is refused until somebody has looked, or for a while |
//! | queued | is refused while it waits |
//! | failed again and again | is refused as a loop |
//!
//! `in_flight` and `entry` hold the first four, `uncertain` the next two, `loops` the last.

pub(crate) mod entry;
pub(crate) mod in_flight;
pub(crate) mod loops;
mod marks;
#[cfg(test)]
mod tests;
pub(crate) mod uncertain;

use super::{atomic, key, sync};
use crate::time::clock::Clock;
use in_flight::{InFlight, Lead};
use loops::LoopGuard;
use uncertain::UncertainWrites;

/// What is known of calls: who is under way, what came too late, what may have been executed, what
/// keeps failing.
#[derive(Debug)]
pub(crate) struct Ledger<T> {
    pub(crate) loops: LoopGuard,
    pub(crate) uncertain: UncertainWrites,
    pub(crate) in_flight: InFlight<T>,
}

/// A call that goes on; if others may follow it, with the duty to tell them.
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
