//! Decides which writes the next process treats as uncertain: those that this process had in flight
//! when it was killed.
//!
//! A write is noted before it is sent, and wiped once its answer was delivered or it certainly was
//! not executed. A write that a dead process left in its journal may have been executed, and no
//! client was told: its repeat is held back like every uncertain write, until its client has read
//! from the server.
//!
//! Each process has a file of its own (`slots`) and reads the files of others (`left`). Nothing is
//! synced: bytes that the system has taken survive the process, and a crash of the system also ends
//! its connections and servers.

mod left;
mod slots;
#[cfg(test)]
mod tests;

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use seawall::{Keys, Rejoin};
use serde_json::Value;

use self::left::LeftWrite;
use self::slots::{JournalSlot, JournalSlots};
use crate::protocol::hash::key;
use crate::runtime::log;

/// Two changes of a folder within this time may get the same modification time.
const SETTLED: Duration = Duration::from_secs(1);

/// The writes in flight in this process, and those that other processes left.
#[derive(Debug, Default)]
pub(crate) struct Journal(OnceLock<OpenJournal>);

#[derive(Debug)]
struct OpenJournal {
    folder: PathBuf,
    own: JournalSlots,
    /// Which processes may share this place, and under which circumstances they read from its
    /// servers.
    place: JournalPlace,
    seen: Mutex<SeenWrites>,
}

/// Which processes may use a place at the same time.
#[derive(Clone, Debug)]
pub(crate) enum JournalPlace {
    /// One process, and another only after it has ended: those that listen on the same address.
    ForOne,
    /// Any number of processes. A process started under other circumstances may read from other
    /// servers, so its reads settle no uncertain write.
    ForMany(String),
}

/// The writes that other processes had noted when their files were last read, and the folder's
/// modification time by then, if that time proves that nothing has changed since.
#[derive(Debug, Default)]
struct SeenWrites {
    left: Arc<[LeftWrite]>,
    changed: Option<SystemTime>,
}

impl OpenJournal {
    fn new(folder: &Path, place: JournalPlace) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let own = JournalSlots::new(folder)?;
        let (_, left) = left::find(folder, own.path())?;
        let seen = Mutex::new(SeenWrites { left: left.into(), changed: None });
        Ok(Self { folder: folder.to_owned(), own, place, seen })
    }

    /// The writes that other processes at this place have noted by now.
    fn left(&self) -> Arc<[LeftWrite]> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let JournalPlace::ForOne = self.place {
            return Arc::clone(&seen.left);
        }
        // If no file came or went since, and no other process lives that could write to its file,
        // there is nothing new.
        let changed = self.folder.metadata().and_then(|facts| facts.modified()).ok();
        if changed.is_none() || seen.changed != changed {
            // The folder's time does not show writes into a file, so it proves nothing while
            // another process lives; nor right after a change, because a second change could get
            // the same time.
            let (living, left) = left::find(&self.folder, self.own.path()).unwrap_or_default();
            let is_settled = |at: &SystemTime| at.elapsed().is_ok_and(|age| age > SETTLED);
            *seen = SeenWrites {
                left: left.into(),
                changed: changed.filter(|at| living == 0 && is_settled(at)),
            };
        }
        Arc::clone(&seen.left)
    }
}

/// A conversation and a server: a read by the first from the second shows the outcome of its writes
/// there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looker<'a> {
    /// The conversation.
    pub conversation: &'a str,
    /// The server.
    pub server: &'a str,
}

impl Looker<'_> {
    fn number(&self, place: &JournalPlace) -> u128 {
        let circumstances = match place {
            JournalPlace::ForOne => "",
            JournalPlace::ForMany(circumstances) => circumstances,
        };
        let parts =
            [self.conversation.as_bytes(), self.server.as_bytes(), circumstances.as_bytes()];
        u128::from_str_radix(&key(&parts), 16).unwrap_or_default()
    }
}

