//! Decides how the queue lives in Redis, for all replicas of a fleet:
//! - **every change is one run of a script** (`queue.lua`), and is made only to the revision of the
//!   item that was read, so replicas never overwrite each other;
//! - **one replica at a time has a server's line**, by a lease that Redis's clock ends. Its fence
//!   goes with every further change of the item, and a former owner's is refused;
//! - **an attempt begins only after its mark is in Redis**: an item whose lease lapses while it is
//!   marked is settled as one that may have been executed.
//!
//! The gateways sign items: a stranger who can write to Redis cannot have a tool called. `script`
//! asks the script, and `watch` renews leases and looks after what is over.

mod script;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seawall::{EarlierWrite, Failure, NotQueued, QueuedWrite};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::script::{
    Added, CHANNEL, ChangeRight, CountsNow, HeadFound, ItemMark, QueueScript, RawItem, SealedItem,
};
use super::item::{ItemState, ItemSummary, QueuedItem, digest, name};
use super::rules::{self, ItemChange, NextItem};
use super::{NotDurable, QueueBounds, StateCounts, millis};
use crate::config::RedisConfig;
use crate::store::redis::{CALL_WAIT, Redis, RedisState, RedisTrouble, TASK_WAIT};

/// How long a server's line stays with a replica that is not heard of.
pub(super) const LEASE: Duration = Duration::from_secs(10);
/// How often a change is tried anew that another replica came before.
const CONFLICTS: usize = 16;
/// How soon a line is looked at again whose last owner is gone.
const LAPSED_AGAIN: u64 = 1000;
/// How long the start waits for Redis.
const START: Duration = Duration::from_secs(2);

/// The queue in Redis. Clones share it.
#[derive(Clone)]
pub(super) struct RedisQueue {
    shared: Arc<RedisQueueState>,
    _stop: Arc<DropGuard>,
}

impl std::fmt::Debug for RedisQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedisQueue")
    }
}

struct RedisQueueState {
    redis: Redis,
    script: QueueScript,
    bounds: QueueBounds,
    lease: Duration,
    /// How long a call waits for Redis.
    call_wait: Duration,
    connection: Receiver<RedisState>,
    counts: Sender<StateCounts>,
    seen: Mutex<SeenQueue>,
    /// The largest id seen: a Redis that forgot everything must not give it again.
    largest: AtomicU64,
    held: Mutex<HashMap<String, HeldLine>>,
    stop: CancellationToken,
}

/// What this replica saw last.
#[derive(Default)]
struct SeenQueue {
    changes: u64,
    /// For each server, until when its items matter for new calls.
    awaited: BTreeMap<String, u64>,
    /// A time of Redis, and when it was read.
    clock: Option<(u64, Instant)>,
}

/// A server's line that this replica has leased.
#[derive(Clone)]
struct HeldLine {
    id: u64,
    fence: Vec<u8>,
}

/// The lease of a server's line. Without it the lease is no longer renewed, and lapses.
pub(crate) struct LineLease {
    shared: Arc<RedisQueueState>,
    server: String,
    fence: Vec<u8>,
}

