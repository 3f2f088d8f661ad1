//! The durable queue for writes: decides that a queued call survives any crash, is made in its
//! turn, and is never made twice if that could do harm.
//!
//! Two promises, whatever the store:
//! - **an id is returned only when its item is durable**;
//! - **an attempt begins only after its mark is durable**: an item that was left marked as
//!   delivering is sent again only if repeating it is harmless; else it is dead, and reports that
//!   it may have been executed.
//!
//! `rules` decides the state changes of an item and knows no store. `embedded` keeps the items in a
//! file, for one gateway, and `redis` in Redis, for all replicas. `deliver` sends items to their
//! server, and `moving` moves them from the file to Redis.

mod deliver;
mod embedded;
mod item;
mod moving;
mod redis;
mod rules;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::{Duration, SystemTime};

use seawall::{DurableQueue, EarlierWrite, Failure, NotQueued, Promise, QueuedWrite};
use tokio::sync::watch;

use crate::config::RedisConfig;

pub use deliver::{Delivery, SendPermit, deliver};
use embedded::EmbeddedQueue;
pub use embedded::{StoreTrouble, probe};
pub use item::{ItemState, ItemSummary, QueuedItem, number};
use redis::{LEASE, LineLease, RedisQueue};
pub use rules::{ItemChange, NextItem};

/// How much the queue keeps, and for how long. Times are milliseconds.
#[derive(Clone, Debug)]
pub struct QueueBounds {
    /// Items in all states. Delivered items give way to new calls; waiting and dead items do not.
    pub items: usize,
    /// Bytes of all items.
    pub bytes: u64,
    /// How long a call waits for its server.
    pub waits: u64,
    /// The largest result that is kept.
    pub outcome_bytes: usize,
    /// How long a result is kept.
    pub outcome_kept: u64,
    /// How long a dead item is kept.
    pub dead_kept: u64,
}

const DAY: u64 = 24 * 60 * 60 * 1000;

impl Default for QueueBounds {
    fn default() -> Self {
        let (items, bytes, outcome_bytes) = (10_000, 256 << 20, 256 << 10);
        Self { items, bytes, waits: DAY, outcome_bytes, outcome_kept: DAY, dead_kept: 7 * DAY }
    }
}

/// The number of items in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// Items that wait for their server.
    pub waiting: usize,
    /// Items with an attempt in flight.
    pub delivering: usize,
    /// Delivered items, whose results can be read.
    pub delivered: usize,
    /// Delivered items whose result is an error.
    pub with_error: usize,
    /// Items that were given up.
    pub dead: usize,
}

/// A change was not made durable.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct NotDurable {
    /// The error of the store.
    pub why: String,
    /// Whether the change certainly has no effect: it was put back, or never begun. Otherwise it
    /// may or may not be in the store.
    pub is_certain: bool,
}

impl NotDurable {
    /// The same, of a call that was to be queued.
    fn not_queued(self) -> NotQueued {
        if self.is_certain { NotQueued::Refused(self.why) } else { NotQueued::Unknown(self.why) }
    }
}

/// The queue. Clones share it.
#[derive(Clone, Debug)]
pub struct QueueStore(QueuePlace);

/// Where the items are.
#[derive(Clone, Debug)]
enum QueuePlace {
    Embedded(EmbeddedQueue),
    Redis(RedisQueue),
}
use QueuePlace::{Embedded, Redis};

/// The right to send the first item of a server's queue. Until it ends, no other gateway sends one.
pub(crate) struct LineClaim(Option<LineLease>);

impl QueueStore {
    /// Opens the queue below `folder`; creates folder and file if they are missing. `today` is the
    /// wall time now.
    ///
    /// Reads the whole file, and takes accordingly long. Must be called within a runtime, which
    /// then runs the writer.
    pub fn open(
        folder: &Path,
        bounds: QueueBounds,
        today: SystemTime,
    ) -> Result<Self, StoreTrouble> {
        EmbeddedQueue::open(folder, bounds, today).map(|queue| Self(Embedded(queue)))
    }

    /// Opens the queue that the replicas of a fleet share. Waits a moment for Redis, and goes on
    /// without it: until it is there, no call is queued. A call waits for it no longer than `wait`.
    pub(crate) async fn open_redis(
        config: &RedisConfig,
        bounds: QueueBounds,
        wait: Duration,
    ) -> Result<Self, String> {
        RedisQueue::open(config, bounds, LEASE, wait).await.map(|queue| Self(Redis(queue)))
    }

