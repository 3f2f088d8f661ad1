//! Decides when a replica speaks with Redis, and lets its breakers and rates follow what it hears.
//!
//! It beats once a second, and at once when a breaker of its own changes, an operator gives an
//! order, another replica tells of a change, or Redis is back. A lost message is made good by the
//! next beat.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use seawall::{BreakerMode, BreakerSnapshot, BreakerStatus, Tool};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::book::{FleetAction, SeenBreaker};
use super::document::{BreakerDeed, ReplicaDocument};
use super::exchange::HeardBeat;
use super::{Fleet, lock, rates};
use crate::policy::probes::EndedLease;
use crate::policy::registry::{NewestPolicies, PolicyRegistry};
use crate::runtime::log;
use crate::store::redis::RedisTrouble;

/// The pause between two beats; half a tenth less or more, so that replicas do not beat together.
const BEAT: Duration = Duration::from_millis(900);
/// How long after a change the beat waits for further ones.
const GATHER: Duration = Duration::from_millis(20);

/// The demand for servers, as it was measured last.
struct DemandMeter {
    since: Instant,
    demand: BTreeMap<String, f64>,
}

impl Fleet {
    /// Beats for as long as it is polled.
    pub(super) async fn take_turns(
        &self,
        newest: Arc<NewestPolicies>,
        mut changes: watch::Receiver<u64>,
    ) {
        let (mut state, mut messages) = (self.redis.state(), self.redis.messages());
        let mut meter = DemandMeter { since: Instant::now(), demand: BTreeMap::new() };
        let mut announce = true;
        loop {
            let is_connected = state.borrow_and_update().is_connected();
            // None: the gateway is going down.
            let Some(policies) = newest.get() else { return };
            changes.mark_unchanged();
            let done = match is_connected {
                true => self.beat(&policies, &mut meter, announce).await,
                false => Err(RedisTrouble::Away),
            };
            if done.is_err() {
                self.go_alone(&policies);
            }
            drop(policies);
            announce = tokio::select! {
                () = sleep(BEAT.mul_f64(0.95 + 0.1 * fastrand::f64())) => false,
                Ok(()) = state.changed() => true,
                Ok(()) = changes.changed() => true,
                () = self.has_order.notified() => true,
                () = another(&mut messages, self) => false,
            };
            sleep(GATHER).await;
        }
    }

    async fn beat(
        &self,
        policies: &PolicyRegistry,
        meter: &mut DemandMeter,
        announce: bool,
    ) -> Result<(), RedisTrouble> {
        if lock(&self.clock).is_none() {
            self.set_clock(self.exchange.time(&self.redis).await?);
        }
        let (tools, now) = (breakers(policies), self.now());
        let seen: Vec<SeenBreaker> = tools.values().filter_map(seen).collect();
        let open = {
            let mut book = lock(&self.book);
            book.observe(now, &seen);
            book.own_votes()
        };
        self.measure(meter);
        let demand = meter.demand.clone();
        let document = ReplicaDocument { id: self.id.clone(), at: now, open, demand };
        let heard = self.exchange.beat(&self.redis, &document, announce).await?;
        self.set_clock(heard.now);
        self.follow(policies, &tools, &heard);
        for (name, server) in rated(policies) {
            server.server().set_rate_share(rates::share(&self.id, &name, &heard.documents));
        }
        let missing = lock(&self.book).missing(&heard.orders);
        self.exchange.put(&self.redis, &missing, &heard).await
    }

    /// Counts the votes and takes the orders, and lets the breakers follow.
    fn follow(
        &self,
        policies: &PolicyRegistry,
        tools: &HashMap<String, Arc<Tool>>,
        heard: &HeardBeat,
    ) {
        let mut book = lock(&self.book);
        let told = heard.orders.clone().into_iter().collect();
        let mut due = book.take_orders(heard.now, told);
        due.extend(book.count(heard.now, &heard.documents));
        for (name, action) in due {
            let Some(breaker) = tools.get(&name).and_then(|tool| tool.breaker()) else { continue };
            let before = breaker.snapshot();
            match action {
                FleetAction::Open(left) => {
                    let is_free = before.mode == BreakerMode::Auto;
                    if is_free && before.status == BreakerStatus::Closed {
                        book.opened(heard.now, &name, before.trips);
                        log::warn(&format!(
                            "a quorum of replicas has opened the breaker of {name}"
                        ));
                        let (status, remaining) = (BreakerStatus::Open, Some(left));
                        breaker.restore(&BreakerSnapshot { status, remaining, ..before });
                    }
                }
                FleetAction::Follow(deed, at) => {
                    book.followed(&name, at);
                    if let Some(tool) = tools.get(&name) {
                        obey(policies, tool, deed, before.mode);
                    }
                }
            }
        }
    }

