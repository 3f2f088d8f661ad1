//! Tests that many jobs share one commit, and the errors when the disk is full.

use futures_util::FutureExt;
use futures_util::future::join_all;
use seawall::{DurableQueue, NotQueued};
use tokio::task::unconstrained;

use super::disk::Disk;
use super::*;

#[tokio::test]
async fn calls_that_come_together_share_a_commit() {
    let disk = Disk::default();
    let store = disk.open(QueueBounds::default()).unwrap();
    let before = disk.syncs();
    store.enqueue(write(0)).await.unwrap();
    let alone = disk.syncs() - before;

    let mut calls = unconstrained(join_all((1..=200).map(|n| store.enqueue(write(n)))));
    // The disk stands still until all calls have come: the speed of the disk must not decide this
    // test.
    let none_yet = disk.while_it_stands(|| (&mut calls).now_or_never());
    assert!(none_yet.is_none());
    let ids = calls.await;

    let together = disk.syncs() - before - alone;
    assert!(together <= 4 * alone, "{together} syncs for 200 calls, {alone} for one");
    let mut ids: Vec<String> = ids.into_iter().map(Result::unwrap).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 200);
}

#[tokio::test]
async fn without_room_on_the_disk_a_call_is_refused_and_later_ones_are_kept() {
    let disk = Disk::default();
    let store = disk.open(QueueBounds::default()).unwrap();
    store.enqueue(write(1)).await.unwrap();

    disk.fail(disk.writes() + 1, 1);
    let refused = store.enqueue(write(2)).await.unwrap_err();
    assert!(
        matches!(&refused, NotQueued::Refused(why) if why.contains("no storage space")),
        "{refused}"
    );
    assert_eq!(store.enqueue(write(3)).await.unwrap(), "q2");

    disk.fail(disk.writes() + 1, u64::MAX);
    let unknown = store.enqueue(write(4)).await.unwrap_err();
    assert!(
        matches!(&unknown, NotQueued::Unknown(why) if why.contains("no storage space")),
        "{unknown}"
    );
    assert!(
        matches!(store.enqueue(write(5)).await, Err(NotQueued::Refused(_))),
        "it was not even begun"
    );
    assert!(store.list().await.is_err());

    disk.fail(0, 0);
    store.enqueue(write(6)).await.unwrap();
    let ids: Vec<String> = store.list().await.unwrap().into_iter().map(|item| item.id).collect();
    let kept: Vec<u64> = {
        let mut kept = Vec::new();
        for id in &ids {
            kept.push(store.item(id).await.unwrap().unwrap().call.arguments["n"].as_u64().unwrap());
        }
        kept
    };
    assert_eq!(kept, [1, 3, 6], "what was refused or unknown was put back");
}

#[tokio::test]
async fn a_disk_that_is_full_at_the_start_is_used_when_it_has_room() {
    let disk = Disk::default();
    let store = disk.open(QueueBounds::default()).unwrap();
    store.enqueue(write(1)).await.unwrap();
    store.begin("a").await.unwrap();
    // The file as a crash leaves it, with an attempt in flight.
    let crashed = |step| {
        let disk = disk.after_power_cut(&seawall::Rng::fixed(0.9));
        disk.fail(step, u64::MAX);
        disk.open(QueueBounds::default()).map(|store| (disk, store))
    };
    // A file that cannot even be repaired is an error; the first that can be opened cannot be
    // written.
    let (disk, store) = (1..100).find_map(|step| crashed(step).ok()).unwrap();
    assert!(
        matches!(store.enqueue(write(2)).await, Err(NotQueued::Refused(why)) if why.contains("no storage space"))
    );

    disk.fail(0, 0);
    store.enqueue(write(3)).await.unwrap();
    assert!(
        matches!(store.begin("a").await.unwrap(), super::super::NextItem::Due(id, _) if id == "q2")
    );
    assert!(
        store
            .item("q1")
            .await
            .unwrap()
            .unwrap()
            .note
            .unwrap()
            .starts_with("may have been executed")
    );
}

#[tokio::test]
async fn whichever_step_of_a_commit_fails_a_refused_call_is_not_there() {
    for step in 1.. {
        let disk = Disk::default();
        let store = disk.open(QueueBounds::default()).unwrap();
        store.enqueue(write(1)).await.unwrap();
        let before = disk.writes();
        disk.fail(before + step, 1);
        let second = store.enqueue(write(2)).await;
        let is_over = disk.writes() < before + step;
        assert!(
            matches!(second, Ok(_) | Err(NotQueued::Refused(_))),
            "step {step}: one failure can be mended"
        );
        let there = if second.is_ok() { vec!["q1", "q2"] } else { vec!["q1"] };
        store.close().await;
        let again = disk.open(QueueBounds::default()).unwrap();
        let listed: Vec<String> =
            again.list().await.unwrap().into_iter().map(|item| item.id).collect();
        assert_eq!(listed, there, "step {step}");
        again.close().await;
        if is_over {
            assert!(step > 8 && second.is_ok(), "the commit had only {step} steps");
            return;
        }
    }
}

#[tokio::test]
async fn an_id_is_given_only_when_its_item_is_synced() {
    let disk = Disk::default();
    let store = disk.open(QueueBounds::default()).unwrap();
    for n in 0..5 {
        let id = store.enqueue(write(n)).await.unwrap();
        // Nothing that was not synced survives this power cut.
        let again =
            disk.after_power_cut(&seawall::Rng::fixed(0.9)).open(QueueBounds::default()).unwrap();
        assert_eq!(again.item(&id).await.unwrap().unwrap().call, write(n));
        again.close().await;
    }
}
