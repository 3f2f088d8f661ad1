//! Decides the state changes of a queued item: how it is enqueued, waits, is sent, ends and is
//! removed.

use seawall::{Cause, Disposition, Effect, Failure, NotQueued, QueuedWrite, Sent};

use super::item::{ItemState, ItemSummary, QueuedItem, digest, name};
use super::transaction::{StoreFailed, Transaction};
use crate::protocol::edit::JsonObject;

/// How far a clock may be set back, in milliseconds, before the times of an item are no longer
/// believed.
const CLOCK_SLACK: u64 = 60_000;

/// The head of a server's queue.
#[derive(Clone, Debug, PartialEq)]
pub enum NextItem {
    /// No item waits.
    Nothing,
    /// The first item is not due before this many milliseconds.
    Later(u64),
    /// The first item, marked as delivering if the caller asked for that.
    Due(String, Box<QueuedItem>),
}

/// The outcome of a request to change an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemChange {
    /// The change was made.
    Done,
    /// There is no such item.
    Unknown,
    /// An item in this state cannot be changed.
    NotNow(ItemState),
    /// The item was delivered already, and answered with an error.
    WentWrong,
    /// The item may have been executed, and the caller did not ask to send it even so.
    InDoubt,
}

impl Transaction<'_> {
    /// Adds a new call, if there is room for it.
    pub(super) fn enqueue(
        &mut self,
        call: QueuedWrite,
        now: u64,
    ) -> Result<Result<String, NotQueued>, StoreFailed> {
        if call.effect == Effect::Destructive {
            return Ok(Err(NotQueued::Refused(
                "what destroys something is not done later".to_owned(),
            )));
        }
        let id = self.known.last_id + 1;
        let item = QueuedItem {
            digest: digest(&call.arguments),
            call,
            state: ItemState::Waiting,
            attempts: 0,
            next_attempt: now,
            enqueued: now,
            expires: now.saturating_add(self.bounds.waits),
            forgotten: None,
            may_have_executed: false,
            note: None,
            outcome: None,
            is_error: false,
            ended: None,
        };
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
            item.state = ItemState::Delivering;
            item.attempts = item.attempts.saturating_add(1);
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
        match end {
            Ok(outcome) => self.deliver(&mut item, outcome, now),
            Err(failure) => {
                item.may_have_executed |= failure.may_have_executed(item.call.effect);
                item.note = Some(failure.message.clone());
                if may_go_on(failure, item.call.effect) {
                    item.state = ItemState::Waiting;
                    item.next_attempt = now.saturating_add(pause);
                } else {
                    self.bury(&mut item, &failure.message, now);
                }
            }
        }
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
        match self.state(id) {
            None => return Ok(ItemChange::Unknown),
            Some(ItemState::Waiting | ItemState::Dead) => {}
            Some(_) => return Ok(self.not_now(id)),
        }
        let mut item = self.read(id)?;
        let does_harm = item.may_have_executed && !item.call.effect.is_replayable();
        if item.state == ItemState::Dead && does_harm && !even_if_executed {
            return Ok(ItemChange::InDoubt);
        }
        item.state = ItemState::Waiting;
        item.next_attempt = now;
        item.expires = now.saturating_add(self.bounds.waits);
        (item.forgotten, item.ended) = (None, None);
        self.write(id, &item)?;
        Ok(ItemChange::Done)
    }

    /// Removes an item, unless an attempt is in flight. A delivered item, whose result its client
    /// may still read, is removed only with `even_if_delivered`.
    pub(super) fn forget(
        &mut self,
        id: u64,
        even_if_delivered: bool,
    ) -> Result<ItemChange, StoreFailed> {
        match self.state(id) {
            None => Ok(ItemChange::Unknown),
            Some(ItemState::Waiting | ItemState::Dead) => {
                self.remove(id).map(|()| ItemChange::Done)
            }
            Some(ItemState::Delivered) if even_if_delivered => {
                self.remove(id).map(|()| ItemChange::Done)
            }
            Some(_) => Ok(self.not_now(id)),
        }
    }

    /// Why an item cannot be changed.
    fn not_now(&self, id: u64) -> ItemChange {
        match self.known.items.get(&id) {
            None => ItemChange::Unknown,
            Some(brief) if brief.is_error => ItemChange::WentWrong,
            Some(brief) => ItemChange::NotNow(brief.state),
        }
    }

    /// Gives up items that waited too long, and removes ended items whose time is over.
    pub(super) fn sweep(&mut self, now: u64) -> Result<(), StoreFailed> {
        let due = |brief: &ItemSummary| match brief.state {
            ItemState::Waiting => brief.expires <= now,
            ItemState::Delivering => false,
            ItemState::Delivered | ItemState::Dead => brief.forgotten.is_some_and(|end| end <= now),
        };
        let due: Vec<(u64, ItemState)> = self
            .known
            .items
            .iter()
            .filter(|(_, brief)| due(brief))
            .map(|(id, brief)| (*id, brief.state))
            .collect();
        for (id, state) in due {
            if state != ItemState::Waiting {
                self.remove(id)?;
                continue;
            }
            let mut item = self.read(id)?;
            let last = item.note.take().map(|note| format!(" (last: {note})")).unwrap_or_default();
            self.bury(&mut item, &format!("its server was not back in time{last}"), now);
            self.write(id, &item)?;
        }
        Ok(())
    }

    /// After a start: settles every attempt that was in flight when the gateway stopped.
    pub(super) fn after_start(&mut self, now: u64) -> Result<(), StoreFailed> {
        let open =
            self.known.items.iter().filter(|(_, brief)| {
                matches!(brief.state, ItemState::Waiting | ItemState::Delivering)
            });
        let open: Vec<(u64, ItemState, u64)> =
            open.map(|(id, brief)| (*id, brief.state, brief.enqueued)).collect();
        for (id, state, enqueued) in open {
            if state == ItemState::Delivering {
                self.interrupted(id, "the gateway stopped", now)?;
            }
            // The clock was set back since the item came, so its times mean nothing and start anew.
            if enqueued > now.saturating_add(CLOCK_SLACK) {
                let mut item = self.read(id)?;
                (item.enqueued, item.next_attempt, item.expires) =
                    (now, now, now.saturating_add(self.bounds.waits));
                self.write(id, &item)?;
            }
        }
        Ok(())
    }

    /// An attempt ended and its end was not recorded.
    fn interrupted(&mut self, id: u64, how: &str, now: u64) -> Result<(), StoreFailed> {
        let mut item = self.read(id)?;
        // The mark was on the disk before the call was sent, so the server may have executed it.
        item.may_have_executed = item.call.effect != Effect::ReadOnly;
        if item.call.effect.is_replayable() {
            item.state = ItemState::Waiting;
            item.next_attempt = now;
            item.note = Some(format!("{how} during an attempt"));
        } else {
            self.end(&mut item, ItemState::Dead, now);
            item.note = Some(format!("may have been executed when {how}"));
        }
        self.write(id, &item)
    }

    fn deliver(&self, item: &mut QueuedItem, outcome: &str, now: u64) {
        self.end(item, ItemState::Delivered, now);
        item.call.arguments = serde_json::Value::Null;
        item.is_error = JsonObject::of(outcome.as_bytes()).get("isError") == Some(b"true");
        if outcome.len() > self.bounds.outcome_bytes {
            item.note = Some(format!(
                "executed; its result of {} bytes is too large to keep",
                outcome.len()
            ));
        } else {
            item.note = None;
            item.outcome = Some(outcome.to_owned());
        }
    }

    fn bury(&self, item: &mut QueuedItem, why: &str, now: u64) {
        let fate =
            if item.may_have_executed { "may have been executed" } else { "was not executed" };
        self.end(item, ItemState::Dead, now);
        item.note = Some(format!("{fate}: {why}"));
    }

    fn end(&self, item: &mut QueuedItem, state: ItemState, now: u64) {
        let kept = if state == ItemState::Delivered {
            self.bounds.outcome_kept
        } else {
            self.bounds.dead_kept
        };
        item.state = state;
        (item.ended, item.forgotten) = (Some(now), Some(now.saturating_add(kept)));
    }
}

/// Whether the item goes on waiting after a failed attempt. A call that may have been executed is
/// sent again only if that is harmless; a call that would fail the same way or was refused is not
/// sent again.
fn may_go_on(failure: &Failure, effect: Effect) -> bool {
    let is_refused = matches!(
        failure.cause,
        Cause::Denied | Cause::Refusal | Cause::Loop | Cause::Uncertain | Cause::Queued
    );
    let is_wrong = matches!(failure.cause, Cause::InvalidInput | Cause::UnknownTool);
    let stays_wrong = failure.disposition == Disposition::Denied || is_wrong || is_refused;
    !stays_wrong && (failure.sent == Sent::Never || effect.is_replayable())
}
