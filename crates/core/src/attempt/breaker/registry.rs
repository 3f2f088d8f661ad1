//! Decides which breaker belongs to which name, in a map that strangers' names cannot fill.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, PoisonError, RwLock};

use super::{Breaker, BreakerPolicy, Guarded, Snapshot, Status};
use crate::classify::Describe;
use crate::env::Env;
use crate::model::invalid::{self, Invalid};

/// How many names are kept unless set.
const NAMES: u32 = 1024;

/// Circuit breakers by name, one policy for all: the front door to breakers.
///
/// The map is bounded. When it is full, an idle breaker makes room; if none is idle, further names
/// share one breaker, so that a flood of invented names can neither grow memory nor evict an open one.
#[derive(Debug)]
pub struct CircuitBreaker {
    policy: BreakerPolicy,
    env: Env,
    capacity: usize,
    named: RwLock<HashMap<Arc<str>, Arc<Breaker>>>,
    others: Arc<Breaker>,
}

impl CircuitBreaker {
    /// Breakers that all follow `policy`.
    pub fn new(policy: BreakerPolicy, env: &Env) -> Result<Self, Invalid> {
        Self::with_capacity(policy, env, NAMES)
    }

    /// The same, with room for `names` names.
    pub fn with_capacity(policy: BreakerPolicy, env: &Env, names: u32) -> Result<Self, Invalid> {
        invalid::at_least_one("names", names)?;
        let others = Arc::new(Breaker::new("others", policy.clone(), env)?);
        let capacity = usize::try_from(names).unwrap_or(usize::MAX);
        Ok(Self { policy, env: env.clone(), capacity, named: RwLock::default(), others })
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
        if let Some(breaker) = self.known(name) {
            return breaker;
        }
        let mut named = self.named.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(breaker) = named.get(name) {
            return breaker.clone();
        }
        if named.len() >= self.capacity {
            let idle = named.iter().find(|(_, breaker)| Arc::strong_count(breaker) == 1 && breaker.is_idle());
            match idle.map(|(name, _)| name.clone()) {
                Some(idle) => drop(named.remove(&idle)),
                None => return self.others.clone(),
            }
        }
        let name: Arc<str> = name.into();
        // The policy was checked when the registry was made.
        let Ok(breaker) = Breaker::new(name.clone(), self.policy.clone(), &self.env) else {
            return self.others.clone();
        };
        named.entry(name).or_insert_with(|| Arc::new(breaker)).clone()
    }

    /// What is known of `name`; asking does not make it known.
    pub fn status(&self, name: &str) -> Option<Snapshot> {
        self.known(name).map(|breaker| breaker.snapshot())
    }

    /// The state of every known name.
    pub fn all_status(&self) -> HashMap<Arc<str>, Status> {
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        named.iter().map(|(name, breaker)| (name.clone(), breaker.status())).collect()
    }

    /// Closes the breaker called `name`; `false` if there is none.
    pub fn reset(&self, name: &str) -> bool {
        self.known(name).map(|breaker| breaker.reset()).is_some()
    }

    fn known(&self, name: &str) -> Option<Arc<Breaker>> {
        self.named.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}
