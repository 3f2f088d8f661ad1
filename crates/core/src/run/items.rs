//! Decides how a failed batch is run item by item: the order, the pauses, and when to stop.
//!
//! The first item goes alone: if the fault is the server's and not the batch's, the other items are
//! not sent, and only then does a breaker count a failure: a batch whose items succeed proves
//! nothing against the server. If no item could be sent, the batch's own failure counts. After a
//! 429 the pause that the server asked for comes first, and then all items go one at a time. Items
//! that are not sent are reported as not sent. Items are no retries: an item that succeeds costs
//! the server's retry budget nothing, and each item that meets the server's fault costs a token.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::stream::{self, StreamExt};
use serde_json::Value;

use super::recover::{SkippedFallback, budget_is_spent, served};
use crate::attempt::budget::{RetryBudget, RetryToken};
use crate::classify::says_too_many_items;
use crate::model::answer::{BatchItem, FallbackAnswer, FallbackBody};
use crate::model::call::Attempt;
use crate::model::effect::Kind;
use crate::model::failure::{Blame, Cause, Disposition, Failure, Sent};
use crate::model::policy::{Fallback, Policy};
use crate::model::sanitize::one_line;
use crate::model::signals::FailureSignals;
use crate::recover::split;
use crate::registry::Tool;
use crate::report::served as texts;
use crate::run::attempt::{AttemptFailed, AttemptRole};
use crate::run::context::Run;

/// How many items of a batch are in flight at a time.
const AT_A_TIME: usize = 4;

