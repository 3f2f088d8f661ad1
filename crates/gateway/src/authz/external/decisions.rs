//! Decides which checks need not be made: one that is under way already, and, where the operator
//! says so, one that was allowed a moment ago. A refusal is never remembered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::question::CheckQuestion;
use super::{Allowance, Verdict};
use crate::authz::refusal::AuthzRefusal;
use crate::config::ExtAuthzConfig;

/// Allowances that are remembered at most; the least used give way.
const REMEMBERED: usize = 10_000;

type CheckInFlight = Shared<BoxFuture<'static, Verdict>>;

/// The checks of one authorizer that are known.
pub(super) struct Decisions {
    lasts: Option<Duration>,
    allowed: Cache<String, (Instant, Allowance)>,
    in_flight: Arc<Mutex<HashMap<String, CheckInFlight>>>,
}

impl Decisions {
    /// `lasts`: how long an allowance is remembered, if at all.
    pub(super) fn new(lasts: Option<Duration>) -> Self {
        let places = if lasts.is_some() { REMEMBERED } else { 1 };
        Self { lasts, allowed: Cache::new(places), in_flight: Arc::default() }
    }

    /// The allowance that is remembered, if it is not too old.
    pub(super) fn known(
        &self,
        question: &CheckQuestion<'_>,
        settings: &ExtAuthzConfig,
    ) -> Option<Allowance> {
        let lasts = self.lasts?;
        let (since, allowed) = self.allowed.get(&question.scope(settings))?;
        (since.elapsed() < lasts).then_some(allowed)
    }

    /// Makes a check, or waits for the identical one that is under way. A check goes on when
    /// whoever asked first leaves: others may wait for it.
    pub(super) async fn decide<F>(
        &self,
        question: &CheckQuestion<'_>,
        settings: &ExtAuthzConfig,
        ask: impl FnOnce() -> F,
    ) -> Verdict
    where
        F: Future<Output = Verdict> + Send + 'static,
    {
        let key = question.key(settings);
        let check = {
            let mut in_flight = locked(&self.in_flight);
            match in_flight.get(&key) {
                Some(check) => check.clone(),
                None => {
                    let (all, own, asking) = (Arc::clone(&self.in_flight), key.clone(), ask());
                    let task = tokio::spawn(async move {
                        let verdict = asking.await;
                        locked(&all).remove(&own);
                        verdict
                    });
                    let check = task.map(|ended| ended.unwrap_or_else(|_| Err(broken()))).boxed();
                    let check = check.shared();
                    in_flight.insert(key, check.clone());
                    check
                }
            }
        };
        let verdict = check.await;
        if let (Ok(allowed), Some(_)) = (&verdict, self.lasts) {
            self.allowed.insert(question.scope(settings), (Instant::now(), allowed.clone()));
        }
        verdict
    }
}

/// A check whose task ended without a verdict, because the gateway ends.
fn broken() -> AuthzRefusal {
    AuthzRefusal::unavailable(503, "the gateway ends".to_owned(), Duration::from_secs(1))
}

fn locked(
    in_flight: &Mutex<HashMap<String, CheckInFlight>>,
) -> MutexGuard<'_, HashMap<String, CheckInFlight>> {
    in_flight.lock().unwrap_or_else(PoisonError::into_inner)
}
