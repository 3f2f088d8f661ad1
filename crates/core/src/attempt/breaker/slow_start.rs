//! Decides how many attempts may be in flight after a breaker has closed (slow start): few at
//! first, and more with each success.
//!
//! Every attempt that succeeds frees its place and adds one, so each round is twice as wide as the
//! one before. The slow start lasts for a fixed time: an attempt that hangs or is lost holds its
//! place no longer than that.

use std::time::Duration;

use super::Moment;
use crate::model::policy::breaker::BreakerPolicy;

/// The wait told to calls that are refused while all places are taken.
const PAUSE: Duration = Duration::from_secs(1);

/// The slow start of a breaker that has just closed.
#[derive(Debug)]
pub(crate) struct SlowStart {
    until: Moment,
    room: u32,
    taken: u32,
}

impl SlowStart {
    /// Starts as the policy says; `None` if the policy has no slow start.
    pub(crate) fn begin(policy: &BreakerPolicy, now: Moment) -> Option<Self> {
        (policy.slow_start > 0).then(|| Self {
            until: now.plus(policy.cooldown.base),
            room: policy.slow_start,
            taken: 0,
        })
    }

    pub(crate) fn is_over(&self, now: Moment) -> bool {
        now >= self.until
    }

    /// The wait of an attempt; `None` if there is a place for it.
    pub(crate) fn wait(&self, now: Moment) -> Option<Duration> {
        (self.taken >= self.room && !self.is_over(now)).then(|| self.until.since(now).min(PAUSE))
    }

    pub(crate) fn take(&mut self) {
        self.taken = self.taken.saturating_add(1);
    }

    pub(crate) fn give_back(&mut self, went_well: bool) {
        self.taken = self.taken.saturating_sub(1);
        self.room = self.room.saturating_add(went_well.into());
    }
}
