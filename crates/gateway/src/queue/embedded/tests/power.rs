//! Tests power cuts: every acknowledged item is there afterwards, exactly once, and no write is
//! executed twice.

use std::collections::BTreeMap;

use seawall::{Cause, DurableQueue, Failure, NotQueued, Rng};

use super::disk::Disk;
use super::*;
use crate::queue::{ItemState, NextItem};

/// The promises made to callers, and the calls that the server executed.
#[derive(Default)]
struct PromiseLedger {
    /// Ids and arguments that were acknowledged; `None` where it is unknown whether they are gone.
    kept: BTreeMap<String, (u32, Option<ItemState>)>,
    refused: Vec<u32>,
    executed: BTreeMap<u32, u32>,
}

/// The number of power cuts; `SEAWALL_POWER_CUTS` changes it.
fn cases(usual: u64) -> u64 {
    std::env::var("SEAWALL_POWER_CUTS").map_or(usual, |cases| cases.parse().unwrap())
}

/// One random operation.
async fn operate(store: &QueueStore, n: u32, rng: &Rng, ledger: &mut PromiseLedger) {
    let effect = if n.is_multiple_of(3) { Effect::Idempotent } else { Effect::Write };
    if rng.unit() < 0.6 {
        match store.enqueue(call("a", n, effect)).await {
            Ok(id) => assert!(
                ledger.kept.insert(id, (n, Some(ItemState::Waiting))).is_none(),
                "an id was given twice"
            ),
            Err(NotQueued::Refused(_)) => ledger.refused.push(n),
            Err(NotQueued::Unknown(_)) => {}
        }
        return;
    }
    attempt(store, rng.unit(), ledger).await;
}

/// One attempt to deliver; `chance` decides how it ends.
async fn attempt(store: &QueueStore, chance: f64, ledger: &mut PromiseLedger) -> bool {
    let Ok(NextItem::Due(id, item)) = store.begin("a").await else { return false };
    let n = u32::try_from(item.call.arguments["n"].as_u64().unwrap()).unwrap();
    let end = if chance < 0.3 {
        Err(Failure::local(Cause::Network, None, "refused"))
    } else {
        *ledger.executed.entry(n).or_default() += 1;
        Ok("{}".to_owned())
    };
    let state = if end.is_ok() { ItemState::Delivered } else { ItemState::Waiting };
    let settled = store.settle(&id, end, Duration::ZERO).await;
    if let Some(kept) = ledger.kept.get_mut(&id) {
        kept.1 = settled.ok().map(|_| state);
    }
    true
}

/// Checks that every promise holds in a queue that was opened again.
async fn check(store: &QueueStore, ledger: &mut PromiseLedger, what: &str) {
    let mut seen = BTreeMap::new();
    for brief in store.list().await.unwrap() {
        let item = store.item(&brief.id).await.unwrap().unwrap();
        if item.state != ItemState::Delivered {
            let n = u32::try_from(item.call.arguments["n"].as_u64().unwrap()).unwrap();
            assert!(!ledger.refused.contains(&n), "{what}: {n} was refused and is there");
            assert_eq!(seen.insert(n, ()), None, "{what}: {n} is there twice");
        }
    }
    for (id, (n, state)) in &ledger.kept {
        let item = store.item(id).await.unwrap();
        let item = item.unwrap_or_else(|| panic!("{what}: {id} was acknowledged and is gone"));
        let executed = ledger.executed.get(n).copied().unwrap_or_default();
        match item.state {
            ItemState::Delivered => assert!(executed > 0, "{what}: {id}"),
            ItemState::Dead => assert!(item.may_have_executed, "{what}: {id} {:?}", item.note),
            ItemState::Waiting => {
                assert!(executed == 0 || item.call.effect == Effect::Idempotent, "{what}: {id}")
            }
            ItemState::Delivering => panic!("{what}: {id} is being sent by nobody"),
        }
        if *state == Some(ItemState::Delivered) {
            assert_eq!(item.state, ItemState::Delivered, "{what}: {id} was recorded as delivered");
        }
    }
    while attempt(store, 1.0, ledger).await {}
    for (n, times) in &ledger.executed {
        assert!(*times == 1 || n.is_multiple_of(3), "{what}: write {n} was executed {times} times");
    }
}

#[tokio::test]
async fn after_a_power_cut_every_acknowledged_call_is_there_once_and_no_write_is_made_twice() {
    for seed in 0..cases(100) {
        let (rng, disk, mut ledger) =
            (Rng::seeded(seed), Disk::default(), PromiseLedger::default());
        let store = disk.open(QueueBounds::default()).unwrap();
        // From a random change on, nothing reaches the disk: the power is gone.
        disk.fail(disk.writes() + 1 + (rng.unit() * 400.0) as u64, u64::MAX);
        for n in 0..30 {
            operate(&store, n, &rng, &mut ledger).await;
        }
        store.close().await;
        let what = format!("seed {seed}");
        let again = disk.after_power_cut(&rng).open(QueueBounds::default());
        let again = again.unwrap_or_else(|trouble| panic!("{what}: {trouble}"));
        check(&again, &mut ledger, &what).await;
        again.close().await;
    }
}

#[tokio::test]
async fn a_disk_that_fails_for_a_while_refuses_truthfully_and_works_again() {
    for seed in 0..cases(60) {
        let (rng, disk, mut ledger) =
            (Rng::seeded(seed), Disk::default(), PromiseLedger::default());
        let store = disk.open(QueueBounds::default()).unwrap();
        let many = if rng.unit() < 0.5 { 1 } else { 1 + (rng.unit() * 40.0) as u64 };
        disk.fail(disk.writes() + 1 + (rng.unit() * 200.0) as u64, many);
        for n in 0..30 {
            operate(&store, n, &rng, &mut ledger).await;
        }
        let what = format!("seed {seed}");
        disk.fail(0, 0);
        store.enqueue(write(1000)).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        store.close().await;
        let again =
            disk.open(QueueBounds::default()).unwrap_or_else(|trouble| panic!("{what}: {trouble}"));
        check(&again, &mut ledger, &what).await;
        again.close().await;
    }
}
