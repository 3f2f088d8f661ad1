//! Decides how a call is tried: the retry loop, and one attempt from its start (`may_start`) to the
//! reports to its server's breakers (`permits`).

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use serde_json::Value;

use crate::attempt::budget::RetryToken;
use crate::attempt::hedge;
use crate::attempt::retry::{Failed, RetryLoop, try_again};
use crate::attempt::watch::AttemptWatch;
use crate::model::call::Attempt;
use crate::model::control::{CallControl, QuestionTime};
use crate::model::duration::{about, seconds};
use crate::model::effect::Effect;
use crate::model::failure::{Cause, Disposition, Failure, Sent};
use crate::model::policy::retry::RetryPolicy;
use crate::model::signals::FailureSignals;
use crate::registry::Tool;
use crate::report::event::Event;
use crate::time::clock::{Clock, Moment};
use crate::time::deadline::{Elapsed, within};

use super::context::Run;
use super::may_start::{Start, StartProgress};
use super::permits::{BreakerPermits, is_closed, wait};
use super::write_in_progress::WriteInProgress;

/// Why an attempt failed; with the tool's own words if it answered with an error.
pub(crate) type AttemptFailed<T> = Failed<Option<OwnWords<T>>>;

/// A tool's own error that means a failure.
#[derive(Clone, Debug)]
pub(crate) struct OwnWords<T> {
    pub(crate) value: T,
    /// The tool did not mark the error; an operator's pattern found it.
    pub(crate) is_unmarked: bool,
}

