//! A disk in memory that can lose its power, fill up, or fail: a write that was not synced may be
//! there, in part, or not at all.

use std::io;
use std::sync::{Arc, Mutex};

use redb::StorageBackend;
use seawall::Rng;

use crate::queue::embedded::{EmbeddedQueue, open};
use crate::queue::{QueueBounds, QueuePlace, QueueStore, StoreTrouble};

/// The unit that a power cut can tear.
const SECTOR: usize = 512;

/// The disk. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk(Arc<Mutex<DiskSectors>>);

#[derive(Debug, Default)]
struct DiskSectors {
    /// The bytes as a reader sees them.
    seen: Vec<u8>,
    /// The bytes that certainly survive a power cut.
    safe: Vec<u8>,
    /// The writes since the last sync, in order; a new length where there are no bytes.
    unsafe_writes: Vec<(usize, Option<Vec<u8>>)>,
    syncs: u64,
    writes: u64,
    /// The first change that fails, and how many fail from there.
    fails: Option<(u64, u64)>,
}

impl DiskSectors {
    fn change(&mut self) -> io::Result<()> {
        self.writes += 1;
        match self.fails {
            Some((from, many)) if (from..from.saturating_add(many)).contains(&self.writes) => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }
}

fn apply(bytes: &mut Vec<u8>, at: usize, data: Option<&[u8]>) {
    match data {
        None => bytes.resize(at, 0),
        Some(data) => {
            if bytes.len() < at + data.len() {
                bytes.resize(at + data.len(), 0);
            }
            bytes[at..at + data.len()].copy_from_slice(data);
        }
    }
}

impl Disk {
    fn lock(&self) -> std::sync::MutexGuard<'_, DiskSectors> {
        self.0.lock().unwrap()
    }

    /// Runs a closure while nothing can be read or written.
    pub(super) fn while_it_stands<T>(&self, what: impl FnOnce() -> T) -> T {
        let _stands = self.lock();
        what()
    }

    pub(super) fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    pub(super) fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Lets `many` changes fail, from the `from`th on.
    pub(super) fn fail(&self, from: u64, many: u64) {
        self.lock().fails = Some((from, many));
    }

    /// The disk after a power cut: each sector that was not synced is there or not.
    pub(super) fn after_power_cut(&self, rng: &Rng) -> Disk {
        let sectors = self.lock();
        let mut safe = sectors.safe.clone();
        for (at, data) in &sectors.unsafe_writes {
            let Some(data) = data else {
                if rng.unit() < 0.5 {
                    apply(&mut safe, *at, None);
                }
                continue;
            };
            for (n, sector) in data.chunks(SECTOR).enumerate() {
                if rng.unit() < 0.5 {
                    apply(&mut safe, at + n * SECTOR, Some(sector));
                }
            }
        }
        Disk(Arc::new(Mutex::new(DiskSectors {
            seen: safe.clone(),
            safe,
            ..DiskSectors::default()
        })))
    }

    /// A queue on this disk.
    pub(super) fn open(&self, bounds: QueueBounds) -> Result<QueueStore, StoreTrouble> {
        let (disk, path) = (self.clone(), std::path::PathBuf::from("disk"));
        let at = path.clone();
        let opener = move || {
            let is_new = disk.lock().seen.is_empty();
            let database =
                open::checked(&at, || redb::Builder::new().create_with_backend(disk.clone()))?;
            if is_new {
                open::initialize(&database).unwrap();
            }
            Ok(database)
        };
        let queue = EmbeddedQueue::with_opener(path, Box::new(opener), bounds, super::today())?;
        Ok(QueueStore(QueuePlace::Embedded(queue)))
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        let sectors = self.lock();
        let bytes = sectors.seen.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).unwrap();
        let mut sectors = self.lock();
        sectors.change()?;
        apply(&mut sectors.seen, len, None);
        sectors.unsafe_writes.push((len, None));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut sectors = self.lock();
        sectors.change()?;
        sectors.syncs += 1;
        for (at, data) in std::mem::take(&mut sectors.unsafe_writes) {
            apply(&mut sectors.safe, at, data.as_deref());
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        let mut sectors = self.lock();
        sectors.change()?;
        apply(&mut sectors.seen, at, Some(data));
        sectors.unsafe_writes.push((at, Some(data.to_vec())));
        Ok(())
    }
}
