//! Decides how long retried work may take, and whether a circuit breaker admits it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::super::breaker::{Breaker, BreakerRefusal, Permit};
use super::front::Retry;
use super::{Failed, GaveUp, Retried, try_until};
use crate::attempt::breaker::GRACE;
use crate::classify::Describe;
use crate::model::duration::about;
use crate::model::failure::{Cause, Failure, Sent};
use crate::model::invalid::{self, Invalid};
use crate::time::deadline::{Deadline, within};

/// A [`Retry`] whose attempts have timeouts or must pass a breaker.
///
/// ```
/// # use seawall::{Effect, Retry};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), seawall::Invalid> {
/// let retry = Retry::new(Effect::ReadOnly).attempt_timeout(Duration::from_secs(1))?;
/// let hung = retry.call(|_| std::future::pending::<Result<(), String>>()).await.unwrap_err();
/// assert_eq!((hung.attempts, hung.error), (3, None));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct LimitedRetry {
    pub(super) retry: Retry,
    timeout: Option<Duration>,
    attempt_timeout: Option<Duration>,
    pub(super) breaker: Option<Arc<Breaker>>,
}

/// No timeouts and no breaker.
impl From<Retry> for LimitedRetry {
    fn from(retry: Retry) -> Self {
        Self::new(retry)
    }
}

impl LimitedRetry {
    pub(super) fn new(retry: Retry) -> Self {
        Self { retry, timeout: None, attempt_timeout: None, breaker: None }
    }

    /// As [`Retry::timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, Invalid> {
        invalid::positive("timeout", timeout)?;
        self.timeout = Some(timeout);
        self.agrees()
    }

    /// As [`Retry::attempt_timeout`].
    pub fn attempt_timeout(mut self, timeout: Duration) -> Result<Self, Invalid> {
        invalid::positive("attempt_timeout", timeout)?;
        self.attempt_timeout = Some(timeout);
        self.agrees()
    }

    /// As [`Retry::breaker`].
    pub fn breaker(mut self, breaker: Arc<Breaker>) -> Self {
        self.breaker = Some(breaker);
        self
    }

    fn agrees(self) -> Result<Self, Invalid> {
        if let (Some(attempt), Some(whole)) = (self.attempt_timeout, self.timeout) {
            invalid::within_whole("attempt_timeout", attempt, ("timeout", whole))?;
        }
        Ok(self)
    }

    /// As [`Retry::call`]. The returned [`GaveUp`] has no error of the work itself if the last
    /// attempt was cut off, or if the breaker refused the first.
    pub async fn call<T, E, F>(
        &self,
        mut work: impl FnMut(u32) -> F,
    ) -> Result<Retried<T>, Box<GaveUp<Option<E>>>>
    where
        F: Future<Output = Result<T, E>>,
        E: Describe,
    {
        let clock = &self.retry.env.clock;
        let deadline =
            self.timeout.map_or(Deadline::NEVER, |timeout| Deadline::after(clock.now(), timeout));
        self.retry.deposit();
        let attempt = |number| {
            let left = if number == 1 {
                self.timeout.unwrap_or(Duration::MAX)
            } else {
                deadline.remaining(clock)
            };
            let limit = self.attempt_timeout.unwrap_or(Duration::MAX).min(left);
            // The breaker admits the attempt before the work begins.
            let permit = self
                .breaker
                .as_ref()
                .map(|breaker| breaker.admit_for(self.lease(limit)))
                .transpose();
            self.attempt(limit, permit.map(|permit| (permit, work(number))))
        };
        let blocked = |_| self.breaker.as_ref().is_some_and(|breaker| breaker.wait().is_some());
        try_until(&self.retry.rules(deadline), attempt, blocked).await
    }

    /// Runs an attempt that was admitted, or returns the refusal.
    #[inline]
    async fn attempt<T, E, F>(
        &self,
        limit: Duration,
        begun: Result<(Option<Permit<'_>>, F), BreakerRefusal<'_>>,
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
            ended => Err(self.missed(permit, limit, ended.ok().and_then(Result::err))),
        }
    }

    /// Classifies a failed attempt and tells the breaker. An attempt without an error was cut off.
    #[cold]
    fn missed<E: Describe>(
        &self,
        permit: Option<Permit<'_>>,
        limit: Duration,
        error: Option<E>,
    ) -> Failed<Option<E>> {
        let Some(error) = error else {
            // The permit of a hurried attempt is dropped, which tells the breaker nothing.
            if let Some(permit) = permit.filter(|_| !self.is_hurried(limit)) {
                permit.badly();
            }
            let failure =
                Failure::local(Cause::Timeout, None, format!("no answer within {}", about(limit)));
            return Box::new((Failure { sent: Sent::Maybe, ..failure }, None));
        };
        let (failure, error) = *self.retry.failed(error);
        if let Some(permit) = permit {
            permit.blame(failure.cause.blame());
        }
        Box::new((failure, Some(error)))
    }

    /// The lease of a probe: longer than its timeout, so that the attempt's own end comes first.
    fn lease(&self, limit: Duration) -> Duration {
        limit.max(self.longest().unwrap_or_default()).saturating_add(GRACE)
    }

    /// Whether the attempt had less than half of its usual time: its timeout proves little.
    fn is_hurried(&self, limit: Duration) -> bool {
        self.longest().is_some_and(|longest| limit < longest / 2)
    }

    /// The longest time that an attempt may take.
    fn longest(&self) -> Option<Duration> {
        self.attempt_timeout.into_iter().chain(self.timeout).min()
    }
}
