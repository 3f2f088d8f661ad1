//! Decides what is remembered about a server: its slots, its rate, its budget, its breakers, its
//! writes.

use std::sync::Arc;

use super::writes::WriteCount;
use crate::attempt::breaker::Breaker;
use crate::attempt::budget::RetryBudget;
use crate::attempt::bulkhead::Bulkhead;
use crate::attempt::rate_queue::RateQueue;
use crate::env::Env;
use crate::model::invalid::Invalid;
use crate::model::policy::ServerPolicy;

/// What the tools of one server share.
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

    /// Its slots, if they are limited.
    pub fn slots(&self) -> Option<&Bulkhead> {
        self.slots.as_ref()
    }

    /// Its retry budget.
    pub fn budget(&self) -> &RetryBudget {
        &self.budget
    }

    /// The breaker that watches its connection, if there is one.
    pub fn connection(&self) -> Option<&Breaker> {
        self.connection.as_ref()
    }

    /// How many writes it may have executed; a copy is fresh only while this stands still.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.count()
    }

    /// Notes that it may have executed a write, also one that was made elsewhere: what was read
    /// before is no longer fresh.
    pub fn count_write(&self) {
        self.writes.add();
    }
}
