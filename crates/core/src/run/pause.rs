//! Decides when a tool is called again after its server asked for a pause: not before the pause is
//! over.
//!
//! A call with a cached response gets that, unless the pause is short; a call without one waits if
//! its deadline allows, and otherwise is told when to come back. No attempt is sent only to be
//! refused once more.

use std::time::Duration;

use crate::model::failure::{Cause, Failure, PAUSE_IS_ASKED};
use crate::registry::Tool;
use crate::run::context::Run;
use crate::time::clock::Moment;

impl<T: Clone> Run<'_, T> {
    /// Notes the pause that a server asked for in its failure.
    pub(crate) fn note_pause(&self, tool: &Tool, failure: &Failure) {
        if let Some(asked) = failure.asked_pause() {
            let pause = asked.min(tool.policy.retry.longest_pause);
            tool.pause.keep(self.env().clock.now().plus(pause));
        }
    }

    /// Goes on if there is no pause; waits for its end if `may_wait` and there is no better answer.
    #[inline]
    pub(crate) async fn keep_pause(&self, tool: &Tool, may_wait: bool) -> Result<(), Failure> {
        match tool.pause.until() {
            None => Ok(()),
            // Boxed: a call that is not held up should not carry the timer.
            Some(until) => Box::pin(self.sit_out(tool, until, may_wait)).await,
        }
    }

    async fn sit_out(&self, tool: &Tool, mut until: Moment, may_wait: bool) -> Result<(), Failure> {
        loop {
            let left = until.since(self.env().clock.now());
            if left.is_zero() {
                tool.pause.end(until);
                return Ok(());
            }
            let wait = left + self.spread(tool);
            let is_long = left > tool.policy.retry.backoff.nominal(1);
            if !may_wait
                || !self.deadline().allows(wait, &self.env().clock)
                || (is_long && self.has_copy())
            {
                return Err(self.refuse(Cause::RateLimited, Some(left), PAUSE_IS_ASKED));
            }
            self.note_wait();
            tokio::time::sleep(wait).await;
            // An earlier call may have brought a new pause from the server meanwhile.
            until = tool.pause.until().unwrap_or(until);
        }
    }

    /// Jitter, so that calls that wait for the same moment do not return together.
    fn spread(&self, tool: &Tool) -> Duration {
        let backoff = &tool.policy.retry.backoff;
        backoff.delay(1, &self.env().rng).saturating_sub(backoff.nominal(1))
    }
}
