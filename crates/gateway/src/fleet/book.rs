//! Decides when a breaker opens and closes in the whole fleet. Pure: no Redis, clock or breaker.
//!
//! A replica's own failures open its own breaker, and that is its vote. When a quorum of the live
//! replicas has voted, the others open theirs too. A vote given before the breaker's last order
//! counts no more. What was opened for others is no vote, until a probe of this replica fails.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use seawall::{BreakerMode, BreakerStatus};

use super::document::{BreakerDeed, BreakerOrder, DRIFT, OpenVote, ReplicaDocument};

/// The most breakers that votes and orders are kept of.
const MOST: usize = 1024;

/// One breaker of this replica, as it is now.
#[derive(Clone, Debug)]
pub(super) struct SeenBreaker {
    pub name: String,
    pub status: BreakerStatus,
    pub mode: BreakerMode,
    pub trips: u64,
    pub remaining: Option<Duration>,
}

/// What has to be done to a breaker of this replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FleetAction {
    /// A quorum has opened it: it opens for so long.
    Open(Duration),
    /// An order, and when it was given.
    Follow(BreakerDeed, u64),
}

/// A breaker of this replica that is not closed.
#[derive(Clone, Copy, Debug)]
struct OpenBreaker {
    /// Since when, by Redis's clock.
    since: u64,
    /// `None`: it was opened for others.
    vote: Option<OpenVote>,
    trips: u64,
}

/// What this replica knows of the breakers of all.
#[derive(Debug)]
pub(super) struct BreakerBook {
    own_id: String,
    quorum_share: f64,
    quorum_min: usize,
    open: BTreeMap<String, OpenBreaker>,
    /// The latest order for each breaker.
    orders: BTreeMap<String, BreakerOrder>,
    /// The time of the last order that each breaker of this replica followed.
    followed: HashMap<String, u64>,
    /// How many live replicas have opened each breaker.
    votes: BTreeMap<String, usize>,
    /// The breakers that a quorum has opened.
    fleet_open: BTreeSet<String>,
    live: usize,
}

impl BreakerBook {
    pub(super) fn new(own_id: &str, quorum_share: f64, quorum_min: u32) -> Self {
        Self {
            own_id: own_id.to_owned(),
            quorum_share,
            quorum_min: usize::try_from(quorum_min).unwrap_or(usize::MAX),
            open: BTreeMap::new(),
            orders: BTreeMap::new(),
            followed: HashMap::new(),
            votes: BTreeMap::new(),
            fleet_open: BTreeSet::new(),
            live: 1,
        }
    }

    /// How many of so many live replicas have to have opened a breaker until it opens in all.
    pub(super) fn quorum(&self) -> usize {
        let share = (self.quorum_share * self.live as f64).ceil() as usize;
        share.max(self.quorum_min)
    }

    /// The live replicas, this one among them.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// How many live replicas have opened each breaker, and whether that is a quorum.
    pub(super) fn votes(&self) -> impl Iterator<Item = (&String, usize, bool)> {
        self.votes.iter().map(|(name, votes)| (name, *votes, self.fleet_open.contains(name)))
    }

    /// Takes in what this replica's breakers are. One that a quorum had opened and a probe of this
    /// replica has closed is closed for all.
    pub(super) fn observe(&mut self, now: u64, seen: &[SeenBreaker]) {
        // A new configuration may know some no more.
        let names: BTreeSet<&str> = seen.iter().map(|breaker| breaker.name.as_str()).collect();
        self.open.retain(|name, _| names.contains(name.as_str()));
        for breaker in seen {
            if breaker.mode != BreakerMode::Auto {
                self.open.remove(&breaker.name);
                continue;
            }
            if breaker.status == BreakerStatus::Closed {
                let was_open = self.open.remove(&breaker.name).is_some();
                if was_open && self.fleet_open.remove(&breaker.name) {
                    self.order(now, &breaker.name, BreakerDeed::Recover);
                }
                continue;
            }
            self.note_open(now, breaker);
        }
    }

