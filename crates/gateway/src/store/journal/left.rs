//! Decides which writes of other processes at the same place are uncertain: those of which no
//! client learned the outcome.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::slots::{EXTENSION, JournalSlot, SLOT, SLOTS, age, now, wipe};

/// Journal files that are read, the newest first.
const FILES: usize = 64;
/// Older notes are ignored.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A write that another process noted.
#[derive(Debug)]
pub(super) struct LeftWrite {
    file: Arc<File>,
    place: usize,
    call: u128,
    who: u128,
}

impl LeftWrite {
    /// How long ago `call` was sent, and for how long no client has been there to learn its
    /// outcome. `None` if this is another write, if its client is still there, or if a client has
    /// read from the server since.
    pub(super) fn since(&self, call: u128) -> Option<(Duration, Duration)> {
        let slot = (self.call == call).then(|| self.slot())??;
        if slot.left == 0 && is_dead(&self.file) {
            // Noted in the file, so that every process counts from the same time.
            let _for_us_only = JournalSlot { left: now(), ..slot }.write(&self.file, self.place);
            return Some((age(slot.at), Duration::ZERO));
        }
        (slot.left != 0).then(|| (age(slot.at), age(slot.left)))
    }

    /// A client read from the server. That wipes the note only if the process is dead: a read
    /// proves nothing about a write that a living process still has in flight.
    pub(super) fn looked(&self, who: u128) {
        if self.who == who && self.slot().is_some() && is_dead(&self.file) {
            let _stays = wipe(&self.file, self.place);
        }
    }

    /// The note as it is in the file now; `None` if its slot was emptied or reused.
    fn slot(&self) -> Option<JournalSlot> {
        JournalSlot::read(&self.file, self.place).filter(|slot| slot.call == self.call)
    }
}

/// Whether the process of a file is dead. The check takes a shared lock, so several processes may
/// check at once; only the exclusive lock of a living process refuses it.
fn is_dead(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => {
            let _held = file.unlock();
            true
        }
        Err(TryLockError::WouldBlock) => false,
        // On a file system without locks the state of the process is unknown: its writes count as
        // uncertain.
        Err(TryLockError::Error(_)) => true,
    }
}

/// The number of other processes that live, and the writes in all their files. Removes files of
/// dead processes that hold no write, and those beyond `FILES`.
pub(super) fn find(folder: &Path, own: &Path) -> io::Result<(usize, Vec<LeftWrite>)> {
    let entries = fs::read_dir(folder)?.flatten();
    let mut files: Vec<_> = entries
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort();
    let (files, drafts): (Vec<_>, Vec<_>) = files
        .into_iter()
        .rev()
        .filter(|(_, path)| path != own)
        .partition(|(_, path)| path.extension().is_some_and(|name| name == EXTENSION));
    for (_, path) in
        drafts.iter().filter(|(written, _)| written.elapsed().is_ok_and(|age| age > LONGEST))
    {
        let _others = fs::remove_file(path);
    }
    let (mut living, mut left) = (0, Vec::new());
    for (number, (_, path)) in files.iter().enumerate() {
        let Ok(file) = OpenOptions::new().read(true).write(true).open(path).map(Arc::new) else {
            continue;
        };
        // In this order: a process that dies between the two has written everything it ever will
        // before its file is read, so no note of it is missed or removed unread.
        let is_dead = is_dead(&file);
        let writes = read(&file);
        living += usize::from(!is_dead);
        if is_dead && (writes.is_empty() || number >= FILES) {
            let _others = fs::remove_file(path);
        } else if number < FILES {
            left.extend(writes);
        }
    }
    Ok((living, left))
}

fn read(file: &Arc<File>) -> Vec<LeftWrite> {
    let size =
        file.metadata().map_or(0, |facts| usize::try_from(facts.len()).unwrap_or(usize::MAX));
    let mut bytes = vec![0; size.min(SLOTS * SLOT)];
    let length = file.read_at(&mut bytes, 0).unwrap_or(0);
    let slots = bytes[..length].as_chunks::<SLOT>().0.iter().enumerate();
    let noted = slots.filter_map(|(place, bytes)| Some((place, JournalSlot::parse(bytes)?)));
    let recent = noted.filter(|(_, slot)| age(slot.at) < LONGEST);
    let left = recent.map(|(place, slot)| {
        (LeftWrite { file: Arc::clone(file), place, call: slot.call, who: slot.who }, slot.left)
    });
    // The process that first finds an unmarked write of a dead process notes the time.
    left.inspect(|(left, known)| _ = (*known == 0).then(|| left.since(left.call)))
        .map(|(left, _)| left)
        .collect()
}
