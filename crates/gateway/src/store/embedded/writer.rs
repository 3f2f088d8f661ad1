//! Decides how changes reach the disk: all that are asked for meanwhile in one commit, and told
//! only when it is durable.
//!
//! When a commit fails, nobody knows whether it happened. The file is then opened again and what
//! the commit touched is put back as it was; only then is it certain that nothing of it will be
//! done. Until that works nothing else is changed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use redb::{Database, ReadableTable};

use super::item::{ItemState, ItemSummary, QueuedItem};
use super::open::{self, FACTS, ITEMS, LAST_ID, StoreTrouble};
use super::transaction::{StoreFailed, Transaction};
use super::{QueueBounds, StateCounts};

/// Opens the database; again after each failure.
pub(super) type DatabaseOpener = Box<dyn Fn() -> Result<Database, StoreTrouble> + Send>;

/// A change or a question, and who waits for its answer.
pub(super) trait StoreJob: Send {
    /// Does it. What it changes is not durable yet.
    fn apply(&mut self, page: &mut Transaction<'_>) -> Result<(), StoreFailed>;
    /// Tells the answer, once it is durable.
    fn done(self: Box<Self>, end: Result<(), NotDurable>);
}

/// A change was not made durable.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct NotDurable {
    /// What the store said.
    pub why: String,
    /// It was put back: nothing of it will be done. Otherwise it may or may not be in the file.
    pub is_certain: bool,
}

/// The queue: what is known of every item, and the file that holds them.
pub(super) struct StoreWriter {
    pub(super) path: PathBuf,
    opener: DatabaseOpener,
    bounds: QueueBounds,
    /// Nothing, after a failure that could not be mended yet.
    file: Option<Database>,
    known: KnownItems,
    /// Records as they were before the commits that failed.
    undo: UndoRecords,
    /// Commits that were made.
    pub(super) commits: u64,
}

/// Until when, in milliseconds since 1970, it matters what a server has in the queue.
pub(super) type AwaitedUntil = BTreeMap<String, u64>;

/// How long it matters that a call was made, in milliseconds: the same call is rarely held back for
/// longer.
const LATELY: u64 = 60 * 60 * 1000;

/// What is kept in memory: everything but arguments and results.
#[derive(Default)]
pub(super) struct KnownItems {
    pub(super) items: BTreeMap<u64, ItemSummary>,
    pub(super) last_id: u64,
    pub(super) bytes: u64,
}

/// Records before they were changed; `None` where there was none.
pub(super) type UndoRecords = BTreeMap<u64, Option<Vec<u8>>>;

impl StoreWriter {
    /// Opens the file and reads it. Attempts that were under way when the last gateway stopped are
    /// settled.
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
        // A disk that is full now may have room later: each job tries again.
        if !is_writable || book.commit(|page| page.after_start(now)).is_err() {
            book.close();
        }
        Ok(book)
    }

    /// Writes something of no importance. Some damage shows only then.
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

    /// Does the jobs in one commit.
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

    /// How many items there are in each state.
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

    /// The servers for which something waits or is being sent, or did so lately.
    pub(super) fn awaited(&self) -> AwaitedUntil {
        let mut awaited = AwaitedUntil::new();
        for brief in self.known.items.values() {
            let until = match brief.state {
                ItemState::Waiting | ItemState::Delivering => u64::MAX,
                ItemState::Delivered | ItemState::Dead => {
                    brief.ended.unwrap_or_default().saturating_add(LATELY)
                }
            };
            match awaited.get_mut(&brief.server) {
                Some(latest) => *latest = until.max(*latest),
                None => _ = awaited.insert(brief.server.clone(), until),
            }
        }
        awaited
    }

    /// Makes sure that the file is open and tells the truth.
    fn ready(&mut self) -> Result<(), NotDurable> {
        if self.file.is_some() && self.undo.is_empty() {
            return Ok(());
        }
        // What these jobs ask for was not begun.
        self.put_back().map_err(|why| NotDurable { why, is_certain: true })
    }

    /// After a failed commit: finds out whether it happened, and takes it back.
    fn mend(&mut self, lost: &StoreFailed) -> NotDurable {
        let is_certain = self.put_back().is_ok();
        NotDurable { why: lost.to_string(), is_certain }
    }

    fn put_back(&mut self) -> Result<(), String> {
        self.reopen().map_err(|trouble| trouble.to_string())?;
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
        self.undo.clear();
        self.commits += u64::from(is_committed);
        Ok(())
    }

    fn close(&mut self) {
        let file = self.file.take();
        let _broken = open::no_panic(&self.path, || drop(file));
    }

    /// Opens the file, new or again, and reads every record in it.
    fn reopen(&mut self) -> Result<(), StoreTrouble> {
        self.close();
        let file = (self.opener)()?;
        self.known = open::no_panic(&self.path, || read(&self.path, &file))??;
        self.file = Some(file);
        Ok(())
    }
}

/// Every record of the file, checked.
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
