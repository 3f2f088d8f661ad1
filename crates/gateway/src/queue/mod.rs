//! The durable queue for writes: decides that a queued call survives any crash, is made in its
//! turn, and is never made twice if that could do harm.
//!
//! One file (`queue.redb`), one writer, two promises:
//! - **an id is returned only when its item is on the disk**; all jobs that arrive while one commit
//!   runs share the next commit;
//! - **an attempt begins only after its mark is on the disk**: an item that a crash left marked as
//!   delivering is sent again only if repeating it is harmless; else it is dead, and reports that
//!   it may have been executed.
//!
//! `rules` decides the state changes of an item, `transaction` reads and changes records, `writer`
//! makes the commits, `open` opens the file, `probe` checks it from outside, and `deliver` sends
//! items to their server.

mod deliver;
mod item;
mod open;
mod probe;
mod rules;
#[cfg(test)]
mod tests;
mod transaction;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use seawall::{
    Clock, DurableQueue, EarlierWrite, Failure, Moment, NotQueued, Promise, QueuedWrite,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

pub use deliver::{Delivery, SendPermit, deliver};
pub use item::{ItemState, ItemSummary, QueuedItem, number};
pub use open::StoreTrouble;
pub use probe::probe;
pub use rules::{ItemChange, NextItem};
use transaction::{StoreFailed, Transaction};
pub use writer::NotDurable;
use writer::{AwaitedUntil, DatabaseOpener, StoreJob, StoreWriter};

/// Jobs that may wait for the writer, and the most that share a commit.
const JOBS: usize = 256;

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

/// The queue. Clones share it.
#[derive(Clone, Debug)]
pub struct QueueStore(Arc<StoreShared>);

/// A job, and the wall time at which it was put.
type TimedJob = (u64, Box<dyn StoreJob>);

#[derive(Debug)]
struct StoreShared {
    path: PathBuf,
    /// Taken when the queue is closed.
    jobs: Mutex<Option<mpsc::Sender<TimedJob>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    changes: watch::Receiver<StateCounts>,
    /// For each server, until when its items matter for new calls.
    awaited: watch::Receiver<AwaitedUntil>,
    wall: WallClock,
}

/// Wall time that does not jump: read once, then moved by the monotonic clock.
#[derive(Debug)]
struct WallClock {
    clock: Clock,
    began: Moment,
    at: u64,
}

impl WallClock {
    fn now(&self) -> u64 {
        self.at.saturating_add(millis(self.clock.now().since(self.began)))
    }
}

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
        let below = folder.to_owned();
        Self::with_opener(
            open::file(folder),
            Box::new(move || open::database(&below)),
            bounds,
            today,
        )
    }

    fn with_opener(
        path: PathBuf,
        opener: DatabaseOpener,
        bounds: QueueBounds,
        today: SystemTime,
    ) -> Result<Self, StoreTrouble> {
        let at = millis(today.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        let book = StoreWriter::open(path.clone(), opener, bounds, at)?;
        let clock = Clock::tokio();
        let wall = WallClock { began: clock.now(), clock, at };
        let (jobs, waiting) = mpsc::channel(JOBS);
        let (tell_awaited, awaited) = watch::channel(book.awaited());
        let (tell, changes) = watch::channel(book.tally());
        let writer = tokio::spawn(write(book, waiting, tell, tell_awaited));
        let (jobs, writer) = (Mutex::new(Some(jobs)), Mutex::new(Some(writer)));
        Ok(Self(Arc::new(StoreShared { path, jobs, writer, changes, awaited, wall })))
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The number of items in each state, and a signal whenever it changes.
    pub fn changes(&self) -> watch::Receiver<StateCounts> {
        self.0.changes.clone()
    }

    /// A whole item; `None` if it does not exist, or no longer.
    pub async fn item(&self, id: &str) -> Result<Option<QueuedItem>, NotDurable> {
        let Some(id) = item::number(id) else { return Ok(None) };
        self.ask(move |page, _| page.item(id)).await
    }

    /// All items, oldest first.
    pub async fn list(&self) -> Result<Vec<ItemSummary>, NotDurable> {
        self.ask(|page, _| Ok(page.list())).await
    }

    /// The oldest `most` items after `after` that are in one of these states, and whether there are
    /// more.
    pub async fn page(
        &self,
        after: u64,
        states: Vec<ItemState>,
        most: usize,
    ) -> Result<(Vec<ItemSummary>, bool), NotDurable> {
        self.ask(move |page, _| Ok(page.some(after, &states, most))).await
    }

    /// Makes an item due now; a dead item waits again, at its old place in its server's queue. A
    /// dead item that may have been executed, and whose repeat would do harm, is revived only with
    /// `even_if_executed`.
    pub async fn retry(&self, id: &str, even_if_executed: bool) -> Result<ItemChange, NotDurable> {
        let Some(id) = item::number(id) else { return Ok(ItemChange::Unknown) };
        self.ask(move |page, now| page.retry(id, even_if_executed, now)).await
    }

    /// Removes an item, unless an attempt is in flight. A delivered item, whose result its client
    /// may still read, is removed only with `even_if_delivered`.
    pub async fn forget(
        &self,
        id: &str,
        even_if_delivered: bool,
    ) -> Result<ItemChange, NotDurable> {
        let Some(id) = item::number(id) else { return Ok(ItemChange::Unknown) };
        self.ask(move |page, _| page.forget(id, even_if_delivered)).await
    }

    /// Makes the first item of a server's queue due now, if it only waits for its time.
    pub(crate) async fn hurry(&self, server: &str) -> Result<(), NotDurable> {
        let server = server.to_owned();
        self.ask(move |page, now| page.hurry(&server, now)).await
    }

    /// The first item of a server's queue, and when it is due.
    pub(crate) async fn peek(&self, server: &str) -> Result<NextItem, NotDurable> {
        let server = server.to_owned();
        self.ask(move |page, now| page.peek(&server, now)).await
    }

    /// The first item of a server's queue if it is due, durably marked as delivering. Only the one
    /// delivery task of that server may call this.
    pub async fn begin(&self, server: &str) -> Result<NextItem, NotDurable> {
        let server = server.to_owned();
        self.ask(move |page, now| page.begin(&server, None, now)).await
    }

    /// The same, but only if the item `id` is first.
    pub(crate) async fn begin_item(&self, server: &str, id: &str) -> Result<NextItem, NotDurable> {
        let (server, id) = (server.to_owned(), id.to_owned());
        self.ask(move |page, now| page.begin(&server, Some(&id), now)).await
    }

    /// Records how an attempt ended: with the tool's result as JSON, or with a failure, after which
    /// the item waits for `pause`.
    pub async fn settle(
        &self,
        id: &str,
        end: Result<String, Failure>,
        pause: Duration,
    ) -> Result<ItemChange, NotDurable> {
        let Some(id) = item::number(id) else { return Ok(ItemChange::Unknown) };
        self.ask(move |page, now| page.settle(id, &end, millis(pause), now)).await
    }

    /// Finishes all jobs so far and closes the file. Later jobs get an error.
    pub async fn close(&self) {
        drop(self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        let writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let _end = writer.await;
        }
    }

    /// Has the writer run `work`; returns its result once the changes are durable.
    async fn ask<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>, u64) -> Result<R, StoreFailed> + Send + 'static,
    ) -> Result<R, NotDurable> {
        self.put(work, false).await
    }

    /// The same; with `while_wanted`, work whose caller has left by the time of its turn is
    /// skipped.
    async fn put<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>, u64) -> Result<R, StoreFailed> + Send + 'static,
        while_wanted: bool,
    ) -> Result<R, NotDurable> {
        let closed = |is_certain| NotDurable { why: "the queue is closed".to_owned(), is_certain };
        let now = self.0.wall.now();
        let (tell, answer) = oneshot::channel();
        let job = PendingJob { now, while_wanted, work: Some(work), found: None, tell };
        let jobs = self
            .0
            .jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .ok_or_else(|| closed(true))?;
        // A job that never reached the writer certainly changed nothing. Once it was sent, its
        // commit may have happened even if no answer comes.
        jobs.send((now, Box::new(job))).await.map_err(|_| closed(true))?;
        // `close` waits for the writer, which ends when every sender is dropped: a caller that
        // waits for its answer must not hold one.
        drop(jobs);
        answer.await.map_err(|_| closed(false))?
    }
}

