//! The files of other processes at the same place: decides which of their writes nobody was told
//! about.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::slots::{EXTENSION, JournalSlot, SLOT, SLOTS, age, now, wipe};

/// Files that are read, the newest first.
const FILES: usize = 64;
/// What was noted longer ago than this concerns nobody.
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
    /// How long ago `call` was sent, and for how long nobody has been there to be told what became
    /// of it. `None` if this is another write, if somebody is there, or has looked since.
    pub(super) fn since(&self, call: u128) -> Option<(Duration, Duration)> {
        let slot = (self.call == call).then(|| self.slot())??;
        if slot.left == 0 && is_dead(&self.file) {
            // From now on, for all who ask.
            let _for_us_only = JournalSlot { left: now(), ..slot }.write(&self.file, self.place);
            return Some((age(slot.at), Duration::ZERO));
        }
        (slot.left != 0).then(|| (age(slot.at), age(slot.left)))
    }

    /// Somebody looked: that shows nothing of what a living process still has under way.
    pub(super) fn looked(&self, who: u128) {
        if self.who == who && self.slot().is_some() && is_dead(&self.file) {
            let _stays = wipe(&self.file, self.place);
        }
    }

    /// What stands there now.
    fn slot(&self) -> Option<JournalSlot> {
        JournalSlot::read(&self.file, self.place).filter(|slot| slot.call == self.call)
    }
}

/// Whether the process of a file is gone. Several may ask at the same time; only one that lives
/// keeps them out.
fn is_dead(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => {
            let _held = file.unlock();
            true
        }
        Err(TryLockError::WouldBlock) => false,
        // Where there are no locks nobody can tell: then what it noted is not forgotten.
        Err(TryLockError::Error(_)) => true,
    }
}

/// How many other processes live, and what all of them noted. What concerns nobody any more is
/// removed.
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
        let (writes, is_dead) = (read(&file), is_dead(&file));
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
    // Whoever finds it first notes when.
    left.inspect(|(left, known)| _ = (*known == 0).then(|| left.since(left.call)))
        .map(|(left, _)| left)
        .collect()
}
