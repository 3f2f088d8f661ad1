//! Decides what one beat of a replica says to Redis and hears from it: one script, once a second.
//!
//! The script counts time by Redis's clock, so that the clocks of replicas do not matter. What it
//! returns counts only where its signature is right.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::document::{BreakerOrder, ReplicaDocument};
use crate::store::redis::{Redis, RedisScript, RedisTrouble, TASK_WAIT};

/// How long a replica counts as live after its last beat, in milliseconds.
const LIVE: &[u8] = b"5000";
/// How long an order stays after the last replica is gone, in milliseconds: a week.
const ORDERS_STAY: u64 = 7 * 24 * 3_600_000;
/// The channel that tells of changes.
pub(super) const CHANNEL: &str = "fleet";

/// The keys: live replicas, this replica's document, orders, and the channel. The arguments: its
/// id, the document, how long it lives, how documents' keys begin, how long orders stay, and what
/// is published, if anything.
const BEAT: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + ARGV[3], '+inf')
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('PEXPIRE', KEYS[3], ARGV[5])
if ARGV[6] ~= '' then redis.call('PUBLISH', KEYS[4], ARGV[6]) end
local ids = redis.call('ZREVRANGE', KEYS[1], 0, 999)
local documents = {}
for place, id in ipairs(ids) do documents[place] = redis.call('GET', ARGV[4] .. id) or '' end
return {now, ids, documents, redis.call('HGETALL', KEYS[3])}
";

/// What a beat heard.
#[derive(Debug, Default)]
pub(super) struct HeardBeat {
    /// Redis's clock.
    pub now: u64,
    /// The live replicas, this one among them.
    pub documents: Vec<ReplicaDocument>,
    /// The orders.
    pub orders: BTreeMap<String, BreakerOrder>,
    /// Orders that are over, or that nobody of this fleet gave.
    waste: Vec<String>,
}

/// The talk of one replica with Redis.
pub(super) struct Exchange {
    beat: RedisScript,
    id: String,
}

impl Exchange {
    pub(super) fn new(id: &str) -> Self {
        Self { beat: RedisScript::new(BEAT), id: id.to_owned() }
    }

    /// Redis's clock, before the first beat.
    pub(super) async fn time(&self, redis: &Redis) -> Result<u64, RedisTrouble> {
        let (seconds, micros): (u64, u64) = redis.command(&::redis::cmd("TIME"), TASK_WAIT).await?;
        Ok(seconds * 1000 + micros / 1000)
    }

    /// Says that this replica lives and what it has; with `announce` the others hear of it at once.
    pub(super) async fn beat(
        &self,
        redis: &Redis,
        document: &ReplicaDocument,
        announce: bool,
    ) -> Result<HeardBeat, RedisTrouble> {
        let own_key = redis.key(&["replica", &self.id]);
        let (channel, orders_key) = (redis.key(&[CHANNEL]), redis.key(&["orders"]));
        let keys = [redis.key(&["replicas"]), own_key.clone(), orders_key.clone(), channel.clone()];
        let sealed = redis.seal(&own_key, &json(document));
        let announced = match announce {
            true => redis.seal(&channel, self.id.as_bytes()),
            false => Vec::new(),
        };
        let (begin, stay) = (redis.key(&["replica", ""]), ORDERS_STAY.to_string());
        let arguments: [&[u8]; 6] =
            [self.id.as_bytes(), &sealed, LIVE, begin.as_bytes(), stay.as_bytes(), &announced];
        type Told = (u64, Vec<String>, Vec<Vec<u8>>, Vec<(String, Vec<u8>)>);
        let (now, ids, documents, orders): Told =
            redis.eval(&self.beat, &keys, &arguments, TASK_WAIT).await?;
        let mut heard = HeardBeat { now, ..HeardBeat::default() };
        for (id, sealed) in ids.iter().zip(&documents) {
            let document = read::<ReplicaDocument>(redis, &redis.key(&["replica", id]), sealed);
            heard.documents.extend(document.filter(|one| one.id == *id && one.is_fresh(now)));
        }
        for (name, sealed) in orders {
            match read::<BreakerOrder>(redis, &format!("{orders_key}:{name}"), &sealed) {
                Some(order) if !order.is_over(now) => {
                    heard.orders.insert(name, order);
                }
                _ => heard.waste.push(name),
            }
        }
        Ok(heard)
    }

    /// Writes orders that Redis lacks, and deletes those that are over.
    pub(super) async fn put(
        &self,
        redis: &Redis,
        missing: &[(String, BreakerOrder)],
        heard: &HeardBeat,
    ) -> Result<(), RedisTrouble> {
        let key = redis.key(&["orders"]);
        if !heard.waste.is_empty() {
            let mut forget = ::redis::cmd("HDEL");
            forget.arg(&key).arg(&heard.waste);
            let _gone: i64 = redis.command(&forget, TASK_WAIT).await?;
        }
        if missing.is_empty() {
            return Ok(());
        }
        let mut put = ::redis::cmd("HSET");
        put.arg(&key);
        for (name, order) in missing {
            put.arg(name).arg(redis.seal(&format!("{key}:{name}"), &json(order)));
        }
        let _new: i64 = redis.command(&put, TASK_WAIT).await?;
        let mut last = ::redis::cmd("PEXPIRE");
        last.arg(&key).arg(ORDERS_STAY);
        let _set: i64 = redis.command(&last, TASK_WAIT).await?;
        redis.publish(CHANNEL, self.id.as_bytes(), TASK_WAIT).await
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // The error is impossible: keys are texts. An empty value counts for nothing.
    serde_json::to_vec(value).unwrap_or_default()
}

fn read<T: DeserializeOwned>(redis: &Redis, key: &str, sealed: &[u8]) -> Option<T> {
    serde_json::from_slice(redis.unseal(key, sealed)?).ok()
}
