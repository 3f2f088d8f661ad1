//! Decides which share of a server's rate this replica has: as much of it as it has of the calls.
//!
//! Every replica computes all shares from the same numbers, so they add up to one. A replica
//! without calls keeps a little, for its next one.

use super::document::ReplicaDocument;

/// The part of the rate that is laid aside for all replicas alike.
const ASIDE: f64 = 0.04;
/// How much of the last demand stays when a new one is measured.
const INERTIA: f64 = 0.5;

/// The demand for a server, after so many calls in so many seconds.
pub(super) fn demand(before: f64, calls: u64, seconds: f64) -> f64 {
    before * INERTIA + calls as f64 / seconds.max(0.1) * (1.0 - INERTIA)
}

/// The share of this replica; `documents` are those of all, this one's included.
pub(super) fn share(own: &str, server: &str, documents: &[ReplicaDocument]) -> f64 {
    let replicas = documents.len().max(1) as f64;
    let of = |one: &ReplicaDocument| one.demand.get(server).map_or(0.0, |demand| demand.max(0.0));
    let all: f64 = documents.iter().map(of).sum();
    let Some(mine) = documents.iter().find(|one| one.id == own).map(of) else {
        return 1.0 / (replicas + 1.0);
    };
    // So few calls say nothing about the next ones.
    if all < 0.01 {
        return 1.0 / replicas;
    }
    ASIDE / replicas + (1.0 - ASIDE) * mine / all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(id: &str, demand: f64) -> ReplicaDocument {
        let demand = [("s".to_owned(), demand)].into();
        ReplicaDocument { id: id.to_owned(), demand, ..ReplicaDocument::default() }
    }

    #[test]
    fn shares_follow_the_calls_and_add_up_to_one() {
        let all = [replica("a", 30.0), replica("b", 10.0), replica("c", 0.0)];
        let shares = ["a", "b", "c"].map(|id| share(id, "s", &all));
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{shares:?}");
        assert!(shares[0] > 0.7 && shares[2] > 0.01, "{shares:?}");
        assert_eq!(share("a", "other", &all), 1.0 / 3.0, "nobody has calls for it");
        assert_eq!(share("d", "s", &all), 0.25, "the others do not know of it yet");
        assert_eq!(share("a", "s", &[replica("a", 5.0)]), 1.0);
    }
}