impl<T: Clone> Run<'_, T> {
    /// Tries the call until it succeeds or a retry is ruled out.
    pub(crate) async fn attempt<F>(
        &self,
        send: &impl Fn(Attempt) -> F,
    ) -> Result<T, AttemptFailed<T>>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        self.tool.server.budget.deposit();
        let first = match self.tool.hedge_delay() {
            None if self.has_second_chance() => self.with_second_chance(self.started, send).await,
            None => self.once(self.tool, &self.call.arguments, AttemptRole::Call, send).await,
            // Boxed, as the second attempt is: a tool without hedges should not carry the race.
            Some(_) => Box::pin(self.hedged(send)).await,
        };
        match first {
            Ok(value) => Ok(value),
            // Boxed: the future of the retry loop is large, and a successful call should not carry
            // it.
            Err(missed) => {
                self.note_wait();
                Box::pin(self.attempt_again(missed, send)).await
            }
        }
    }

    async fn attempt_again<F>(
        &self,
        missed: AttemptFailed<T>,
        send: &impl Fn(Attempt) -> F,
    ) -> Result<T, AttemptFailed<T>>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        let tool = self.tool;
        let once = RetryPolicy { attempts: 1, ..tool.policy.retry };
        let rules = RetryLoop {
            policy: if self.call.retried_outside { &once } else { &tool.policy.retry },
            effect: tool.policy.effect,
            deadline: self.deadline(),
            budget: Some(&tool.server.budget),
            env: self.env(),
            names: (&tool.server.name, &tool.name),
        };
        // A call that has a cached response does not sit out a long pause.
        let blocked = |is_asked_for: bool| {
            wait(tool).is_some() || self.is_last() || (is_asked_for && self.has_copy())
        };
        let tried = try_again(&rules, missed, |_| self.hedged(send), blocked).await;
        match tried {
            Ok(retried) => Ok(retried.value),
            Err(gave_up) => Err(Box::new((gave_up.failure, gave_up.error))),
        }
    }

    async fn hedged<F>(&self, send: &impl Fn(Attempt) -> F) -> Result<T, AttemptFailed<T>>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        let once = || self.once(self.tool, &self.call.arguments, AttemptRole::Call, send);
        match self.tool.hedge_delay() {
            None if self.has_second_chance() => {
                self.with_second_chance(self.env().clock.now(), send).await
            }
            None => once().await,
            Some(delay) => {
                let budget = &self.tool.server.budget;
                hedge::race(
                    delay,
                    budget,
                    once(),
                    |token| self.second(token, AttemptRole::Call, send),
                    is_final,
                )
                .await
            }
        }
    }

    /// Whether a hanging attempt may get a second one beside it.
    #[inline]
    fn has_second_chance(&self) -> bool {
        let policy = &self.tool.policy;
        let may_repeat = policy.retry.attempts > 1 && !self.call.retried_outside;
        policy.effect == Effect::ReadOnly && policy.attempt_timeout.is_none() && may_repeat
    }

    /// One attempt, and a second beside it if there is no answer by half of the time left: a slow
    /// server is still waited for, and a hanging one takes no more than half of the time.
    async fn with_second_chance<F>(
        &self,
        now: Moment,
        send: &impl Fn(Attempt) -> F,
    ) -> Result<T, AttemptFailed<T>>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        let mut first = pin!(self.once(self.tool, &self.call.arguments, AttemptRole::Call, send));
        let half = self.deadline().remaining_at(now) / 2;
        match within(half, first.as_mut()).await {
            Ok(done) => done,
            // A server in trouble gets one attempt at a time, and a user is not asked the same
            // question twice.
            Err(_) if !is_closed(self.tool) || self.is_last() || self.has_asked() => first.await,
            Err(_) => {
                let budget = &self.tool.server.budget;
                // Boxed: this path is rare.
                let second = |token| Box::pin(self.second(token, AttemptRole::Again, send));
                Box::pin(hedge::race(Duration::ZERO, budget, first, second, is_final)).await
            }
        }
    }

    /// Whether the client was asked a question meanwhile.
    fn has_asked(&self) -> bool {
        self.call.control.as_ref().is_some_and(|control| !control.asked().is_zero())
    }

    /// The second attempt beside a slow one; it spends its token when it is sent.
    async fn second<F>(
        &self,
        token: RetryToken<'_>,
        part: AttemptRole,
        send: &impl Fn(Attempt) -> F,
    ) -> Result<T, AttemptFailed<T>>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        // The token is spent inside `send`, after all gates: an attempt refused at a gate drops it
        // unspent, and it returns to the budget.
        let token = Mutex::new(Some(token));
        let paying = |attempt| {
            if let Some(token) = token.lock().unwrap_or_else(PoisonError::into_inner).take() {
                token.spend();
                self.emit(|server, tool| Event::Hedged { server, tool });
            }
            send(attempt)
        };
        self.once(self.tool, &self.call.arguments, part, &paying).await
    }

    /// One attempt at `tool`, through all gates. Fallbacks use it too and do not wait for a pause
    /// to end.
    pub(crate) async fn once<F>(
        &self,
        tool: &Tool,
        arguments: &Arc<Value>,
        part: AttemptRole,
        send: &impl Fn(Attempt) -> F,
    ) -> Result<T, AttemptFailed<T>>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        let local = |failure: Failure| Box::new((failure, None));
        let mut progress = StartProgress::default();
        let start = match self.may_start(tool, &mut progress) {
            Ok(start) => start,
            // Boxed: an attempt that need not wait should not carry the waits along.
            Err(blocked) => {
                Box::pin(self.wait_to_start(tool, part, progress, blocked)).await.map_err(local)?
            }
        };
        let Start { permits, limit, _slots } = start;

        let number = self.count_attempt();
        let attempt = Attempt {
            number,
            names: tool.names.clone(),
            arguments: arguments.clone(),
            timeout: limit,
        };
        let watch = AttemptWatch::start(
            self.env(),
            (&tool.server.name, &tool.name),
            number,
            tool.policy.hedge.is_some(),
        );
        // Created before the request is sent: a future dropped during the send still counts the
        // write.
        let written = WriteInProgress::by(self, tool);
        let mut running = pin!(send(attempt));
        let mut answered = within(limit, running.as_mut()).await;
        if let (Err(_), Some(control)) = (&answered, &self.call.control) {
            // Boxed: a question to the client is rare.
            answered =
                Box::pin(wait_for_client(control, &self.env().clock, &permits, running.as_mut()))
                    .await;
        }
        let timed_out = answered.is_err();
        let result = match answered {
            Ok(Ok(value)) => self.judge(tool, value),
            Ok(Err(signals)) => Err(local(self.of_whole(tool, part, arguments, &signals))),
            Err(_) => Err(local(self.no_answer(tool, part, limit))),
        };
        written.unless_never_sent(result.as_ref().err().map(|missed| &missed.0));
        if let Err(missed) = &result {
            self.remember(number, tool.policy.effect, &missed.0);
            self.note_pause(tool, &missed.0);
        }
        if self.proves_little(tool, part, timed_out.then_some(limit)) {
            drop(permits);
        } else {
            let is_spared = || {
                part == AttemptRole::Call
                    && result.as_ref().is_err_and(|missed| self.spares(missed))
            };
            permits.settle(tool, part, is_spared, &result);
            if part == AttemptRole::FirstItem {
                self.first_item_spoke(result.as_ref().err().map(|missed| &missed.0));
            }
        }
        let took = watch.stop(result.as_ref().err().map(|missed| missed.0.cause));
        if let (Some(took), Ok(_)) = (took, &result) {
            tool.record_latency(took);
        }
        result
    }

    /// Whether an attempt that waited for `limit` in vain (`in_vain`) says nothing about its
    /// server. A timeout below half of the usual proves little: a short deadline or a long queue is
    /// not the server's fault. It counts once such attempts have waited long enough together.
    #[inline]
    fn proves_little(&self, tool: &Tool, part: AttemptRole, in_vain: Option<Duration>) -> bool {
        let Some(limit) = in_vain else {
            tool.silence.end();
            return false;
        };
        let most = tool.policy.timeout / if part == AttemptRole::Call { self.ways } else { 1 };
        let usual = tool.policy.attempt_timeout.unwrap_or(most).min(most);
        let now = self.env().clock.now();
        limit < usual / 2 && !tool.silence.is_long(now.minus(limit), now, usual)
    }

    /// The timeout failure. It names the tool's own timeout if that was the limit, else the call's
    /// share of the time, and for a fallback the time that was left for it.
    fn no_answer(&self, tool: &Tool, part: AttemptRole, limit: Duration) -> Failure {
        let told = match tool.policy.attempt_timeout {
            Some(own) if own == limit => seconds(own),
            _ if part == AttemptRole::Call => seconds(self.timeout / self.ways),
            _ => about(limit),
        };
        let message = format!("Tool '{}' exceeded timeout of {told}", tool.name);
        Failure { sent: Sent::Maybe, ..Failure::local(Cause::Timeout, None, message) }
    }
}

