//! Tests the promises of the queue, one at a time, and whatever its store.

mod contract;
mod delivery;
mod keeping;

use std::path::Path;
use std::time::{Duration, SystemTime};

use seawall::{Effect, QueuedWrite};
use seawall_testkit::redis::{PASSWORD, RedisServer};
use serde_json::json;
use tempfile::TempDir;

use super::redis::RedisQueue;
use super::{QueueBounds, QueuePlace, QueueStore, StoreTrouble};
use crate::config::{RedisConfig, Secret};

/// How long a call waits in these tests: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// The wall time at which every test begins.
pub(super) fn today() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// A folder on a fast disk, for tests that open hundreds of files and do not depend on syncs.
pub(super) fn fast_folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory).unwrap() } else { TempDir::new().unwrap() }
}

pub(super) fn open(folder: &Path) -> Result<QueueStore, StoreTrouble> {
    QueueStore::open(folder, QueueBounds::default(), today())
}

/// A fleet on this Redis.
pub(super) fn fleet(server: &RedisServer) -> RedisConfig {
    RedisConfig {
        url: Secret::new(server.url()),
        prefix: "t".to_owned(),
        key: Secret::new(PASSWORD),
        wait_replicas: 0,
        quorum_share: 0.5,
        quorum_min: 2,
    }
}

/// A replica of that fleet.
pub(super) async fn replica(server: &RedisServer, bounds: QueueBounds) -> QueueStore {
    replica_with(&fleet(server), bounds, Duration::from_secs(60)).await
}

pub(super) async fn replica_with(
    config: &RedisConfig,
    bounds: QueueBounds,
    lease: Duration,
) -> QueueStore {
    let queue = RedisQueue::open(config, bounds, lease, PATIENCE).await.unwrap();
    QueueStore(QueuePlace::Redis(queue))
}

pub(super) fn call(server: &str, n: u32, effect: Effect) -> QueuedWrite {
    QueuedWrite {
        server: server.into(),
        tool: "append".into(),
        arguments: json!({ "n": n }),
        caller: "me".into(),
        effect,
        principal: None,
    }
}

pub(super) fn write(n: u32) -> QueuedWrite {
    call("a", n, Effect::Write)
}
