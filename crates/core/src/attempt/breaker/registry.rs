//! Decides which breaker belongs to which name, in a map that invented names cannot fill.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use super::{Breaker, BreakerSnapshot, GuardedError};
use crate::classify::Describe;
use crate::env::Env;
use crate::model::invalid::{self, Invalid};
use crate::model::names::NameRegistry;
use crate::model::policy::breaker::{BreakerPolicy, BreakerStatus};

/// How many names the map holds by default.
const NAMES: u32 = 1024;

/// Circuit breakers by name under one policy: the entry point to breakers.
///
/// The map is bounded. When it is full, a breaker at rest makes room, the least recently used
/// first. A breaker is at rest if it has no attempt in flight and either is closed without
/// remembered failures, or its cool-down ended longer ago than its policy's `memory` with no call
/// since. If a check of a few finds none at rest, the new name shares one breaker with others, so
/// that a flood of invented names can neither grow memory nor evict a breaker that still protects.
/// [`known`](Self::known) names never share and are never evicted.
///
/// ```
/// # use seawall::{BreakerPolicy, BreakerStatus, CircuitBreaker, Env};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), seawall::Invalid> {
/// let policy = BreakerPolicy::new(1, Duration::from_secs(30));
/// let breakers = CircuitBreaker::new(policy, &Env::new())?;
/// let _ = breakers.call("jira", || async { Err::<(), _>("503 Service Unavailable") }).await;
/// assert_eq!(breakers.all_status()["jira"], BreakerStatus::Open);
/// assert!(breakers.call("github", || async { Ok::<_, String>(()) }).await.is_ok());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct CircuitBreaker {
    policy: BreakerPolicy,
    env: Env,
    named: NameRegistry<Breaker>,
    others: Arc<Breaker>,
}

impl CircuitBreaker {
    /// Breakers that all follow `policy`.
    pub fn new(policy: BreakerPolicy, env: &Env) -> Result<Self, Invalid> {
        Self::with_capacity(policy, env, NAMES)
    }

    /// As [`Self::new`], with room for `names` names; 1 to 1 000 000.
    pub fn with_capacity(policy: BreakerPolicy, env: &Env, names: u32) -> Result<Self, Invalid> {
        invalid::counted("names", names, 1_000_000)?;
        let others = Arc::new(Breaker::new("others", policy.clone(), env)?);
        let named = NameRegistry::new(usize::try_from(names).unwrap_or(usize::MAX));
        Ok(Self { policy, env: env.clone(), named, others })
    }

    /// Gives each of `names` a breaker of its own for good, however many they are and however full
    /// the map is.
    #[must_use]
    pub fn known<N: AsRef<str>>(self, names: impl IntoIterator<Item = N>) -> Self {
        for name in names {
            let name = name.as_ref();
            let breaker = self.named.get(name).unwrap_or_else(|| self.make(name));
            let Ok(()) = self.named.keep(name, || Ok::<_, Infallible>(breaker));
        }
        self
    }

    /// Runs `work` under the breaker called `name`; refused at once while that is open.
    pub async fn call<T, E, F>(
        &self,
        name: &str,
        work: impl FnOnce() -> F,
    ) -> Result<T, GuardedError<E>>
    where
        F: Future<Output = Result<T, E>>,
        E: Describe,
    {
        self.breaker(name).call(work).await
    }

    /// The breaker called `name`, created on first use.
    pub fn breaker(&self, name: &str) -> Arc<Breaker> {
        if let Some(breaker) = self.named.used(name) {
            return breaker;
        }
        // A count of one means that only the map holds the breaker: no call is using it.
        let is_at_rest =
            |breaker: &Arc<Breaker>| Arc::strong_count(breaker) == 1 && breaker.is_idle();
        self.named
            .learn(name, is_at_rest, || Some(self.make(name)))
            .unwrap_or_else(|| self.others.clone())
    }

    /// The state of the breaker called `name`; the lookup does not create one.
    pub fn status(&self, name: &str) -> Option<BreakerSnapshot> {
        self.named.get(name).map(|breaker| breaker.snapshot())
    }

    /// The state of every known name.
    pub fn all_status(&self) -> HashMap<Arc<str>, BreakerStatus> {
        self.named.all().into_iter().map(|(name, breaker)| (name, breaker.status())).collect()
    }

    /// Closes the breaker called `name`; `false` if there is none.
    pub fn reset(&self, name: &str) -> bool {
        self.named.get(name).map(|breaker| breaker.reset()).is_some()
    }

    fn make(&self, name: &str) -> Arc<Breaker> {
        Arc::new(Breaker::valid(name.into(), self.policy.clone(), &self.env))
    }
}
