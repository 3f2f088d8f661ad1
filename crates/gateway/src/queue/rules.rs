//! Decides the state changes of one queued item: how it is enqueued, waits, is sent, ends and is
//! removed. Knows no store: each store reads an item, lets these rules change it, and keeps it.

use std::time::Duration;

use seawall::{Cause, Disposition, Effect, Failure, NotQueued, QueuedWrite, Sent, WriteFate};

use super::QueueBounds;
use super::item::{ItemState, ItemSummary, QueuedItem, digest};
use crate::protocol::edit::JsonObject;
use crate::protocol::limits;

/// How far a clock may be set back, in milliseconds, before the times of an item are no longer
/// believed.
const CLOCK_SLACK: u64 = 60_000;

/// How long a delivered or dead item matters for new calls, in milliseconds: an identical call is
/// rarely held back for longer.
pub(super) const LATELY: u64 = 60 * 60 * 1000;

/// The note of an item that is on its way to another store.
const SET_ASIDE: &str =
    "it is being moved to Redis, and may be there already; `seawall queue move` goes on with it";

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

impl QueuedItem {
    /// A new item; what destroys something is refused.
    pub(super) fn new(
        call: QueuedWrite,
        now: u64,
        bounds: &QueueBounds,
    ) -> Result<Self, NotQueued> {
        if call.effect == Effect::Destructive {
            return Err(NotQueued::Refused("what destroys something is not done later".to_owned()));
        }
        Ok(Self {
            digest: digest(&call.arguments),
            call,
            state: ItemState::Waiting,
            attempts: 0,
            next_attempt: now,
            enqueued: now,
            expires: now.saturating_add(bounds.waits),
            forgotten: None,
            may_have_executed: false,
            note: None,
            outcome: None,
            is_error: false,
            ended: None,
        })
    }

    /// Marks the item as being sent.
    pub(super) fn begin(&mut self) {
        self.state = ItemState::Delivering;
        self.attempts = self.attempts.saturating_add(1);
    }

    /// Records how an attempt ended. An item that may be sent again waits for `pause`.
    pub(super) fn settle(
        &mut self,
        end: &Result<String, Failure>,
        pause: u64,
        now: u64,
        bounds: &QueueBounds,
    ) {
        match end {
            Ok(outcome) => self.deliver(outcome, now, bounds),
            Err(failure) => {
                self.may_have_executed |= failure.may_have_executed(self.call.effect);
                self.note = Some(failure.message.clone());
                if may_go_on(failure, self.call.effect) {
                    self.state = ItemState::Waiting;
                    self.next_attempt = now.saturating_add(pause);
                } else {
                    self.bury(&failure.message, now, bounds);
                }
            }
        }
    }

    /// Makes a waiting or dead item due now. A dead item that may have been executed, and whose
    /// repeat would do harm, is revived only with `even_if_executed`.
    pub(super) fn retry(
        &mut self,
        even_if_executed: bool,
        now: u64,
        bounds: &QueueBounds,
    ) -> ItemChange {
        if !matches!(self.state, ItemState::Waiting | ItemState::Dead) {
            return not_now(self.state, self.is_error);
        }
        let does_harm = self.may_have_executed && !self.call.effect.is_replayable();
        if self.state == ItemState::Dead && does_harm && !even_if_executed {
            return ItemChange::InDoubt;
        }
        self.state = ItemState::Waiting;
        self.next_attempt = now;
        self.expires = now.saturating_add(bounds.waits);
        (self.forgotten, self.ended) = (None, None);
        ItemChange::Done
    }

    /// An attempt ended and its end was not recorded.
    pub(super) fn interrupted(&mut self, how: &str, now: u64, bounds: &QueueBounds) {
        // The mark was durable before the call was sent, so the server may have executed it.
        self.may_have_executed = self.call.effect != Effect::ReadOnly;
        if self.call.effect.is_replayable() {
            self.state = ItemState::Waiting;
            self.next_attempt = now;
            self.note = Some(format!("{how} during an attempt"));
        } else {
            self.end(ItemState::Dead, now, bounds);
            self.note = Some(format!("may have been executed when {how}"));
        }
    }

    /// Gives up an item that waited too long.
    pub(super) fn expire(&mut self, now: u64, bounds: &QueueBounds) {
        let last = self.note.take().map(|note| format!(" (last: {note})")).unwrap_or_default();
        self.bury(&format!("its server was not back in time{last}"), now, bounds);
    }

    /// Its times start anew: they were not known yet, or the clock was set back since it came.
    pub(super) fn start_anew(&mut self, now: u64, bounds: &QueueBounds) {
        (self.enqueued, self.next_attempt, self.expires) =
            (now, now, now.saturating_add(bounds.waits));
    }

