//! Decides what a replica does for the queue beside the calls: it looks at Redis about once a
//! second and whenever a change is told, keeps its leases, and settles what nobody else will.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::script::QueueLook;
use super::{RedisQueueState, lock};
use crate::queue::NotDurable;
use crate::queue::item::ItemState;
use crate::queue::rules::{ItemChange, LATELY};
use crate::runtime::log;
use crate::store::redis::RedisTrouble;

/// How often Redis is looked at without a reason; replicas do it at different times.
const LOOK: Duration = Duration::from_secs(1);
/// The shortest time between two looks.
const AT_MOST: Duration = Duration::from_millis(100);

/// A lease that has lapsed, and since when this replica has seen that without a break.
type LapsedSince = HashMap<(Vec<u8>, u64), Instant>;

/// Looks after the queue until it is closed.
pub(super) async fn watch(queue: Arc<RedisQueueState>) {
    let mut messages = queue.redis.messages();
    let mut connection = queue.redis.state();
    let mut lapsed = LapsedSince::new();
    let mut renewed = Instant::now();
    loop {
        let began = Instant::now();
        if renewed.elapsed() * 4 >= queue.lease {
            renewed = began;
            renew(&queue).await;
        }
        match look(&queue).await {
            Ok(seen) => settle_over(&queue, &seen, &mut lapsed).await,
            // After a break nobody can say how long a lease has been without its owner.
            Err(_) => lapsed.clear(),
        }
        let next = began + LOOK.min(queue.lease / 4).mul_f64(0.75 + 0.5 * fastrand::f64());
        tokio::select! {
            () = queue.stop.cancelled() => return,
            () = sleep_until(next) => {}
            Ok(_) = messages.recv() => {}
            Ok(()) = connection.changed() => {}
        }
        sleep_until(began + AT_MOST).await;
        while messages.try_recv().is_ok() {}
    }
}

/// Makes the leases of this replica last; forgets those that are another's by now.
async fn renew(queue: &RedisQueueState) {
    let held: Vec<(String, Vec<u8>)> = lock(&queue.held)
        .iter()
        .map(|(server, held)| (server.clone(), held.fence.clone()))
        .collect();
    if held.is_empty() {
        return;
    }
    // Without an answer the leases stay: only Redis knows whether they have lapsed.
    let Ok(kept) = queue.script.renew(&queue.redis, &held, queue.lease).await else { return };
    for (server, fence) in held.iter().filter(|(server, _)| !kept.contains(server)) {
        queue.let_go(server, fence);
    }
}

async fn look(queue: &RedisQueueState) -> Result<QueueLook, RedisTrouble> {
    let known = lock(&queue.seen).changes;
    let seen = queue.script.look(&queue.redis, LATELY).await?;
    let is_wiped = seen.counts.changes < known;
    let mut awaited = BTreeMap::new();
    for (name, value) in &seen.servers {
        let (server, until) = match name.split_once(':') {
            Some(("open", server)) if *value > 0 => (server, u64::MAX),
            Some(("ended", server)) => (server, value.saturating_add(LATELY)),
            _ => continue,
        };
        let latest = awaited.entry(server.to_owned()).or_insert(until);
        *latest = until.max(*latest);
    }
    note(queue, &seen, awaited, is_wiped);
    Ok(seen)
}

/// Notes what was seen; `is_wiped`: Redis knows less than this replica had seen before it looked.
fn note(queue: &RedisQueueState, look: &QueueLook, awaited: BTreeMap<String, u64>, is_wiped: bool) {
    let mut seen = lock(&queue.seen);
    let is_first = seen.clock.is_none();
    seen.clock = Some((look.counts.now, Instant::now()));
    let changes = look.counts.changes;
    // A change of this replica, made after the look, has told more by now.
    if changes < seen.changes && !is_wiped {
        return;
    }
    let is_new = is_first || changes != seen.changes;
    (seen.changes, seen.awaited) = (changes, awaited);
    if is_new {
        queue.counts.send_replace(look.counts.counts);
    }
}

/// Gives up what waited too long, removes what is over, and settles what was being sent by a
/// replica that is gone.
async fn settle_over(queue: &RedisQueueState, seen: &QueueLook, lapsed: &mut LapsedSince) {
    for id in &seen.over {
        if let Err(why) = over(queue, *id).await {
            log::warn(&format!("q{id} is over and stays in the queue: {why}"));
            return;
        }
    }
    lapsed.retain(|lease, _| seen.lapsed.contains(lease));
    for lease in &seen.lapsed {
        let since = *lapsed.entry(lease.clone()).or_insert_with(Instant::now);
        // Its owner gets time to come back with Redis, and to say how the attempt ended.
        if since.elapsed() >= queue.lease / 2 {
            let _at_the_next_look = interrupt(queue, lease).await;
        }
    }
}

async fn over(queue: &RedisQueueState, id: u64) -> Result<(), NotDurable> {
    let Some(raw) = queue.read(id).await? else { return Ok(()) };
    let is_waiting = queue.unsealed(&raw).is_ok_and(|item| item.state == ItemState::Waiting);
    if is_waiting {
        let bounds = &queue.bounds;
        let expired = queue.change(id, |item, now| match item.brief(id, 0).is_over() {
            Some(end) if end <= now && item.state == ItemState::Waiting => {
                item.expire(now, bounds);
                ItemChange::Done
            }
            _ => ItemChange::NotNow(item.state),
        });
        return expired.await.map(drop);
    }
    let removed = queue.script.remove(&queue.redis, id, &raw.rev).await?;
    removed.inspect(|counts| queue.changed(counts));
    Ok(())
}

async fn interrupt(queue: &RedisQueueState, lease: &(Vec<u8>, u64)) -> Result<(), NotDurable> {
    let (fence, id) = lease;
    match queue.read(*id).await? {
        Some(raw) if raw.fence == *fence => queue.interrupt(&raw).await,
        _ => Ok(()),
    }
}
