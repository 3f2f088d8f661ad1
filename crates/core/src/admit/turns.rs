//! Decides who is next when a server's rate makes calls wait: first come, first served. Who leaves gives up a place in the
//! line and no more: a turn is taken when it comes, never before.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::rate::{Rate, RateLimit};
use crate::attempt::deadline::within;
use crate::model::invalid::Invalid;
use crate::model::time::{Clock, Moment};

/// The turns of one server.
#[derive(Debug)]
pub(crate) struct Turns {
    limit: RateLimit,
    waiting: AtomicU32,
    /// Held by the one who is next.
    head: Semaphore,
}

impl Turns {
    pub(crate) fn new(rate: Rate, clock: &Clock) -> Result<Self, Invalid> {
        Ok(Self { limit: RateLimit::new(rate, clock)?, waiting: AtomicU32::new(0), head: Semaphore::new(1) })
    }

    /// Takes a turn if there is one now and nobody waits for it.
    #[inline]
    pub(crate) fn try_take(&self, now: Moment) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0 && self.limit.book_at(now, Duration::ZERO).is_ok()
    }

    /// Waits in line for a turn. One that would not come within `patience` is not waited for: gives the wait.
    pub(crate) async fn take(&self, patience: Duration) -> Result<(), Duration> {
        let place = Place::in_line(&self.waiting);
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

/// A place in line; dropped, it is given up.
struct Place<'a> {
    waiting: &'a AtomicU32,
    ahead: u32,
}

impl<'a> Place<'a> {
    fn in_line(waiting: &'a AtomicU32) -> Self {
        Self { waiting, ahead: waiting.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
