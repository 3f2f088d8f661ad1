//! Decides when waiting ends: the call's deadline, which everything under it sees.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::task::unconstrained;
use tokio::time::{Sleep, sleep};

use crate::time::clock::{Clock, Moment};

/// The time limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deadline exceeded")]
pub struct Elapsed;

/// Runs `work` for at most `limit`; [`Duration::MAX`] means no limit. Work that is ready at once
/// never touches a timer. When the limit is reached, `work` is dropped: its own `Drop` must cancel
/// requests that it has sent.
///
/// ```
/// # use seawall::{Elapsed, within};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let limit = Duration::from_secs(1);
/// assert_eq!(within(limit, async { 7 }).await, Ok(7));
/// assert_eq!(within(limit, std::future::pending::<()>()).await, Err(Elapsed));
/// # }
/// ```
#[inline]
pub fn within<F: Future>(
    limit: Duration,
    work: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> {
    Within { work, limit, timer: None }
}

pin_project! {
    /// The work, and a timer that is set when the work has to wait for the first time.
    #[must_use = "futures do nothing unless polled"]
    struct Within<F> {
        #[pin]
        work: F,
        limit: Duration,
        #[pin]
        timer: Option<Sleep>,
    }
}

impl<F: Future> Future for Within<F> {
    type Output = Result<F::Output, Elapsed>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.work.poll(context) {
            Poll::Ready(done) => Poll::Ready(Ok(done)),
            Poll::Pending => is_over(this.timer, *this.limit, context).map(|()| Err(Elapsed)),
        }
    }
}

/// Not inlined, so that work that is ready at once does not pay for it.
#[inline(never)]
fn is_over(
    mut timer: Pin<&mut Option<Sleep>>,
    limit: Duration,
    context: &mut Context<'_>,
) -> Poll<()> {
    if let Some(timer) = timer.as_mut().as_pin_mut() {
        // Unconstrained: work that uses up the task's cooperative budget on every poll must not
        // keep the timer from being polled.
        return pin!(unconstrained(timer)).poll(context);
    }
    if limit == Duration::MAX {
        return Poll::Pending;
    }
    timer.set(Some(sleep(limit)));
    timer.as_pin_mut().map_or(Poll::Pending, |timer| timer.poll(context))
}

/// The moment by which a call has to be answered.
///
/// ```
/// # use seawall::{Clock, Deadline};
/// # use std::time::Duration;
/// let clock = Clock::manual();
/// let deadline = Deadline::after(clock.now(), Duration::from_secs(10));
/// clock.advance(Duration::from_secs(7));
/// assert_eq!(deadline.remaining(&clock), Duration::from_secs(3));
/// assert!(!deadline.allows(Duration::from_secs(4), &clock));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<Moment>);

impl Deadline {
    /// No limit.
    pub const NEVER: Deadline = Deadline(None);

    /// A deadline `limit` after `now`.
    pub fn after(now: Moment, limit: Duration) -> Self {
        Self(Some(now.plus(limit)))
    }

    /// A deadline at `end`.
    pub(crate) fn at(end: Moment) -> Self {
        Self(Some(end))
    }

    /// The deadline of one of `ways` to an answer that starts now: each gets an even share of the
    /// time.
    pub(crate) fn share(self, ways: usize, now: Moment) -> Self {
        let ways = u32::try_from(ways).unwrap_or(u32::MAX).max(1);
        Self(self.0.map(|end| now.plus(end.since(now) / ways)))
    }

    /// The remaining time; [`Duration::MAX`] without a limit.
    pub fn remaining(self, clock: &Clock) -> Duration {
        self.0.map_or(Duration::MAX, |end| end.since(clock.now()))
    }

    /// The remaining time at `now`.
    pub(crate) fn remaining_at(self, now: Moment) -> Duration {
        self.0.map_or(Duration::MAX, |end| end.since(now))
    }

    /// Whether a pause of `wait` would still leave time for an attempt.
    pub fn allows(self, wait: Duration, clock: &Clock) -> bool {
        self.0.is_none() || wait < self.remaining(clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_is_cut_off_at_the_limit_exactly() {
        let start = tokio::time::Instant::now();

        let outcome = within(Duration::from_secs(3), std::future::pending::<()>()).await;

        assert_eq!(outcome, Err(Elapsed));
        assert_eq!(start.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_never_runs_dry_is_cut_off_too() {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1000);
        let busy = async {
            loop {
                while sender.try_send(()).is_ok() {}
                receiver.recv().await;
            }
        };
        // Time passes whenever the busy work is made to yield, far more than its limit.
        let clock = async {
            for _ in 0..100 {
                tokio::time::advance(Duration::from_millis(100)).await;
            }
        };

        let outcome = tokio::select! {
            outcome = within(Duration::from_secs(3), busy) => outcome,
            () = clock => Ok(()),
        };

        assert_eq!(outcome, Err(Elapsed));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_waits_a_little_is_awaited() {
        let outcome = within(Duration::from_secs(3), async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            7
        });

        assert_eq!(outcome.await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_as_long_as_the_rest_leaves_no_time() {
        let clock = Clock::tokio();
        let deadline = Deadline::after(clock.now(), Duration::from_secs(10));

        assert!(deadline.allows(Duration::from_secs(9), &clock));
        assert!(!deadline.allows(Duration::from_secs(10), &clock));
        assert!(Deadline::NEVER.allows(Duration::MAX, &clock));
    }
}
