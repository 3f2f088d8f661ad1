//! Decides how the operations of the queue's script are asked and how their answers are read.

use std::time::Duration;

use serde::Serialize;

use crate::queue::item::{ItemState, ItemSummary};
use crate::queue::{QueueBounds, StateCounts};
use crate::store::redis::{Redis, RedisScript, RedisTrouble};

/// The channel on which every change is told.
pub(super) const CHANNEL: &str = "queue";
/// How long a queue that nobody uses any more is kept after its last item is over.
const SPARE: u64 = 24 * 60 * 60 * 1000;

/// The keys, in the order in which the script names them.
const KEYS: [&str; 11] = [
    "facts", "records", "briefs", "marks", "all", "lines", "ends", "done", "calls", "leases",
    "servers",
];

/// The script, and the keys it works on.
pub(super) struct QueueScript {
    script: RedisScript,
    keys: Vec<String>,
    channel: String,
    ttl: String,
}

/// What the script can read of an item: it cannot read the item itself.
#[derive(Serialize)]
pub(super) struct ItemMark<'a> {
    state: ItemState,
    server: &'a str,
    size: usize,
    /// When the item is due, when it is over and when it ended; 0 for never.
    due: u64,
    over: u64,
    ended: u64,
    error: bool,
    /// Identifies the call: equal for calls that are the same.
    call: &'a str,
}

impl<'a> ItemMark<'a> {
    pub(super) fn of(brief: &'a ItemSummary, call: &'a str) -> Self {
        Self {
            state: brief.state,
            server: &brief.server,
            size: usize::try_from(brief.bytes).unwrap_or(usize::MAX),
            due: brief.next_attempt.unwrap_or(0),
            over: brief.is_over().unwrap_or(0),
            ended: brief.ended.unwrap_or(0),
            error: brief.is_error,
            call,
        }
    }
}

/// The counts after a change, and how many changes there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CountsNow {
    pub(super) now: u64,
    pub(super) changes: u64,
    pub(super) counts: StateCounts,
}

/// The head of a server's line.
pub(super) enum HeadFound {
    Nothing,
    Later(u64),
    /// Its lease has lapsed while it was being sent, and nobody has settled it yet.
    Lapsed,
    /// It is marked as being sent, and there is no lease any more that says by whom.
    Lost(RawItem),
    Due(RawItem),
}

/// An item as it is in Redis.
pub(super) struct RawItem {
    pub(super) now: u64,
    pub(super) id: u64,
    pub(super) rev: Vec<u8>,
    pub(super) record: Vec<u8>,
    /// The fence of the lease on it; empty if there is none.
    pub(super) fence: Vec<u8>,
}

