//! Runs `seawall queue move`: moves what waits in a file to Redis, without a running gateway.

use serde_json::json;

use super::super::config_args::configured;
use super::super::serve::in_file;
use super::super::{CommandEnd, UNREACHABLE, USAGE, out};
use super::AdminArgs;
use crate::queue::{QueueBounds, QueueStore, probe};
use crate::runtime::log;
use crate::runtime::plural::counted;
use crate::store::redis::TASK_WAIT;

/// Moves the items of the configuration's file to its Redis, and says what became of each.
pub(super) async fn to_redis(at: &AdminArgs) -> CommandEnd {
    // The connection's own words are for the log of a gateway.
    log::hush(true);
    let end = moved(at).await;
    log::hush(false);
    end
}

async fn moved(at: &AdminArgs) -> CommandEnd {
    let usage = |text: String| (USAGE, text);
    let config = configured(at.place.config.as_deref()).map_err(usage)?;
    let (Some(folder), Some(redis)) = (&config.store, &config.redis) else {
        let needs = "[store] needs both: the path that the writes wait in, and redis";
        return Err(usage(needs.to_owned()));
    };
    let Some(path) = probe(folder).map_err(|trouble| usage(trouble.to_string()))? else {
        return tell(at, &[], &[]);
    };
    let file = in_file(folder.clone()).await.map_err(|trouble| usage(trouble.to_string()))?;
    let queue = QueueStore::open_redis(redis, QueueBounds::default(), TASK_WAIT)
        .await
        .map_err(|why| usage(format!("[store] redis: {why}")))?;
    let moved = file.move_to(&queue, &path.display().to_string()).await;
    queue.close().await;
    file.close().await;
    let report = moved.map_err(|stopped| (UNREACHABLE, stopped.to_string()))?;
    tell(at, &report.moved, &report.left)
}

fn tell(at: &AdminArgs, moved: &[(String, String)], left: &[String]) -> CommandEnd {
    if at.json {
        let moved: Vec<_> =
            moved.iter().map(|(from, to)| json!({"from": from, "to": to})).collect();
        out(&json!({ "moved": moved, "left": left }).to_string());
        return Ok(());
    }
    for (from, to) in moved.iter().filter(|(from, to)| from != to) {
        out(&format!("{from} is {to} now"));
    }
    for id in left {
        out(&format!("{id} stays: it may have been executed"));
    }
    out(&format!("{} moved to Redis", counted(moved.len(), "write")));
    Ok(())
}
