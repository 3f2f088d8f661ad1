//! Decides which state a server keeps between calls: bulkhead, rate limiter, retry budget,
//! connection breaker and count of writes.

use std::sync::Arc;

use super::writes::WriteCount;
use crate::attempt::breaker::Breaker;
use crate::attempt::budget::RetryBudget;
use crate::attempt::bulkhead::Bulkhead;
use crate::attempt::rate_queue::RateQueue;
use crate::env::Env;
use crate::model::invalid::Invalid;
use crate::model::policy::ServerPolicy;

/// The state that the tools of one server share.
#[derive(Debug)]
pub struct Server {
    pub(crate) name: Arc<str>,
    pub(crate) slots: Option<Bulkhead>,
    pub(crate) rate: Option<RateQueue>,
    pub(crate) budget: RetryBudget,
    pub(crate) connection: Option<Breaker>,
    pub(crate) hint: Option<String>,
    writes: WriteCount,
}

impl Server {
    pub(crate) fn new(name: Arc<str>, policy: ServerPolicy, env: &Env) -> Result<Self, Invalid> {
        policy.validate()?;
        Ok(Self {
            slots: policy.slots.map(Bulkhead::new).transpose()?,
            rate: policy.rate.map(|rate| RateQueue::new(rate, &env.clock)).transpose()?,
            budget: RetryBudget::new(policy.budget, &env.clock)?,
            connection: policy
                .connection
                .map(|breaker| Breaker::new(name.clone(), breaker, env))
                .transpose()?,
            hint: policy.hint,
            writes: WriteCount::default(),
            name,
        })
    }

    /// Its configured name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its bulkhead, if concurrency is limited.
    pub fn slots(&self) -> Option<&Bulkhead> {
        self.slots.as_ref()
    }

    /// Its retry budget.
    pub fn budget(&self) -> &RetryBudget {
        &self.budget
    }

    /// The breaker of its connection, if there is one.
    pub fn connection(&self) -> Option<&Breaker> {
        self.connection.as_ref()
    }

    /// How many writes the server may have executed; a cached response is fresh only while this
    /// count stays the same.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.count()
    }

    /// Notes that the server may have executed a write, also one made elsewhere: responses cached
    /// before are no longer fresh.
    pub fn count_write(&self) {
        self.writes.add();
    }
}
