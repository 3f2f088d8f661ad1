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
                gatekeeper.copies.keep_at(self.ended(), self.key(), value.clone(), self.writes);
            }
        }
        // A question back to the client is this caller's own; those who wait have to ask for theirs.
        if let Some(lead) = lead.filter(|_| (self.pipeline.is_complete)(&value)) {
            lead.land(|| Ok(value.clone()));
        }
        Outcome::Live(value)
    }

    /// All attempts failed. Those who wait are told, unless this call only had less time than they have.
    pub(crate) fn give_up(&self, failure: &Failure, lead: Option<Lead<'_, T>>) {
        let lead = lead.filter(|_| failure.cause != Cause::Timeout);
        if let Some(lead) = lead {
            lead.land(|| Err(failure.clone()));
        }
    }
}