    /// The path of the file, if the queue is in one.
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            Embedded(queue) => Some(queue.path()),
            Redis(_) => None,
        }
    }

    /// The number of items in each state, and a signal whenever it changes.
    pub fn changes(&self) -> watch::Receiver<StateCounts> {
        match &self.0 {
            Embedded(queue) => queue.changes(),
            Redis(queue) => queue.changes(),
        }
    }

    /// A whole item; `None` if it does not exist, or no longer.
    pub async fn item(&self, id: &str) -> Result<Option<QueuedItem>, NotDurable> {
        let Some(id) = number(id) else { return Ok(None) };
        match &self.0 {
            Embedded(queue) => queue.item(id).await,
            Redis(queue) => queue.item(id).await,
        }
    }

    /// All items, oldest first.
    pub async fn list(&self) -> Result<Vec<ItemSummary>, NotDurable> {
        self.page(0, ItemState::ALL.to_vec(), usize::MAX).await.map(|(items, _)| items)
    }

    /// The oldest `most` items after `after` that are in one of these states, and whether there are
    /// more.
    pub async fn page(
        &self,
        after: u64,
        states: Vec<ItemState>,
        most: usize,
    ) -> Result<(Vec<ItemSummary>, bool), NotDurable> {
        match &self.0 {
            Embedded(queue) => queue.page(after, states, most).await,
            Redis(queue) => queue.page(after, states, most).await,
        }
    }

    /// Makes an item due now; a dead item waits again, at its old place in its server's queue. A
    /// dead item that may have been executed, and whose repeat would do harm, is revived only with
    /// `even_if_executed`.
    pub async fn retry(&self, id: &str, even_if_executed: bool) -> Result<ItemChange, NotDurable> {
        let Some(id) = number(id) else { return Ok(ItemChange::Unknown) };
        match &self.0 {
            Embedded(queue) => queue.retry(id, even_if_executed).await,
            Redis(queue) => queue.retry(id, even_if_executed).await,
        }
    }

    /// Removes an item, unless an attempt is in flight. A delivered item, whose result its client
    /// may still read, is removed only with `even_if_delivered`.
    pub async fn forget(
        &self,
        id: &str,
        even_if_delivered: bool,
    ) -> Result<ItemChange, NotDurable> {
        let Some(id) = number(id) else { return Ok(ItemChange::Unknown) };
        match &self.0 {
            Embedded(queue) => queue.forget(id, even_if_delivered).await,
            Redis(queue) => queue.forget(id, even_if_delivered).await,
        }
    }

    /// Makes the first item of a server's queue due now, if it only waits for its time.
    pub(crate) async fn hurry(&self, server: &str) -> Result<(), NotDurable> {
        match &self.0 {
            Embedded(queue) => queue.hurry(server).await,
            Redis(queue) => queue.hurry(server).await,
        }
    }

    /// The first item of a server's queue, and when it is due.
    pub(crate) async fn peek(&self, server: &str) -> Result<NextItem, NotDurable> {
        match &self.0 {
            Embedded(queue) => queue.peek(server).await,
            Redis(queue) => queue.peek(server).await,
        }
    }

    /// The first item of a server's queue if it is due, durably marked as delivering. Only the one
    /// delivery task of that server may call this.
    pub async fn begin(&self, server: &str) -> Result<NextItem, NotDurable> {
        match &self.0 {
            Embedded(queue) => queue.begin(server, None).await,
            Redis(queue) => queue.begin(server, None).await,
        }
    }

    /// Claims the server's queue for an attempt on its first item, if that is `id` and no other
    /// gateway has claimed it.
    pub(crate) async fn claim(
        &self,
        server: &str,
        id: &str,
    ) -> Result<Option<LineClaim>, NotDurable> {
        match &self.0 {
            // A file has one gateway, and that one delivery task for each server.
            Embedded(_) => Ok(Some(LineClaim(None))),
            Redis(queue) => {
                let lease = queue.claim(server, number(id)).await?;
                Ok(lease.map(|lease| LineClaim(Some(lease))))
            }
        }
    }

    /// Ends a claim.
    pub(crate) async fn release(&self, claim: LineClaim) {
        if let (Redis(queue), LineClaim(Some(lease))) = (&self.0, claim) {
            queue.release(lease).await;
        }
    }

    /// The same, but only if the item `id` is first, and claimed.
    pub(crate) async fn begin_item(&self, server: &str, id: &str) -> Result<NextItem, NotDurable> {
        match &self.0 {
            Embedded(queue) => queue.begin(server, Some(id)).await,
            Redis(queue) => queue.begin(server, number(id)).await,
        }
    }

    /// Records how an attempt ended: with the tool's result as JSON, or with a failure, after which
    /// the item waits for `pause`.
    pub async fn settle(
        &self,
        id: &str,
        end: Result<String, Failure>,
        pause: Duration,
    ) -> Result<ItemChange, NotDurable> {
        let Some(id) = number(id) else { return Ok(ItemChange::Unknown) };
        match &self.0 {
            Embedded(queue) => queue.settle(id, end, pause).await,
            Redis(queue) => queue.settle(id, end, pause).await,
        }
    }

    /// Finishes all jobs so far and closes the store. Later jobs get an error.
    pub async fn close(&self) {
        match &self.0 {
            Embedded(queue) => queue.close().await,
            Redis(queue) => queue.close(),
        }
    }
}

impl DurableQueue for QueueStore {
    fn enqueue(&self, call: QueuedWrite) -> Promise<'_, Result<String, NotQueued>> {
        Box::pin(async {
            match &self.0 {
                Embedded(queue) => queue.enqueue(call).await,
                Redis(queue) => queue.enqueue(call).await,
            }
        })
    }

    fn next<'a>(&'a self, server: &'a str) -> Promise<'a, Option<(String, QueuedWrite)>> {
        Box::pin(async move {
            match self.peek(server).await {
                Ok(NextItem::Due(id, item)) if item.state == ItemState::Waiting => {
                    Some((id, item.call))
                }
                _ => None,
            }
        })
    }

    fn find<'a>(
        &'a self,
        call: &'a QueuedWrite,
    ) -> Promise<'a, Result<Option<EarlierWrite>, NotQueued>> {
        Box::pin(async move {
            match &self.0 {
                Embedded(queue) => queue.find(call).await,
                Redis(queue) => queue.find(call).await,
            }
        })
    }

    fn is_idle(&self, server: &str) -> bool {
        match &self.0 {
            Embedded(queue) => queue.is_idle(server),
            Redis(queue) => queue.is_idle(server),
        }
    }

    fn remove<'a>(&'a self, id: &'a str) -> Promise<'a, bool> {
        Box::pin(async move {
            self.forget(id, true).await.is_ok_and(|changed| changed == ItemChange::Done)
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
