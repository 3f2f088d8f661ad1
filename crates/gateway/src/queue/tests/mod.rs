//! Tests the promises of the queue, one at a time.

mod damage;
mod delivery;
mod disk;
mod failing;
mod keeping;
mod power;

use std::path::Path;
use std::time::{Duration, SystemTime};

use seawall::{Effect, QueuedWrite};
use serde_json::json;

use super::{QueueBounds, QueueStore, StoreTrouble};

/// The wall time at which every test begins.
fn today() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// A folder on a fast disk, for tests that open hundreds of files and do not depend on syncs.
fn fast_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::TempDir::new_in(memory).unwrap()
    } else {
        tempfile::TempDir::new().unwrap()
    }
}

fn open(folder: &Path) -> Result<QueueStore, StoreTrouble> {
    QueueStore::open(folder, QueueBounds::default(), today())
}

fn call(server: &str, n: u32, effect: Effect) -> QueuedWrite {
    QueuedWrite {
        server: server.into(),
        tool: "append".into(),
        arguments: json!({ "n": n }),
        caller: "me".into(),
        effect,
        principal: None,
    }
}

fn write(n: u32) -> QueuedWrite {
    call("a", n, Effect::Write)
}
