//! Decides which slot of this process's journal file a write gets, and which write gives way when
//! all are taken. A slot has 64 bytes: hashes and times, no text of a client.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::log;
use crate::runtime::random::secret;

/// Writes that one process notes at a time; after that the oldest gives way.
pub(super) const SLOTS: usize = 4096;
/// The bytes of a slot.
pub(super) const SLOT: usize = 64;
/// A script sends its requests and closes its end at once; a client that had waited for longer than
/// this has given up.
const SCRIPT: Duration = Duration::from_millis(200);
/// The extension of a journal file.
pub(super) const EXTENSION: &str = "slots";

/// The note of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalSlot {
    /// The call and its caller, hashed.
    pub(super) call: u128,
    /// The conversation and server, hashed: a read by the one from the other shows the outcome.
    pub(super) who: u128,
    /// When the write was sent, in milliseconds of wall time; never 0, because 0 marks an empty
    /// slot.
    pub(super) at: u64,
    /// When it became known that no client waits for the outcome; 0 while a client does.
    pub(super) left: u64,
}

impl JournalSlot {
    /// A write that is sent now.
    pub(super) fn new(call: u128, who: u128) -> Self {
        Self { call, who, at: now(), left: 0 }
    }

    /// Parses a slot; `None` if it is empty.
    pub(super) fn parse(bytes: &[u8; SLOT]) -> Option<Self> {
        let hash =
            |at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes));
        let time =
            |at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        (time(32) != 0).then(|| Self { call: hash(0), who: hash(16), at: time(32), left: time(40) })
    }

    pub(super) fn read(file: &File, place: usize) -> Option<Self> {
        let mut bytes = [0; SLOT];
        file.read_exact_at(&mut bytes, (place * SLOT) as u64).ok()?;
        Self::parse(&bytes)
    }

    pub(super) fn write(&self, file: &File, place: usize) -> io::Result<()> {
        let mut bytes = [0; SLOT];
        bytes[..16].copy_from_slice(&self.call.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.who.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.at.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.left.to_le_bytes());
        file.write_all_at(&bytes, (place * SLOT) as u64)
    }
}

/// Empties a slot.
pub(super) fn wipe(file: &File, place: usize) -> io::Result<()> {
    file.write_all_at(&[0; SLOT], (place * SLOT) as u64)
}

/// The slots of this process.
#[derive(Debug)]
pub(super) struct JournalSlots {
    path: PathBuf,
    /// Locked while the process lives: by the lock other processes see that it does.
    file: File,
    used: Mutex<UsedSlots>,
}

#[derive(Debug, Default)]
struct UsedSlots {
    writes: HashMap<u128, NotedWrite>,
    free: Vec<usize>,
    end: usize,
    /// How many writes were noted so far.
    count: u64,
    is_broken: bool,
}

#[derive(Clone, Copy, Debug)]
struct NotedWrite {
    /// The number of this note. The same call may be noted again before the end of the first is
    /// reported.
    number: u64,
    place: usize,
    slot: JournalSlot,
    /// A client does not give up sooner than this after the write was sent.
    patience: Duration,
    /// Whether the write has ended without a known outcome.
    is_uncertain: bool,
    /// Whether the write has ended with an answer.
    is_answered: bool,
}

