//! Decides how many attempts may be under way at once after a breaker has closed: few at first, and
//! more with each that goes well.
//!
//! Every attempt that goes well frees its place and adds one, so each round is twice as wide as the
//! one before. It lasts for a fixed time: an attempt that hangs or is lost holds its place no
//! longer than that.

use std::time::Duration;

use super::Moment;
use crate::model::policy::breaker::BreakerPolicy;

/// While all places are taken, others are told to come back after this.
const PAUSE: Duration = Duration::from_secs(1);

/// The places of a breaker that has just closed.
#[derive(Debug)]
pub(crate) struct SlowStart {
    until: Moment,
    room: u32,
    taken: u32,
}

impl SlowStart {
    /// Begins as the policy says, which may be not at all.
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

    /// How long an attempt would have to wait; `None` if there is a place for it.
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
