//! Decides which traces of a finished call remain: in the loop guard, in the cache, for its
//! followers.

use crate::model::answer::Outcome;
use crate::model::effect::Effect;
use crate::model::failure::{Cause, Failure};
use crate::run::context::Run;

impl<T: Clone> Run<'_, T> {
    /// Passes the tool's own answer on unchanged, good or bad, and records it.
    pub(crate) fn pass_on(&self, value: T) -> Outcome<T> {
        let (policy, gatekeeper) = (&self.tool.policy, &self.pipeline.gatekeeper);
        let loops = &gatekeeper.ledger.loops;
        if self.error_text(&value).is_some() {
            loops.failed(&policy.loops, &self.call.session, || self.key());
        } else {
            loops.succeeded(&policy.loops, &self.call.session);
            if policy.cache.keeps()
                && policy.effect == Effect::ReadOnly
                && (self.pipeline.is_complete)(&value)
            {
                gatekeeper.copies.keep_at(
                    self.ended(),
                    self.copy_key(),
                    value.clone(),
                    self.writes,
                    self.tool.server.writes(),
                );
            }
        }
        Outcome::Live(value)
    }

    /// Notes after all attempts failed whether the failure is about this call alone, so that a
    /// follower must try itself: the call timed out or was cancelled, or it had less time or fewer
    /// attempts than others have.
    pub(crate) fn give_up(&self, failure: &Failure) {
        let (call, policy) = (self.call, &self.tool.policy);
        let is_last = call.control.as_ref().is_some_and(|control| control.is_last());
        let is_cut_short = call.retried_outside || is_last || self.timeout < policy.timeout;
        let has_more = failure.may_repeat(policy.effect) && self.attempts() < policy.retry.attempts;
        if matches!(failure.cause, Cause::Timeout | Cause::Cancelled) || (is_cut_short && has_more)
        {
            self.note_own_affair();
        }
    }
}