impl JournalSlots {
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let draft = folder.join(secret());
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&draft)?;
        // Renamed only after it is locked: another process that found the file without a lock would
        // take it for that of a dead process.
        file.try_lock()?;
        let path = draft.with_extension(EXTENSION);
        fs::rename(&draft, &path)?;
        Ok(Self { path, file, used: Mutex::default() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().writes.is_empty()
    }

    /// Notes a write; returns the number of the note.
    pub(super) fn note(&self, slot: JournalSlot, patience: Duration) -> u64 {
        let mut used = self.lock();
        used.count += 1;
        let number = used.count;
        let place = used.place(slot.call);
        // A write that cannot be noted is sent all the same; only the protection after a kill is
        // lost, and the operator is told once.
        if let Err(error) = slot.write(&self.file, place)
            && !std::mem::replace(&mut used.is_broken, true)
        {
            warn(&self.path, &error);
        }
        let (is_uncertain, is_answered) = (false, false);
        let noted = NotedWrite { number, place, slot, patience, is_uncertain, is_answered };
        used.writes.insert(slot.call, noted);
        number
    }

    /// Wipes a note of a call, unless the identical write was noted again since.
    pub(super) fn wipe(&self, call: u128, number: u64) {
        let mut used = self.lock();
        if used.noted(call, number).is_some() {
            used.wipe(&self.file, call);
        }
    }

    /// The write ended with an answer.
    pub(super) fn answered(&self, call: u128, number: u64) {
        self.lock().noted(call, number).into_iter().for_each(|write| write.is_answered = true);
    }

    /// The answer of a write was delivered: wipes its note, unless its client has left. A pipe
    /// still takes answers that its client will never read. `number` is that of the note, or 0 for
    /// a call that got the answer of another call: a write that still runs is not the one it got.
    pub(super) fn delivered(&self, call: u128, number: u64) {
        let is_its_own = |write: &NotedWrite| match number {
            0 => write.is_answered,
            number => number == write.number,
        };
        let is_read = |write: &NotedWrite| write.slot.left == 0 && is_its_own(write);
        // Under one lock: the identical write may be noted again between the look and the wipe.
        let mut used = self.lock();
        if used.writes.get(&call).is_some_and(is_read) {
            used.wipe(&self.file, call);
        }
    }

    /// The write ended without a known outcome.
    pub(super) fn doubt(&self, call: u128, number: u64) {
        self.lock().noted(call, number).into_iter().for_each(|write| write.is_uncertain = true);
    }

    /// A client read from its server and knows the outcome of its writes that have ended: wipes
    /// their notes.
    pub(super) fn looked(&self, who: u128) {
        let is_seen = |write: &NotedWrite| write.is_uncertain && write.slot.who == who;
        let mut used = self.lock();
        let seen = used.writes.iter().filter(|(_, write)| is_seen(write));
        let seen: Vec<u128> = seen.map(|(call, _)| *call).collect();
        seen.into_iter().for_each(|call| used.wipe(&self.file, call));
    }

    /// The client closed its end: marks the writes that it sent some time ago, which it has given
    /// up. A write sent just before stays unmarked: a script may send, close its end, and then
    /// read.
    pub(super) fn leave(&self) {
        let mut used = self.lock();
        let UsedSlots { writes, is_broken, .. } = &mut *used;
        for write in
            writes.values_mut().filter(|write| age(write.slot.at) >= SCRIPT.min(write.patience))
        {
            write.slot.left = now();
            *is_broken |= write.slot.write(&self.file, write.place).is_err();
        }
    }

    fn lock(&self) -> MutexGuard<'_, UsedSlots> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        self.lock().count
    }

    #[cfg(test)]
    pub(super) fn length(&self) -> u64 {
        self.file.metadata().map_or(0, |facts| facts.len())
    }
}

impl UsedSlots {
    /// The note with this number, unless the identical write was noted again since.
    fn noted(&mut self, call: u128, number: u64) -> Option<&mut NotedWrite> {
        self.writes.get_mut(&call).filter(|write| write.number == number)
    }

    /// Wipes the note of a call. The caller holds the lock: once the place is free another write
    /// may be noted there, and a late wipe would erase that note.
    fn wipe(&mut self, file: &File, call: u128) {
        if let Some(NotedWrite { place, .. }) = self.writes.remove(&call) {
            self.is_broken |= wipe(file, place).is_err();
            self.free.push(place);
        }
    }

    /// A place for a call: the one it has, a free one, a new one, or that of the oldest write.
    fn place(&mut self, call: u128) -> usize {
        if let Some(write) = self.writes.get(&call) {
            return write.place;
        }
        if let Some(free) = self.free.pop() {
            return free;
        }
        if self.end < SLOTS {
            self.end += 1;
            return self.end - 1;
        }
        let oldest =
            self.writes.iter().min_by_key(|(_, write)| write.slot.at).map(|(call, _)| *call);
        oldest.and_then(|oldest| self.writes.remove(&oldest)).map_or(0, |write| write.place)
    }
}

/// Warns the operator that writes in flight are not journaled, and why.
pub(super) fn warn(path: &Path, error: &io::Error) {
    let path = path.display();
    log::warn(&format!(
        "{path}: {error}: a write that is under way when seawall is killed is forgotten"
    ));
}

/// The wall time in milliseconds, which all processes share; at least 1.
#[expect(clippy::disallowed_methods, reason = "processes have no other clock in common")]
pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX).max(1)
}

pub(super) fn age(at: u64) -> Duration {
    Duration::from_millis(now().saturating_sub(at))
}
