//! Decides which answer a client gets when the tool failed: that of the first fallback that can
//! answer, labelled as a fallback.
//!
//! No fallback follows a caller's fault or a denial, nor a write that may have been executed: a
//! fallback would hide the one fact that the client must know, or execute the write twice.
//! Fallbacks that call a server pay from its retry budget, and so do the caller's own steps,
//! wherever they lead: one budget holds for the whole chain. The remaining time is split evenly
//! among the fallbacks to come, so that a hanging one takes no other's share.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use serde_json::Value;

use crate::admit::cache::StaleResponse;
use crate::admit::key::CallKey;
use crate::classify::Describe;
use crate::model::answer::{FallbackAnswer, FallbackBody, Outcome};
use crate::model::call::{Attempt, Call};
use crate::model::effect::Effect;
use crate::model::failure::{Cause, Disposition, Failure, Sent};
use crate::model::policy::Fallback;
use crate::model::sanitize::without_credentials;
use crate::model::signals::FailureSignals;
use crate::pipeline::Pipeline;
use crate::recover::chain::{Step, not_tried, skipping, warning};
use crate::recover::{page, simplify};
use crate::registry::Tool;
use crate::registry::durable::NotQueued;
use crate::report::event::Event;
use crate::report::served as texts;
use crate::run::attempt::{AttemptRole, OwnWords};
use crate::run::context::Run;
use crate::run::write_in_progress::WriteInProgress;
use crate::time::deadline::within;

/// Why a fallback did not answer.
pub(super) enum SkippedFallback {
    /// It has nothing to offer now.
    Unavailable,
    /// The deadline had passed before it began.
    NoTime,
    /// It was tried and failed.
    Failed(Failure),
}

impl From<Failure> for SkippedFallback {
    fn from(failure: Failure) -> Self {
        SkippedFallback::Failed(failure)
    }
}

impl<T: Clone> Pipeline<T> {
    /// Whether a stale cached response would answer the call if it failed now: then a long wait for
    /// a live answer is not worthwhile.
    pub fn has_copy(&self, tool: &Tool, call: &Call) -> bool {
        let key = || self.keys.of_copy(self.keys.of(tool, call), tool, call);
        self.is_rescued(tool, key)
    }

    fn is_rescued(&self, tool: &Tool, key: impl FnOnce() -> CallKey) -> bool {
        tool.policy.fallback.contains(&Fallback::Cached) && self.stale_copy(tool, key()).is_some()
    }

    fn stale_copy(&self, tool: &Tool, key: CallKey) -> Option<StaleResponse<T>> {
        self.gatekeeper.copies.stale(key, tool.policy.cache.stale_if_error?, tool.server.writes())
    }
}

