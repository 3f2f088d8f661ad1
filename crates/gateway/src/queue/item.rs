//! Decides which data of a queued call are kept, and their form in a store: JSON, behind a
//! checksum in the file.

use std::hash::{Hash, Hasher};

use seawall::QueuedWrite;
use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher13};

/// Bytes of the checksum before each record.
const SUM: usize = 16;

/// Characters of a note that are kept in memory; fewer are shown.
const NOTE: usize = 1024;

/// The state of a queued call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemState {
    /// It waits for its server.
    Waiting,
    /// An attempt is in flight, or was when the gateway stopped.
    Delivering,
    /// The tool answered; its result is kept for a while.
    Delivered,
    /// It was given up, and is sent again only if an operator says so.
    Dead,
}

impl ItemState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Delivering, Self::Delivered, Self::Dead];

    /// Its name, as the admin API and the stores spell it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delivering => "delivering",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }
}

/// A call in the queue. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedItem {
    /// The call itself. Its arguments are dropped once it is delivered.
    pub call: QueuedWrite,
    /// The state of the item.
    pub state: ItemState,
    /// Attempts that were started.
    pub attempts: u32,
    /// The earliest time of the next attempt, while the item waits.
    pub next_attempt: u64,
    /// When the call was queued.
    pub enqueued: u64,
    /// When the item stops waiting.
    pub expires: u64,
    /// When the item is removed, once it is delivered or dead.
    pub forgotten: Option<u64>,
    /// An attempt may have been executed although its result is unknown.
    pub may_have_executed: bool,
    /// Why the item is not delivered yet, or never will be.
    pub note: Option<String>,
    /// The tool's result, as JSON.
    pub outcome: Option<String>,
    /// The tool marked its result as an error. The call was executed all the same, and is not sent
    /// again.
    #[serde(default)]
    pub is_error: bool,
    /// When the item was delivered or given up.
    #[serde(default)]
    pub ended: Option<u64>,
    /// Identifies the arguments once they are dropped.
    #[serde(default)]
    pub digest: u64,
}

/// An item as a list shows it, with the field names of the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemSummary {
    /// The item's name.
    pub id: String,
    /// The tool to call.
    pub tool: String,
    /// The server of the tool.
    pub server: String,
    /// The state of the item.
    pub state: ItemState,
    /// The item was delivered, and answered with an error.
    pub is_error: bool,
    /// Attempts that were started.
    pub attempts: u32,
    /// The earliest time of the next attempt, while the item waits; milliseconds since 1970.
    pub next_attempt: Option<u64>,
    /// When the call was queued; milliseconds since 1970.
    pub enqueued: u64,
    /// An attempt may have been executed although its result is unknown.
    pub may_have_executed: bool,
    /// The beginning of the note: why the item is not delivered yet, or never will be.
    pub last_error: Option<String>,
    /// The caller that the call was queued for.
    #[serde(skip)]
    pub caller: String,
    #[serde(skip)]
    pub(super) expires: u64,
    #[serde(skip)]
    pub(super) forgotten: Option<u64>,
    #[serde(skip)]
    pub(super) bytes: u64,
    #[serde(skip)]
    pub(super) ended: Option<u64>,
    /// A hash of the arguments, so that few items have to be read to find an identical call.
    #[serde(skip)]
    pub(super) digest: u64,
}

impl QueuedItem {
    /// The summary of the item; `bytes` is its size in the file.
    pub(super) fn brief(&self, id: u64, bytes: usize) -> ItemSummary {
        ItemSummary {
            id: name(id),
            tool: self.call.tool.clone(),
            server: self.call.server.clone(),
            state: self.state,
            is_error: self.is_error,
            attempts: self.attempts,
            next_attempt: (self.state == ItemState::Waiting).then_some(self.next_attempt),
            enqueued: self.enqueued,
            may_have_executed: self.may_have_executed,
            last_error: self.note.as_ref().map(|note| note.chars().take(NOTE).collect()),
            caller: self.call.caller.clone(),
            expires: self.expires,
            forgotten: self.forgotten,
            bytes: bytes as u64,
            ended: self.ended,
            // An earlier version wrote the record without a digest.
            digest: if self.digest == 0 { digest(&self.call.arguments) } else { self.digest },
        }
    }

    /// The record for the file.
    pub(super) fn encode(&self, id: u64) -> Result<Vec<u8>, serde_json::Error> {
        let json = serde_json::to_vec(self)?;
        let mut record = sum(id, &json).to_vec();
        record.extend_from_slice(&json);
        Ok(record)
    }

    /// Decodes a record; `None` if it is damaged or was written under another id.
    pub(super) fn decode(id: u64, record: &[u8]) -> Option<Self> {
        let (sum_kept, json) = record.split_at_checked(SUM)?;
        if sum_kept != sum(id, json) {
            return None;
        }
        serde_json::from_slice(json).ok()
    }
}

impl ItemSummary {
    /// What is shown of an item that cannot be read.
    pub(super) fn unreadable(id: u64) -> Self {
        let none = String::new;
        Self {
            id: name(id),
            tool: none(),
            server: none(),
            state: ItemState::Dead,
            is_error: false,
            attempts: 0,
            next_attempt: None,
            enqueued: 0,
            may_have_executed: true,
            last_error: Some("it was not written by this fleet, or under another key".to_owned()),
            caller: none(),
            expires: 0,
            forgotten: None,
            bytes: 0,
            ended: None,
            digest: 0,
        }
    }
}

/// The name of an item: short, and never given twice.
pub(super) fn name(id: u64) -> String {
    format!("q{id}")
}

/// The number behind a name.
pub fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('q')?;
    // Compared with its own spelling, so that `q01` and `q+1` are no second names of `q1`.
    digits.parse().ok().filter(|id| self::name(*id) == name)
}

pub(super) fn digest(arguments: &serde_json::Value) -> u64 {
    let mut hasher = SipHasher13::new();
    arguments.hash(&mut hasher);
    hasher.finish128().h1
}

fn sum(id: u64, json: &[u8]) -> [u8; SUM] {
    let mut hasher = SipHasher13::new_with_keys(0x05ea_3a11, 0x05ea_3a11);
    // The id is part of the sum: a record that was moved to another id is not accepted.
    hasher.write_u64(id);
    hasher.write(json);
    hasher.finish128().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_was_damaged_or_moved_is_not_read() {
        let call = QueuedWrite {
            server: "s".into(),
            tool: "t".into(),
            arguments: serde_json::json!({ "a": 1 }),
            caller: String::new(),
            effect: seawall::Effect::Write,
            principal: None,
        };
        let (state, note, outcome) = (ItemState::Waiting, None, None);
        let (attempts, next_attempt, enqueued, expires, forgotten) = (0, 1, 2, 3, None);
        let may_have_executed = false;
        let item = QueuedItem {
            call,
            state,
            attempts,
            next_attempt,
            enqueued,
            expires,
            forgotten,
            may_have_executed,
            note,
            outcome,
            is_error: false,
            ended: None,
            digest: 7,
        };
        let record = item.encode(7).unwrap();
        assert_eq!(QueuedItem::decode(7, &record), Some(item));
        assert_eq!(QueuedItem::decode(8, &record), None);
        for at in 0..record.len() {
            let mut damaged = record.clone();
            damaged[at] ^= 1;
            assert_eq!(QueuedItem::decode(7, &damaged), None, "byte {at}");
        }
    }
}