    fn note_open(&mut self, now: u64, breaker: &SeenBreaker) {
        let until = breaker.remaining.map(|left| now + millis(left));
        let has_room = self.open.len() < MOST || self.open.contains_key(&breaker.name);
        if !has_room {
            return;
        }
        let fresh = OpenVote { since: now, until: until.unwrap_or(now) };
        let first = OpenBreaker { since: now, vote: Some(fresh), trips: breaker.trips };
        let known = self.open.entry(breaker.name.clone()).or_insert(first);
        match &mut known.vote {
            Some(vote) => vote.until = until.unwrap_or(vote.until),
            // It tripped again: by a probe of this replica.
            vote @ None if breaker.trips > known.trips => *vote = Some(fresh),
            None => {}
        }
        known.trips = breaker.trips;
    }

    /// The votes of this replica.
    pub(super) fn own_votes(&self) -> BTreeMap<String, OpenVote> {
        let vote = |(name, open): (&String, &OpenBreaker)| Some((name.clone(), open.vote?));
        self.open.iter().filter_map(vote).collect()
    }

    /// Counts the votes of all live replicas; returns what opens here.
    pub(super) fn count(
        &mut self,
        now: u64,
        others: &[ReplicaDocument],
    ) -> Vec<(String, FleetAction)> {
        let others = others.iter().filter(|one| one.id != self.own_id && one.is_fresh(now));
        let mut until = BTreeMap::<String, u64>::new();
        let own = self.own_votes();
        let mut live = 1;
        self.votes.clear();
        let all = others.map(|one| &one.open).inspect(|_| live += 1).chain([&own]);
        for (name, vote) in all.flat_map(|open| open.iter().take(MOST)) {
            if self.orders.get(name).is_some_and(|order| order.at >= vote.since) {
                continue;
            }
            *self.votes.entry(name.clone()).or_default() += 1;
            let last = until.entry(name.clone()).or_default();
            *last = vote.until.max(*last);
        }
        self.live = live;
        let quorum = self.quorum();
        let has_quorum = self.votes.iter().filter(|(_, votes)| **votes >= quorum);
        self.fleet_open = has_quorum.map(|(name, _)| name.clone()).collect();
        let new = self.fleet_open.iter().filter(|name| !self.open.contains_key(*name));
        let opens = new.filter_map(|name| {
            let left = until.get(name)?.checked_sub(now).filter(|left| *left > 0)?;
            Some((name.clone(), FleetAction::Open(Duration::from_millis(left))))
        });
        opens.collect()
    }

    /// Notes that a breaker was opened here because a quorum had opened it.
    pub(super) fn opened(&mut self, now: u64, name: &str, trips: u64) {
        self.open.insert(name.to_owned(), OpenBreaker { since: now, vote: None, trips });
    }

    /// Gives an order to all, this replica included; it has followed it already.
    pub(super) fn order(&mut self, now: u64, name: &str, deed: BreakerDeed) {
        let since = self.open.get(name).map_or(0, |open| open.since);
        let before = self.orders.get(name).map_or(0, |order| order.at);
        let at = now.max(since + 1).max(before + 1);
        self.open.remove(name);
        self.followed.insert(name.to_owned(), at);
        let order = BreakerOrder { at, by: self.own_id.clone(), deed };
        if self.orders.len() < MOST || self.orders.contains_key(name) {
            self.orders.insert(name.to_owned(), order);
        }
    }

    /// Takes in the orders of all; returns those that this replica has not followed yet.
    pub(super) fn take_orders(
        &mut self,
        now: u64,
        told: Vec<(String, BreakerOrder)>,
    ) -> Vec<(String, FleetAction)> {
        for (name, order) in told {
            let is_new = self.orders.get(&name).is_none_or(|known| order.is_after(known));
            let has_room = self.orders.len() < MOST || self.orders.contains_key(&name);
            if is_new && has_room && order.at <= now + DRIFT && !order.is_over(now) {
                self.orders.insert(name, order);
            }
        }
        self.orders.retain(|_, order| !order.is_over(now));
        let orders = &self.orders;
        self.followed.retain(|name, _| orders.contains_key(name));
        // It may have opened again since, which the order knew nothing of.
        let was_open = |name: &str, at: u64| self.open.get(name).is_some_and(|it| it.since <= at);
        let due = orders.iter().filter(|(name, order)| {
            let is_followed = self.followed.get(*name).is_some_and(|at| *at >= order.at);
            let concerns = order.deed != BreakerDeed::Recover || was_open(name, order.at);
            !is_followed && concerns
        });
        due.map(|(name, order)| (name.clone(), FleetAction::Follow(order.deed, order.at))).collect()
    }

