//! Decides how the queue lives in one file (`queue.redb`), with one writer, for one gateway:
//! - **an id is returned only when its item is on the disk**; all jobs that arrive while one commit
//!   runs share the next commit;
//! - **an attempt begins only after its mark is on the disk**: an item that a crash left marked as
//!   delivering is settled at the next start.
//!
//! `changes` makes changes of the file from the rules of an item, `transaction` reads and changes
//! records, `writer` makes the commits, `open` opens the file, and `probe` checks it from outside.

mod changes;
mod open;
mod probe;
#[cfg(test)]
mod tests;
mod transaction;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use seawall::{Clock, EarlierWrite, Failure, Moment, NotQueued, QueuedWrite};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

pub use open::StoreTrouble;
pub use probe::probe;
use transaction::{StoreFailed, Transaction};
use writer::{AwaitedUntil, DatabaseOpener, StoreJob, StoreWriter};

use super::item::{ItemState, ItemSummary, QueuedItem};
use super::rules::{ItemChange, NextItem};
use super::{NotDurable, QueueBounds, StateCounts, millis};

/// Jobs that may wait for the writer, and the most that share a commit.
const JOBS: usize = 256;

/// The queue in a file. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct EmbeddedQueue(Arc<StoreShared>);

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

impl EmbeddedQueue {
    /// Opens the queue below `folder`; creates folder and file if they are missing. `today` is the
    /// wall time now.
    ///
    /// Reads the whole file, and takes accordingly long. Must be called within a runtime, which
    /// then runs the writer.
    pub(super) fn open(
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

    pub(super) fn with_opener(
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
    pub(super) fn path(&self) -> &Path {
        &self.0.path
    }

    /// The number of items in each state, and a signal whenever it changes.
    pub(super) fn changes(&self) -> watch::Receiver<StateCounts> {
        self.0.changes.clone()
    }

    pub(super) async fn item(&self, id: u64) -> Result<Option<QueuedItem>, NotDurable> {
        self.ask(move |page, _| page.item(id)).await
    }

    pub(super) async fn page(
        &self,
        after: u64,
        states: Vec<ItemState>,
        most: usize,
    ) -> Result<(Vec<ItemSummary>, bool), NotDurable> {
        self.ask(move |page, _| Ok(page.some(after, &states, most))).await
    }

    pub(super) async fn retry(
        &self,
        id: u64,
        even_if_executed: bool,
    ) -> Result<ItemChange, NotDurable> {
        self.ask(move |page, now| page.retry(id, even_if_executed, now)).await
    }

    pub(super) async fn forget(
        &self,
        id: u64,
        even_if_delivered: bool,
    ) -> Result<ItemChange, NotDurable> {
        self.ask(move |page, _| page.forget(id, even_if_delivered)).await
    }

    /// Takes an item out of its line, to move it to another store.
    pub(super) async fn set_aside(&self, id: u64) -> Result<ItemChange, NotDurable> {
        self.ask(move |page, now| page.change(id, |item, bounds| item.set_aside(now, bounds))).await
    }

    /// Puts an item that was set aside back into its line.
    pub(super) async fn take_back(&self, id: u64) -> Result<ItemChange, NotDurable> {
        self.ask(move |page, now| page.change(id, |item, bounds| item.take_back(now, bounds))).await
    }

    pub(super) async fn hurry(&self, server: &str) -> Result<(), NotDurable> {
        let server = server.to_owned();
        self.ask(move |page, now| page.hurry(&server, now)).await
    }

    pub(super) async fn peek(&self, server: &str) -> Result<NextItem, NotDurable> {
        let server = server.to_owned();
        self.ask(move |page, now| page.peek(&server, now)).await
    }

    /// If `only` names an item: only if that item is first.
    pub(super) async fn begin(
        &self,
        server: &str,
        only: Option<&str>,
    ) -> Result<NextItem, NotDurable> {
        let (server, only) = (server.to_owned(), only.map(str::to_owned));
        self.ask(move |page, now| page.begin(&server, only.as_deref(), now)).await
    }

    pub(super) async fn settle(
        &self,
        id: u64,
        end: Result<String, Failure>,
        pause: Duration,
    ) -> Result<ItemChange, NotDurable> {
        self.ask(move |page, now| page.settle(id, &end, millis(pause), now)).await
    }

    /// Finishes all jobs so far and closes the file. Later jobs get an error.
    pub(super) async fn close(&self) {
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

/// What the library asks of a queue.
impl EmbeddedQueue {
    pub(super) async fn enqueue(&self, call: QueuedWrite) -> Result<String, NotQueued> {
        match self.put(move |page, now| page.enqueue(call, now), true).await {
            Ok(kept) => kept,
            Err(unkept) => Err(unkept.not_queued()),
        }
    }

    pub(super) async fn find(&self, call: &QueuedWrite) -> Result<Option<EarlierWrite>, NotQueued> {
        let call = call.clone();
        let found = self.ask(move |page, now| page.find(&call, now)).await;
        found.map_err(|NotDurable { why, .. }| NotQueued::Unknown(why))
    }

    pub(super) fn is_idle(&self, server: &str) -> bool {
        // Usually the map has no entry for the server, and then the clock is not read.
        self.0.awaited.borrow().get(server).is_none_or(|until| *until < self.0.wall.now())
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
