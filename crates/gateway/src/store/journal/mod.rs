//! Decides what the next process knows of the writes that this one had under way when it was
//! killed.
//!
//! A write is noted before it is sent, and wiped once its answer was delivered or it is certain
//! that it was not executed. A write that a dead process left noted may have been executed, and
//! nobody was told: its repeat is held back like every uncertain write, until its client has
//! looked.
//!
//! Each process has a file of its own (`slots`) and reads those of others (`left`). Nothing is
//! synced: what the system has taken survives the process, and with the system its connections and
//! servers go too.

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

/// Two changes of a folder sooner than this after each other may have the same time.
const SETTLED: Duration = Duration::from_secs(1);

/// The writes under way in this process, and those that other ones left.
#[derive(Debug, Default)]
pub(crate) struct Journal(OnceLock<OpenJournal>);

#[derive(Debug)]
struct OpenJournal {
    folder: PathBuf,
    own: JournalSlots,
    /// Which processes may be at this place, and what else decides what their servers show.
    place: JournalPlace,
    seen: Mutex<SeenWrites>,
}

/// Which processes may be at a place at the same time.
#[derive(Clone, Debug)]
pub(crate) enum JournalPlace {
    /// One, and another only after it: those that listen on the same address.
    ForOne,
    /// Any number. Who was started with other circumstances may look at something else, and lifts
    /// nothing by it.
    ForMany(String),
}

/// What others had noted when it was last looked, and when the folder had changed by then, if that
/// says all.
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

    /// What other processes at this place have noted by now.
    fn left(&self) -> Arc<[LeftWrite]> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let JournalPlace::ForOne = self.place {
            return Arc::clone(&seen.left);
        }
        // Where nobody came since, and nobody else lives, there is nothing new.
        let changed = self.folder.metadata().and_then(|facts| facts.modified()).ok();
        if changed.is_none() || seen.changed != changed {
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

/// Whose look at which server shows what became of a write.
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
    /// Opens the journal of a place, which has a `folder` of its own: what other processes there
    /// left is known from now on.
    pub(crate) fn open(&self, folder: &Path, place: JournalPlace) {
        match OpenJournal::new(folder, place) {
            Ok(open) => _ = self.0.set(open),
            Err(error) => slots::warn(folder, &error),
        }
    }

    /// A write that is to be sent. `None` if nothing is noted here.
    pub(crate) fn write(
        self: &Arc<Self>,
        rejoin: &Rejoin,
        looker: Looker<'_>,
        tool: &str,
        arguments: &Value,
        written: &str,
    ) -> Option<Arc<JournaledWrite>> {
        let open = self.0.get()?;
        // Under fixed keys, so that the next process finds it: whoever can make two calls that
        // collide can make both.
        let call =
            Keys::fixed().key(&[&*rejoin.scope, looker.server, tool, written], arguments).number();
        let (journal, who, patience) = (Arc::clone(self), looker.number(&open.place), rejoin.after);
        let (number, is_known) = Default::default();
        Some(Arc::new(JournaledWrite { journal, call, who, patience, number, is_known }))
    }

    /// Somebody has read from a server, and can know what became of writes there.
    pub(crate) fn looked(&self, looker: Looker<'_>) {
        let Some(open) = self.0.get() else { return };
        let left = open.left();
        if !left.is_empty() || !open.own.is_empty() {
            let who = looker.number(&open.place);
            open.own.looked(who);
            left.iter().for_each(|left| left.looked(who));
        }
    }

    /// The client closed its end: what it had given up by then is other processes' affair from now
    /// on.
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
    /// How soon after it was sent nobody gives up.
    patience: Duration,
    /// Its number among those that were noted; 0 before that.
    number: AtomicU64,
    /// It is known what became of it, and its client is to be told.
    is_known: AtomicBool,
}

impl JournaledWrite {
    /// How long ago the same write was sent by another process, and for how long nobody has known
    /// what became of it, if that is so.
    pub(crate) fn left_behind(&self) -> Option<(Duration, Duration)> {
        let open = self.journal.0.get()?;
        open.left().iter().filter_map(|left| left.since(self.call)).min()
    }

    /// It is about to be sent.
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

    /// It ended. One that was certainly not executed concerns nobody any more.
    pub(crate) fn ended(&self, end: WriteEnd) {
        self.is_known.store(end == WriteEnd::Answered, Ordering::Relaxed);
        let Some(open) = self.journal.0.get().filter(|_| self.is_noted()) else { return };
        match end {
            WriteEnd::Answered => {}
            WriteEnd::NotExecuted => open.own.wipe(self.call),
            WriteEnd::Uncertain => open.own.doubt(self.call),
        }
    }

    /// Its answer was delivered.
    pub(crate) fn delivered(&self) {
        if let Some(open) = self.journal.0.get().filter(|_| self.is_known.load(Ordering::Relaxed)) {
            open.own.delivered(self.call, self.number.load(Ordering::Relaxed));
        }
    }
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteEnd {
    /// With an answer, for whoever is there to take it.
    Answered,
    /// It was certainly not executed.
    NotExecuted,
    /// Nobody knows.
    Uncertain,
}
