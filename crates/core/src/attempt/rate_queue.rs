//! Decides who is next when a server's rate makes calls wait: first come, first served. Who leaves
//! gives up a place in the line and no more: a turn is taken when it comes, never before.

use std::time::Duration;

use tokio::sync::Semaphore;

use super::line::WaitingLine;
use crate::admit::rate_limiter::RateLimiter;
use crate::model::invalid::Invalid;
use crate::model::policy::rate::Rate;
use crate::time::clock::{Clock, Moment};
use crate::time::deadline::within;

/// The turns of one server.
#[derive(Debug)]
pub(crate) struct RateQueue {
    limit: RateLimiter,
    line: WaitingLine,
    /// Held by the one who is next.
    head: Semaphore,
}

impl RateQueue {
    pub(crate) fn new(rate: Rate, clock: &Clock) -> Result<Self, Invalid> {
        Ok(Self {
            limit: RateLimiter::new(rate, clock)?,
            line: WaitingLine::default(),
            head: Semaphore::new(1),
        })
    }

    /// Takes a turn if there is one now and nobody waits for it.
    #[inline]
    pub(crate) fn try_take(&self, now: Moment) -> bool {
        self.line.length() == 0 && self.limit.book_at(now, Duration::ZERO).is_ok()
    }

    /// Waits in line for a turn. One that would not come within `patience` is not waited for: gives
    /// the wait.
    pub(crate) async fn take(&self, patience: Duration) -> Result<(), Duration> {
        let place = self.line.join();
        let wait = self.limit.wait_behind(place.ahead);
        if wait >= patience {
            return Err(wait);
        }
        within(patience, self.wait_in_line()).await.map_err(|_| wait)
    }

    async fn wait_in_line(&self) {
        // Never closed.
        let _head = self.head.acquire().await;
        while let Err(wait) = self.limit.check() {
            tokio::time::sleep(wait).await;
        }
    }
}
