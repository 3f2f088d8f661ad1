//! Decides what an identical call gets that meets one the ledger knows: its answer, its turn, or
//! word that it still runs.

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

/// A call that is answered with what an identical one came to.
pub(crate) struct Rejoined<T> {
    pub(crate) outcome: Outcome<T>,
    /// How long ago that came; `None` if this call was not sent and has an answer of its own.
    pub(crate) age: Option<Duration>,
}

impl<T: Clone> Ledger<T> {
    /// Enters a call that may be rejoined, or finds the identical one that it repeats.
    pub(crate) fn enter<'a>(&'a self, run: &Run<'a, T>) -> Entered<'a, T> {
        self.in_flight.enter(&run.entering(false, false))
    }

    /// A call has met an identical one: it gets what that one comes to, or goes on.
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
                    // Those who share a fresh answer have lost nothing, and it is not told.
                    let age = (following.gets == FollowerGets::Answer).then_some(Duration::ZERO);
                    return Err(Box::new(Rejoined { outcome, age }));
                }
                // Nothing is sent any more for a client that cancelled: what the first came to is
                // not for this one to take.
                Ok(_) if run.is_last() => {
                    let outcome = run.out_of_patience(FollowerGets::Turn);
                    return Err(Box::new(Rejoined { outcome, age: None }));
                }
                // It ended, and what it came to is its own: this call is looked at anew.
                Ok(_) => is_intent |= following.gets == FollowerGets::Turn,
                // Whoever gave up before does so again.
                Err(_) if gives_up.is_some() => {
                    if let Some(outcome) = run.copy_meanwhile() {
                        return Err(Box::new(Rejoined { outcome, age: None }));
                    }
                }
                // That the first's client has gone may be known only now.
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

    /// Enters a read whose answer others of the same caller may share while it is asked for.
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

    /// The identical call was answered, and that answer is not to be had any more.
    fn answered_before(&self, age: Duration) -> Failure {
        let words =
            format!("the same call was executed {} ago, and its answer is gone", about(age));
        let left = in_flight::KEPT.saturating_sub(age);
        Failure { sent: Sent::Yes, ..self.refuse(Cause::Uncertain, Some(left), words) }
    }

    /// The identical call took longer than this one can wait.
    fn out_of_patience(&self, gets: FollowerGets) -> Outcome<T> {
        if gets.is_answered() {
            return self.still_running();
        }
        let words = "an identical call made just before it is still running";
        self.fail(Failure { sent: Sent::Never, ..self.refuse(Cause::Overloaded, None, words) })
    }

    /// The call ended: tells those who wait for it, and keeps its answer until it was delivered.
    pub(crate) fn land(&self, leading: Leading<'_, T>, outcome: &Outcome<T>) {
        let Some(lead) = leading else { return };
        let is_whole = match outcome {
            // A question back to the client is this caller's own.
            Outcome::Live(value) => (self.pipeline.is_complete)(value),
            Outcome::Served(_) | Outcome::ToolError(_) | Outcome::Failed(_) => true,
        };
        let shared = Some(outcome).filter(|_| is_whole && !self.is_own_affair());
        // A failure is no answer to keep: whether it may have been executed is remembered in any
        // case.
        let kept = match outcome {
            _ if self.call.rejoin.is_none() => EndedCall::Nothing,
            Outcome::Failed(_) => EndedCall::Nothing,
            _ if is_whole => EndedCall::Answer(outcome),
            _ => EndedCall::Question(outcome),
        };
        lead.land(shared, kept);
    }
}