impl Drop for LineLease {
    fn drop(&mut self) {
        self.shared.let_go(&self.server, &self.fence);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<RedisTrouble> for NotDurable {
    fn from(trouble: RedisTrouble) -> Self {
        Self { is_certain: trouble == RedisTrouble::Away, why: trouble.to_string() }
    }
}

impl RedisQueue {
    /// Opens the queue; waits a moment for the connection, and goes on without it. A call waits no
    /// longer than `call_wait` for it. Must be called within a runtime.
    pub(super) async fn open(
        config: &RedisConfig,
        bounds: QueueBounds,
        lease: Duration,
        call_wait: Duration,
    ) -> Result<Self, String> {
        // A connection of its own: waiting for replicas of Redis holds up a whole connection.
        let redis = Redis::new(config, &[CHANNEL])?;
        let stop = CancellationToken::new();
        let shared = Arc::new(RedisQueueState {
            script: QueueScript::new(&redis, &bounds),
            connection: redis.state(),
            redis,
            bounds,
            lease,
            call_wait,
            counts: Sender::new(StateCounts::default()),
            seen: Mutex::default(),
            largest: AtomicU64::new(0),
            held: Mutex::default(),
            stop: stop.clone(),
        });
        tokio::spawn(shared.redis.keep(stop.clone()));
        let mut counts = shared.counts.subscribe();
        tokio::spawn(watch::watch(Arc::clone(&shared)));
        let _late = timeout(START, counts.changed()).await;
        Ok(Self { shared, _stop: Arc::new(stop.drop_guard()) })
    }

    pub(super) fn changes(&self) -> Receiver<StateCounts> {
        self.shared.counts.subscribe()
    }

    pub(super) async fn item(&self, id: u64) -> Result<Option<QueuedItem>, NotDurable> {
        let found = self.shared.read(id).await?;
        found.map(|raw| self.shared.unsealed(&raw)).transpose()
    }

    pub(super) async fn page(
        &self,
        mut after: u64,
        states: Vec<ItemState>,
        most: usize,
    ) -> Result<(Vec<ItemSummary>, bool), NotDurable> {
        let mut items = Vec::new();
        loop {
            let missing = most.saturating_add(1).saturating_sub(items.len()).min(1000);
            let shared = &self.shared;
            let (found, next) = shared.script.page(&shared.redis, after, &states, missing).await?;
            items.extend(found.into_iter().map(|(id, brief)| shared.summary(id, &brief)));
            match next.filter(|_| items.len() <= most) {
                Some(reached) => after = reached,
                None => break,
            }
        }
        let has_more = items.len() > most;
        items.truncate(most);
        Ok((items, has_more))
    }

    pub(super) async fn retry(
        &self,
        id: u64,
        even_if_executed: bool,
    ) -> Result<ItemChange, NotDurable> {
        let bounds = &self.shared.bounds;
        self.shared.change(id, |item, now| item.retry(even_if_executed, now, bounds)).await
    }

    pub(super) async fn forget(
        &self,
        id: u64,
        even_if_delivered: bool,
    ) -> Result<ItemChange, NotDurable> {
        let shared = &self.shared;
        for _ in 0..CONFLICTS {
            let Some(raw) = shared.read(id).await? else { return Ok(ItemChange::Unknown) };
            // An item that nobody of this fleet wrote can be removed, and nothing else.
            let change = shared.unsealed(&raw).map_or(ItemChange::Done, |item| {
                item.brief(id, raw.record.len()).may_go(even_if_delivered)
            });
            if change != ItemChange::Done {
                return Ok(change);
            }
            if let Some(counts) = shared.script.remove(&shared.redis, id, &raw.rev).await? {
                shared.changed(&counts);
                return Ok(ItemChange::Done);
            }
        }
        Err(contended())
    }

    pub(super) async fn hurry(&self, server: &str) -> Result<(), NotDurable> {
        // Only an item that waits for its time is made due; a lease is left alone.
        let Some(id) = self.first(server).await? else { return Ok(()) };
        let hurried = self.shared.change(id, |item, now| match item.state {
            ItemState::Waiting if item.next_attempt > now => {
                item.next_attempt = now;
                ItemChange::Done
            }
            state => ItemChange::NotNow(state),
        });
        hurried.await.map(drop)
    }

    /// The id of the first item of a server's line.
    async fn first(&self, server: &str) -> Result<Option<u64>, NotDurable> {
        Ok(self.shared.script.first(&self.shared.redis, server).await?)
    }

    pub(super) async fn peek(&self, server: &str) -> Result<NextItem, NotDurable> {
        let shared = &self.shared;
        match shared.script.head(&shared.redis, server).await? {
            HeadFound::Nothing => Ok(NextItem::Nothing),
            HeadFound::Later(wait) => Ok(NextItem::Later(wait)),
            HeadFound::Lapsed => Ok(NextItem::Later(LAPSED_AGAIN)),
            HeadFound::Lost(raw) => {
                shared.interrupt(&raw).await?;
                Ok(NextItem::Later(1))
            }
            HeadFound::Due(raw) => {
                Ok(NextItem::Due(name(raw.id), Box::new(shared.unsealed(&raw)?)))
            }
        }
    }

    /// Leases the server's line for its first item, if that is `only` and due and nobody else has
    /// it.
    pub(super) async fn claim(
        &self,
        server: &str,
        only: Option<u64>,
    ) -> Result<Option<LineLease>, NotDurable> {
        let taken = self.take(server, only).await?;
        let (shared, server) = (Arc::clone(&self.shared), server.to_owned());
        Ok(taken.map(|held| LineLease { shared, server, fence: held.fence }))
    }

    async fn take(&self, server: &str, only: Option<u64>) -> Result<Option<HeldLine>, NotDurable> {
        let shared = &self.shared;
        let taken = shared.script.take(&shared.redis, server, only, shared.lease).await?;
        let HeadFound::Due(RawItem { id, fence, .. }) = taken else { return Ok(None) };
        let held = HeldLine { id, fence };
        lock(&shared.held).insert(server.to_owned(), held.clone());
        Ok(Some(held))
    }

    /// Gives a lease back, if the attempt under it was not settled. If that fails, it lapses.
    pub(super) async fn release(&self, lease: LineLease) {
        let shared = &self.shared;
        if shared.holds(&lease.server).is_some_and(|held| held.fence == lease.fence) {
            let given = shared.script.release(&shared.redis, &lease.server, &lease.fence).await;
            given.ok().flatten().inspect(|counts| shared.changed(counts));
        }
    }

    /// Marks the item of the leased line as being sent. Without `only`, leases the line too.
    pub(super) async fn begin(
        &self,
        server: &str,
        only: Option<u64>,
    ) -> Result<NextItem, NotDurable> {
        let shared = &self.shared;
        // It stays held until it is settled.
        if only.is_none() && self.take(server, None).await?.is_none() {
            return self.peek(server).await.map(not_due);
        }
        let held = shared.holds(server).filter(|held| only.is_none_or(|only| only == held.id));
        let Some(held) = held else { return Ok(NextItem::Nothing) };
        let connected = shared.connection.borrow().clone();
        let Some(raw) = shared.read(held.id).await?.filter(|raw| raw.fence == held.fence) else {
            shared.let_go(server, &held.fence);
            return Ok(NextItem::Nothing);
        };
        let mut item = shared.unsealed(&raw)?;
        if item.state == ItemState::Waiting {
            if item.next_attempt > raw.now {
                return Ok(NextItem::Later(item.next_attempt - raw.now));
            }
            item.begin();
            let sealed = shared.sealed(held.id, &item)?;
            let right = ChangeRight::Mark(&held.fence);
            let put =
                shared.script.put(&shared.redis, &raw.rev, right, &sealed, shared.lease).await?;
            let Some(counts) = put else { return Ok(NextItem::Nothing) };
            shared.changed(&counts);
        }
        // Also where the mark was there before: the answer to it may have been lost.
        shared.replicated(&connected).await?;
        Ok(NextItem::Due(name(held.id), Box::new(item)))
    }

    pub(super) async fn settle(
        &self,
        id: u64,
        end: Result<String, Failure>,
        pause: Duration,
    ) -> Result<ItemChange, NotDurable> {
        let shared = &self.shared;
        let Some(raw) = shared.read(id).await? else { return Ok(ItemChange::Unknown) };
        let mut item = shared.unsealed(&raw)?;
        let server = item.call.server.clone();
        let held = shared.holds(&server).filter(|held| held.id == id && held.fence == raw.fence);
        let Some(held) = held.filter(|_| item.state == ItemState::Delivering) else {
            return Ok(ItemChange::NotNow(item.state));
        };
        item.settle(&end, millis(pause), raw.now, &shared.bounds);
        let sealed = shared.sealed(id, &item)?;
        let right = ChangeRight::Own(&held.fence);
        let put = shared.script.put(&shared.redis, &raw.rev, right, &sealed, shared.lease).await?;
        shared.let_go(&server, &held.fence);
        match put {
            Some(counts) => {
                shared.changed(&counts);
                Ok(ItemChange::Done)
            }
            // The lease was lost in between, and the item settled without its owner.
            None => Ok(ItemChange::NotNow(ItemState::Dead)),
        }
    }

    /// Ends the tasks beside the calls; what is in flight lapses.
    pub(super) fn close(&self) {
        self.shared.stop.cancel();
    }
}

/// What the library asks of a queue.
impl RedisQueue {
    pub(super) async fn enqueue(&self, call: QueuedWrite) -> Result<String, NotQueued> {
        self.add(call, None, 0).await.map(name)
    }

    /// Adds a call under an id larger than `above`; under a token only once, however often it is
    /// asked for.
    pub(super) async fn add(
        &self,
        call: QueuedWrite,
        token: Option<String>,
        above: u64,
    ) -> Result<u64, NotQueued> {
        let shared = &self.shared;
        if shared.stop.is_cancelled() {
            return Err(NotQueued::Refused("the queue is closed".to_owned()));
        }
        let until = Instant::now() + shared.call_wait;
        let left = || until.saturating_duration_since(Instant::now());
        let connected = shared.connection.borrow().clone();
        let largest = shared.largest.load(Ordering::Relaxed).max(above);
        let mut item = QueuedItem::new(call, 0, &shared.bounds)?;
        // What is too large takes no number.
        let size = shared.sealed(0, &item).map_err(NotDurable::not_queued)?.record.len();
        rules::check_size(size)?;
        // Without a number the call is certainly not in the queue.
        let (now, id) = shared
            .script
            .number(&shared.redis, largest, left())
            .await
            .map_err(|trouble| NotQueued::Refused(trouble.to_string()))?;
        shared.largest.fetch_max(id, Ordering::Relaxed);
        item.start_anew(now, &shared.bounds);
        let sealed = shared.sealed(id, &item).map_err(NotDurable::not_queued)?;
        let added = shared.script.add(&shared.redis, &sealed, &shared.bounds, token, left()).await;
        match added.map_err(|trouble| NotDurable::from(trouble).not_queued())? {
            Added::Done(counts) => {
                lock(&shared.seen).awaited.insert(item.call.server, u64::MAX);
                shared.changed(&counts);
                shared.replicated(&connected).await.map_err(NotDurable::not_queued)?;
                Ok(id)
            }
            Added::Earlier(id) => Ok(id),
            Added::FullOfItems => Err(rules::full_of_items(shared.bounds.items)),
            Added::FullOfBytes(bytes) => Err(rules::full_of_bytes(bytes)),
        }
    }

    pub(super) async fn find(&self, call: &QueuedWrite) -> Result<Option<EarlierWrite>, NotQueued> {
        let shared = &self.shared;
        if shared.stop.is_cancelled() {
            return Err(NotQueued::Unknown("the queue is closed".to_owned()));
        }
        let same = shared.same_call(call, digest(&call.arguments));
        let found = match shared.script.find(&shared.redis, &same, shared.call_wait).await {
            Ok(found) => found,
            // Redis is away: what this replica saw last decides whether the call may go on.
            Err(_) if shared.was_idle(&call.server) => return Ok(None),
            Err(trouble) => return Err(NotQueued::Unknown(trouble.to_string())),
        };
        let (now, found) = found;
        let mut open = None;
        for (id, _, record) in found.iter().filter(|(_, is_open, _)| *is_open) {
            let (id, record) = (*id, record.clone());
            let raw = RawItem { now, id, rev: Vec::new(), record, fence: Vec::new() };
            let item = shared.unsealed(&raw).map_err(NotDurable::not_queued)?;
            if item.call.is_same_call(call) {
                // They come newest first, and the oldest counts.
                open = Some(item.brief(id, 0));
            }
        }
        let ended = || {
            let ended = found.iter().find(|(_, is_open, _)| !is_open);
            ended.map(|(id, _, brief)| shared.summary(*id, brief))
        };
        let brief = open.or_else(ended);
        Ok(brief.map(|brief| EarlierWrite { fate: brief.fate(now), id: brief.id }))
    }

    /// While Redis answers it is asked: another replica may have queued the same call just now.
    pub(super) fn is_idle(&self, server: &str) -> bool {
        !self.shared.connection.borrow().is_connected() && self.shared.was_idle(server)
    }
}

impl RedisQueueState {
    async fn read(&self, id: u64) -> Result<Option<RawItem>, RedisTrouble> {
        self.script.read(&self.redis, id, TASK_WAIT).await
    }

    /// Changes an item that is not being sent, as `rule` says, whatever other replicas do with it
    /// meanwhile.
    async fn change(
        &self,
        id: u64,
        rule: impl Fn(&mut QueuedItem, u64) -> ItemChange,
    ) -> Result<ItemChange, NotDurable> {
        for _ in 0..CONFLICTS {
            let Some(raw) = self.read(id).await? else { return Ok(ItemChange::Unknown) };
            let mut item = self.unsealed(&raw)?;
            let change = rule(&mut item, raw.now);
            if change != ItemChange::Done {
                return Ok(change);
            }
            let sealed = self.sealed(id, &item)?;
            let right = ChangeRight::Free;
            let put = self.script.put(&self.redis, &raw.rev, right, &sealed, self.lease).await?;
            if let Some(counts) = put {
                self.changed(&counts);
                return Ok(ItemChange::Done);
            }
        }
        Err(contended())
    }

    /// Settles an item that was being sent by a replica that is gone.
    async fn interrupt(&self, raw: &RawItem) -> Result<(), NotDurable> {
        let mut item = self.unsealed(raw)?;
        if item.state != ItemState::Delivering {
            return Ok(());
        }
        item.interrupted("its gateway stopped", raw.now, &self.bounds);
        let sealed = self.sealed(raw.id, &item)?;
        let right = ChangeRight::Lapsed(&raw.fence);
        let put = self.script.put(&self.redis, &raw.rev, right, &sealed, self.lease).await?;
        put.inspect(|counts| self.changed(counts));
        Ok(())
    }

    /// Waits until Redis's replicas have the last change, where that is configured. `connected` is
    /// the connection before it: another one knows nothing of the change.
    async fn replicated(&self, connected: &RedisState) -> Result<(), NotDurable> {
        let why = match self.redis.is_replicated(CALL_WAIT).await {
            Ok(true) if *self.connection.borrow() == *connected => return Ok(()),
            Ok(_) => "too few replicas of Redis have it".to_owned(),
            Err(trouble) => trouble.to_string(),
        };
        // The change itself was made.
        Err(NotDurable { why, is_certain: false })
    }

    /// Notes the counts, and tells those who wait for a change.
    fn changed(&self, now: &CountsNow) {
        let mut seen = lock(&self.seen);
        seen.clock = Some((now.now, Instant::now()));
        if now.changes > seen.changes {
            seen.changes = now.changes;
            self.counts.send_replace(now.counts);
        }
    }

    /// Whether nothing was known of items for this server when Redis was last heard.
    fn was_idle(&self, server: &str) -> bool {
        let seen = lock(&self.seen);
        let now = seen.clock.map(|(at, read)| at.saturating_add(millis(read.elapsed())));
        seen.awaited.get(server).is_none_or(|until| now.is_some_and(|now| *until < now))
    }

    fn holds(&self, server: &str) -> Option<HeldLine> {
        lock(&self.held).get(server).cloned()
    }

    fn let_go(&self, server: &str, fence: &[u8]) {
        let mut held = lock(&self.held);
        if held.get(server).is_some_and(|held| held.fence == fence) {
            held.remove(server);
        }
    }

    fn sealed(&self, id: u64, item: &QueuedItem) -> Result<SealedItem, NotDurable> {
        let json = |item: &QueuedItem| {
            serde_json::to_vec(item)
                .map_err(|error| NotDurable { why: error.to_string(), is_certain: true })
        };
        let [record_key, brief_key] = self.names(id);
        let record = self.redis.seal(&record_key, &json(item)?);
        let call = QueuedWrite { arguments: Value::Null, ..item.call.clone() };
        let summary = item.brief(id, record.len());
        let note = summary.last_error.clone();
        let brief = QueuedItem { call, outcome: None, note, ..item.clone() };
        let same = self.same_call(&item.call, item.digest);
        let mark = ItemMark::of(&summary, &same);
        let mark = serde_json::to_vec(&mark)
            .map_err(|error| NotDurable { why: error.to_string(), is_certain: true })?;
        Ok(SealedItem { id, mark, record, brief: self.redis.seal(&brief_key, &json(&brief)?) })
    }

    fn unsealed(&self, raw: &RawItem) -> Result<QueuedItem, NotDurable> {
        let [key, _] = self.names(raw.id);
        let json = self.redis.unseal(&key, &raw.record);
        json.and_then(|json| serde_json::from_slice(json).ok()).ok_or_else(|| {
            let id = name(raw.id);
            let why = format!(
                "{id} in Redis was not written by this fleet, or under another [store] key; `seawall queue drop {id}` removes it"
            );
            NotDurable { why, is_certain: true }
        })
    }

    fn summary(&self, id: u64, brief: &[u8]) -> ItemSummary {
        let [_, key] = self.names(id);
        let json = self.redis.unseal(&key, brief);
        let item = json.and_then(|json| serde_json::from_slice::<QueuedItem>(json).ok());
        item.map_or_else(|| ItemSummary::unreadable(id), |item| item.brief(id, brief.len()))
    }

    /// The names under which an item's record and summary are signed.
    fn names(&self, id: u64) -> [String; 2] {
        let id = id.to_string();
        ["record", "brief"].map(|what| self.redis.key(&["queue", what, &id]))
    }

    /// Names the call without showing it: the same for the same call of the same caller.
    fn same_call(&self, call: &QueuedWrite, digest: u64) -> String {
        let parts = [&call.server, &call.tool, &call.caller];
        let lengths = parts.map(|part| part.len().to_string()).join(":");
        let text = format!("{lengths}:{}{}{}{digest}", call.server, call.tool, call.caller);
        let signed = self.redis.seal(&self.redis.key(&["queue", "call"]), text.as_bytes());
        Sha256::digest(signed).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

fn not_due(next: NextItem) -> NextItem {
    // Somebody else was faster, or the item became due just now: it is looked at again.
    if let NextItem::Due(..) = next { NextItem::Later(1) } else { next }
}

fn contended() -> NotDurable {
    let why = "other replicas keep changing the item; try again".to_owned();
    NotDurable { why, is_certain: true }
}
