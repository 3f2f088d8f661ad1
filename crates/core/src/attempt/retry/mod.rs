//! Decides whether and when to retry: the only retry loop, usable alone as [`Retry`].
//!
//! A retry is scheduled only if the failure is transient, repeating cannot execute a write twice,
//! the deadline leaves time for it, nothing has blocked the server meanwhile, and the server's
//! retry budget pays. All of that is checked before the backoff, never after it.

mod front;
#[cfg(feature = "tower")]
mod layered;
mod limited;

pub use front::Retry;
pub use limited::LimitedRetry;

use std::future::Future;
use std::time::Duration;

use super::budget::{RetryBudget, RetryToken};
use crate::env::Env;
use crate::model::effect::Effect;
use crate::model::failure::{Cause, Failure, Sent};
use crate::model::policy::retry::RetryPolicy;
use crate::model::sanitize::one_line;
use crate::report::event::Event;
use crate::time::deadline::Deadline;

/// A value, and the attempts and time it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retried<T> {
    /// The value.
    pub value: T,
    /// Attempts made.
    pub attempts: u32,
    /// Time spent in backoff.
    pub total_delay: Duration,
}

/// The last failure, with the attempts made and the time they took.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", failure.message)]
pub struct GaveUp<E> {
    /// The last error, unchanged.
    pub error: E,
    /// The classified error.
    pub failure: Failure,
    /// Attempts made.
    pub attempts: u32,
    /// Time spent in backoff.
    pub total_delay: Duration,
}

/// A failed attempt: the classified failure and the error. Boxed, so that a failure does not
/// enlarge the result of a success.
pub(crate) type Failed<E> = Box<(Failure, E)>;

/// The settings of the retry loop; the work itself comes apart.
pub(crate) struct RetryLoop<'a> {
    pub(crate) policy: &'a RetryPolicy,
    pub(crate) effect: Effect,
    pub(crate) deadline: Deadline,
    pub(crate) budget: Option<&'a RetryBudget>,
    pub(crate) env: &'a Env,
    /// Server and tool, for events.
    pub(crate) names: (&'a str, &'a str),
}

/// Retries until the work succeeds or a retry is ruled out. `blocked` tells whether something has
/// made another attempt pointless meanwhile, such as a breaker that opened; its argument is whether
/// the server asks for a longer pause than the backoff.
pub(crate) async fn try_until<T, E, F>(
    rules: &RetryLoop<'_>,
    mut attempt: impl FnMut(u32) -> F,
    blocked: impl Fn(bool) -> bool,
) -> Result<Retried<T>, Box<GaveUp<E>>>
where
    F: Future<Output = Result<T, Failed<E>>>,
{
    match attempt(1).await {
        Ok(value) => Ok(Retried { value, attempts: 1, total_delay: Duration::ZERO }),
        // Boxed: the future of the retry loop is large, and a successful call should not carry it.
        Err(failed) => Box::pin(try_again(rules, failed, attempt, blocked)).await,
    }
}

/// The retry loop proper, entered after the first attempt failed.
pub(crate) async fn try_again<T, E, F>(
    rules: &RetryLoop<'_>,
    mut failed: Failed<E>,
    mut attempt: impl FnMut(u32) -> F,
    blocked: impl Fn(bool) -> bool,
) -> Result<Retried<T>, Box<GaveUp<E>>>
where
    F: Future<Output = Result<T, Failed<E>>>,
{
    let mut total_delay = Duration::ZERO;
    let mut attempts = 1;
    // An attempt refused in this process was never made and does not count.
    let mut refused = u32::from(is_own_refusal(&failed.0));
    let mut next = rules.pause_after(&failed.0, attempts);
    while let Some((delay, token)) = next
        .filter(|_| !blocked(rules.asks_for_more(&failed.0, attempts)))
        .and_then(|delay| rules.pay(delay))
    {
        rules.tell_retry(attempts, delay, &failed.0);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        total_delay += delay;
        // A call that wakes too late starts no attempt that it cannot finish.
        if rules.deadline.remaining(&rules.env.clock).is_zero() {
            break;
        }
        attempts += 1;
        let latest = match attempt(attempts).await {
            Ok(value) => {
                if let Some(token) = token {
                    token.worked();
                }
                return Ok(Retried { value, attempts: attempts - refused, total_delay });
            }
            Err(failed) => failed,
        };
        // A refusal in this process put no load on the server, so the token returns to the budget.
        if let Some(token) = token.filter(|_| !is_own_refusal(&latest.0)) {
            token.spend();
        }
        refused += u32::from(is_own_refusal(&latest.0));
        next = rules.pause_after(&latest.0, attempts);
        failed = rules.whole_story(failed, latest);
    }
    let (failure, error) = *failed;
    Err(Box::new(GaveUp { error, failure, attempts: attempts - refused, total_delay }))
}

impl<'a> RetryLoop<'a> {
    /// The delay with a token from the budget, where there is a budget. `None` if the budget is
    /// spent.
    fn pay(&self, delay: Duration) -> Option<(Duration, Option<RetryToken<'a>>)> {
        let Some(budget) = self.budget else { return Some((delay, None)) };
        let token = budget.withdraw();
        if token.is_none() {
            self.env.events.emit(|| Event::RetryBudgetSpent {
                server: self.names.0.into(),
                tool: self.names.1.into(),
            });
        }
        token.map(|token| (delay, Some(token)))
    }

    /// The failure to report after several attempts: a refusal in this process does not replace the
    /// failure seen before, and a write that an earlier attempt may have executed stays uncertain.
    fn whole_story<E>(&self, mut earlier: Failed<E>, mut latest: Failed<E>) -> Failed<E> {
        if is_own_refusal(&latest.0) {
            earlier.0.retry_after = latest.0.retry_after;
            return earlier;
        }
        if earlier.0.may_have_executed(self.effect) && latest.0.sent == Sent::Never {
            latest.0.sent = Sent::Maybe;
        }
        latest
    }

    /// The delay before the next attempt; `None` if there must not be one.
    fn pause_after(&self, failure: &Failure, attempts: u32) -> Option<Duration> {
        if attempts >= self.policy.attempts || !failure.may_repeat(self.effect) {
            return None;
        }
        let asked = failure.retry_after.unwrap_or_default();
        if asked > self.policy.longest_pause {
            return None;
        }
        // Clients that were asked for the same pause are spread by as much as the jitter moves the
        // backoff, and never retry too early.
        let backoff = self.policy.backoff.delay(attempts, &self.env.rng);
        let spread = backoff.abs_diff(self.policy.backoff.nominal(attempts));
        let delay = if asked.is_zero() { backoff } else { backoff.max(asked + spread) };
        self.deadline.allows(delay, &self.env.clock).then_some(delay)
    }

    /// Whether the server asks for a longer pause than the backoff without jitter.
    fn asks_for_more(&self, failure: &Failure, attempts: u32) -> bool {
        failure.retry_after.is_some_and(|asked| asked > self.policy.backoff.nominal(attempts))
    }

    fn tell_retry(&self, attempt: u32, delay: Duration, failure: &Failure) {
        self.env.events.emit_rare(|| Event::RetryScheduled {
            server: self.names.0.into(),
            tool: self.names.1.into(),
            attempt,
            of: self.policy.attempts,
            delay,
            error: one_line(&failure.message),
        });
    }
}

/// Whether the attempt was refused in this process and never made.
fn is_own_refusal(failure: &Failure) -> bool {
    matches!(failure.cause, Cause::CircuitOpen | Cause::Overloaded) || failure.is_own_pause()
}
