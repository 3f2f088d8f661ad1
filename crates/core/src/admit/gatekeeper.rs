//! Decides which parts make up the state of admission.

use std::sync::Arc;

use quick_cache::sync::Cache;

use super::cache;
use super::ledger::Ledger;
use super::rate_limiter::RateLimiter;
use crate::model::invalid::Invalid;
use crate::model::policy::rate::Rate;
use crate::time::clock::Clock;

/// The state of admission that outlives a pipeline's settings: ledger and response cache.
#[derive(Debug)]
pub(crate) struct Gatekeeper<T> {
    pub(crate) ledger: Ledger<T>,
    pub(crate) copies: cache::ResponseCache<T>,
}

impl<T: Clone> Gatekeeper<T> {
    pub(crate) fn new(
        kept_bytes: u64,
        weigh: fn(&T) -> usize,
        clock: &Clock,
    ) -> Result<Self, Invalid> {
        Ok(Self {
            ledger: Ledger::new(weigh, clock),
            copies: cache::ResponseCache::new(kept_bytes, weigh, clock.clone())?,
        })
    }
}

/// How many callers have a rate limiter; a caller evicted after a long silence starts with a full
/// burst.
const CALLERS: usize = 10_000;

/// One rate limiter per caller.
#[derive(Debug)]
pub(crate) struct CallerRates {
    rate: Rate,
    clock: Clock,
    limits: Cache<Arc<str>, Arc<RateLimiter>>,
}

impl CallerRates {
    pub(crate) fn new(rate: Rate, clock: &Clock) -> Result<Self, Invalid> {
        rate.validate().map_err(|error| error.within("caller_rate"))?;
        Ok(Self { rate, clock: clock.clone(), limits: Cache::new(CALLERS) })
    }

    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    pub(crate) fn check(&self, caller: &Arc<str>) -> Result<(), std::time::Duration> {
        let limit = self
            .limits
            .get_or_insert_with(caller, || RateLimiter::new(self.rate, &self.clock).map(Arc::new));
        // An error is impossible: `new` validated the rate when the pipeline was built.
        limit.map_or(Ok(()), |limit| limit.check())
    }
}
