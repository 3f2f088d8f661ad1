//! Decides how the rules of one item become changes of the file: which record is read, changed and
//! written for each request.

use seawall::{Failure, NotQueued, QueuedWrite};

use super::transaction::{StoreFailed, Transaction};
use crate::queue::QueueBounds;
use crate::queue::item::{ItemState, ItemSummary, QueuedItem, name};
use crate::queue::rules::{ItemChange, NextItem};

impl Transaction<'_> {
    /// Adds a new call, if there is room for it.
    pub(super) fn enqueue(
        &mut self,
        call: QueuedWrite,
        now: u64,
    ) -> Result<Result<String, NotQueued>, StoreFailed> {
        let item = match QueuedItem::new(call, now, self.bounds) {
            Ok(item) => item,
            Err(refused) => return Ok(Err(refused)),
        };
        let id = self.known.last_id + 1;
        let size = item.encode(id).map_err(|error| StoreFailed(error.to_string()))?.len();
        if let Err(refused) = self.make_room(size)? {
            return Ok(Err(refused));
        }
        self.give_id(id)?;
        self.write(id, &item)?;
        Ok(Ok(name(id)))
    }

    /// The first item of a server's queue.
    pub(super) fn peek(&mut self, server: &str, now: u64) -> Result<NextItem, StoreFailed> {
        let Some((id, brief)) = self.head(server) else { return Ok(NextItem::Nothing) };
        let wait = brief.next_attempt.unwrap_or(now).saturating_sub(now);
        if wait > 0 {
            return Ok(NextItem::Later(wait));
        }
        Ok(NextItem::Due(name(id), Box::new(self.read(id)?)))
    }

    /// Makes the first item of a server's queue due now.
    pub(super) fn hurry(&mut self, server: &str, now: u64) -> Result<(), StoreFailed> {
        match self.head(server) {
            Some((id, brief)) if brief.next_attempt.is_some_and(|due| due > now) => {
                let item = self.read(id)?;
                self.write(id, &QueuedItem { next_attempt: now, ..item })
            }
            _ => Ok(()),
        }
    }

    /// Marks the first item of a server's queue as delivering; if `only` names an item, then only
    /// if that item is first.
    ///
    /// An item that is marked already was being sent by a delivery task that is gone.
    pub(super) fn begin(
        &mut self,
        server: &str,
        only: Option<&str>,
        now: u64,
    ) -> Result<NextItem, StoreFailed> {
        loop {
            let Some((id, brief)) = self.head(server) else { return Ok(NextItem::Nothing) };
            if brief.state == ItemState::Delivering {
                self.interrupted(id, "its delivery was cut off", now)?;
                continue;
            }
            let next = self.peek(server, now)?;
            let NextItem::Due(name, mut item) = next else { return Ok(next) };
            if only.is_some_and(|only| only != name) {
                return Ok(NextItem::Nothing);
            }
            item.begin();
            self.write(id, &item)?;
            return Ok(NextItem::Due(name, item));
        }
    }

    /// Records how an attempt ended. An item that may be sent again waits for `pause`.
    pub(super) fn settle(
        &mut self,
        id: u64,
        end: &Result<String, Failure>,
        pause: u64,
        now: u64,
    ) -> Result<ItemChange, StoreFailed> {
        match self.state(id) {
            None => return Ok(ItemChange::Unknown),
            Some(ItemState::Delivering) => {}
            Some(other) => return Ok(ItemChange::NotNow(other)),
        }
        let mut item = self.read(id)?;
        item.settle(end, pause, now, self.bounds);
        self.write(id, &item)?;
        Ok(ItemChange::Done)
    }

    /// Makes an item due now; a dead item waits again, at its old place in its server's queue. A
    /// dead item that may have been executed, and whose repeat would do harm, is revived only with
    /// `even_if_executed`.
    pub(super) fn retry(
        &mut self,
        id: u64,
        even_if_executed: bool,
        now: u64,
    ) -> Result<ItemChange, StoreFailed> {
        self.change(id, |item, bounds| item.retry(even_if_executed, now, bounds))
    }

    /// Changes an item as `rule` says.
    pub(super) fn change(
        &mut self,
        id: u64,
        rule: impl FnOnce(&mut QueuedItem, &QueueBounds) -> ItemChange,
    ) -> Result<ItemChange, StoreFailed> {
        if self.state(id).is_none() {
            return Ok(ItemChange::Unknown);
        }
        let mut item = self.read(id)?;
        let change = rule(&mut item, self.bounds);
        if change == ItemChange::Done {
            self.write(id, &item)?;
        }
        Ok(change)
    }

    /// Removes an item, unless an attempt is in flight. A delivered item, whose result its client
    /// may still read, is removed only with `even_if_delivered`.
    pub(super) fn forget(
        &mut self,
        id: u64,
        even_if_delivered: bool,
    ) -> Result<ItemChange, StoreFailed> {
        let Some(brief) = self.known.items.get(&id) else { return Ok(ItemChange::Unknown) };
        let change = brief.may_go(even_if_delivered);
        if change == ItemChange::Done {
            self.remove(id)?;
        }
        Ok(change)
    }

    /// Gives up items that waited too long, and removes ended items whose time is over.
    pub(super) fn sweep(&mut self, now: u64) -> Result<(), StoreFailed> {
        let is_due = |brief: &ItemSummary| brief.is_over().is_some_and(|end| end <= now);
        let due: Vec<(u64, ItemState)> = self
            .known
            .items
            .iter()
            .filter(|(_, brief)| is_due(brief))
            .map(|(id, brief)| (*id, brief.state))
            .collect();
        for (id, state) in due {
            if state != ItemState::Waiting {
                self.remove(id)?;
                continue;
            }
            let mut item = self.read(id)?;
            item.expire(now, self.bounds);
            self.write(id, &item)?;
        }
        Ok(())
    }

    /// After a start: settles every attempt that was in flight when the gateway stopped.
    pub(super) fn after_start(&mut self, now: u64) -> Result<(), StoreFailed> {
        let open = self.known.items.iter().filter(|(_, brief)| brief.is_open());
        let open: Vec<(u64, ItemState, bool)> =
            open.map(|(id, brief)| (*id, brief.state, brief.is_from_the_future(now))).collect();
        for (id, state, is_from_the_future) in open {
            if state == ItemState::Delivering {
                self.interrupted(id, "the gateway stopped", now)?;
            }
            if is_from_the_future {
                let mut item = self.read(id)?;
                item.start_anew(now, self.bounds);
                self.write(id, &item)?;
            }
        }
        Ok(())
    }

    /// An attempt ended and its end was not recorded.
    fn interrupted(&mut self, id: u64, how: &str, now: u64) -> Result<(), StoreFailed> {
        let mut item = self.read(id)?;
        item.interrupted(how, now, self.bounds);
        self.write(id, &item)
    }
}
