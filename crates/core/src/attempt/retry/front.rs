//! Decides how any async work is retried: the front door.

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

/// Retries any async work: the front door to retrying.
///
/// What the work does when it is repeated has to be said: a write is tried again only when its
/// failure proves that nothing was executed. Nothing limits how long an attempt takes, unless
/// [`Retry::timeout`] or [`Retry::attempt_timeout`] does; they come last.
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
    /// Three attempts, 1 s and 2 s apart plus up to 20 %.
    pub fn new(effect: Effect) -> Self {
        Self {
            effect,
            policy: RetryPolicy::default(),
            classifier: Classifier::new(),
            budget: None,
            env: Env::new(),
        }
    }

    /// With another policy.
    pub fn policy(mut self, policy: RetryPolicy) -> Result<Self, Invalid> {
        policy.validate()?;
        self.policy = policy;
        Ok(self)
    }

    /// With other rules for what is worth retrying.
    pub fn classifier(mut self, classifier: Classifier) -> Self {
        self.classifier = classifier;
        self
    }

    /// With a budget, shared by everything that calls the same server.
    pub fn budget(mut self, budget: Arc<RetryBudget>) -> Self {
        self.budget = Some(budget);
        self
    }

    /// In other surroundings.
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// With a limit over all attempts and pauses: no pause is begun that would outlast it, and an
    /// attempt is cut off at its end.
    pub fn timeout(self, timeout: Duration) -> Result<LimitedRetry, Invalid> {
        LimitedRetry::new(self).timeout(timeout)
    }

    /// With a limit for each attempt, so that one that hangs leaves time for another.
    pub fn attempt_timeout(self, timeout: Duration) -> Result<LimitedRetry, Invalid> {
        LimitedRetry::new(self).attempt_timeout(timeout)
    }

    /// With a breaker that every attempt has to pass, and that is asked before every pause: where
    /// it has opened, nobody waits only to be refused.
    pub fn breaker(self, breaker: Arc<Breaker>) -> LimitedRetry {
        LimitedRetry::new(self).breaker(breaker)
    }

    /// Runs `work` until it succeeds or giving up is right. It is told the number of the attempt,
    /// from 1.
    pub async fn call<T, E, F>(
        &self,
        mut work: impl FnMut(u32) -> F,
    ) -> Result<Retried<T>, Box<GaveUp<E>>>
    where
        F: Future<Output = Result<T, E>>,
        E: Describe,
    {
        self.deposit();
        // The first attempt stands apart, so that a call that works pays for nothing else.
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