impl DurableQueue for QueueStore {
    fn enqueue(&self, call: QueuedWrite) -> Promise<'_, Result<String, NotQueued>> {
        Box::pin(async {
            match self.put(move |page, now| page.enqueue(call, now), true).await {
                Ok(kept) => kept,
                Err(NotDurable { why, is_certain: true }) => Err(NotQueued::Refused(why)),
                Err(NotDurable { why, is_certain: false }) => Err(NotQueued::Unknown(why)),
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
        let call = call.clone();
        let unknown = |NotDurable { why, .. }| NotQueued::Unknown(why);
        Box::pin(
            async move { self.ask(move |page, now| page.find(&call, now)).await.map_err(unknown) },
        )
    }

    fn is_idle(&self, server: &str) -> bool {
        // Usually the map has no entry for the server, and then the clock is not read.
        self.0.awaited.borrow().get(server).is_none_or(|until| *until < self.0.wall.now())
    }

    fn remove<'a>(&'a self, id: &'a str) -> Promise<'a, bool> {
        Box::pin(async move {
            self.forget(id, true).await.is_ok_and(|changed| changed == ItemChange::Done)
        })
    }
}

/// A job and the channel for its answer.
struct PendingJob<W, R> {
    now: u64,
    while_wanted: bool,
    work: Option<W>,
    found: Option<R>,
    tell: oneshot::Sender<Result<R, NotDurable>>,
}

impl<W, R> StoreJob for PendingJob<W, R>
where
    W: FnOnce(&mut Transaction<'_>, u64) -> Result<R, StoreFailed> + Send,
    R: Send,
{
    fn apply(&mut self, page: &mut Transaction<'_>) -> Result<(), StoreFailed> {
        if self.while_wanted && self.tell.is_closed() {
            return Ok(());
        }
        if let Some(work) = self.work.take() {
            self.found = Some(work(page, self.now)?);
        }
        Ok(())
    }

    fn done(self: Box<Self>, end: Result<(), NotDurable>) {
        let Self { found, tell, .. } = *self;
        let unasked = || NotDurable { why: "the queue is broken".to_owned(), is_certain: true };
        // The caller may have left; its change stays.
        let _gone = tell.send(end.and_then(|()| found.ok_or_else(unasked)));
    }
}

/// The one writer. Its work blocks, so it runs on the runtime's blocking threads.
async fn write(
    mut book: StoreWriter,
    mut jobs: mpsc::Receiver<TimedJob>,
    tell: watch::Sender<StateCounts>,
    tell_awaited: watch::Sender<AwaitedUntil>,
) {
    while let Some((mut now, job)) = jobs.recv().await {
        let mut batch = vec![job];
        while let (true, Ok((later, job))) = (batch.len() < JOBS, jobs.try_recv()) {
            now = now.max(later);
            batch.push(job);
        }
        let before = book.commits;
        let run = tokio::task::spawn_blocking(move || {
            let end = book.run(&mut batch, now);
            (book, batch, end)
        });
        // The runtime ends, or the work panicked. Dropping the jobs tells their callers that the
        // queue is closed.
        let Ok((same, batch, end)) = run.await else { return };
        book = same;
        // The counts are published before the answers: a caller that has its answer sees them
        // changed.
        if book.commits > before {
            tell_awaited.send_replace(book.awaited());
            tell.send_replace(book.tally());
        }
        for job in batch {
            job.done(end.clone());
        }
    }
    let _closed = tokio::task::spawn_blocking(move || drop(book)).await;
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
