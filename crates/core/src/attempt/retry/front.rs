//! Decides how any async work is retried: [`Retry`], the entry point to retries.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::super::breaker::Breaker;
use super::super::budget::RetryBudget;
use super::limited::LimitedRetry;
use super::{Failed, GaveUp, Retried, RetryLoop, try_again};
use crate::classify::{Classifier, Describe};
use crate::env::Env;
use crate::model::effect::Effect;
use crate::model::invalid::Invalid;
use crate::model::policy::retry::RetryPolicy;
use crate::time::deadline::Deadline;

/// Retries any async work: the entry point to retries.
///
/// The caller states the effect of the work: a write is retried only when its failure proves that
/// nothing was executed. Attempts have no timeout unless [`Retry::timeout`] or
/// [`Retry::attempt_timeout`] sets one; call those two last.
///
/// ```
/// # use seawall::{Effect, Retry};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let write = Retry::new(Effect::Write);
/// let lost = write.call(|_| async { Err::<(), _>("connection reset") }).await.unwrap_err();
/// assert_eq!(lost.attempts, 1, "it may have been executed");
///
/// let busy = write.call(|_| async { Err::<(), _>("429 Too Many Requests") }).await.unwrap_err();
/// assert_eq!(busy.attempts, 3, "it certainly was not");
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Retry {
    pub(super) effect: Effect,
    policy: RetryPolicy,
    pub(super) classifier: Classifier,
    budget: Option<Arc<RetryBudget>>,
    pub(super) env: Env,
}

impl Retry {
    /// Three attempts with backoffs of 1 s and 2 s, plus up to 20 % jitter.
    pub fn new(effect: Effect) -> Self {
        Self {
            effect,
            policy: RetryPolicy::default(),
            classifier: Classifier::new(),
            budget: None,
            env: Env::new(),
        }
    }

    /// Replaces the retry policy.
    pub fn policy(mut self, policy: RetryPolicy) -> Result<Self, Invalid> {
        policy.validate()?;
        self.policy = policy;
        Ok(self)
    }

    /// Replaces the rules that decide which failures are worth a retry.
    pub fn classifier(mut self, classifier: Classifier) -> Self {
        self.classifier = classifier;
        self
    }

    /// Sets a retry budget, shared by all work that calls the same server.
    pub fn budget(mut self, budget: Arc<RetryBudget>) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Replaces the environment: clock, random numbers and events.
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Sets a deadline over all attempts and backoffs: no backoff starts that would outlast it, and
    /// it cuts off a running attempt.
    pub fn timeout(self, timeout: Duration) -> Result<LimitedRetry, Invalid> {
        LimitedRetry::new(self).timeout(timeout)
    }

    /// Sets a timeout for each attempt, so that a hanging attempt leaves time for another.
    pub fn attempt_timeout(self, timeout: Duration) -> Result<LimitedRetry, Invalid> {
        LimitedRetry::new(self).attempt_timeout(timeout)
    }

    /// Sets a breaker that every attempt must pass. It is also checked before every backoff, so
    /// that no call sleeps only to be refused by a breaker that has opened.
    pub fn breaker(self, breaker: Arc<Breaker>) -> LimitedRetry {
        LimitedRetry::new(self).breaker(breaker)
    }

    /// Runs `work` until it succeeds or a retry is ruled out. `work` gets the number of the
    /// attempt, from 1.
    pub async fn call<T, E, F>(
        &self,
        mut work: impl FnMut(u32) -> F,
    ) -> Result<Retried<T>, Box<GaveUp<E>>>
    where
        F: Future<Output = Result<T, E>>,
        E: Describe,
    {
        self.deposit();
        // The first attempt stands apart, so that a call that succeeds pays nothing for the loop.
        let error = match work(1).await {
            Ok(value) => return Ok(Retried { value, attempts: 1, total_delay: Duration::ZERO }),
            Err(error) => error,
        };
        let attempt = |number| {
            let running = work(number);
            async move { running.await.map_err(|error| self.failed(error)) }
        };
        try_again(&self.rules(Deadline::NEVER), self.failed(error), attempt, |_| false).await
    }

    #[inline]
    pub(super) fn deposit(&self) {
        if let Some(budget) = &self.budget {
            budget.deposit();
        }
    }

    pub(super) fn rules(&self, deadline: Deadline) -> RetryLoop<'_> {
        let budget = self.budget.as_deref();
        RetryLoop {
            policy: &self.policy,
            effect: self.effect,
            deadline,
            budget,
            env: &self.env,
            names: ("", ""),
        }
    }

    pub(super) fn failed<E: Describe>(&self, error: E) -> Failed<E> {
        Box::new((error.failure(&self.classifier), error))
    }
}
