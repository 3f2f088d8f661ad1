//! Decides when a slow read gets a hedge, a second attempt beside the first, and which of the two
//! answers.
//!
//! Hedges are for read-only tools. The server's retry budget pays for the hedge once it is sent;
//! without a token the first attempt goes on alone. The losing attempt is dropped, and no breaker
//! counts it.

use std::future::Future;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};

use super::budget::{RetryBudget, RetryToken};
use crate::model::policy::hedge::HedgePolicy;

/// How many latencies a tool remembers, and how many it needs before it derives a hedge delay.
const REMEMBERED: usize = 64;
const NEEDED: usize = 16;

/// The latencies of a tool's recent attempts.
#[derive(Debug, Default)]
pub(crate) struct Latencies(Mutex<(Vec<Duration>, usize)>);

impl Latencies {
    pub(crate) fn record(&self, took: Duration) {
        let (recent, next) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() < REMEMBERED {
            recent.push(took);
        } else {
            recent[*next % REMEMBERED] = took;
            *next += 1;
        }
    }

    /// The delay before the hedge; `None` while too few latencies are known.
    pub(crate) fn delay(&self, policy: HedgePolicy) -> Option<Duration> {
        let share = match policy {
            HedgePolicy::After(delay) => return Some(delay),
            HedgePolicy::Quantile(share) => share,
        };
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
        if recent.len() < NEEDED {
            return None;
        }
        recent.sort_unstable();
        // The policy validated the share to lie between 0 and 1.
        let index = ((recent.len() as f64 * share) as usize).min(recent.len() - 1);
        recent.get(index).copied()
    }
}

/// Runs `first`, and after `delay` the hedge `second` beside it. The first success wins, and so
/// does a final failure; if both fail otherwise, the failure of `first` is returned. `second` gets
/// the token and spends it when the hedge is sent: from then on the hedge is load on the server. A
/// hedge refused in this process is no load, and its token returns.
pub(crate) async fn race<'b, T, E, S: Future<Output = Result<T, E>>>(
    delay: Duration,
    budget: &'b RetryBudget,
    first: impl Future<Output = Result<T, E>>,
    second: impl FnOnce(RetryToken<'b>) -> S,
    is_final: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let mut first = pin!(first);
    if let Either::Left((done, _)) = select(first.as_mut(), pin!(tokio::time::sleep(delay))).await {
        return done;
    }
    let Some(token) = budget.withdraw() else { return first.await };
    match select(first, pin!(second(token))).await {
        Either::Left((Ok(value), _)) | Either::Right((Ok(value), _)) => Ok(value),
        Either::Left((Err(error), _)) | Either::Right((Err(error), _)) if is_final(&error) => {
            Err(error)
        }
        Either::Left((Err(error), second)) => second.await.map_err(|_| error),
        Either::Right((Err(_), first)) => first.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::budget::BudgetPolicy;
    use crate::time::clock::Clock;

    async fn after(
        ms: u64,
        result: Result<&'static str, &'static str>,
    ) -> Result<&'static str, &'static str> {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        result
    }

    /// As above, for a hedge that is sent.
    async fn paid(
        token: RetryToken<'_>,
        ms: u64,
        result: Result<&'static str, &'static str>,
    ) -> Result<&'static str, &'static str> {
        token.spend();
        after(ms, result).await
    }

    fn budget(floor: u32) -> RetryBudget {
        RetryBudget::new(BudgetPolicy { floor, ..BudgetPolicy::DEFAULT }, &Clock::manual()).unwrap()
    }

    const DELAY: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn the_faster_of_the_two_answers() {
        let raced = race(
            DELAY,
            &budget(1),
            after(5000, Ok("slow")),
            |token| paid(token, 50, Ok("fast")),
            |_| false,
        )
        .await;
        assert_eq!(raced, Ok("fast"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_quick_first_needs_no_second_and_no_token() {
        let budget = budget(1);
        let never = |_| async { panic!("hedged") };
        assert_eq!(
            race(DELAY, &budget, after(50, Ok("first")), never, |_| false).await,
            Ok("first")
        );
        assert!(budget.withdraw().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_token_the_first_goes_on_alone() {
        let never = |_| async { panic!("hedged") };
        assert_eq!(
            race(DELAY, &budget(0), after(500, Ok("first")), never, |_| false).await,
            Ok("first")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_that_is_not_sent_costs_nothing() {
        let budget = budget(1);
        let refused = |_token| after(0, Err("refused here"));
        assert_eq!(
            race(DELAY, &budget, after(500, Ok("first")), refused, |_| false).await,
            Ok("first")
        );
        assert!(budget.withdraw().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_of_one_waits_for_the_other() {
        let budget = budget(2);
        assert_eq!(
            race(
                DELAY,
                &budget,
                after(150, Err("a")),
                |token| paid(token, 500, Ok("b")),
                |_| false
            )
            .await,
            Ok("b")
        );
        assert_eq!(
            race(
                DELAY,
                &budget,
                after(900, Err("a")),
                |token| paid(token, 50, Err("b")),
                |_| false
            )
            .await,
            Err("a")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_final_failure_is_told_at_once() {
        let start = tokio::time::Instant::now();
        let raced = race(
            DELAY,
            &budget(1),
            after(150, Err("422")),
            |token| paid(token, 60_000, Ok("late")),
            |_| true,
        )
        .await;
        assert_eq!((raced, start.elapsed().as_millis()), (Err("422"), 150));
    }

    #[test]
    fn the_quantile_needs_some_history() {
        let latencies = Latencies::default();
        assert_eq!(latencies.delay(HedgePolicy::Quantile(0.95)), None);

        (1..=100).for_each(|ms| latencies.record(Duration::from_millis(ms)));

        let delay = latencies.delay(HedgePolicy::Quantile(0.95)).unwrap();
        assert!((95..=100).contains(&delay.as_millis()), "{delay:?}");
    }
}
