//! What retrying costs when nothing needs it: the first attempt succeeds.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use seawall::{BudgetPolicy, Effect, Env, Retried, Retry, RetryBudget};
use seawall_bench::{Ends, Group, Role, Setup, Subject};
use tower::Layer;
use tower::retry::budget::{Budget as _, TpsBudget};
use tower::retry::{Policy, Retry as TowerRetry};
use tower_resilience_retry::{RetryBudgetBuilder, RetryLayer};

use super::inner::{Answered, WELL, answer_later, service, shared};

pub(crate) const GROUP: &str = "retry, the first attempt succeeds";
pub(crate) const BUDGET_GROUP: &str = "retry with a budget, the first attempt succeeds";
const OURS: &str = "seawall Retry";

pub(crate) fn retries() -> Setup<Group> {
    let retry = Retry::new(Effect::ReadOnly);
    let limited = Retry::new(Effect::ReadOnly).timeout(Duration::from_secs(60))?;
    let trs = RetryLayer::<u64, u64, &str>::builder().max_attempts(3).build();
    let tower = TowerRetry::new(Attempts(3), service());
    let subjects = vec![
        Subject::waiting(Role::Ours, OURS, Ends::Well, async move || {
            in_hand(retry.call(|_| answer_later()).await)
        }),
        Subject::waiting(
            Role::OursToo,
            "seawall Retry, limited over all attempts",
            Ends::Well,
            async move || in_hand(limited.call(|_| answer_later()).await),
        ),
        Subject::waiting(Role::Peer, "backon 1.6", Ends::Well, async || {
            answer_later.retry(ExponentialBuilder::default().with_max_times(2)).await
        }),
        Subject::service(Role::Peer, "tower 0.5 retry", Ends::Well, &shared(tower), WELL),
        Subject::service(
            Role::Peer,
            "tower-resilience 0.14 retry",
            Ends::Well,
            &shared(trs.layer(service())),
            WELL,
        ),
    ];
    Ok(Group { name: GROUP, subjects })
}

pub(crate) fn with_a_budget() -> Setup<Group> {
    let env = Env::new();
    let budget = Arc::new(RetryBudget::new(BudgetPolicy::DEFAULT, &env.clock)?);
    let retry = Retry::new(Effect::ReadOnly).env(env).budget(budget);
    let budget = Arc::new(TpsBudget::new(Duration::from_secs(10), 10, 0.2));
    let tower = TowerRetry::new(Budgeted(budget), service());
    let budget = RetryBudgetBuilder::new().token_bucket().build()?;
    let trs = RetryLayer::<u64, u64, &str>::builder().max_attempts(3).budget(budget).build();
    let subjects = vec![
        Subject::waiting(Role::Ours, OURS, Ends::Well, async move || {
            in_hand(retry.call(|_| answer_later()).await)
        }),
        Subject::service(
            Role::Peer,
            "tower 0.5 retry, TpsBudget",
            Ends::Well,
            &shared(tower),
            WELL,
        ),
        Subject::service(
            Role::Peer,
            "tower-resilience 0.14 retry",
            Ends::Well,
            &shared(trs.layer(service())),
            WELL,
        ),
    ];
    Ok(Group { name: BUDGET_GROUP, subjects })
}

/// The value, which is all that the peers give; ours comes with the attempts and the pauses it
/// took.
pub(crate) fn in_hand<T, E>(retried: Result<Retried<T>, E>) -> Result<T, E> {
    retried.map(|retried| retried.value)
}

/// Tower leaves the policy to its user; this is the one of its documentation.
#[derive(Clone)]
struct Attempts(usize);

impl Policy<u64, u64, &'static str> for Attempts {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut u64, result: &mut Answered) -> Option<Self::Future> {
        if result.is_ok() || self.0 == 0 {
            return None;
        }
        self.0 -= 1;
        Some(ready(()))
    }

    fn clone_request(&mut self, request: &u64) -> Option<u64> {
        Some(*request)
    }
}

/// The same with a budget that all calls share, also from its documentation.
#[derive(Clone)]
struct Budgeted(Arc<TpsBudget>);

impl Policy<u64, u64, &'static str> for Budgeted {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut u64, result: &mut Answered) -> Option<Self::Future> {
        if result.is_ok() {
            self.0.deposit();
            return None;
        }
        self.0.withdraw().then(|| ready(()))
    }

    fn clone_request(&mut self, request: &u64) -> Option<u64> {
        Some(*request)
    }
}