impl<T: Clone> Run<'_, T> {
    /// Tries the tool's fallbacks, then the caller's own steps, until one answers. Otherwise the
    /// tool's own error is the answer, if it gave one.
    pub(crate) async fn recover<F>(
        &self,
        failure: Failure,
        own_words: Option<OwnWords<T>>,
        own_steps: &[Step<T>],
        send: &impl Fn(Attempt) -> F,
        warnings: &mut Vec<String>,
    ) -> Outcome<T>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        warnings.push(self.first_warning(&failure));
        if self.must_be_told(&failure) {
            self.blame_spared();
            return self.end_with(failure, own_words);
        }
        for (index, fallback) in self.tool.policy.fallback.iter().enumerate() {
            let later =
                self.tool.policy.fallback[index + 1..].iter().filter(|later| later.asks()).count();
            self.begin_share(1 + later + own_steps.len());
            // A server that answered a write knows its result, so the write is not queued.
            let is_answered = matches!(fallback, Fallback::Queue) && own_words.is_some();
            let answered = match is_answered || !fallback.mends(&failure) {
                true => Err(SkippedFallback::Unavailable),
                false => self.fall_back(fallback, &failure, send).await,
            };
            self.blame_spared();
            match answered {
                Ok(served) => return self.serve(served),
                Err(SkippedFallback::Unavailable) => {
                    warnings.push(skipping(&self.step_name(fallback.name())))
                }
                Err(SkippedFallback::NoTime) => {
                    warnings.push(not_tried(&self.step_name(fallback.name())))
                }
                Err(SkippedFallback::Failed(next)) => {
                    warnings.push(warning(&self.step_name(fallback.name()), &next));
                    if self.must_be_told(&next) {
                        return self.fail(next);
                    }
                }
            }
        }
        // A batch with too many items is wrong for every other step too.
        let own_steps = if failure.too_large { &[] } else { own_steps };
        for (index, step) in own_steps.iter().enumerate() {
            self.begin_share(own_steps.len() - index);
            match self.own_step(step, &failure).await {
                Ok(served) => return self.serve(served),
                Err(SkippedFallback::Unavailable) => warnings.push(skipping(&step.name)),
                Err(SkippedFallback::NoTime) => warnings.push(not_tried(&step.name)),
                Err(SkippedFallback::Failed(next)) => {
                    warnings.push(warning(&step.name, &next));
                    if self.must_be_told(&next) {
                        return self.fail(next);
                    }
                }
            }
        }
        self.end_with(failure, own_words)
    }

    /// The tool's own error if it gave one, else our report of the failure.
    fn end_with(&self, failure: Failure, own_words: Option<OwnWords<T>>) -> Outcome<T> {
        match own_words {
            Some(words) => self.pass_on_error(failure, words),
            None => self.fail(failure),
        }
    }

    /// Whether a failure ends the search: no other step can mend it, or none may hide it or execute
    /// the call again.
    pub(crate) fn must_be_told(&self, failure: &Failure) -> bool {
        self.must_not_act_again() || !(failure.too_large || failure.cause.allows_fallback())
    }

    /// Whether no further attempt is allowed for the call.
    pub(crate) fn has_left(&self) -> bool {
        self.call.control.as_ref().is_some_and(|control| control.has_left())
    }

    pub(crate) fn is_last(&self) -> bool {
        self.call.control.as_ref().is_some_and(|control| control.is_last())
    }

    /// Whether the client has gone and the server was told to stop.
    fn was_cancelled(&self) -> bool {
        self.call.control.as_ref().is_some_and(|control| control.is_last() && control.has_left())
    }

    async fn fall_back<F>(
        &self,
        fallback: &Fallback,
        failure: &Failure,
        send: &impl Fn(Attempt) -> F,
    ) -> Result<FallbackAnswer<T>, SkippedFallback>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        let (name, style, kind) = (fallback.name(), self.pipeline.style, self.tool.policy.kind);
        let hides_its_fate = matches!(fallback, Fallback::Text(_) | Fallback::Alternate { .. });
        let asks_again = matches!(
            fallback,
            Fallback::Simplify(_) | Fallback::PreviousPage(_) | Fallback::OneByOne(_)
        );
        let writes_anew =
            asks_again || matches!(fallback, Fallback::Alternate { .. } | Fallback::Queue);
        let is_kept_whole = *fallback != Fallback::Queue || self.call.context.is_none();
        if (writes_anew && self.call.written.is_some()) || !is_kept_whole {
            return Err(SkippedFallback::Unavailable);
        }
        if let Fallback::PreviousPage(argument) = fallback
            && let Some(copy) = self.copy_of_previous_page(argument.as_deref(), failure)
        {
            return Ok(copy);
        }
        // A server that asked for a pause gets no call before it is over; the items of a batch can
        // wait for that.
        let can_wait = matches!(fallback, Fallback::OneByOne(_)) && failure.asked_pause().is_some();
        let must_wait = failure.retry_after.is_some() && !can_wait;
        // A client that cancelled a write before it was sent does not want it executed later
        // either.
        let is_over = (fallback.asks() && self.is_last())
            || (*fallback == Fallback::Queue && self.was_cancelled());
        if (hides_its_fate && self.may_have_acted()) || (asks_again && must_wait) || is_over {
            return Err(SkippedFallback::Unavailable);
        }
        if fallback.asks() && self.remaining().is_zero() {
            return Err(SkippedFallback::NoTime);
        }
        match fallback {
            Fallback::Cached => self.cached(failure),
            Fallback::Text(text) => Ok(served(name, text.clone(), FallbackBody::Nothing)),
            Fallback::Queue => self.queue(failure).await,
            Fallback::Simplify(argument) => self.simpler(argument.as_deref(), failure, send).await,
            Fallback::PreviousPage(argument) => {
                let arguments = page::previous_page(&self.call.arguments, argument.as_deref())
                    .ok_or(SkippedFallback::Unavailable)?;
                let value = self.ask(self.tool, AttemptRole::Again, arguments, send).await?;
                Ok(served(
                    name,
                    texts::previous_page(style, kind, None, failure),
                    FallbackBody::Value(value),
                ))
            }
            Fallback::Alternate { server, tool, map } => {
                let is_elsewhere = **server != *self.tool.server.name;
                // A pattern that names one alternate for many tools may match that alternate too.
                let is_other = is_elsewhere || **tool != *self.tool.name;
                let other = self
                    .pipeline
                    .find(server, tool)
                    .filter(|_| is_other)
                    .ok_or(SkippedFallback::Unavailable)?;
                let value = self
                    .ask(&other, AttemptRole::Other, mapped(&self.call.arguments, map), send)
                    .await?;
                let other = if is_elsewhere {
                    format!("{tool} of {server}")
                } else {
                    format!("{}{tool}", self.call.prefix)
                };
                Ok(served(
                    name,
                    texts::alternate(&other, &self.shown_name(), failure),
                    FallbackBody::Value(value),
                ))
            }
            Fallback::OneByOne(argument) => {
                self.one_by_one(argument.as_deref(), failure, send).await
            }
        }
    }

    /// Calls the tool with ever simpler queries.
    async fn simpler<F>(
        &self,
        argument: Option<&str>,
        failure: &Failure,
        send: &impl Fn(Attempt) -> F,
    ) -> Result<FallbackAnswer<T>, SkippedFallback>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        let mut last = SkippedFallback::Unavailable;
        for (query, arguments) in simplify::simplified(&self.call.arguments, argument) {
            if self.is_last() {
                break;
            }
            match self.ask(self.tool, AttemptRole::Again, arguments, send).await {
                Ok(value) => {
                    let note = texts::simplified(
                        self.pipeline.style,
                        self.tool.policy.kind,
                        &query,
                        failure,
                    );
                    return Ok(served("simplify", note, FallbackBody::Value(value)));
                }
                // A failure that ends the search for an answer ends these queries too.
                Err(failed) if self.must_be_told(&failed) => return Err(failed.into()),
                Err(failed) => last = failed.into(),
            }
        }
        Err(last)
    }

    fn cached(&self, failure: &Failure) -> Result<FallbackAnswer<T>, SkippedFallback> {
        let stale = self
            .pipeline
            .stale_copy(self.tool, self.copy_key())
            .ok_or(SkippedFallback::Unavailable)?;
        let note = texts::cached(
            self.pipeline.style,
            self.tool.policy.kind,
            stale.age,
            stale.before_a_write,
            failure,
        );
        Ok(FallbackAnswer {
            age: Some(stale.age),
            ..served("cached", note, FallbackBody::Value(stale.value))
        })
    }

    /// The previous page as this caller saw it last, from the cache: the failed server need not be
    /// called.
    fn copy_of_previous_page(
        &self,
        argument: Option<&str>,
        failure: &Failure,
    ) -> Option<FallbackAnswer<T>> {
        let arguments = Arc::new(page::previous_page(&self.call.arguments, argument)?);
        let keys = &self.pipeline.keys;
        let key = keys.of_copy(
            keys.of(self.tool, &Call { arguments, ..self.call.clone() }),
            self.tool,
            self.call,
        );
        let stale = self.pipeline.stale_copy(self.tool, key)?;
        let note = texts::previous_page(
            self.pipeline.style,
            self.tool.policy.kind,
            Some(stale.age),
            failure,
        );
        Some(FallbackAnswer {
            age: Some(stale.age),
            ..served("previous_page", note, FallbackBody::Value(stale.value))
        })
    }

    /// A stale cached response for a client that waits for an identical call and may give up before
    /// the answer.
    pub(crate) fn copy_meanwhile(&self) -> Option<Outcome<T>> {
        let stale = self.pipeline.stale_copy(self.tool, self.copy_key())?;
        let is_allowed = self.tool.policy.fallback.contains(&Fallback::Cached);
        let note = texts::cached_meanwhile(
            self.pipeline.style,
            self.tool.policy.kind,
            stale.age,
            stale.before_a_write,
        );
        let served = FallbackAnswer {
            age: Some(stale.age),
            ..served("cached", note, FallbackBody::Value(stale.value))
        };
        is_allowed.then(|| self.serve(served))
    }

    /// Whether a stale cached response would answer the call if it failed now.
    pub(crate) fn has_copy(&self) -> bool {
        self.pipeline.is_rescued(self.tool, || self.copy_key())
    }

    async fn queue(&self, failure: &Failure) -> Result<FallbackAnswer<T>, SkippedFallback> {
        let durable = self.pipeline.durable.as_deref().ok_or(SkippedFallback::Unavailable)?;
        // A failure that lasts until a person acts would keep the write in the queue for ever.
        if failure.disposition != Disposition::Transient {
            return Err(SkippedFallback::Unavailable);
        }
        // Noted before the queue is called: a call cancelled meanwhile may be queued all the same.
        let is_noted = self.note_queueing();
        let id = match within(self.remaining(), durable.enqueue(self.queued())).await {
            Ok(Ok(id)) => id,
            Ok(Err(error @ NotQueued::Refused(_))) => {
                if is_noted {
                    self.pipeline
                        .gatekeeper
                        .ledger
                        .uncertain
                        .forget(self.ledger_key(), self.who().1);
                }
                return Err(Failure::local(Cause::Overloaded, None, error.to_string()).into());
            }
            Ok(Err(error @ NotQueued::Unknown(_))) => {
                return Err(self.lost_in_queue(Cause::Unavailable, &error.to_string()).into());
            }
            Err(_) => {
                let words = "the queue did not answer in time and may hold the call";
                return Err(self.lost_in_queue(Cause::Timeout, words).into());
            }
        };
        let is_held = !self.tool.policy.effect.is_replayable()
            && self.tool.policy.uncertain_write_hold.is_some();
        let note = texts::queued(self.pipeline.style, &self.shown_name(), &id, is_held, failure);
        Ok(FallbackAnswer { id: Some(id), ..served("queue", note, FallbackBody::Nothing) })
    }

    /// The failure if the write may or may not be in the queue.
    fn lost_in_queue(&self, cause: Cause, words: &str) -> Failure {
        let failure = Failure { sent: Sent::Maybe, ..Failure::local(cause, None, words) };
        self.remember(self.attempts(), self.tool.policy.effect, &failure);
        failure
    }

    /// One attempt of a fallback, paid from the retry budget of the server it goes to. The token is
    /// spent if the attempt fails, and also on success if it is load on the server that failed. An
    /// attempt refused in this process costs nothing.
    async fn ask<F>(
        &self,
        tool: &Tool,
        part: AttemptRole,
        arguments: Value,
        send: &impl Fn(Attempt) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        let token = tool.server.budget.withdraw().ok_or_else(budget_is_spent)?;
        let before = self.attempts();
        let answered = self.ask_paid(tool, part, arguments, send).await;
        let is_load = answered.is_err() || Arc::ptr_eq(&tool.server, &self.tool.server);
        if is_load && self.attempts() > before {
            token.spend();
        }
        answered
    }

    /// As [`Self::ask`], with the token already paid.
    pub(super) async fn ask_paid<F>(
        &self,
        tool: &Tool,
        part: AttemptRole,
        arguments: Value,
        send: &impl Fn(Attempt) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        let value =
            self.once(tool, &Arc::new(arguments), part, send).await.map_err(|missed| missed.0)?;
        match self.error_text(&value) {
            None => Ok(value),
            Some(words) => Err(self.tool_error(tool.policy.effect, words)),
        }
    }

    /// A tool's own error is no answer of a fallback; whether the tool acted before it failed is
    /// unknown.
    fn tool_error(&self, effect: Effect, words: String) -> Failure {
        let (sent, disposition) = (Sent::Yes, Disposition::Permanent);
        let words = without_credentials(&words);
        let failure =
            Failure { sent, disposition, ..Failure::local(Cause::Misbehaved, None, words) };
        self.remember(self.attempts(), effect, &failure);
        failure
    }

    async fn own_step(
        &self,
        step: &Step<T>,
        failure: &Failure,
    ) -> Result<FallbackAnswer<T>, SkippedFallback> {
        let hides_its_fate = self.may_have_acted();
        if hides_its_fate || self.is_last() || !step.is_available() {
            return Err(SkippedFallback::Unavailable);
        }
        if self.remaining().is_zero() {
            return Err(SkippedFallback::NoTime);
        }
        // One budget for the whole chain: a step that succeeds costs nothing, and the budget bounds
        // how many may fail.
        let token = self.tool.server.budget.withdraw().ok_or_else(budget_is_spent)?;
        let value = self.execute(step).await.inspect_err(|_| token.spend())?;
        let short = step.name.strip_prefix(&format!("{}-", self.tool.name)).unwrap_or(&step.name);
        Ok(served(
            short,
            texts::alternate(&step.name, &self.tool.name, failure),
            FallbackBody::Value(value),
        ))
    }

    async fn execute(&self, step: &Step<T>) -> Result<T, Failure> {
        let (number, effect) = (self.count_attempt(), self.tool.policy.effect);
        // The caller's step stands in for a write of the tool, so the same rules hold for it.
        let written = WriteInProgress::by(self, self.tool);
        let result = match within(self.remaining(), step.execute()).await {
            Ok(result) => result,
            Err(elapsed) => Err(elapsed.signals()),
        };
        let result = result.map_err(|signals| self.classifier().classify(&signals));
        written.unless_never_sent(result.as_ref().err());
        let value = result.inspect_err(|failure| self.remember(number, effect, failure))?;
        match self.error_text(&value) {
            None => Ok(value),
            Some(words) => Err(self.tool_error(effect, words)),
        }
    }

    fn serve(&self, served: FallbackAnswer<T>) -> Outcome<T> {
        self.emit(|server, tool| Event::FallbackServed { server, tool, step: served.by.clone() });
        Outcome::Served(Box::new(served))
    }

    fn step_name(&self, step: &str) -> String {
        format!("{}-{step}", self.tool.name)
    }
}

pub(super) fn budget_is_spent() -> Failure {
    Failure::local(Cause::Overloaded, None, "the retry budget of the server is spent")
}

pub(super) fn served<T>(by: &str, note: String, body: FallbackBody<T>) -> FallbackAnswer<T> {
    FallbackAnswer { by: by.to_owned(), note, age: None, id: None, body }
}

/// The arguments of the alternate tool: each gets the value that `map` names; with an empty map all
/// stay as they are.
fn mapped(arguments: &Value, map: &BTreeMap<String, String>) -> Value {
    if map.is_empty() {
        return arguments.clone();
    }
    map.iter()
        .filter_map(|(theirs, ours)| Some((theirs.clone(), arguments.get(ours)?.clone())))
        .collect()
}