    /// Redis is away: this replica has as much of each rate as every other one.
    fn go_alone(&self, policies: &PolicyRegistry) {
        let replicas = {
            let mut book = lock(&self.book);
            book.alone();
            book.live()
        };
        for (_, tool) in rated(policies) {
            tool.server().set_rate_share(1.0 / replicas.max(1) as f64);
        }
    }

    fn measure(&self, meter: &mut DemandMeter) {
        let seconds = meter.since.elapsed().as_secs_f64();
        // A shorter time says little.
        if seconds < 0.5 {
            return;
        }
        let asked = std::mem::take(&mut *lock(&self.asked));
        let names: BTreeSet<String> = meter.demand.keys().chain(asked.keys()).cloned().collect();
        let measured = names.into_iter().map(|name| {
            let before = meter.demand.get(&name).copied().unwrap_or(0.0);
            let calls = asked.get(&name).copied().unwrap_or(0);
            let demand = rates::demand(before, calls, seconds);
            (name, demand)
        });
        meter.demand = measured.filter(|(_, demand)| *demand > 0.001).collect();
        meter.since = Instant::now();
    }

    /// Tells Redis of probes that are over, for as long as it is polled.
    pub(super) async fn give_leases_back(
        &self,
        newest: Arc<NewestPolicies>,
        mut ended: mpsc::Receiver<EndedLease>,
    ) {
        while let Some(lease) = ended.recv().await {
            let Some(policies) = newest.get() else { return };
            let tools = breakers(&policies);
            let snapshot = tools
                .get(&lease.breaker)
                .and_then(|tool| tool.breaker())
                .map(|breaker| breaker.snapshot());
            let cooldown = snapshot
                .filter(|now| now.status == BreakerStatus::Open)
                .and_then(|now| now.remaining)
                .unwrap_or_default();
            // One that cannot be given back ends by its time.
            let _given = self.leases.give_back(&self.redis, &lease, cooldown).await;
        }
    }
}

/// Waits for a message of another replica.
async fn another(
    messages: &mut tokio::sync::broadcast::Receiver<crate::store::redis::RedisMessage>,
    fleet: &Fleet,
) {
    use tokio::sync::broadcast::error::RecvError;
    loop {
        match messages.recv().await {
            Ok(message) => {
                let told = fleet.redis.unseal(&message.channel, &message.value);
                if told.is_some_and(|id| id != fleet.id.as_bytes()) {
                    return;
                }
            }
            Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Lets a breaker of this replica follow an order.
fn obey(policies: &PolicyRegistry, tool: &Tool, deed: BreakerDeed, mode: BreakerMode) {
    let Some(breaker) = tool.breaker() else { return };
    log::line(&format!("the breaker of {} follows another replica: {deed:?}", breaker.name()));
    match deed {
        BreakerDeed::Recover if mode == BreakerMode::Auto => breaker.recover(),
        BreakerDeed::Reset if mode != BreakerMode::ForcedOpen => breaker.reset(),
        BreakerDeed::Recover | BreakerDeed::Reset => {}
        BreakerDeed::Force(wanted) if wanted == mode => {}
        BreakerDeed::Force(wanted) => {
            // By name: a tool's own breaker is replaced when the tool is listed again.
            let (server, name) = (tool.server().name(), tool.name());
            if policies.pipeline.set_mode(server, name, wanted).is_none() {
                breaker.set_mode(wanted);
            }
        }
    }
}

fn seen(tool: &Arc<Tool>) -> Option<SeenBreaker> {
    let breaker = tool.breaker()?;
    let BreakerSnapshot { status, mode, trips, remaining, .. } = breaker.snapshot();
    Some(SeenBreaker { name: breaker.name().to_owned(), status, mode, trips, remaining })
}

/// Each breaker by its name, with a tool that it guards.
fn breakers(policies: &PolicyRegistry) -> HashMap<String, Arc<Tool>> {
    let mut found = HashMap::new();
    for (_, tool) in policies.all() {
        let Some(name) = tool.breaker().map(|breaker| breaker.name().to_owned()) else { continue };
        found.entry(name).or_insert(tool);
    }
    found
}

/// Each server with a rate, with a tool of it.
fn rated(policies: &PolicyRegistry) -> BTreeMap<String, Arc<Tool>> {
    let tools = policies.all().into_iter().filter(|(_, tool)| tool.server().has_rate());
    tools.map(|(_, tool)| (tool.server().name().to_owned(), tool)).collect()
}
