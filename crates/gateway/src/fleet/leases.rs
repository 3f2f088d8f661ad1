//! Decides which replica may probe: Redis leases out each probe, by its own clock and with a number
//! that grows; after a failed probe it leases none until the cool-down is over.

use std::time::Duration;

use crate::policy::probes::EndedLease;
use crate::store::redis::{CALL_WAIT, Redis, RedisScript, RedisTrouble, TASK_WAIT};

/// The keys: the leases of the breaker by the end of each, the time until which none is given, and
/// the last number. The arguments: how many may be out, and for how long each. A time that lies
/// more than a day ahead is nobody's cool-down.
const TAKE: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local pause = tonumber(redis.call('GET', KEYS[2]) or '0') or 0
if pause > now and pause < now + 86400000 then return 0 end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
local number = redis.call('INCR', KEYS[3])
redis.call('ZADD', KEYS[1], now + ARGV[2], number)
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
redis.call('PEXPIRE', KEYS[3], 86400000)
return number
";

/// The keys: the leases, and the time until which none is given. The arguments: the number, and how
/// long a failed probe keeps others from being made; 0: it did not fail.
const GIVE_BACK: &str = "
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
local pause = tonumber(ARGV[2])
if pause > 0 then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  redis.call('SET', KEYS[2], now + pause, 'PX', pause)
end
return 1
";

/// The scripts of leases.
pub(super) struct LeaseScripts {
    take: RedisScript,
    give_back: RedisScript,
}

impl LeaseScripts {
    pub(super) fn new() -> Self {
        Self { take: RedisScript::new(TAKE), give_back: RedisScript::new(GIVE_BACK) }
    }

    /// A lease for one of `probes`, which ends by itself after `lasting`; `None`: others have them.
    pub(super) async fn take(
        &self,
        redis: &Redis,
        breaker: &str,
        probes: u32,
        lasting: Duration,
    ) -> Result<Option<u64>, RedisTrouble> {
        let [leases, pause, number] =
            ["leases", "pause", "number"].map(|what| redis.key(&[what, breaker]));
        let (probes, lasting) = (probes.to_string(), millis(lasting).max(1).to_string());
        let arguments = [probes.as_bytes(), lasting.as_bytes()];
        let keys = [leases, pause, number];
        let number: u64 = redis.eval(&self.take, &keys, &arguments, CALL_WAIT).await?;
        Ok(Some(number).filter(|number| *number > 0))
    }

    /// Gives a lease back; after a failed probe with the cool-down that began with it.
    pub(super) async fn give_back(
        &self,
        redis: &Redis,
        ended: &EndedLease,
        cooldown: Duration,
    ) -> Result<(), RedisTrouble> {
        let keys = ["leases", "pause"].map(|what| redis.key(&[what, &ended.breaker]));
        let (number, pause) = (ended.number.to_string(), millis(cooldown).to_string());
        let arguments = [number.as_bytes(), pause.as_bytes()];
        let _known: u64 = redis.eval(&self.give_back, &keys, &arguments, TASK_WAIT).await?;
        Ok(())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
