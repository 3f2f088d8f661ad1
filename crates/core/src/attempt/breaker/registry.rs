//! Decides which breaker belongs to which name, in a map that strangers' names cannot fill.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use super::{Breaker, BreakerPolicy, Guarded, Snapshot, Status};
use crate::classify::Describe;
use crate::env::Env;
use crate::model::invalid::{self, Invalid};
use crate::state::names::Names;

/// How many names are kept unless set.
const NAMES: u32 = 1024;

/// Circuit breakers by name, one policy for all: the front door to breakers.
///
/// The map is bounded. When it is full, a breaker at rest makes room, the least recently used first: one that is closed, has
/// nothing under way and remembers nothing. Where a look at a few finds none, the name shares one breaker with others, so that a
/// flood of invented names can neither grow memory nor evict an open one.
#[derive(Debug)]
pub struct CircuitBreaker {
    policy: BreakerPolicy,
    env: Env,
    named: Names<Breaker>,
    others: Arc<Breaker>,
}

impl CircuitBreaker {
    /// Breakers that all follow `policy`.
    pub fn new(policy: BreakerPolicy, env: &Env) -> Result<Self, Invalid> {
        Self::with_capacity(policy, env, NAMES)
    }

    /// The same, with room for `names` names; 1 to 1 000 000.
    pub fn with_capacity(policy: BreakerPolicy, env: &Env, names: u32) -> Result<Self, Invalid> {
        invalid::counted("names", names, 1_000_000)?;
        let others = Arc::new(Breaker::new("others", policy.clone(), env)?);
        let named = Names::new(usize::try_from(names).unwrap_or(usize::MAX));
        Ok(Self { policy, env: env.clone(), named, others })
    }

    /// Runs `work` through the breaker called `name`; refused at once while that is open.
    pub async fn call<T, E, F>(&self, name: &str, work: impl FnOnce() -> F) -> Result<T, Guarded<E>>
    where
        F: Future<Output = Result<T, E>>,
        E: Describe,
    {
        self.breaker(name).call(work).await
    }

    /// The breaker called `name`, made on first use.
    pub fn breaker(&self, name: &str) -> Arc<Breaker> {
        if let Some(breaker) = self.named.used(name) {
            return breaker;
        }
        let is_at_rest = |breaker: &Arc<Breaker>| Arc::strong_count(breaker) == 1 && breaker.is_idle();
        // The policy was checked when the registry was made.
        let make = || Breaker::new(name, self.policy.clone(), &self.env).ok().map(Arc::new);
        self.named.learn(name, is_at_rest, make).unwrap_or_else(|| self.others.clone())
    }

    /// What is known of `name`; asking does not make it known.
    pub fn status(&self, name: &str) -> Option<Snapshot> {
        self.named.get(name).map(|breaker| breaker.snapshot())
    }

    /// The state of every known name.
    pub fn all_status(&self) -> HashMap<Arc<str>, Status> {
        self.named.all().into_iter().map(|(name, breaker)| (name, breaker.status())).collect()
    }

    /// Closes the breaker called `name`; `false` if there is none.
    pub fn reset(&self, name: &str) -> bool {
        self.named.get(name).map(|breaker| breaker.reset()).is_some()
    }
}
