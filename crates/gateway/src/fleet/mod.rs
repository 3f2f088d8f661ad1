//! Decides what replicas of the gateway do together: breakers that a quorum opens, probes that one
//! makes for all, and rates that they share.
//!
//! `book` decides about breakers, `rates` about shares; `exchange` is one beat with Redis, `leases`
//! a probe; `document` is what is written there. A call reads nothing but its own memory, except
//! one that may probe: that asks Redis for a lease, for 50 ms at most. Without Redis every replica
//! goes by what it knows itself.

mod book;
mod document;
mod exchange;
mod leases;
mod rates;
mod turn;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seawall::Tool;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use self::book::BreakerBook;
pub(crate) use self::document::BreakerDeed;
use self::exchange::{CHANNEL, Exchange};
use self::leases::LeaseScripts;
use crate::config::RedisConfig;
use crate::policy::probes::{ProbeOffer, ProbePurse};
use crate::policy::registry::PolicyRegistry;
use crate::runtime::lifecycle::Lifecycle;
use crate::runtime::random;
use crate::store::redis::{Redis, RedisState};

/// How much longer than its attempt a probe is leased.
const LEASE_MARGIN: Duration = Duration::from_secs(2);

/// This replica among the others.
pub(crate) struct Fleet {
    id: String,
    redis: Redis,
    exchange: Exchange,
    leases: LeaseScripts,
    purse: Arc<ProbePurse>,
    book: Mutex<BreakerBook>,
    clock: Mutex<Option<RedisClock>>,
    /// The calls for each server with a rate since they were counted last.
    asked: Mutex<HashMap<String, u64>>,
    /// Wakes the beat: there is an order to tell.
    has_order: Notify,
}

/// Redis's clock, and when it was read.
#[derive(Clone, Copy, Debug)]
struct RedisClock {
    millis: u64,
    read: Instant,
}

/// What an operator sees of the fleet.
#[derive(Clone, Debug)]
pub(crate) struct FleetStatus {
    /// This replica.
    pub id: String,
    /// The connection to Redis.
    pub redis: RedisState,
    /// The live replicas, this one among them; as far as it knew when Redis went away.
    pub replicas: usize,
    /// How many have to have opened a breaker until it opens in all.
    pub quorum: usize,
    /// The breakers that some replicas have opened by their own failures: how many, and whether
    /// they are a quorum.
    pub open: BTreeMap<String, (usize, bool)>,
}

impl Fleet {
    /// Joins the fleet that shares this Redis, and stays in it until the gateway ends.
    pub(crate) fn join(
        config: &RedisConfig,
        policies: &Arc<PolicyRegistry>,
        lifecycle: &Lifecycle,
    ) -> Result<Option<Arc<Self>>, String> {
        let Some((purse, ended)) = policies.take_purse() else { return Ok(None) };
        let id: String = random::secret().chars().take(16).collect();
        let fleet = Arc::new(Self {
            redis: Redis::new(config, &[CHANNEL])?,
            exchange: Exchange::new(&id),
            leases: LeaseScripts::new(),
            purse,
            book: Mutex::new(BreakerBook::new(&id, config.quorum_share, config.quorum_min)),
            clock: Mutex::new(None),
            asked: Mutex::default(),
            has_order: Notify::new(),
            id,
        });
        lifecycle.spawn(fleet.redis.keep(lifecycle.ended.clone()));
        let newest = Arc::clone(policies.newest());
        let (stop, beats) = (lifecycle.ended.clone(), Arc::clone(&fleet));
        let (changes, known) = (policies.breaker_changes(), Arc::clone(&newest));
        lifecycle.spawn(async move {
            stop.run_until_cancelled(beats.take_turns(known, changes)).await;
        });
        let (stop, gives) = (lifecycle.ended.clone(), Arc::clone(&fleet));
        lifecycle.spawn(async move {
            stop.run_until_cancelled(gives.give_leases_back(newest, ended)).await;
        });
        Ok(Some(fleet))
    }

    /// A lease for a call that would be a probe; `None`: it is none, or others probe now.
    pub(crate) async fn offer(&self, tool: &Tool) -> Option<ProbeOffer> {
        let breaker = tool.breaker().filter(|breaker| breaker.is_due())?;
        let policy = tool.policy();
        let lasting = policy.attempt_timeout.unwrap_or(policy.timeout) + LEASE_MARGIN;
        let (name, probes) = (breaker.name(), breaker.probes());
        match self.leases.take(&self.redis, name, probes, lasting).await {
            Ok(lease) => lease.map(|number| self.purse.offer(name, Some(number))),
            // Nobody can be asked: this replica's own breaker bounds its probes.
            Err(_) => Some(self.purse.offer(name, None)),
        }
    }

    /// Counts a call for a server, if its rate is shared.
    pub(crate) fn count(&self, tool: &Tool) {
        if tool.server().has_rate() {
            let mut asked = lock(&self.asked);
            match asked.get_mut(tool.server().name()) {
                Some(count) => *count += 1,
                None => {
                    asked.insert(tool.server().name().to_owned(), 1);
                }
            }
        }
    }

    /// Tells all replicas what an operator did to a breaker here.
    pub(crate) fn order(&self, breaker: &str, deed: BreakerDeed) {
        let now = self.now();
        lock(&self.book).order(now, breaker, deed);
        self.has_order.notify_one();
    }

    /// The connection to Redis, whose changes are events.
    pub(crate) fn connection(&self) -> watch::Receiver<RedisState> {
        self.redis.state()
    }

    /// What an operator sees.
    pub(crate) fn status(&self) -> FleetStatus {
        let book = lock(&self.book);
        let open = book.votes().map(|(name, votes, is_quorum)| (name.clone(), (votes, is_quorum)));
        FleetStatus {
            id: self.id.clone(),
            redis: self.redis.state().borrow().clone(),
            replicas: book.live(),
            quorum: book.quorum(),
            open: open.collect(),
        }
    }

    /// Redis's clock as far as it is known; 0 before Redis was ever reached.
    fn now(&self) -> u64 {
        let clock = *lock(&self.clock);
        clock.map_or(0, |clock| {
            let since = u64::try_from(clock.read.elapsed().as_millis()).unwrap_or(u64::MAX);
            clock.millis.saturating_add(since)
        })
    }

    fn set_clock(&self, millis: u64) {
        *lock(&self.clock) = Some(RedisClock { millis, read: Instant::now() });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
