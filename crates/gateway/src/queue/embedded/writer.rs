//! Decides how changes reach the disk: all jobs that arrive during a commit share the next one, and
//! get their answers only when it is durable.
//!
//! When a commit fails, it may have happened or not. The writer then opens the file again and puts
//! the records that the commit touched back as they were; only then is it certain that the change
//! will have no effect. Until that works, nothing else is changed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use redb::{Database, ReadableTable};

use super::open::{self, FACTS, ITEMS, LAST_ID, StoreTrouble};
use super::transaction::{StoreFailed, Transaction};
use crate::queue::item::{ItemState, ItemSummary, QueuedItem};
use crate::queue::{NotDurable, QueueBounds, StateCounts};

/// Opens the database; called again after each failure.
pub(super) type DatabaseOpener = Box<dyn Fn() -> Result<Database, StoreTrouble> + Send>;

/// A change or a query, with the channel for its answer.
pub(super) trait StoreJob: Send {
    /// Runs the job in a transaction. Its changes are not durable yet.
    fn apply(&mut self, page: &mut Transaction<'_>) -> Result<(), StoreFailed>;
    /// Sends the answer, after the commit succeeded or failed.
    fn done(self: Box<Self>, end: Result<(), NotDurable>);
}

/// The queue in memory, and the file that holds it.
pub(super) struct StoreWriter {
    pub(super) path: PathBuf,
    opener: DatabaseOpener,
    bounds: QueueBounds,
    /// `None` after a failure that could not be repaired yet.
    file: Option<Database>,
    known: KnownItems,
    /// Records as they were before the commits that failed.
    undo: UndoRecords,
    /// Commits that were made.
    pub(super) commits: u64,
}

/// For each server: until when, in milliseconds since 1970, its items matter for new calls.
pub(super) type AwaitedUntil = BTreeMap<String, u64>;

/// The queue in memory: everything but arguments and results.
#[derive(Default)]
pub(super) struct KnownItems {
    pub(super) items: BTreeMap<u64, ItemSummary>,
    pub(super) last_id: u64,
    pub(super) bytes: u64,
}

/// Records before they were changed; `None` where there was none.
pub(super) type UndoRecords = BTreeMap<u64, Option<Vec<u8>>>;

impl StoreWriter {
    /// Opens the file and reads it. Settles attempts that were in flight when the last gateway
    /// stopped.
    pub(super) fn open(
        path: PathBuf,
        opener: DatabaseOpener,
        bounds: QueueBounds,
        now: u64,
    ) -> Result<Self, StoreTrouble> {
        let mut book = Self {
            path,
            opener,
            bounds,
            file: None,
            known: KnownItems::default(),
            undo: UndoRecords::default(),
            commits: 0,
        };
        book.reopen()?;
        let is_writable = book.probe()?;
        // A disk that is full now may have room later: each batch of jobs opens the file again.
        if !is_writable || book.commit(|page| page.after_start(now)).is_err() {
            book.close();
        }
        Ok(book)
    }

    /// Writes a record of no importance: some damage shows only then.
    fn probe(&self) -> Result<bool, StoreTrouble> {
        let Some(file) = &self.file else { return Ok(false) };
        let write = || open::transaction(file).and_then(|write| open::commit_twice(file, write));
        match open::no_panic(&self.path, write)? {
            Ok(()) => Ok(true),
            Err(redb::Error::Io(_) | redb::Error::PreviousIo) => Ok(false),
            Err(other) => {
                Err(StoreTrouble::Damaged { path: self.path.clone(), why: other.to_string() })
            }
        }
    }

    /// Runs the jobs in one commit.
    pub(super) fn run(
        &mut self,
        jobs: &mut [Box<dyn StoreJob>],
        now: u64,
    ) -> Result<(), NotDurable> {
        self.ready()?;
        let result = self.commit(|page| {
            page.sweep(now)?;
            jobs.iter_mut().try_for_each(|job| job.apply(page))
        });
        result.map_err(|lost| self.mend(&lost))
    }

    /// The number of items in each state.
    pub(super) fn tally(&self) -> StateCounts {
        let mut tally = StateCounts::default();
        for brief in self.known.items.values() {
            match brief.state {
                ItemState::Waiting => tally.waiting += 1,
                ItemState::Delivering => tally.delivering += 1,
                ItemState::Delivered => {
                    tally.delivered += 1;
                    tally.with_error += usize::from(brief.is_error);
                }
                ItemState::Dead => tally.dead += 1,
            }
        }
        tally
    }

