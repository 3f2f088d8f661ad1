//! Decides what replicas tell each other through Redis, and which of it is too old to count.

use std::collections::BTreeMap;

use seawall::BreakerMode;
use serde::{Deserialize, Serialize};

/// How far the time of another replica's words may be from Redis's.
pub(super) const DRIFT: u64 = 5_000;
/// How long a closing or a reset is kept for replicas that missed it.
const KEPT: u64 = 60_000;

/// What a replica says of itself, again and again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ReplicaDocument {
    /// The replica.
    pub id: String,
    /// When it said so, by Redis's clock in milliseconds.
    pub at: u64,
    /// Its breakers that its own failures have opened.
    pub open: BTreeMap<String, OpenVote>,
    /// The calls per second that it has for each server with a rate.
    pub demand: BTreeMap<String, f64>,
}

impl ReplicaDocument {
    /// Whether it was said just now.
    pub(super) fn is_fresh(&self, now: u64) -> bool {
        self.at.abs_diff(now) <= DRIFT
    }
}

/// That a replica's own failures have opened a breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenVote {
    /// Since when, by Redis's clock.
    pub since: u64,
    /// The end of its cool-down.
    pub until: u64,
}

/// A word about one breaker that is for every replica. The latest counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BreakerOrder {
    /// When it was given, by Redis's clock.
    pub at: u64,
    /// The replica that gave it.
    pub by: String,
    /// What it says.
    pub deed: BreakerDeed,
}

/// What is done to a breaker everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BreakerDeed {
    /// A probe has shown that the server is back.
    Recover,
    /// An operator closes it.
    Reset,
    /// An operator sets its mode.
    Force(BreakerMode),
}

impl BreakerOrder {
    /// Which of two is the later one.
    pub(super) fn is_after(&self, other: &Self) -> bool {
        (self.at, &self.by) > (other.at, &other.by)
    }

    /// Whether it can be forgotten. What an operator set stays, for replicas that come later.
    pub(super) fn is_over(&self, now: u64) -> bool {
        !matches!(self.deed, BreakerDeed::Force(_)) && now.saturating_sub(self.at) > KEPT
    }
}
