//! Decides how any async work is retried: the front door, with limits and a breaker where they are asked for.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::super::breaker::{Breaker, Permit, Refused};
use super::super::budget::Budget;
use super::super::deadline::{Deadline, within};
use super::{Failed, GaveUp, Retried, RetryPolicy, Rules, try_again, try_until};
use crate::classify::{Classifier, Describe};
use crate::env::Env;
use crate::model::duration::about;
use crate::model::effect::Effect;
use crate::model::failure::{Cause, Failure, Sent};
use crate::model::invalid::{self, Invalid};

/// Retries any async work: the front door to retrying.
///
/// What the work does when it is repeated has to be said: a write is tried again only when its failure
/// proves that nothing was executed.
#[derive(Clone, Debug)]
pub struct Retry {
    effect: Effect,
    policy: RetryPolicy,
    timeout: Option<Duration>,
    attempt_timeout: Option<Duration>,
    breaker: Option<Arc<Breaker>>,
    classifier: Classifier,
    budget: Option<Arc<Budget>>,
    env: Env,
}

impl Retry {
    /// Three attempts, 1 s and 2 s apart plus up to 20 %. Nothing limits how long one takes unless a timeout is set.
    pub fn new(effect: Effect) -> Self {
        Self {
            effect,
            policy: RetryPolicy::default(),
            timeout: None,
            attempt_timeout: None,
            breaker: None,
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

    /// With a limit over all attempts and pauses: no pause is begun that would outlast it, and an attempt is cut off at its end.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, Invalid> {
        invalid::positive("timeout", timeout)?;
        self.timeout = Some(timeout);
        self.agrees()
    }

    /// With a limit for each attempt, so that one that hangs leaves time for another.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Result<Self, Invalid> {
        invalid::positive("attempt_timeout", timeout)?;
        self.attempt_timeout = Some(timeout);
        self.agrees()
    }

    /// With a breaker that every attempt has to pass, and that is asked before every pause: where it has opened, nobody waits
    /// only to be refused.
    pub fn breaker(mut self, breaker: Arc<Breaker>) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// With other rules for what is worth retrying.
    pub fn classifier(mut self, classifier: Classifier) -> Self {
        self.classifier = classifier;
        self
    }

    /// With a budget, shared by everything that calls the same server.
    pub fn budget(mut self, budget: Arc<Budget>) -> Self {
        self.budget = Some(budget);
        self
    }

    /// In other surroundings.
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Runs `work` until it succeeds or giving up is right. It is told the number of the attempt, from 1.
    ///
    /// What it was given up with has no error of the work's own if the last attempt was cut off or the breaker refused the first.
    pub async fn call<T, E, F>(&self, mut work: impl FnMut(u32) -> F) -> Result<Retried<T>, Box<GaveUp<Option<E>>>>
    where
        F: Future<Output = Result<T, E>>,
        E: Describe,
    {
        if let Some(budget) = &self.budget {
            budget.deposit();
        }
        if self.is_guarded() {
            // Boxed: work that nothing guards should not carry its timer along.
            return Box::pin(self.call_guarded(work)).await;
        }
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

    async fn call_guarded<T, E, F>(&self, mut work: impl FnMut(u32) -> F) -> Result<Retried<T>, Box<GaveUp<Option<E>>>>
    where
        F: Future<Output = Result<T, E>>,
        E: Describe,
    {
        let deadline = match self.timeout {
            Some(timeout) => Deadline::after(self.env.clock.now(), timeout),
            None => Deadline::NEVER,
        };
        let attempt = |number| {
            let limit = self.attempt_timeout.unwrap_or(Duration::MAX).min(deadline.remaining(&self.env.clock));
            // Past the breaker first, before the work begins.
            let permit = self.breaker.as_ref().map(|breaker| breaker.admit_for(limit)).transpose();
            self.attempt(limit, permit.map(|permit| (permit, work(number))))
        };
        let blocked = |_| self.breaker.as_ref().is_some_and(|breaker| breaker.wait().is_some());
        try_until(&self.rules(deadline), attempt, blocked).await
    }

    fn is_guarded(&self) -> bool {
        self.timeout.is_some() || self.attempt_timeout.is_some() || self.breaker.is_some()
    }

    fn rules(&self, deadline: Deadline) -> Rules<'_> {
        let budget = self.budget.as_deref();
        Rules { policy: &self.policy, effect: self.effect, deadline, budget, env: &self.env, names: ("", "") }
    }

    /// One attempt that was begun, or refused.
    async fn attempt<T, E, F>(
        &self,
        limit: Duration,
        begun: Result<(Option<Permit<'_>>, F), Refused<'_>>,
    ) -> Result<T, Failed<Option<E>>>
    where
        F: Future<Output = Result<T, E>>,
        E: Describe,
    {
        let (permit, running) = begun.map_err(|refused| Box::new((refused.failure(), None)))?;
        match within(limit, running).await {
            Ok(Ok(value)) => {
                if let Some(permit) = permit {
                    permit.well();
                }
                Ok(value)
            }
            Ok(Err(error)) => {
                let failed = self.failed(error);
                if let Some(permit) = permit {
                    permit.blame(failed.0.cause.blame());
                }
                Err(failed)
            }
            Err(_) => {
                if let Some(permit) = permit.filter(|_| !self.is_hurried(limit)) {
                    permit.badly();
                }
                let failure = Failure::local(Cause::Timeout, None, format!("no answer within {}", about(limit)));
                Err(Box::new((Failure { sent: Sent::Maybe, ..failure }, None)))
            }
        }
    }

    /// Who was given little time proves little.
    fn is_hurried(&self, limit: Duration) -> bool {
        self.attempt_timeout.into_iter().chain(self.timeout).min().is_some_and(|longest| limit < longest / 2)
    }

    fn failed<E: Describe>(&self, error: E) -> Failed<Option<E>> {
        Box::new((error.failure(&self.classifier), Some(error)))
    }

    fn agrees(self) -> Result<Self, Invalid> {
        match (self.attempt_timeout, self.timeout) {
            (Some(attempt), Some(all)) if attempt > all => {
                Err(Invalid::new("attempt_timeout", "must not be longer than timeout"))
            }
            _ => Ok(self),
        }
    }
}