impl<T: Clone> Run<'_, T> {
    /// Classifies a failure of a whole batch at `tool`. A status answers one request, and the batch
    /// may have made others before it: only a batch that was never sent, or signals that say so,
    /// prove that nothing was executed. A 413 refers to the whole batch.
    pub(crate) fn of_whole(
        &self,
        tool: &Tool,
        part: AttemptRole,
        arguments: &Value,
        signals: &FailureSignals,
    ) -> Failure {
        let mut failure = self.classifier().classify(signals);
        let is_whole = tool.policy.kind == Some(Kind::Batch)
            && matches!(part, AttemptRole::Call | AttemptRole::Other);
        if !is_whole || split::is_single(arguments, argument_of(&tool.policy)) {
            return failure;
        }
        failure.too_large = failure.status == Some(413) || says_too_many_items(&signals.message);
        let is_status = failure.status.is_some_and(|status| status != 413)
            && failure.cause != Cause::SessionLost;
        if is_status && failure.sent == Sent::Never && signals.sent != Sent::Never {
            failure.sent = Sent::Maybe;
        }
        failure
    }

    /// Whether the first item of the batch will follow at once, so that its result can decide for
    /// both.
    fn goes_on_by_items(&self, missed: &AttemptFailed<T>) -> bool {
        let (failure, words) = &**missed;
        let Some(Fallback::OneByOne(argument)) = self.tool.policy.fallback.first() else {
            return false;
        };
        words.is_none()
            && self.call.written.is_none()
            && failure.asked_pause().is_none()
            && !self.must_be_told(failure)
            && split::one_by_one(&self.call.arguments, argument.as_deref()).is_some()
    }

    /// Whether the breaker ignores the failure of the whole batch because its first item follows.
    /// The failure is noted in case the item does not follow.
    pub(crate) fn spares(&self, missed: &AttemptFailed<T>) -> bool {
        let is_spared = self.goes_on_by_items(missed);
        if is_spared {
            self.spared().push(missed.0.incident);
        }
        is_spared
    }

    /// The first item has ended: its verdict on the server holds for the batch too.
    pub(crate) fn first_item_spoke(&self, failure: Option<&Failure>) {
        if failure.is_none_or(|failure| failure.cause.blame() != Blame::Nobody) {
            self.spared().clear();
        }
    }

    /// Counts the batch's failure after all if no item has decided for it: time or budget was
    /// missing.
    pub(crate) fn blame_spared(&self) {
        let spared = std::mem::take(&mut *self.spared());
        for incident in spared {
            let permit = self.tool.breaker.as_ref().and_then(|breaker| breaker.admit().ok());
            // A probe is left to calls that reach the server.
            if let Some(permit) = permit.filter(|permit| !permit.is_probe()) {
                permit.blame_incident(Blame::Server, incident);
            }
        }
    }

    /// Runs the batch item by item; `failure` is that of the whole batch.
    pub(super) async fn one_by_one<F>(
        &self,
        argument: Option<&str>,
        failure: &Failure,
        send: &impl Fn(Attempt) -> F,
    ) -> Result<FallbackAnswer<T>, SkippedFallback>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        let items = split::one_by_one(&self.call.arguments, argument)
            .ok_or(SkippedFallback::Unavailable)?;
        let of = items.len();
        let is_throttled = failure.cause == Cause::RateLimited;
        self.let_it_rest(failure).await?;
        let (stopped, purse) = (OnceLock::new(), ItemBudget::of(&self.tool.server.budget));
        let going = (&stopped, &purse);
        let mut items = items.into_iter();
        let mut results = Vec::with_capacity(of);
        if let Some(first) = items.next() {
            results.push(self.item(first, AttemptRole::FirstItem, going, send).await);
        }
        let at_a_time = if is_throttled { 1 } else { AT_A_TIME };
        let rest = stream::iter(items)
            .map(|item| self.item(item, AttemptRole::Again, going, send))
            .buffered(at_a_time);
        results.extend(rest.collect::<Vec<_>>().await);
        let done = results.iter().filter(|item| item.result.is_ok()).count();
        let worst = results
            .iter()
            .min_by_key(|item| !item.may_have_executed)
            .and_then(|item| item.result.as_ref().err());
        match worst {
            Some(failed) if done == 0 => Err(SkippedFallback::Failed(failed.clone())),
            _ => {
                let note = texts::one_by_one(
                    self.pipeline.style,
                    self.tool.policy.kind,
                    done,
                    of,
                    failure,
                );
                Ok(served("split_batch", note, FallbackBody::Items(results)))
            }
        }
    }

    /// Runs one item, unless an earlier one has shown that sending more is useless.
    async fn item<F>(
        &self,
        (input, arguments): (Value, Value),
        part: AttemptRole,
        (stopped, purse): (&OnceLock<Failure>, &ItemBudget<'_>),
        send: &impl Fn(Attempt) -> F,
    ) -> BatchItem<T>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        if self.is_last() {
            let words = "not sent, because the call was ended before it";
            let _first = stopped.set(Failure::local(Cause::Cancelled, None, words));
        }
        if let Some(reason) = stopped.get() {
            return BatchItem { input, result: Err(reason.clone()), may_have_executed: false };
        }
        let result = match purse.has_token() {
            true => self.ask_paid(self.tool, part, arguments, send).await,
            false => Err(budget_is_spent()),
        };
        let failure = result.as_ref().err();
        if failure.is_some_and(is_trouble) {
            purse.pay();
        }
        let ends_it = |failure: &&Failure| {
            is_refused(failure) || (part == AttemptRole::FirstItem && is_trouble(failure))
        };
        if let Some(failure) = failure.filter(ends_it) {
            let words = format!(
                "not sent, because an item before it failed: {}",
                one_line(&failure.message)
            );
            let _first = stopped.set(Failure::local(failure.cause, failure.retry_after, words));
        }
        let may_have_executed =
            failure.is_some_and(|failure| failure.may_have_executed(self.tool.policy.effect));
        BatchItem { input, result, may_have_executed }
    }

    /// Sleeps for the pause that the server asked for, and after a 429 for the first backoff at
    /// least. Skips the fallback if the policy forbids such a pause or it would leave no time for
    /// an item.
    async fn let_it_rest(&self, failure: &Failure) -> Result<(), SkippedFallback> {
        let (policy, env) = (&self.tool.policy.retry, self.env());
        let asked = failure.asked_pause().unwrap_or_default();
        let wait = match failure.cause {
            Cause::RateLimited => policy.backoff.delay(1, &env.rng).max(asked),
            _ => asked,
        };
        if asked > policy.longest_pause || !self.deadline().allows(wait, &env.clock) {
            return Err(SkippedFallback::Unavailable);
        }
        if !wait.is_zero() {
            self.note_wait();
            tokio::time::sleep(wait).await;
        }
        if self.is_last() { Err(SkippedFallback::Unavailable) } else { Ok(()) }
    }
}

/// The argument that holds the items of a batch, if the policy names it.
fn argument_of(policy: &Policy) -> Option<&str> {
    policy.fallback.iter().find_map(|step| match step {
        Fallback::OneByOne(argument) => argument.as_deref(),
        _ => None,
    })
}

/// The budget of the items: a token is in hand whenever an item starts.
struct ItemBudget<'a> {
    budget: &'a RetryBudget,
    token: Mutex<Option<RetryToken<'a>>>,
}

impl<'a> ItemBudget<'a> {
    fn of(budget: &'a RetryBudget) -> Self {
        Self { budget, token: Mutex::default() }
    }

    fn has_token(&self) -> bool {
        let mut token = self.lock();
        *token = token.take().or_else(|| self.budget.withdraw());
        token.is_some()
    }

    /// Spends a token for an item that met the server's fault; a concurrent item may have taken the
    /// one in hand.
    fn pay(&self) {
        let token = self.lock().take();
        if let Some(token) = token.or_else(|| self.budget.withdraw()) {
            token.spend();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<RetryToken<'a>>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the server is at fault and the item itself is not.
fn is_trouble(failure: &Failure) -> bool {
    failure.cause.blame() == Blame::Server && failure.disposition == Disposition::Transient
}

/// Whether the server, or a limit on the way to it, accepts no more now.
fn is_refused(failure: &Failure) -> bool {
    matches!(failure.cause, Cause::RateLimited | Cause::CircuitOpen | Cause::Overloaded)
}
