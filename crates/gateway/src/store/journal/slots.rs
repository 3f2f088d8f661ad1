//! The file of one process: a slot of 64 bytes for each write under way, with hashes and times,
//! nothing that a client said. Decides which slot a write gets, and which write gives way.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::log;
use crate::runtime::random::secret;

/// Writes that one process notes at a time; then the oldest gives way.
pub(super) const SLOTS: usize = 4096;
/// The bytes of a slot.
pub(super) const SLOT: usize = 64;
/// A script that asks and closes its end does so at once; a client that waited for longer than this
/// has given up.
const SCRIPT: Duration = Duration::from_millis(200);
/// How the name of a file ends.
pub(super) const EXTENSION: &str = "slots";

/// What is noted of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalSlot {
    /// Which call of which caller.
    pub(super) call: u128,
    /// Whose look at which server shows what became of it.
    pub(super) who: u128,
    /// When it was sent, in milliseconds of wall time; never 0.
    pub(super) at: u64,
    /// When it was known that nobody is there to be told what becomes of it; 0 while somebody is.
    pub(super) left: u64,
}

impl JournalSlot {
    /// A write that is sent now.
    pub(super) fn new(call: u128, who: u128) -> Self {
        Self { call, who, at: now(), left: 0 }
    }

    /// `None` if the slot is empty.
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
    /// Locked while the process lives, by which others know that.
    file: File,
    used: Mutex<UsedSlots>,
}

#[derive(Debug, Default)]
struct UsedSlots {
    writes: HashMap<u128, NotedWrite>,
    free: Vec<usize>,
    end: usize,
    /// How many were noted so far.
    count: u64,
    is_broken: bool,
}

#[derive(Clone, Copy, Debug)]
struct NotedWrite {
    /// The how-manyth: the same call may be made again before the end of the first was told.
    number: u64,
    place: usize,
    slot: JournalSlot,
    /// How soon after it was sent nobody gives up.
    patience: Duration,
    /// It has ended, and nobody knows whether it was executed.
    is_uncertain: bool,
}

impl JournalSlots {
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let draft = folder.join(secret());
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&draft)?;
        // Nobody finds it before it is locked, and takes it for a dead process's.
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

    /// Notes a write; gives its number.
    pub(super) fn note(&self, slot: JournalSlot, patience: Duration) -> u64 {
        let mut used = self.lock();
        used.count += 1;
        let number = used.count;
        let place = used.place(slot.call);
        if let Err(error) = slot.write(&self.file, place)
            && !std::mem::replace(&mut used.is_broken, true)
        {
            warn(&self.path, &error);
        }
        used.writes
            .insert(slot.call, NotedWrite { number, place, slot, patience, is_uncertain: false });
        number
    }

    /// Nobody has to know of it any more.
    pub(super) fn wipe(&self, call: u128) {
        let mut used = self.lock();
        if let Some(NotedWrite { place, .. }) = used.writes.remove(&call) {
            used.is_broken |= wipe(&self.file, place).is_err();
            used.free.push(place);
        }
    }

    /// Its answer was written; but nobody reads what a pipe takes whose client has gone.
    /// `number` is its own, or 0 for whoever got another's answer.
    pub(super) fn delivered(&self, call: u128, number: u64) {
        let is_read =
            |write: &NotedWrite| write.slot.left == 0 && (number == 0 || number == write.number);
        let is_over = self.lock().writes.get(&call).is_some_and(is_read);
        if is_over {
            self.wipe(call);
        }
    }

    /// It has ended, and nobody knows whether it was executed.
    pub(super) fn doubt(&self, call: u128) {
        if let Some(write) = self.lock().writes.get_mut(&call) {
            write.is_uncertain = true;
        }
    }

    /// Whoever looked knows what became of those that have ended.
    pub(super) fn looked(&self, who: u128) {
        let is_seen = |write: &NotedWrite| write.is_uncertain && write.slot.who == who;
        let seen: Vec<u128> = self
            .lock()
            .writes
            .iter()
            .filter(|(_, write)| is_seen(write))
            .map(|(call, _)| *call)
            .collect();
        seen.into_iter().for_each(|call| self.wipe(call));
    }

    /// The client closed its end. What it asked for long before that it has given up; but a script
    /// may ask, close its end, and read.
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
    pub(super) fn length(&self) -> u64 {
        self.file.metadata().map_or(0, |facts| facts.len())
    }
}

impl UsedSlots {
    /// A place for a call: the one it has, a free one, a new one, or that of the oldest.
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

/// Tells what is not kept, and why.
pub(super) fn warn(path: &Path, error: &io::Error) {
    let path = path.display();
    log::warn(&format!(
        "{path}: {error}: a write that is under way when seawall is killed is forgotten"
    ));
}

/// The time, as all processes know it.
#[expect(clippy::disallowed_methods, reason = "processes have no other clock in common")]
pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX).max(1)
}

pub(super) fn age(at: u64) -> Duration {
    Duration::from_millis(now().saturating_sub(at))
}
