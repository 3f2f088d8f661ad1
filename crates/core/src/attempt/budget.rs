//! Decides whether a server can bear another retry: one retry budget per server, shared by retries
//! and hedges.
//!
//! Every call deposits a share of a token; a retry takes a whole token when it is *scheduled*, so
//! retries that sleep in their backoff are already counted. A floor of retries per second is always
//! available, so that low traffic can retry too. A token is returned when its retry is cancelled. A
//! saved token is also returned when the retry succeeds; a token of the floor is a place in one
//! second, which its retry has used.

use super::balance::{Balance, TOKEN};
use crate::admit::rate_limiter::RateLimiter;
use crate::model::invalid::Invalid;
use crate::model::policy::budget::BudgetPolicy;
use crate::time::clock::Clock;

/// The retry budget of one server.
///
/// ```
/// # use seawall::{BudgetPolicy, Clock, RetryBudget};
/// let policy = BudgetPolicy { share: 0.5, floor: 0, saved: 10 };
/// let budget = RetryBudget::new(policy, &Clock::manual())?;
/// (0..4).for_each(|_| budget.deposit());
/// assert_eq!(budget.saved(), 2, "four calls pay for two retries");
/// budget.withdraw().map(|token| token.spend());
/// assert_eq!(budget.saved(), 1);
/// # Ok::<(), seawall::Invalid>(())
/// ```
#[derive(Debug)]
pub struct RetryBudget {
    balance: Balance,
    deposit: u64,
    floor: Option<RateLimiter>,
}

impl RetryBudget {
    /// A budget without savings.
    pub fn new(policy: BudgetPolicy, clock: &Clock) -> Result<Self, Invalid> {
        policy.validate()?;
        let floor = policy.floor_rate().map(|rate| RateLimiter::new(rate, clock)).transpose()?;
        // The share is validated to lie in 0..=1.
        let deposit = (policy.share * TOKEN as f64) as u64;
        Ok(Self { balance: Balance::new(0, u64::from(policy.saved) * TOKEN), deposit, floor })
    }

    /// Deposits a call's share of a token.
    pub fn deposit(&self) {
        self.balance.add(self.deposit);
    }

    /// Takes a token for a retry that is about to be scheduled; `None` if the budget is spent.
    pub fn withdraw(&self) -> Option<RetryToken<'_>> {
        // Built only when granted: dropping an unspent token deposits it.
        if self.balance.take() {
            return Some(RetryToken { budget: self, back_to: Some(TokenSource::Saved) });
        }
        let floor = self.floor.as_ref().filter(|floor| floor.check().is_ok());
        floor.map(|_| RetryToken { budget: self, back_to: Some(TokenSource::Floor) })
    }

    /// Whole retries saved up, without the floor.
    pub fn saved(&self) -> u64 {
        self.balance.left() / TOKEN
    }
}

/// A retry that is paid for. Dropped (the retry was cancelled, or refused before it was sent), the
/// token returns to the budget.
#[derive(Debug)]
#[must_use = "a token that is dropped goes back into the budget"]
pub struct RetryToken<'a> {
    budget: &'a RetryBudget,
    back_to: Option<TokenSource>,
}

/// The source of a token, to which it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenSource {
    Saved,
    Floor,
}

impl RetryToken<'_> {
    /// The retry failed: the token is spent.
    pub fn spend(mut self) {
        self.back_to = None;
    }

    /// The retry succeeded: a saved token returns; a token of the floor was for this second.
    pub fn worked(mut self) {
        self.back_to = self.back_to.filter(|source| *source == TokenSource::Saved);
    }
}

impl Drop for RetryToken<'_> {
    fn drop(&mut self) {
        match (self.back_to, &self.budget.floor) {
            (Some(TokenSource::Saved), _) => self.budget.balance.add(TOKEN),
            (Some(TokenSource::Floor), Some(floor)) => floor.give_back(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn budget(share: f64, floor: u32, saved: u32) -> (RetryBudget, Clock) {
        let clock = Clock::manual();
        (RetryBudget::new(BudgetPolicy { share, floor, saved }, &clock).unwrap(), clock)
    }

    #[test]
    fn a_fifth_of_the_calls_may_be_retried() {
        let (budget, _) = budget(0.2, 0, 100);
        (0..50).for_each(|_| budget.deposit());

        let granted =
            (0..50).filter(|_| budget.withdraw().map(RetryToken::spend).is_some()).count();

        assert_eq!(granted, 10);
    }

    #[test]
    fn low_traffic_retries_from_the_floor() {
        let (budget, clock) = budget(0.2, 10, 100);
        let granted =
            |n| (0..n).filter(|_| budget.withdraw().map(RetryToken::spend).is_some()).count();

        assert_eq!(granted(50), 10);
        clock.advance(Duration::from_millis(500));
        assert_eq!(granted(50), 5);
    }

    #[test]
    fn a_dropped_token_goes_back_and_a_spent_one_does_not() {
        let (budget, _) = budget(1.0, 0, 100);
        budget.deposit();

        drop(budget.withdraw());
        assert_eq!(budget.saved(), 1);
        budget.withdraw().unwrap().spend();

        assert!(budget.withdraw().is_none());
    }

    #[test]
    fn the_floor_is_not_saved_up() {
        let (budget, _) = budget(0.0, 10, 100);
        (0..10).for_each(|_| budget.withdraw().unwrap().worked());

        assert_eq!(budget.saved(), 0);
        assert!(budget.withdraw().is_none());
    }

    #[test]
    fn a_dropped_token_of_the_floor_goes_back_and_the_floor_grows_no_higher() {
        let (budget, clock) = budget(0.0, 10, 100);
        let granted =
            || (0..50).filter(|_| budget.withdraw().map(RetryToken::spend).is_some()).count();
        let held: Vec<RetryToken<'_>> = (0..10).filter_map(|_| budget.withdraw()).collect();
        assert!((held.len(), budget.withdraw().is_none()) == (10, true));

        drop(held);
        assert_eq!((granted(), budget.saved()), (10, 0));

        clock.advance(Duration::from_secs(1));
        let held: Vec<RetryToken<'_>> = (0..10).filter_map(|_| budget.withdraw()).collect();
        clock.advance(Duration::from_secs(1));
        drop(held);
        assert_eq!(granted(), 10, "what time gave back is not given back twice");
    }

    #[test]
    fn savings_are_capped() {
        let (budget, _) = budget(1.0, 0, 3);
        (0..1000).for_each(|_| budget.deposit());

        assert_eq!(budget.saved(), 3);
    }
}