/// The purpose of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptRole {
    /// The call itself.
    Call,
    /// The first item of a failed batch: it shows whether the server or the batch is at fault.
    FirstItem,
    /// A fallback that calls the same tool in another way. The call's failure was counted already:
    /// a failure of this attempt is no further evidence against the tool, however many parts it
    /// has.
    Again,
    /// A fallback that calls another tool.
    Other,
}

/// The timeout of an attempt has passed: it runs on for as long as its client was busy with a
/// question meanwhile.
async fn wait_for_client<F: Future>(
    control: &CallControl,
    clock: &Clock,
    permits: &BreakerPermits<'_>,
    mut running: Pin<&mut F>,
) -> Result<F::Output, Elapsed> {
    let over_since = clock.now();
    loop {
        match control.lost_time() {
            QuestionTime::Open(most) => {
                // The lease of a probe grows with the wait, so that the breaker does not take the
                // probe for lost.
                permits.extend(most);
                let answered = pin!(within(most, control.answered()));
                if let Either::Left((answer, _)) = select(running.as_mut(), answered).await {
                    return Ok(answer);
                }
            }
            QuestionTime::Answered(lost) => {
                let more = lost.saturating_sub(clock.now().since(over_since));
                if more.is_zero() {
                    return Err(Elapsed);
                }
                permits.extend(more);
                if let Ok(answer) = within(more, running.as_mut()).await {
                    return Ok(answer);
                }
            }
        }
    }
}

/// Whether no other attempt can do better than one that failed like this.
fn is_final<T>(missed: &AttemptFailed<T>) -> bool {
    missed.0.disposition != Disposition::Transient
}