    /// Takes a waiting item out of its line, to move it to another store. One that may have been
    /// executed stays.
    pub(super) fn set_aside(&mut self, now: u64, bounds: &QueueBounds) -> ItemChange {
        if self.state != ItemState::Waiting || self.may_have_executed {
            return ItemChange::NotNow(self.state);
        }
        self.end(ItemState::Dead, now, bounds);
        // Whoever repeats it, or has it sent again, is told to look first.
        self.may_have_executed = true;
        self.note = Some(SET_ASIDE.to_owned());
        ItemChange::Done
    }

    /// Whether the item was set aside.
    pub(super) fn is_set_aside(&self) -> bool {
        self.state == ItemState::Dead && self.note.as_deref() == Some(SET_ASIDE)
    }

    /// Puts an item that was set aside back into its line.
    pub(super) fn take_back(&mut self, now: u64, bounds: &QueueBounds) -> ItemChange {
        if !self.is_set_aside() {
            return ItemChange::NotNow(self.state);
        }
        (self.may_have_executed, self.note) = (false, None);
        self.retry(true, now, bounds)
    }

    fn deliver(&mut self, outcome: &str, now: u64, bounds: &QueueBounds) {
        self.end(ItemState::Delivered, now, bounds);
        self.call.arguments = serde_json::Value::Null;
        self.is_error = JsonObject::of(outcome.as_bytes()).get("isError") == Some(b"true");
        if outcome.len() > bounds.outcome_bytes {
            self.note = Some(format!(
                "executed; its result of {} bytes is too large to keep",
                outcome.len()
            ));
        } else {
            self.note = None;
            self.outcome = Some(outcome.to_owned());
        }
    }

    fn bury(&mut self, why: &str, now: u64, bounds: &QueueBounds) {
        let fate =
            if self.may_have_executed { "may have been executed" } else { "was not executed" };
        self.end(ItemState::Dead, now, bounds);
        self.note = Some(format!("{fate}: {why}"));
    }

    fn end(&mut self, state: ItemState, now: u64, bounds: &QueueBounds) {
        let kept =
            if state == ItemState::Delivered { bounds.outcome_kept } else { bounds.dead_kept };
        self.state = state;
        (self.ended, self.forgotten) = (Some(now), Some(now.saturating_add(kept)));
    }
}

impl ItemSummary {
    /// Whether the item may be removed: not while an attempt is in flight. A delivered item, whose
    /// result its client may still read, only with `even_if_delivered`.
    pub(super) fn may_go(&self, even_if_delivered: bool) -> ItemChange {
        match self.state {
            ItemState::Waiting | ItemState::Dead => ItemChange::Done,
            ItemState::Delivered if even_if_delivered => ItemChange::Done,
            state => not_now(state, self.is_error),
        }
    }

    /// Whether the item came from a time that is still to come: the clock was set back.
    pub(super) fn is_from_the_future(&self, now: u64) -> bool {
        self.enqueued > now.saturating_add(CLOCK_SLACK)
    }

    /// Whether the item waits for its server or is being sent.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, ItemState::Waiting | ItemState::Delivering)
    }

    /// When the item has waited too long, or is to be forgotten; never while it is being sent.
    pub(super) fn is_over(&self) -> Option<u64> {
        match self.state {
            ItemState::Waiting => Some(self.expires),
            ItemState::Delivering => None,
            ItemState::Delivered | ItemState::Dead => self.forgotten,
        }
    }

    /// Until when the item matters for new calls to its server.
    pub(super) fn is_awaited_until(&self) -> u64 {
        match self.is_open() {
            true => u64::MAX,
            false => self.ended.unwrap_or_default().saturating_add(LATELY),
        }
    }

    /// What became of an earlier call.
    pub(super) fn fate(&self, now: u64) -> WriteFate {
        let ago = Duration::from_millis(now.saturating_sub(self.ended.unwrap_or(now)));
        match self.state {
            ItemState::Waiting => WriteFate::Waits,
            ItemState::Delivering => WriteFate::UnderWay,
            ItemState::Delivered => WriteFate::Executed(ago),
            ItemState::Dead if self.may_have_executed => WriteFate::Uncertain(ago),
            ItemState::Dead => WriteFate::NotExecuted,
        }
    }
}

/// Refuses a record that is larger than one call may be.
pub(super) fn check_size(size: usize) -> Result<(), NotQueued> {
    if size <= limits::QUEUED {
        return Ok(());
    }
    let most = limits::QUEUED;
    Err(NotQueued::Refused(format!("its {size} bytes are more than the {most} that may wait")))
}

/// The queue has as many calls as it may hold.
pub(super) fn full_of_items(items: usize) -> NotQueued {
    NotQueued::Refused(format!("{items} calls are in it already"))
}

/// The queue has as many bytes as it may hold.
pub(super) fn full_of_bytes(bytes: u64) -> NotQueued {
    NotQueued::Refused(format!("it holds {bytes} bytes already"))
}

/// Why an item in this state cannot be changed.
pub(super) fn not_now(state: ItemState, is_error: bool) -> ItemChange {
    if is_error { ItemChange::WentWrong } else { ItemChange::NotNow(state) }
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
