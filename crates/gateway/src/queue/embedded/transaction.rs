//! Decides how records are read and changed within one transaction, and remembers how they were
//! before it.

use redb::{ReadableTable, Table};
use seawall::{EarlierWrite, NotQueued, QueuedWrite};

use super::open::LAST_ID;
use super::writer::{KnownItems, UndoRecords};
use crate::queue::item::{ItemState, ItemSummary, QueuedItem, digest, name};
use crate::queue::{QueueBounds, rules};

/// The store below failed; the transaction must be discarded.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct StoreFailed(pub(super) String);

impl<E: Into<redb::Error>> From<E> for StoreFailed {
    fn from(error: E) -> Self {
        Self(match error.into() {
            redb::Error::Io(error) => error.to_string(),
            other => other.to_string(),
        })
    }
}

/// The queue within one transaction.
pub(super) struct Transaction<'a> {
    items: Table<'a, u64, &'static [u8]>,
    facts: Table<'a, &'static str, u64>,
    pub(super) known: &'a mut KnownItems,
    undo: &'a mut UndoRecords,
    pub(super) bounds: &'a QueueBounds,
    pub(super) is_changed: bool,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(
        items: Table<'a, u64, &'static [u8]>,
        facts: Table<'a, &'static str, u64>,
        known: &'a mut KnownItems,
        undo: &'a mut UndoRecords,
        bounds: &'a QueueBounds,
    ) -> Self {
        Self { items, facts, known, undo, bounds, is_changed: false }
    }

    /// A whole item.
    pub(super) fn item(&mut self, id: u64) -> Result<Option<QueuedItem>, StoreFailed> {
        self.state(id).map(|_| self.read(id)).transpose()
    }

    /// The oldest items after `after` in one of these states, and whether there are more.
    pub(super) fn some(
        &self,
        after: u64,
        states: &[ItemState],
        most: usize,
    ) -> (Vec<ItemSummary>, bool) {
        let later = self.known.items.range(after.saturating_add(1)..).map(|(_, brief)| brief);
        let mut found: Vec<ItemSummary> = later
            .filter(|brief| states.contains(&brief.state))
            .take(most.saturating_add(1))
            .cloned()
            .collect();
        let has_more = found.len() > most;
        found.truncate(most);
        (found, has_more)
    }

    /// Puts records back as they were before the failed commits.
    pub(super) fn put_back(&mut self, undo: &UndoRecords) -> Result<(), StoreFailed> {
        for (id, before) in undo {
            match before {
                None => self.remove(*id)?,
                Some(record) => {
                    let item = QueuedItem::decode(*id, record)
                        .ok_or_else(|| StoreFailed("a record was damaged".to_owned()))?;
                    self.write(*id, &item)?;
                }
            }
        }
        Ok(())
    }

    /// Takes this id, which is never given again.
    pub(super) fn give_id(&mut self, id: u64) -> Result<(), StoreFailed> {
        self.facts.insert(LAST_ID, id)?;
        self.known.last_id = id;
        Ok(())
    }

    /// The oldest waiting or delivering item of a server.
    pub(super) fn head(&self, server: &str) -> Option<(u64, ItemSummary)> {
        self.line(server).next().map(|(id, brief)| (*id, brief.clone()))
    }

    /// The oldest waiting or delivering item with the same call, or else the newest that has ended.
    pub(super) fn find(
        &self,
        call: &QueuedWrite,
        now: u64,
    ) -> Result<Option<EarlierWrite>, StoreFailed> {
        let digest = digest(&call.arguments);
        let may_be = |brief: &ItemSummary| {
            brief.digest == digest && brief.tool == call.tool && brief.caller == call.caller
        };
        let earlier =
            |brief: &ItemSummary| EarlierWrite { id: brief.id.clone(), fate: brief.fate(now) };
        for (id, brief) in self.line(&call.server).filter(|(_, brief)| may_be(brief)) {
            if self.read(*id)?.call.is_same_call(call) {
                return Ok(Some(earlier(brief)));
            }
        }
        // A delivered item no longer has its arguments, so the digest decides for those that have
        // ended.
        let of_server = self.known.items.values().rev().filter(|brief| brief.server == call.server);
        Ok(of_server.filter(|brief| brief.ended.is_some()).find(|brief| may_be(brief)).map(earlier))
    }

    /// The waiting and delivering items of a server, oldest first.
    fn line(&self, server: &str) -> impl Iterator<Item = (&u64, &ItemSummary)> {
        self.known.items.iter().filter(move |(_, brief)| brief.server == server && brief.is_open())
    }

    pub(super) fn state(&self, id: u64) -> Option<ItemState> {
        self.known.items.get(&id).map(|brief| brief.state)
    }

    /// Removes delivered items, the oldest first, until there is room. Waiting and dead items stay.
    pub(super) fn make_room(&mut self, size: usize) -> Result<Result<(), NotQueued>, StoreFailed> {
        if let Err(refused) = rules::check_size(size) {
            return Ok(Err(refused));
        }
        loop {
            let is_full = self.known.items.len() >= self.bounds.items;
            if !is_full && self.known.bytes + size as u64 <= self.bounds.bytes {
                return Ok(Ok(()));
            }
            let mut done =
                self.known.items.iter().filter(|(_, brief)| brief.state == ItemState::Delivered);
            match done.next().map(|(id, _)| *id) {
                Some(oldest) => self.remove(oldest)?,
                None if is_full => return Ok(Err(rules::full_of_items(self.bounds.items))),
                None => return Ok(Err(rules::full_of_bytes(self.known.bytes))),
            }
        }
    }

    pub(super) fn read(&self, id: u64) -> Result<QueuedItem, StoreFailed> {
        let record =
            self.items.get(id)?.ok_or_else(|| StoreFailed(format!("{} is missing", name(id))))?;
        QueuedItem::decode(id, record.value())
            .ok_or_else(|| StoreFailed(format!("the record of {} is damaged", name(id))))
    }

    pub(super) fn write(&mut self, id: u64, item: &QueuedItem) -> Result<(), StoreFailed> {
        let record = item.encode(id).map_err(|error| StoreFailed(error.to_string()))?;
        let before =
            self.items.insert(id, record.as_slice())?.map(|before| before.value().to_vec());
        self.note_change(id, before);
        self.known.bytes += record.len() as u64;
        self.known.items.insert(id, item.brief(id, record.len()));
        Ok(())
    }

    pub(super) fn remove(&mut self, id: u64) -> Result<(), StoreFailed> {
        let before = self.items.remove(id)?.map(|before| before.value().to_vec());
        self.note_change(id, before);
        self.known.items.remove(&id);
        Ok(())
    }

    fn note_change(&mut self, id: u64, before: Option<Vec<u8>>) {
        self.is_changed = true;
        self.known.bytes = self
            .known
            .bytes
            .saturating_sub(before.as_ref().map_or(0, |record| record.len() as u64));
        // The first record wins: a later change in the same commit must not replace the one from
        // before it.
        self.undo.entry(id).or_insert(before);
    }
}
