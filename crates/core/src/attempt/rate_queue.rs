//! Decides which call goes next when a server's rate limit makes calls wait: first come, first
//! served. A call that leaves the queue gives up its place only: it takes a permit of the rate when
//! its turn comes, never before.

use std::time::Duration;

use tokio::sync::Semaphore;

use super::line::WaitingLine;
use crate::admit::rate_limiter::RateLimiter;
use crate::model::invalid::Invalid;
use crate::model::policy::rate::Rate;
use crate::time::clock::{Clock, Moment};
use crate::time::deadline::within;

/// The longest sleep of the call at the head.
const LOOK: Duration = Duration::from_secs(1);

/// The queue in front of one server's rate limiter.
#[derive(Debug)]
pub(crate) struct RateQueue {
    limit: RateLimiter,
    line: WaitingLine,
    /// Held by the call at the head of the queue.
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

    /// Leaves this process a share of the rate.
    pub(crate) fn set_share(&self, share: f64) {
        self.limit.set_share(share);
    }

    /// Takes a permit of the rate if one is free now and no call waits for it.
    #[inline]
    pub(crate) fn try_take(&self, now: Moment) -> bool {
        self.line.length() == 0 && self.limit.book_at(now, Duration::ZERO).is_ok()
    }

    /// Waits in the queue for a permit of the rate. If the wait would exceed `patience`, refuses at
    /// once and returns the wait.
    pub(crate) async fn take(&self, patience: Duration) -> Result<(), Duration> {
        let place = self.line.join();
        let wait = self.limit.wait_behind(place.ahead);
        if wait >= patience {
            return Err(wait);
        }
        within(patience, self.wait_in_line()).await.map_err(|_| wait)
    }

    async fn wait_in_line(&self) {
        // An error is impossible: the semaphore is never closed. Only the head polls the limiter,
        // so a cancelled call drops its place and has booked nothing.
        let _head = self.head.acquire().await;
        while let Err(wait) = self.limit.check() {
            // Not longer: meanwhile this process may have got a larger share of the rate.
            tokio::time::sleep(wait.min(LOOK)).await;
        }
    }
}