    /// The servers with items that wait, are being sent, or ended lately.
    pub(super) fn awaited(&self) -> AwaitedUntil {
        let mut awaited = AwaitedUntil::new();
        for brief in self.known.items.values() {
            let until = brief.is_awaited_until();
            match awaited.get_mut(&brief.server) {
                Some(latest) => *latest = until.max(*latest),
                None => _ = awaited.insert(brief.server.clone(), until),
            }
        }
        awaited
    }

    /// Makes sure that the file is open and holds no half-failed commit.
    fn ready(&mut self) -> Result<(), NotDurable> {
        if self.file.is_some() && self.undo.is_empty() {
            return Ok(());
        }
        // These jobs did not run, so it is certain that they changed nothing.
        self.put_back().map_err(|why| NotDurable { why, is_certain: true })
    }

    /// After a failed commit: undoes it, whether it happened or not.
    fn mend(&mut self, lost: &StoreFailed) -> NotDurable {
        let is_certain = self.put_back().is_ok();
        NotDurable { why: lost.to_string(), is_certain }
    }

    fn put_back(&mut self) -> Result<(), String> {
        self.reopen().map_err(|trouble| trouble.to_string())?;
        // The commit below collects undo records of its own. If it fails, those are dropped and the
        // original ones are kept: they hold the records from before the first failure.
        let undo = std::mem::take(&mut self.undo);
        let result = self.commit(|page| page.put_back(&undo));
        if let Err(lost) = result {
            self.close();
            self.undo = undo;
            return Err(lost.to_string());
        }
        Ok(())
    }

    /// Runs `work` in one transaction, and commits it if it changed anything.
    fn commit(
        &mut self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<(), StoreFailed>,
    ) -> Result<(), StoreFailed> {
        let Some(file) = &self.file else {
            return Err(StoreFailed("the file is not open".to_owned()));
        };
        // `known` changes with the transaction, before the commit. If the commit fails, `reopen`
        // reads it anew from the file.
        let (known, undo, bounds) = (&mut self.known, &mut self.undo, &self.bounds);
        let is_committed = open::no_panic(&self.path, || {
            let write = open::transaction(file)?;
            let mut page = Transaction::new(
                write.open_table(ITEMS)?,
                write.open_table(FACTS)?,
                known,
                undo,
                bounds,
            );
            work(&mut page)?;
            let is_changed = page.is_changed;
            drop(page);
            if is_changed {
                open::commit_twice(file, write)?
            } else {
                write.abort()?
            }
            Ok::<_, StoreFailed>(is_changed)
        })
        .map_err(|trouble| StoreFailed(trouble.to_string()))??;
        // Only a durable commit may forget how the records were before.
        self.undo.clear();
        self.commits += u64::from(is_committed);
        Ok(())
    }

    fn close(&mut self) {
        let file = self.file.take();
        let _broken = open::no_panic(&self.path, || drop(file));
    }

    /// Opens the file, for the first time or again, and reads every record in it.
    fn reopen(&mut self) -> Result<(), StoreTrouble> {
        self.close();
        let file = (self.opener)()?;
        self.known = open::no_panic(&self.path, || read(&self.path, &file))??;
        self.file = Some(file);
        Ok(())
    }
}

/// Reads and checks every record of the file.
fn read(path: &std::path::Path, file: &Database) -> Result<KnownItems, StoreTrouble> {
    let damaged = |why: String| StoreTrouble::Damaged { path: path.to_owned(), why };
    let lost = |error: StoreFailed| damaged(error.0);
    let write = open::transaction(file).map_err(|error| damaged(error.to_string()))?;
    open::check_schema(path, &write)?;
    let mut known = KnownItems::default();
    {
        let facts = write.open_table(FACTS).map_err(StoreFailed::from).map_err(lost)?;
        let last_id = facts.get(LAST_ID).map_err(StoreFailed::from).map_err(lost)?;
        known.last_id = last_id.map_or(0, |last| last.value());
        let items = write.open_table(ITEMS).map_err(StoreFailed::from).map_err(lost)?;
        for record in items.iter().map_err(StoreFailed::from).map_err(lost)? {
            let (id, record) = record.map_err(StoreFailed::from).map_err(lost)?;
            let (id, record) = (id.value(), record.value());
            let item = QueuedItem::decode(id, record)
                .ok_or_else(|| damaged(format!("the record of q{id} is damaged")))?;
            known.bytes += record.len() as u64;
            known.items.insert(id, item.brief(id, record.len()));
        }
    }
    let newest = known.items.last_key_value().map_or(0, |(id, _)| *id);
    if newest > known.last_id {
        return Err(damaged(format!("it holds q{newest}, and the last was q{}", known.last_id)));
    }
    write.abort().map_err(|error| damaged(error.to_string()))?;
    Ok(known)
}
