//! Decides what is remembered of a call that ended: for loops, for copies, for those who waited with it.

use super::Lead;
use crate::model::answer::Outcome;
use crate::model::effect::Effect;
use crate::model::failure::{Cause, Failure};
use crate::run::Run;

impl<T: Clone> Run<'_, T> {
    /// The tool's own answer, good or bad: remembered as such and passed on unchanged.
    pub(crate) fn pass_on(&self, value: T, lead: Option<Lead<'_, T>>) -> Outcome<T> {
        let (policy, gatekeeper) = (&self.tool.policy, &self.pipeline.gatekeeper);
        if self.error_text(&value).is_some() {
            gatekeeper.loops.failed(&policy.loops, &self.call.session, || self.key());
        } else {
            gatekeeper.loops.succeeded(&policy.loops, &self.call.session);
            if policy.cache.keeps() && policy.effect == Effect::ReadOnly && (self.pipeline.is_complete)(&value) {
                gatekeeper.copies.keep_at(
                    self.ended(),
                    self.key(),
                    value.clone(),
                    self.writes,
                    self.tool.server.writes(),
                );
            }
        }
        // A question back to the client is this caller's own; those who wait have to ask for theirs.
        if let Some(lead) = lead.filter(|_| (self.pipeline.is_complete)(&value)) {
            lead.land(|| Ok(value.clone()));
        }
        Outcome::Live(value)
    }

    /// All attempts failed. Those who wait are told, unless that is this call's own affair: then one of them asks.
    pub(crate) fn give_up(&self, failure: &Failure, lead: Option<Lead<'_, T>>) {
        let lead = lead.filter(|_| !self.is_own_affair(failure));
        if let Some(lead) = lead {
            lead.land(|| Err(failure.clone()));
        }
    }

    /// Its time was up, its client left, or it had less time or fewer attempts than others have.
    fn is_own_affair(&self, failure: &Failure) -> bool {
        let (call, policy) = (self.call, &self.tool.policy);
        let is_last = call.held.as_ref().is_some_and(|held| held.is_last());
        let is_cut_short = call.retried_outside || is_last || self.timeout < policy.timeout;
        let has_more = failure.may_repeat(policy.effect) && self.attempts() < policy.retry.attempts;
        matches!(failure.cause, Cause::Timeout | Cause::Cancelled) || (is_cut_short && has_more)
    }
}
