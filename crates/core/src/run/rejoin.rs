//! Decides what an identical call gets from the one in the ledger: its answer, its own turn, or a
//! note that the first still runs.

use std::time::Duration;

use crate::admit::ledger::entry::FollowerGets;
use crate::admit::ledger::in_flight::{self, EndedCall, Entered, Entering, Following};
use crate::admit::ledger::{Leading, Ledger};
use crate::model::answer::Outcome;
use crate::model::duration::about;
use crate::model::effect::Effect;
use crate::model::failure::{Cause, Failure, Sent};
use crate::time::deadline::within;

use super::context::Run;

/// A call that is answered with the outcome of an identical one.
pub(crate) struct Rejoined<T> {
    pub(crate) outcome: Outcome<T>,
    /// How long ago the outcome came; `None` if this call was not sent and has an answer of its
    /// own.
    pub(crate) age: Option<Duration>,
}

impl<T: Clone> Ledger<T> {
    /// Enters a call that may be rejoined, or finds the identical one that it repeats.
    pub(crate) fn enter<'a>(&'a self, run: &Run<'a, T>) -> Entered<'a, T> {
        self.in_flight.enter(&run.entering(false, false))
    }

    /// Resolves a call that has met an identical one: it gets the first call's outcome, or goes on.
    pub(crate) async fn rejoin<'a>(
        &'a self,
        run: &Run<'a, T>,
        mut entered: Entered<'a, T>,
    ) -> Result<Leading<'a, T>, Box<Rejoined<T>>> {
        let (mut is_intent, mut is_second) = (false, false);
        loop {
            let mut following = match entered {
                Entered::Lead(lead) => return Ok(Some(lead)),
                Entered::Alone => return Ok(None),
                Entered::Behind(following) => following,
                Entered::Late(outcome, age) => {
                    return Err(Box::new(Rejoined { outcome, age: Some(age) }));
                }
                Entered::Gone(age) => {
                    let outcome = run.fail(run.answered_before(age));
                    return Err(Box::new(Rejoined { outcome, age: None }));
                }
            };
            let limit = run.patience();
            let gives_up =
                following.gives_up.filter(|_| following.gets.is_answered() && run.has_copy());
            let patience =
                [following.patience, gives_up].into_iter().flatten().fold(limit, Duration::min);
            match within(patience, following.landed()).await {
                Ok(Some(outcome)) if following.gets.is_answered() => {
                    // Calls that share a fresh answer repeat nothing, so their answer is not marked
                    // as rejoined.
                    let age = (following.gets == FollowerGets::Answer).then_some(Duration::ZERO);
                    return Err(Box::new(Rejoined { outcome, age }));
                }
                // Nothing was sent for this call, and nothing is for a client that has left: it
                // makes the call again if it still wants it, and this one would be executed
                // beside that. The first call's outcome is not meant for it either.
                Ok(_) if run.is_last() || run.has_left() => {
                    let outcome = run.not_sent(following.gets);
                    return Err(Box::new(Rejoined { outcome, age: None }));
                }
                // The first call ended without an answer for others: this call enters the ledger
                // again.
                Ok(_) => is_intent |= following.gets == FollowerGets::Turn,
                // A client that gave up early before does so again: it gets the cached response in
                // time.
                Err(_) if gives_up.is_some() => {
                    if let Some(outcome) = run.copy_meanwhile() {
                        return Err(Box::new(Rejoined { outcome, age: None }));
                    }
                }
                // Only now may the ledger learn that the first call's client has gone.
                Err(_) if patience < limit && following.gets == FollowerGets::Turn => {
                    is_second = true
                }
                Err(_) if patience < limit && run.tool.policy.effect.is_replayable() => {
                    return Ok(None);
                }
                Err(_) => {
                    let outcome = run.out_of_patience(following.gets);
                    return Err(Box::new(Rejoined { outcome, age: None }));
                }
            }
            entered = self.in_flight.enter(&run.entering(is_intent, is_second));
        }
    }

    /// Enters a read whose answer concurrent identical calls of the same caller may share.
    pub(crate) fn share<'a>(&'a self, run: &Run<'a, T>) -> Result<Leading<'a, T>, Following<T>> {
        match self.in_flight.enter(&run.entering(false, false)) {
            Entered::Lead(lead) => Ok(Some(lead)),
            Entered::Behind(following) => Err(following),
            Entered::Alone | Entered::Late(..) | Entered::Gone(_) => Ok(None),
        }
    }
}
impl<T: Clone> Run<'_, T> {
    fn entering(&self, is_intent: bool, is_second: bool) -> Entering<'_> {
        let policy = &self.tool.policy;
        Entering {
            key: self.ledger_key(),
            copy_key: self.copy_key(),
            writes: self.writes,
            is_replayable: policy.effect.is_replayable(),
            is_read: policy.effect == Effect::ReadOnly,
            shares: policy.shares_answers(),
            rejoin: self.call.rejoin.as_ref(),
            control: self.call.control.as_ref(),
            is_intent,
            is_second,
        }
    }

    /// Refuses the call: the identical call was answered, and its answer is no longer available.
    fn answered_before(&self, age: Duration) -> Failure {
        let words =
            format!("the same call was executed {} ago, and its answer is gone", about(age));
        let left = in_flight::KEPT.saturating_sub(age);
        Failure { sent: Sent::Yes, ..self.refuse(Cause::Uncertain, Some(left), words) }
    }

    /// The outcome if the identical call outlasts this call's deadline.
    fn out_of_patience(&self, gets: FollowerGets) -> Outcome<T> {
        if gets.is_answered() {
            return self.still_running();
        }
        self.not_sent(gets)
    }

    /// The outcome of a call that is not sent, because of an identical one. If it repeats that one,
    /// its client must not read that nothing was executed.
    fn not_sent(&self, gets: FollowerGets) -> Outcome<T> {
        if gets == FollowerGets::Turn || self.tool.policy.effect == Effect::ReadOnly {
            let words = "an identical call was made just before it";
            let refused = self.refuse(Cause::Overloaded, None, words);
            return self.fail(Failure { sent: Sent::Never, ..refused });
        }
        let words = "an identical call made before it may have been executed";
        let held = self.tool.policy.uncertain_write_hold;
        self.fail(Failure { sent: Sent::Maybe, ..self.refuse(Cause::Uncertain, held, words) })
    }

    /// Ends the lead: tells the followers, and keeps the answer until it is delivered.
    pub(crate) fn land(&self, leading: Leading<'_, T>, outcome: &Outcome<T>) {
        let Some(lead) = leading else { return };
        let is_whole = match outcome {
            // A question back to the client belongs to this call alone.
            Outcome::Live(value) => (self.pipeline.is_complete)(value),
            Outcome::Served(_) | Outcome::ToolError(_) | Outcome::Failed(_) => true,
        };
        let shared = Some(outcome).filter(|_| is_whole && !self.is_own_affair());
        // A failure is not kept as an answer: `uncertain` remembers in any case that the call may
        // have been executed.
        let kept = match outcome {
            _ if self.call.rejoin.is_none() => EndedCall::Nothing,
            Outcome::Failed(_) => EndedCall::Nothing,
            _ if is_whole => EndedCall::Answer(outcome),
            _ => EndedCall::Question(outcome),
        };
        lead.land(shared, kept);
    }
}
