//! Decides how waiting calls move from the queue in a file to the queue in Redis, so that a move
//! that is killed anywhere loses none and sends none twice.
//!
//! Each item is first set aside in the file, where nothing sends it any more; then added to Redis
//! under a token, so that a second move does not add it again; then removed from the file.

use seawall::NotQueued;
use sha2::{Digest, Sha256};

use super::embedded::EmbeddedQueue;
use super::item::{ItemState, ItemSummary, QueuedItem, name, number};
use super::redis::RedisQueue;
use super::rules::ItemChange;
use super::{NotDurable, QueuePlace, QueueStore};

/// Items that are looked at together.
const PAGE: usize = 100;

/// What a move did.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MoveReport {
    /// The items that are in Redis now: their old names and their new ones.
    pub moved: Vec<(String, String)>,
    /// Waiting items that may have been executed: they stay where they are.
    pub left: Vec<String>,
}

/// Why a move stopped. What was moved before stays moved; another move goes on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MoveStopped {
    /// The file could not be changed.
    #[error("the queue in the file cannot be used: {0}")]
    File(NotDurable),
    /// Redis certainly did not take the item; it waits in the file as before.
    #[error("{0} stays in the file, because {1}")]
    Refused(String, NotQueued),
    /// Redis may have taken the item; it is set aside in the file.
    #[error("{0} is set aside in the file, and another move finds out whether it is in Redis: {1}")]
    Unknown(String, NotQueued),
}

impl QueueStore {
    /// Moves the items that certainly were not sent to a queue in Redis, oldest first. `origin`
    /// tells this file from those of other gateways.
    pub(crate) async fn move_to(
        &self,
        other: &Self,
        origin: &str,
    ) -> Result<MoveReport, MoveStopped> {
        let (QueuePlace::Embedded(file), QueuePlace::Redis(redis)) = (&self.0, &other.0) else {
            return Ok(MoveReport::default());
        };
        let (mut report, mut after) = (MoveReport::default(), 0);
        loop {
            let states = vec![ItemState::Waiting, ItemState::Dead];
            let (items, has_more) =
                file.page(after, states, PAGE).await.map_err(MoveStopped::File)?;
            for brief in &items {
                after = number(&brief.id).unwrap_or(after);
                step(file, redis, brief, origin, &mut report).await?;
            }
            if !has_more {
                return Ok(report);
            }
        }
    }
}

async fn step(
    file: &EmbeddedQueue,
    redis: &RedisQueue,
    brief: &ItemSummary,
    origin: &str,
    report: &mut MoveReport,
) -> Result<(), MoveStopped> {
    let Some(id) = number(&brief.id) else { return Ok(()) };
    let is_new = brief.state == ItemState::Waiting;
    if is_new && file.set_aside(id).await.map_err(MoveStopped::File)? != ItemChange::Done {
        report.left.push(brief.id.clone());
        return Ok(());
    }
    let found = file.item(id).await.map_err(MoveStopped::File)?;
    let Some(item) = found.filter(QueuedItem::is_set_aside) else { return Ok(()) };
    let token = token(origin, id, &item);
    // The item keeps its name, if Redis has given none as large.
    let added = redis.add(item.call, Some(token), id.saturating_sub(1)).await;
    let new = match added {
        Ok(new) => new,
        // An item that an earlier move set aside may be in Redis, whatever this one was told.
        Err(refused @ NotQueued::Refused(_)) if is_new => {
            file.take_back(id).await.map_err(MoveStopped::File)?;
            return Err(MoveStopped::Refused(brief.id.clone(), refused));
        }
        Err(unknown) => return Err(MoveStopped::Unknown(brief.id.clone(), unknown)),
    };
    file.forget(id, false).await.map_err(MoveStopped::File)?;
    report.moved.push((brief.id.clone(), name(new)));
    Ok(())
}

/// Names the item of this file, whenever it is moved.
pub(super) fn token(origin: &str, id: u64, item: &QueuedItem) -> String {
    let mut digest = Sha256::new();
    let call = serde_json::to_vec(&item.call).unwrap_or_default();
    for part in [origin.as_bytes(), &id.to_be_bytes(), &item.enqueued.to_be_bytes(), &call] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
