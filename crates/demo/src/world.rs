//! What a faulty server and those who watch it share: the faults of the moment, and a ledger of
//! what really happened.
//!
//! Both are files, because servers die here: the next process of the same server goes on where the
//! last one ended.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::faults::FaultPlan;

/// One server's world.
#[derive(Debug)]
pub struct World {
    folder: PathBuf,
    counts: Mutex<LedgerCounts>,
}

/// The ledger as far as it was read.
#[derive(Debug, Default)]
struct LedgerCounts {
    read: u64,
    lines: HashMap<String, u32>,
    /// What was written since the plan changed.
    fresh: HashMap<String, u32>,
}

/// The line of a new plan.
const CHANGE: &str = "plan";

/// What a ledger says of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerEntry {
    /// An attempt arrived.
    Seen,
    /// It was executed.
    Done,
}

impl LedgerEntry {
    fn word(self) -> &'static str {
        match self {
            LedgerEntry::Seen => "seen",
            LedgerEntry::Done => "done",
        }
    }
}

impl World {
    /// The world in this folder, which is there.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), counts: Mutex::default() }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What goes wrong now; nothing if nobody has said so.
    pub fn plan(&self) -> FaultPlan {
        let text = fs::read(self.folder.join("plan")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// From now on this goes wrong.
    pub fn set(&self, plan: &FaultPlan) -> io::Result<()> {
        let fresh = self.folder.join("plan.new");
        fs::write(&fresh, serde_json::to_vec(plan)?)?;
        fs::rename(fresh, self.folder.join("plan"))?;
        self.write(CHANGE)
    }

    /// Writes down what happened to a call, and says how often that is since the plan changed.
    pub fn note(&self, entry: LedgerEntry, tool: &str, number: u64) -> u32 {
        let line = format!("{} {tool} {number}", entry.word());
        let mut counts = self.counts();
        let _lost = self.write(&line);
        self.read_on(&mut counts);
        counts.fresh.get(&line).copied().unwrap_or(1)
    }

    fn write(&self, line: &str) -> io::Result<()> {
        let mut ledger = fs::OpenOptions::new().create(true).append(true).open(self.ledger())?;
        ledger.write_all(format!("{line}\n").as_bytes())
    }

    /// How often this happened to a call.
    pub fn count(&self, entry: LedgerEntry, tool: &str, number: u64) -> u32 {
        let mut counts = self.counts();
        self.read_on(&mut counts);
        counts.lines.get(&format!("{} {tool} {number}", entry.word())).copied().unwrap_or(0)
    }

    /// How often this happened to all calls of all tools.
    pub fn total(&self, entry: LedgerEntry) -> u64 {
        let mut counts = self.counts();
        self.read_on(&mut counts);
        counts
            .lines
            .iter()
            .filter(|(line, _)| line.starts_with(entry.word()))
            .map(|(_, count)| u64::from(*count))
            .sum()
    }

    fn counts(&self) -> MutexGuard<'_, LedgerCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ledger(&self) -> PathBuf {
        self.folder.join("ledger")
    }

    /// Reads what was written since, by this process or another.
    fn read_on(&self, counts: &mut LedgerCounts) {
        let mut text = String::new();
        let read = fs::File::open(self.ledger()).and_then(|mut file| {
            file.seek(SeekFrom::Start(counts.read))?;
            file.read_to_string(&mut text)
        });
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        if read.is_ok() {
            counts.read += whole as u64;
            for line in text[..whole].lines() {
                if line == CHANGE {
                    counts.fresh.clear();
                    continue;
                }
                *counts.lines.entry(line.to_owned()).or_default() += 1;
                *counts.fresh.entry(line.to_owned()).or_default() += 1;
            }
        }
    }
}
