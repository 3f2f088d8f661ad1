//! Decides how a faulty server and its observers share state: the current fault plan, and a ledger
//! of the attempts that arrived and the calls that were executed.
//!
//! Both are files, because servers die here: the next process of the same server continues from the
//! files of the last one. A world in memory ends with its process.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::faults::FaultPlan;

/// The shared state of one server.
#[derive(Debug)]
pub struct World {
    place: WorldPlace,
    counts: Mutex<LedgerCounts>,
}

/// How many different calls a world in memory counts; any others count as first attempts.
const REMEMBERED: usize = 100_000;

/// Where a world is kept.
#[derive(Debug)]
enum WorldPlace {
    Folder(PathBuf),
    /// Its plan never changes.
    Memory(FaultPlan),
}

/// The ledger, as far as it was read.
#[derive(Debug, Default)]
struct LedgerCounts {
    read: u64,
    lines: HashMap<String, u32>,
    /// The lines since the plan changed.
    fresh: HashMap<String, u32>,
}

impl LedgerCounts {
    fn add(&mut self, line: &str) {
        *self.lines.entry(line.to_owned()).or_default() += 1;
        *self.fresh.entry(line.to_owned()).or_default() += 1;
    }
}

/// The ledger line that marks a new plan.
const CHANGE: &str = "plan";

/// An entry of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerEntry {
    /// An attempt arrived.
    Seen,
    /// The call was executed.
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
    /// The world in this folder, which must exist.
    pub fn new(folder: &Path) -> Self {
        Self { place: WorldPlace::Folder(folder.to_owned()), counts: Mutex::default() }
    }

    /// A world without files, under this plan.
    pub fn in_memory(plan: FaultPlan) -> Self {
        Self { place: WorldPlace::Memory(plan), counts: Mutex::default() }
    }

    /// The world in this folder, which is made if need be: it goes on as the last process left it,
    /// unless the plan is another one.
    pub fn resumed(folder: &Path, plan: &FaultPlan) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let world = Self::new(folder);
        if world.plan() != *plan || !folder.join("plan").exists() {
            world.set(plan)?;
        }
        Ok(world)
    }

    /// The folder of this world; empty if it has none.
    pub fn folder(&self) -> &Path {
        match &self.place {
            WorldPlace::Folder(folder) => folder,
            WorldPlace::Memory(_) => Path::new(""),
        }
    }

    /// The current fault plan; no faults if none was set.
    pub fn plan(&self) -> FaultPlan {
        match &self.place {
            WorldPlace::Memory(plan) => plan.clone(),
            WorldPlace::Folder(folder) => {
                let text = fs::read(folder.join("plan")).unwrap_or_default();
                serde_json::from_slice(&text).unwrap_or_default()
            }
        }
    }

    /// Replaces the fault plan of a world in a folder.
    pub fn set(&self, plan: &FaultPlan) -> io::Result<()> {
        let WorldPlace::Folder(folder) = &self.place else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        // Written beside and renamed: the server's process never reads half a plan.
        let fresh = folder.join("plan.new");
        fs::write(&fresh, serde_json::to_vec(plan)?)?;
        fs::rename(fresh, folder.join("plan"))?;
        self.write(CHANGE)
    }

    /// Adds an entry for a call, and counts such entries since the plan changed.
    pub fn note(&self, entry: LedgerEntry, tool: &str, number: u64) -> u32 {
        let line = format!("{} {tool} {number}", entry.word());
        // The lock is held from the write to the read, so that two attempts of one call in this
        // process get different numbers.
        let mut counts = self.counts();
        match self.place {
            WorldPlace::Memory(_) if counts.fresh.len() < REMEMBERED => counts.add(&line),
            WorldPlace::Memory(_) => {}
            WorldPlace::Folder(_) => {
                let _lost = self.write(&line);
                self.read_on(&mut counts);
            }
        }
        counts.fresh.get(&line).copied().unwrap_or(1)
    }

    fn write(&self, line: &str) -> io::Result<()> {
        // One append per line: the lines of several processes do not mix.
        let mut ledger = fs::OpenOptions::new().create(true).append(true).open(self.ledger())?;
        ledger.write_all(format!("{line}\n").as_bytes())
    }

    /// How many entries a call has.
    pub fn count(&self, entry: LedgerEntry, tool: &str, number: u64) -> u32 {
        let mut counts = self.counts();
        self.read_on(&mut counts);
        counts.lines.get(&format!("{} {tool} {number}", entry.word())).copied().unwrap_or(0)
    }

    /// How many entries all calls of all tools have.
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
        self.folder().join("ledger")
    }

    /// Reads the lines that this process or another one has written since.
    fn read_on(&self, counts: &mut LedgerCounts) {
        if let WorldPlace::Memory(_) = self.place {
            return;
        }
        let mut text = String::new();
        let read = fs::File::open(self.ledger()).and_then(|mut file| {
            file.seek(SeekFrom::Start(counts.read))?;
            file.read_to_string(&mut text)
        });
        // Another process may be in the middle of a line: the rest is read next time.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        if read.is_ok() {
            counts.read += whole as u64;
            for line in text[..whole].lines() {
                if line == CHANGE {
                    counts.fresh.clear();
                    continue;
                }
                counts.add(line);
            }
        }
    }
}