/// Under which condition an item may be changed; with the fence of a lease.
#[derive(Clone, Copy)]
pub(super) enum ChangeRight<'a> {
    /// The item is not being sent.
    Free,
    /// The lease lasts: the item is about to be sent, and the lease begins anew.
    Mark(&'a [u8]),
    /// The lease is the caller's, and ends with the change.
    Own(&'a [u8]),
    /// The lease has lapsed, or is gone.
    Lapsed(&'a [u8]),
}

/// What each gateway looks at now and then.
pub(super) struct QueueLook {
    pub(super) counts: CountsNow,
    /// `open:SERVER` with a number of items, `ended:SERVER` with a time.
    pub(super) servers: Vec<(String, u64)>,
    /// Fences and ids of items whose lease has lapsed while they were being sent.
    pub(super) lapsed: Vec<(Vec<u8>, u64)>,
    /// Items that waited too long, or whose time is over.
    pub(super) over: Vec<u64>,
}

type Words = Vec<Vec<u8>>;

/// Why an answer of the script is of no use.
fn strange() -> RedisTrouble {
    RedisTrouble::Failed("its answer is not one of this queue's script".to_owned())
}

fn number(word: Option<&Vec<u8>>) -> Result<u64, RedisTrouble> {
    let text = word.and_then(|word| std::str::from_utf8(word).ok());
    text.and_then(|text| text.parse().ok()).ok_or_else(strange)
}

fn bytes(word: Option<&mut Vec<u8>>) -> Result<Vec<u8>, RedisTrouble> {
    word.map(std::mem::take).ok_or_else(strange)
}

impl CountsNow {
    fn read(words: &[Vec<u8>]) -> Result<Self, RedisTrouble> {
        let at = |index: usize| number(words.get(index));
        let count = |index: usize| at(index).map(|count| usize::try_from(count).unwrap_or(0));
        let counts = StateCounts {
            waiting: count(2)?,
            delivering: count(3)?,
            delivered: count(4)?,
            with_error: count(5)?,
            dead: count(6)?,
        };
        Ok(Self { now: at(0)?, changes: at(1)?, counts })
    }

    /// The counts after a change that was made; `None`: it was refused.
    fn after(words: &[Vec<u8>]) -> Result<Option<Self>, RedisTrouble> {
        match words.split_first() {
            Some((word, rest)) if word == b"done" => Self::read(rest).map(Some),
            Some((word, _)) if word == b"no" => Ok(None),
            _ => Err(strange()),
        }
    }
}

/// How an item was added, or why not.
pub(super) enum Added {
    Done(CountsNow),
    /// It was added earlier under this id.
    Earlier(u64),
    FullOfItems,
    FullOfBytes(u64),
}

impl QueueScript {
    pub(super) fn new(redis: &Redis, bounds: &QueueBounds) -> Self {
        let longest = bounds.waits.saturating_add(bounds.dead_kept.max(bounds.outcome_kept));
        Self {
            script: RedisScript::new(include_str!("queue.lua")),
            keys: KEYS.iter().map(|key| redis.key(&["queue", key])).collect(),
            channel: redis.key(&[CHANNEL]),
            ttl: longest.saturating_add(SPARE).to_string(),
        }
    }

    async fn ask<T: ::redis::FromRedisValue>(
        &self,
        redis: &Redis,
        op: &str,
        words: &[&[u8]],
        within: Duration,
    ) -> Result<T, RedisTrouble> {
        self.ask_with(redis, &self.keys, op, words, within).await
    }

    async fn ask_with<T: ::redis::FromRedisValue>(
        &self,
        redis: &Redis,
        keys: &[String],
        op: &str,
        words: &[&[u8]],
        within: Duration,
    ) -> Result<T, RedisTrouble> {
        let mut all = vec![op.as_bytes(), self.ttl.as_bytes(), self.channel.as_bytes()];
        all.extend_from_slice(words);
        redis.eval(&self.script, keys, &all, within).await
    }

    /// Redis's time, and an id that is larger than every one before and than `largest`.
    pub(super) async fn number(
        &self,
        redis: &Redis,
        largest: u64,
        within: Duration,
    ) -> Result<(u64, u64), RedisTrouble> {
        let largest = largest.to_string();
        let words: Words = self.ask(redis, "number", &[largest.as_bytes()], within).await?;
        Ok((number(words.first())?, number(words.get(1))?))
    }

    /// Adds an item; under a `token` only once.
    pub(super) async fn add(
        &self,
        redis: &Redis,
        item: &SealedItem,
        bounds: &QueueBounds,
        token: Option<String>,
        within: Duration,
    ) -> Result<Added, RedisTrouble> {
        let (id, most) = (item.id.to_string(), bounds.items.to_string());
        let bytes = bounds.bytes.to_string();
        let words = [
            id.as_bytes(),
            &item.mark,
            &item.record,
            &item.brief,
            most.as_bytes(),
            bytes.as_bytes(),
        ];
        let mut keys = self.keys.clone();
        keys.extend(token.map(|token| redis.key(&["queue", "moved", &token])));
        let words: Words = self.ask_with(redis, &keys, "add", &words, within).await?;
        match words.first().map(Vec::as_slice) {
            Some(b"done") => CountsNow::read(words.get(1..).unwrap_or_default()).map(Added::Done),
            Some(b"moved") => Ok(Added::Earlier(number(words.get(1))?)),
            Some(b"items") => Ok(Added::FullOfItems),
            Some(b"bytes") => Ok(Added::FullOfBytes(number(words.get(1))?)),
            _ => Err(strange()),
        }
    }

    /// Redis's time, and the item if there is one.
    pub(super) async fn read(
        &self,
        redis: &Redis,
        id: u64,
        within: Duration,
    ) -> Result<Option<RawItem>, RedisTrouble> {
        let name = id.to_string();
        let mut words: Words = self.ask(redis, "read", &[name.as_bytes()], within).await?;
        if words.len() == 1 {
            return Ok(None);
        }
        let now = number(words.first())?;
        let [rev, fence, record] = [1, 2, 3].map(|index| bytes(words.get_mut(index)));
        Ok(Some(RawItem { now, id, rev: rev?, record: record?, fence: fence? }))
    }

    /// Changes an item; `None`: it has another revision by now, or the right is gone.
    pub(super) async fn put(
        &self,
        redis: &Redis,
        rev: &[u8],
        right: ChangeRight<'_>,
        item: &SealedItem,
        lease: Duration,
    ) -> Result<Option<CountsNow>, RedisTrouble> {
        let (id, lease) = (item.id.to_string(), lease.as_millis().to_string());
        let (how, fence) = match right {
            ChangeRight::Free => ("free", &b""[..]),
            ChangeRight::Mark(fence) => ("mark", fence),
            ChangeRight::Own(fence) => ("own", fence),
            ChangeRight::Lapsed(fence) => ("lapsed", fence),
        };
        let words = [
            id.as_bytes(),
            rev,
            how.as_bytes(),
            fence,
            lease.as_bytes(),
            &item.mark,
            &item.record,
            &item.brief,
        ];
        let words: Words = self.ask(redis, "put", &words, super::TASK_WAIT).await?;
        CountsNow::after(&words)
    }

    /// The id of the first item of a server's line.
    pub(super) async fn first(
        &self,
        redis: &Redis,
        server: &str,
    ) -> Result<Option<u64>, RedisTrouble> {
        let words: Words = self.ask(redis, "first", &[server.as_bytes()], super::TASK_WAIT).await?;
        let id = words.first().filter(|word| !word.is_empty());
        id.map(|id| number(Some(id))).transpose()
    }

    /// The head of a server's line.
    pub(super) async fn head(
        &self,
        redis: &Redis,
        server: &str,
    ) -> Result<HeadFound, RedisTrouble> {
        let words = [server.as_bytes(), b"look", b"", b"0"];
        let words: Words = self.ask(redis, "head", &words, super::TASK_WAIT).await?;
        head_found(words)
    }

    /// Leases a server's line for its head, if it is due and is the wanted one.
    pub(super) async fn take(
        &self,
        redis: &Redis,
        server: &str,
        wanted: Option<u64>,
        lease: Duration,
    ) -> Result<HeadFound, RedisTrouble> {
        let wanted = wanted.map(|id| id.to_string()).unwrap_or_default();
        let lease = lease.as_millis().to_string();
        let words = [server.as_bytes(), b"take", wanted.as_bytes(), lease.as_bytes()];
        let words: Words = self.ask(redis, "head", &words, super::TASK_WAIT).await?;
        head_found(words)
    }

    /// The servers whose leases are still the caller's, and last longer now.
    pub(super) async fn renew(
        &self,
        redis: &Redis,
        held: &[(String, Vec<u8>)],
        lease: Duration,
    ) -> Result<Vec<String>, RedisTrouble> {
        let lease = lease.as_millis().to_string();
        let mut words = vec![lease.as_bytes()];
        words.extend(held.iter().flat_map(|(server, fence)| [server.as_bytes(), fence.as_slice()]));
        self.ask(redis, "renew", &words, super::TASK_WAIT).await
    }

    pub(super) async fn release(
        &self,
        redis: &Redis,
        server: &str,
        fence: &[u8],
    ) -> Result<Option<CountsNow>, RedisTrouble> {
        let words = [server.as_bytes(), fence];
        let words: Words = self.ask(redis, "release", &words, super::TASK_WAIT).await?;
        CountsNow::after(&words)
    }

    pub(super) async fn remove(
        &self,
        redis: &Redis,
        id: u64,
        rev: &[u8],
    ) -> Result<Option<CountsNow>, RedisTrouble> {
        let id = id.to_string();
        let words: Words =
            self.ask(redis, "remove", &[id.as_bytes(), rev], super::TASK_WAIT).await?;
        CountsNow::after(&words)
    }

    pub(super) async fn look(&self, redis: &Redis, lately: u64) -> Result<QueueLook, RedisTrouble> {
        let lately = lately.to_string();
        let (counts, servers, lapsed, over): (Words, Words, Words, Words) =
            self.ask(redis, "look", &[lately.as_bytes()], super::TASK_WAIT).await?;
        let pairs = |words: &[Vec<u8>]| -> Vec<(Vec<u8>, Result<u64, RedisTrouble>)> {
            words
                .chunks_exact(2)
                .filter_map(|pair| Some((pair.first()?.clone(), number(pair.get(1)))))
                .collect()
        };
        let servers = pairs(&servers)
            .into_iter()
            .map(|(name, value)| Ok((String::from_utf8_lossy(&name).into_owned(), value?)));
        let lapsed = pairs(&lapsed).into_iter().map(|(fence, id)| Ok((fence, id?)));
        Ok(QueueLook {
            counts: CountsNow::read(&counts)?,
            servers: servers.collect::<Result<_, RedisTrouble>>()?,
            lapsed: lapsed.collect::<Result<_, RedisTrouble>>()?,
            over: over.iter().map(|id| number(Some(id))).collect::<Result<_, _>>()?,
        })
    }

    /// Up to `most` summaries after an id in these states, and where to go on; `None`: nowhere.
    pub(super) async fn page(
        &self,
        redis: &Redis,
        after: u64,
        states: &[ItemState],
        most: usize,
    ) -> Result<(Vec<(u64, Vec<u8>)>, Option<u64>), RedisTrouble> {
        let (after, most) = (after.to_string(), most.to_string());
        let mut words = vec![after.as_bytes(), most.as_bytes()];
        words.extend(states.iter().map(|state| state.word().as_bytes()));
        let (reached, mut found): (Words, Words) =
            self.ask(redis, "page", &words, super::TASK_WAIT).await?;
        let reached = reached.first().filter(|word| !word.is_empty());
        let briefs = found.chunks_exact_mut(2).map(|pair| match pair {
            [id, brief] => Ok((number(Some(&*id))?, std::mem::take(brief))),
            _ => Err(strange()),
        });
        Ok((briefs.collect::<Result<_, _>>()?, reached.map(|id| number(Some(id))).transpose()?))
    }

    /// Redis's time, and the newest items with the same call: whether each is open, and its record
    /// then, else its summary.
    pub(super) async fn find(
        &self,
        redis: &Redis,
        call: &str,
        within: Duration,
    ) -> Result<(u64, Vec<(u64, bool, Vec<u8>)>), RedisTrouble> {
        let words: Words = self.ask(redis, "find", &[call.as_bytes()], within).await?;
        let (now, rest) = words.split_first().ok_or_else(strange)?;
        let found = rest.chunks_exact(3).map(|item| match item {
            [id, kind, value] => Ok((number(Some(id))?, kind == b"open", value.clone())),
            _ => Err(strange()),
        });
        Ok((number(Some(now))?, found.collect::<Result<_, _>>()?))
    }
}

fn head_found(mut words: Words) -> Result<HeadFound, RedisTrouble> {
    let kind = bytes(words.first_mut())?;
    match kind.as_slice() {
        b"none" => Ok(HeadFound::Nothing),
        b"later" => Ok(HeadFound::Later(number(words.get(2))?)),
        b"lapsed" => Ok(HeadFound::Lapsed),
        b"lost" | b"due" => {
            let (now, id) = (number(words.get(1))?, number(words.get(2))?);
            let [rev, record] = [3, 4].map(|index| bytes(words.get_mut(index)));
            let fence = words.get_mut(5).map(std::mem::take).unwrap_or_default();
            let item = RawItem { now, id, rev: rev?, record: record?, fence };
            Ok(if kind == b"due" { HeadFound::Due(item) } else { HeadFound::Lost(item) })
        }
        _ => Err(strange()),
    }
}

/// An item as it is written: what the script reads of it, the whole item and its summary, signed.
pub(super) struct SealedItem {
    pub(super) id: u64,
    pub(super) mark: Vec<u8>,
    pub(super) record: Vec<u8>,
    pub(super) brief: Vec<u8>,
}