impl Journal {
    /// Opens the journal of a place, which has a `folder` of its own, and reads the writes that
    /// other processes left there.
    pub(crate) fn open(&self, folder: &Path, place: JournalPlace) {
        match OpenJournal::new(folder, place) {
            Ok(open) => _ = self.0.set(open),
            Err(error) => slots::warn(folder, &error),
        }
    }

    /// Prepares the note of a write that is to be sent. `None` if the journal is not open.
    pub(crate) fn write(
        self: &Arc<Self>,
        rejoin: &Rejoin,
        looker: Looker<'_>,
        tool: &str,
        arguments: &Value,
        written: &str,
    ) -> Option<Arc<JournaledWrite>> {
        let open = self.0.get()?;
        // Under fixed keys, so that the next process finds the write. A caller that can make two
        // calls collide can also make both of them.
        let call =
            Keys::fixed().key(&[&*rejoin.scope, looker.server, tool, written], arguments).number();
        let (journal, who, patience) = (Arc::clone(self), looker.number(&open.place), rejoin.after);
        let (number, is_known) = Default::default();
        Some(Arc::new(JournaledWrite { journal, call, who, patience, number, is_known }))
    }

    /// A client has read from a server, and so can know the outcome of its writes there: wipes
    /// those notes.
    pub(crate) fn looked(&self, looker: Looker<'_>) {
        let Some(open) = self.0.get() else { return };
        let left = open.left();
        if !left.is_empty() || !open.own.is_empty() {
            let who = looker.number(&open.place);
            open.own.looked(who);
            left.iter().for_each(|left| left.looked(who));
        }
    }

    /// The client closed its end: marks the writes that it had given up by then, so that other
    /// processes hold their repeats back.
    pub(crate) fn leave(&self) {
        self.0.get().into_iter().for_each(|open| open.own.leave());
    }
}

/// One write of a client.
#[derive(Debug)]
pub(crate) struct JournaledWrite {
    journal: Arc<Journal>,
    call: u128,
    who: u128,
    /// A client does not give up sooner than this after the write was sent.
    patience: Duration,
    /// The number of its note in this process; 0 before it is noted.
    number: AtomicU64,
    /// Whether the outcome is known and the client is to be told.
    is_known: AtomicBool,
}

impl JournaledWrite {
    /// If another process sent the same write: how long ago, and for how long its outcome has been
    /// unknown.
    pub(crate) fn left_behind(&self) -> Option<(Duration, Duration)> {
        let open = self.journal.0.get()?;
        open.left().iter().filter_map(|left| left.since(self.call)).min()
    }

    /// Notes the write. Called before it is sent.
    pub(crate) fn begin(&self) {
        if let Some(open) = self.journal.0.get().filter(|_| !self.is_noted()) {
            self.number.store(
                open.own.note(JournalSlot::new(self.call, self.who), self.patience),
                Ordering::Relaxed,
            );
        }
    }

    fn is_noted(&self) -> bool {
        self.number.load(Ordering::Relaxed) != 0
    }

    /// The write ended. A write that certainly was not executed is wiped at once.
    pub(crate) fn ended(&self, end: WriteEnd) {
        self.is_known.store(end == WriteEnd::Answered, Ordering::Relaxed);
        let Some(open) = self.journal.0.get().filter(|_| self.is_noted()) else { return };
        let number = self.number.load(Ordering::Relaxed);
        match end {
            // The note stays until the answer was delivered: a process that is killed before that
            // has told no client.
            WriteEnd::Answered => open.own.answered(self.call, number),
            WriteEnd::NotExecuted => open.own.wipe(self.call, number),
            WriteEnd::Uncertain => open.own.doubt(self.call, number),
        }
    }

    /// The answer of the write was delivered.
    pub(crate) fn delivered(&self) {
        if let Some(open) = self.journal.0.get().filter(|_| self.is_known.load(Ordering::Relaxed)) {
            open.own.delivered(self.call, self.number.load(Ordering::Relaxed));
        }
    }
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteEnd {
    /// With an answer, which may or may not find its client.
    Answered,
    /// The write certainly was not executed.
    NotExecuted,
    /// The write may have been executed.
    Uncertain,
}
