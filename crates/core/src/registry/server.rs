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
    /// Tells the server from an earlier one of the same name; the responses of that one are not its
    /// own.
    pub(crate) born: u64,
    pub(crate) slots: Option<Arc<Bulkhead>>,
    pub(crate) rate: Option<Arc<RateQueue>>,
    pub(crate) budget: Arc<RetryBudget>,
    pub(crate) connection: Option<Arc<Breaker>>,
    pub(crate) hint: Option<String>,
    writes: Arc<WriteCount>,
}

impl Server {
    pub(crate) fn new(
        name: Arc<str>,
        policy: ServerPolicy,
        env: &Env,
        born: u64,
    ) -> Result<Self, Invalid> {
        policy.validate()?;
        let rate = policy.rate.map(|rate| RateQueue::new(rate, &env.clock)).transpose()?;
        let connection = policy
            .connection
            // Whether this process reaches the server says nothing about others.
            .map(|breaker| Breaker::new(name.clone(), breaker, &env.alone()))
            .transpose()?;
        Ok(Self {
            born,
            slots: policy.slots.map(Bulkhead::new).transpose()?.map(Arc::new),
            rate: rate.map(Arc::new),
            budget: Arc::new(RetryBudget::new(policy.budget, &env.clock)?),
            connection: connection.map(Arc::new),
            hint: policy.hint,
            writes: Arc::default(),
            name,
        })
    }

    /// The same server under a `new` policy: it keeps what it has seen, and each limit that the
    /// policy does not change.
    pub(crate) fn renewed(
        &self,
        old: &ServerPolicy,
        new: ServerPolicy,
        env: &Env,
    ) -> Result<Self, Invalid> {
        let fresh = Self::new(self.name.clone(), new.clone(), env, self.born)?;
        Ok(Self {
            slots: if old.slots == new.slots { self.slots.clone() } else { fresh.slots },
            rate: if old.rate == new.rate { self.rate.clone() } else { fresh.rate },
            budget: if old.budget == new.budget { self.budget.clone() } else { fresh.budget },
            connection: match old.connection == new.connection {
                true => self.connection.clone(),
                false => fresh.connection,
            },
            writes: self.writes.clone(),
            ..fresh
        })
    }

    /// Its configured name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its bulkhead, if concurrency is limited.
    pub fn slots(&self) -> Option<&Bulkhead> {
        self.slots.as_deref()
    }

    /// Its retry budget.
    pub fn budget(&self) -> &RetryBudget {
        &self.budget
    }

    /// Whether its rate is limited.
    pub fn has_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// Leaves this process a share of the server's rate, above 0, to 1; other processes have the
    /// rest.
    pub fn set_rate_share(&self, share: f64) {
        if let Some(rate) = &self.rate {
            rate.set_share(share);
        }
    }

    /// The breaker of its connection, if there is one.
    pub fn connection(&self) -> Option<&Breaker> {
        self.connection.as_deref()
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
