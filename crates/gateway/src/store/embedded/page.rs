//! Decides how records are read and changed within one transaction, and remembers what they were before.

use std::time::Duration;

use redb::{ReadableTable, Table};
use seawall::{Earlier, Fate, NotQueued, Queued};

use super::Bounds;
use super::book::{Known, Undo};
use super::item::{Brief, Item, State, digest, name};
use super::open::LAST_ID;
use crate::protocol::limits;

/// The store below failed; the transaction is worth nothing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Lost(pub(super) String);

impl<E: Into<redb::Error>> From<E> for Lost {
    fn from(error: E) -> Self {
        Self(match error.into() {
            redb::Error::Io(error) => error.to_string(),
            other => other.to_string(),
        })
    }
}

/// The queue within one transaction.
pub(super) struct Page<'a> {
    items: Table<'a, u64, &'static [u8]>,
    facts: Table<'a, &'static str, u64>,
    pub(super) known: &'a mut Known,
    undo: &'a mut Undo,
    pub(super) bounds: &'a Bounds,
    pub(super) is_changed: bool,
}

impl<'a> Page<'a> {
    pub(super) fn new(
        items: Table<'a, u64, &'static [u8]>,
        facts: Table<'a, &'static str, u64>,
        known: &'a mut Known,
        undo: &'a mut Undo,
        bounds: &'a Bounds,
    ) -> Self {
        Self { items, facts, known, undo, bounds, is_changed: false }
    }

    /// An item as a whole.
    pub(super) fn item(&mut self, id: u64) -> Result<Option<Item>, Lost> {
        self.state(id).map(|_| self.read(id)).transpose()
    }

    /// All items, oldest first.
    pub(super) fn list(&self) -> Vec<Brief> {
        self.known.items.values().cloned().collect()
    }

    /// The oldest items after `after` in one of these states, and whether there are more.
    pub(super) fn some(&self, after: u64, states: &[State], most: usize) -> (Vec<Brief>, bool) {
        let later = self.known.items.range(after.saturating_add(1)..).map(|(_, brief)| brief);
        let mut found: Vec<Brief> =
            later.filter(|brief| states.contains(&brief.state)).take(most.saturating_add(1)).cloned().collect();
        let has_more = found.len() > most;
        found.truncate(most);
        (found, has_more)
    }

    /// Puts records back as they were.
    pub(super) fn put_back(&mut self, undo: &Undo) -> Result<(), Lost> {
        for (id, before) in undo {
            match before {
                None => self.remove(*id)?,
                Some(record) => {
                    let item = Item::decode(*id, record).ok_or_else(|| Lost("a record was damaged".to_owned()))?;
                    self.write(*id, &item)?;
                }
            }
        }
        Ok(())
    }

    /// This id is given, and never again.
    pub(super) fn give_id(&mut self, id: u64) -> Result<(), Lost> {
        self.facts.insert(LAST_ID, id)?;
        self.known.last_id = id;
        Ok(())
    }

    /// The oldest item of a server that is not done.
    pub(super) fn head(&self, server: &str) -> Option<(u64, Brief)> {
        self.line(server).next().map(|(id, brief)| (*id, brief.clone()))
    }

    /// The oldest item with the same call that is not done, or else the newest that is.
    pub(super) fn find(&self, call: &Queued, now: u64) -> Result<Option<Earlier>, Lost> {
        let digest = digest(&call.arguments);
        let may_be = |brief: &Brief| brief.digest == digest && brief.tool == call.tool && brief.caller == call.caller;
        let earlier = |brief: &Brief| Earlier { id: brief.id.clone(), fate: fate(brief, now) };
        for (id, brief) in self.line(&call.server).filter(|(_, brief)| may_be(brief)) {
            if self.read(*id)?.call.is_same_call(call) {
                return Ok(Some(earlier(brief)));
            }
        }
        // Of those the arguments are forgotten.
        let of_server = self.known.items.values().rev().filter(|brief| brief.server == call.server);
        Ok(of_server.filter(|brief| brief.ended.is_some()).find(|brief| may_be(brief)).map(earlier))
    }

    /// A server's items that are not done, oldest first.
    fn line(&self, server: &str) -> impl Iterator<Item = (&u64, &Brief)> {
        let is_open = |brief: &Brief| matches!(brief.state, State::Waiting | State::Delivering);
        self.known.items.iter().filter(move |(_, brief)| brief.server == server && is_open(brief))
    }

    pub(super) fn state(&self, id: u64) -> Option<State> {
        self.known.items.get(&id).map(|brief| brief.state)
    }

    /// Forgets results, the oldest first, until there is room. What waits or is dead stays.
    pub(super) fn make_room(&mut self, size: usize) -> Result<Result<(), NotQueued>, Lost> {
        let refused = |why: String| Ok(Err(NotQueued::Refused(why)));
        if size > limits::QUEUED {
            return refused(format!("its {size} bytes are more than the {} that may wait", limits::QUEUED));
        }
        loop {
            let is_full = self.known.items.len() >= self.bounds.items;
            if !is_full && self.known.bytes + size as u64 <= self.bounds.bytes {
                return Ok(Ok(()));
            }
            let mut done = self.known.items.iter().filter(|(_, brief)| brief.state == State::Delivered);
            match done.next().map(|(id, _)| *id) {
                Some(oldest) => self.remove(oldest)?,
                None if is_full => return refused(format!("{} calls are in it already", self.bounds.items)),
                None => return refused(format!("it holds {} bytes already", self.known.bytes)),
            }
        }
    }

    pub(super) fn read(&self, id: u64) -> Result<Item, Lost> {
        let record = self.items.get(id)?.ok_or_else(|| Lost(format!("{} is missing", name(id))))?;
        Item::decode(id, record.value()).ok_or_else(|| Lost(format!("the record of {} is damaged", name(id))))
    }

    pub(super) fn write(&mut self, id: u64, item: &Item) -> Result<(), Lost> {
        let record = item.encode(id).map_err(|error| Lost(error.to_string()))?;
        let before = self.items.insert(id, record.as_slice())?.map(|before| before.value().to_vec());
        self.note_change(id, before);
        self.known.bytes += record.len() as u64;
        self.known.items.insert(id, item.brief(id, record.len()));
        Ok(())
    }

    pub(super) fn remove(&mut self, id: u64) -> Result<(), Lost> {
        let before = self.items.remove(id)?.map(|before| before.value().to_vec());
        self.note_change(id, before);
        self.known.items.remove(&id);
        Ok(())
    }

    fn note_change(&mut self, id: u64, before: Option<Vec<u8>>) {
        self.is_changed = true;
        self.known.bytes = self.known.bytes.saturating_sub(before.as_ref().map_or(0, |record| record.len() as u64));
        self.undo.entry(id).or_insert(before);
    }
}

/// What became of a call.
fn fate(brief: &Brief, now: u64) -> Fate {
    let ago = Duration::from_millis(now.saturating_sub(brief.ended.unwrap_or(now)));
    match brief.state {
        State::Waiting => Fate::Waits,
        State::Delivering => Fate::UnderWay,
        State::Delivered => Fate::Executed(ago),
        State::Dead if brief.may_have_executed => Fate::Uncertain(ago),
        State::Dead => Fate::NotExecuted,
    }
}