    /// Notes that a breaker of this replica follows an order.
    pub(super) fn followed(&mut self, name: &str, at: u64) {
        self.open.remove(name);
        self.followed.insert(name.to_owned(), at);
    }

    /// The orders that Redis lacks or has an older one of.
    pub(super) fn missing(
        &self,
        there: &BTreeMap<String, BreakerOrder>,
    ) -> Vec<(String, BreakerOrder)> {
        let lacks = |(name, order): &(&String, &BreakerOrder)| {
            there.get(*name).is_none_or(|known| order.is_after(known))
        };
        self.orders
            .iter()
            .filter(lacks)
            .map(|(name, order)| (name.clone(), order.clone()))
            .collect()
    }

    /// Redis is away: what others have opened is not known any more.
    pub(super) fn alone(&mut self) {
        self.votes.clear();
        self.fleet_open.clear();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replicas that hear each other at once, each with one breaker `b`.
    struct Fleet {
        now: u64,
        books: Vec<BreakerBook>,
        seen: Vec<SeenBreaker>,
        redis: BTreeMap<String, BreakerOrder>,
    }

    impl Fleet {
        fn of(replicas: usize) -> Self {
            let closed = SeenBreaker {
                name: "b".to_owned(),
                status: BreakerStatus::Closed,
                mode: BreakerMode::Auto,
                trips: 0,
                remaining: None,
            };
            let book = |id| BreakerBook::new(&format!("r{id}"), 0.5, 2);
            let books = (0..replicas).map(book).collect();
            Self { now: 1_000_000, books, seen: vec![closed; replicas], redis: BTreeMap::new() }
        }

        fn trips(&mut self, replica: usize) {
            let seen = &mut self.seen[replica];
            seen.status = BreakerStatus::Open;
            seen.trips += 1;
            seen.remaining = Some(Duration::from_secs(30));
        }

        fn closes(&mut self, replica: usize) {
            self.seen[replica].status = BreakerStatus::Closed;
            self.seen[replica].remaining = None;
        }

        /// Every replica in `alive` takes its turn.
        fn beat(&mut self, alive: &[usize]) {
            self.now += 1_000;
            for &one in alive {
                self.books[one].observe(self.now, std::slice::from_ref(&self.seen[one]));
            }
            let documents: Vec<ReplicaDocument> = alive
                .iter()
                .map(|&one| ReplicaDocument {
                    id: format!("r{one}"),
                    at: self.now,
                    open: self.books[one].own_votes(),
                    demand: BTreeMap::new(),
                })
                .collect();
            for &one in alive {
                let told = self.redis.clone().into_iter().collect();
                let mut due = self.books[one].take_orders(self.now, told);
                due.extend(self.books[one].count(self.now, &documents));
                for (name, action) in due {
                    self.follow(one, &name, &action);
                }
                let missing = self.books[one].missing(&self.redis);
                self.redis.extend(missing);
            }
        }

        fn follow(&mut self, one: usize, name: &str, action: &FleetAction) {
            let (seen, book) = (&mut self.seen[one], &mut self.books[one]);
            match action {
                FleetAction::Open(left) => {
                    (seen.status, seen.remaining) = (BreakerStatus::Open, Some(*left));
                    book.opened(self.now, name, seen.trips);
                }
                FleetAction::Follow(deed, at) => {
                    if let BreakerDeed::Force(mode) = deed {
                        seen.mode = *mode;
                    }
                    (seen.status, seen.remaining) = (BreakerStatus::Closed, None);
                    book.followed(name, *at);
                }
            }
        }

        fn open(&self) -> Vec<bool> {
            self.seen.iter().map(|seen| seen.status == BreakerStatus::Open).collect()
        }
    }

    const ALL: [usize; 3] = [0, 1, 2];

    #[test]
    fn one_replica_opens_nobody_elses_and_a_quorum_opens_all() {
        let mut fleet = Fleet::of(3);
        fleet.trips(0);
        for _ in 0..10 {
            fleet.beat(&ALL);
            fleet.seen[0].trips += 1;
        }
        assert_eq!(fleet.open(), [true, false, false], "it fails its probes alone");
        assert_eq!(fleet.books[1].votes().next(), Some((&"b".to_owned(), 1, false)));
        fleet.trips(1);
        fleet.beat(&ALL);
        assert_eq!(fleet.open(), [true; 3]);
        assert!(fleet.books[2].own_votes().is_empty(), "it was opened for others");
        fleet.trips(2);
        fleet.beat(&ALL);
        assert_eq!(fleet.books[2].own_votes().len(), 1, "its own probe failed");
    }

    #[test]
    fn the_probe_of_one_closes_all_and_old_votes_open_none_again() {
        let mut fleet = Fleet::of(3);
        fleet.trips(0);
        fleet.trips(1);
        fleet.beat(&ALL);
        fleet.closes(2);
        fleet.beat(&ALL);
        fleet.beat(&ALL);
        assert_eq!(fleet.open(), [false; 3], "those that beat before it hear of it with the next");
        for _ in 0..3 {
            fleet.beat(&ALL);
            assert_eq!(fleet.open(), [false; 3]);
        }
        fleet.trips(0);
        fleet.trips(2);
        fleet.beat(&ALL);
        fleet.beat(&ALL);
        assert_eq!(fleet.open(), [true; 3], "an old word closes no new outage");
    }

    #[test]
    fn who_closes_alone_closes_for_nobody_else() {
        let mut fleet = Fleet::of(3);
        fleet.trips(0);
        fleet.beat(&ALL);
        fleet.closes(0);
        fleet.beat(&ALL);
        assert_eq!((fleet.redis.len(), fleet.open()), (0, vec![false; 3]));
    }

    #[test]
    fn what_an_operator_says_reaches_all_and_outlives_a_wiped_redis() {
        let mut fleet = Fleet::of(3);
        let forced = BreakerDeed::Force(BreakerMode::ForcedOpen);
        fleet.seen[0].mode = BreakerMode::ForcedOpen;
        fleet.books[0].order(fleet.now, "b", forced);
        fleet.beat(&ALL);
        fleet.beat(&[0, 1]);
        assert_eq!(fleet.seen[1].mode, BreakerMode::ForcedOpen);
        fleet.redis.clear();
        fleet.now += 3_600_000;
        fleet.beat(&[1]);
        fleet.beat(&ALL);
        assert_eq!(fleet.seen[2].mode, BreakerMode::ForcedOpen, "it was put back");
        fleet.seen[2].mode = BreakerMode::Auto;
        fleet.books[2].order(fleet.now, "b", BreakerDeed::Force(BreakerMode::Auto));
        fleet.beat(&ALL);
        fleet.beat(&ALL);
        assert!(fleet.seen.iter().all(|seen| seen.mode == BreakerMode::Auto));
    }

    #[test]
    fn the_dead_and_those_from_another_time_have_no_vote() {
        let mut fleet = Fleet::of(3);
        fleet.trips(0);
        fleet.trips(1);
        fleet.beat(&[0]);
        assert_eq!((fleet.books[0].live(), fleet.open()[2]), (1, false));
        let stale = ReplicaDocument {
            id: "r1".to_owned(),
            at: fleet.now - DRIFT - 1,
            open: fleet.books[0].own_votes(),
            demand: BTreeMap::new(),
        };
        let opened = fleet.books[2].count(fleet.now, &[stale]);
        assert_eq!((opened, fleet.books[2].live()), (Vec::new(), 1));
    }
}
