//! Tests the queue in a real Redis with several replicas: one owner at a time, and nothing sent
//! twice, whoever is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seawall::{Cause, DurableQueue, Effect, Failure, NotQueued, Rng, Sent};
use seawall_testkit::redis::{PASSWORD, RedisServer};
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

use crate::config::{RedisConfig, Secret};
use crate::queue::tests::{call, fleet, open, replica, replica_with, write};
use crate::queue::{
    ItemChange, ItemState, NextItem, QueueBounds, QueuePlace, QueueStore, QueuedItem,
};
use crate::store::redis::CALL_WAIT;

use super::{ChangeRight, RedisQueue};

/// A lease that is soon over.
const SHORT: Duration = Duration::from_millis(400);

async fn started(folder: &TempDir) -> Option<RedisServer> {
    RedisServer::start(folder.path()).await.unwrap()
}

fn due(next: &NextItem) -> Option<&str> {
    if let NextItem::Due(id, _) = next { Some(id) } else { None }
}

/// What is asked for, as soon as it is there; Redis may be away for a while.
async fn soon<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            match look().await {
                Some(found) => return found,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    timeout(Duration::from_secs(60), found).await.expect("it never came to that")
}

async fn until(store: &QueueStore, id: &str, state: ItemState) {
    soon(async || store.item(id).await.ok()?.filter(|item| item.state == state)).await;
}

#[tokio::test]
async fn a_line_has_one_owner_and_the_next_comes_when_its_item_is_settled() {
    let folder = TempDir::new().unwrap();
    let Some(server) = started(&folder).await else { return };
    let one = replica(&server, QueueBounds::default()).await;
    let two = replica(&server, QueueBounds::default()).await;
    for n in 1..=2 {
        one.enqueue(write(n)).await.unwrap();
    }
    let claim = one.claim("a", "q1").await.unwrap().unwrap();
    assert!(two.claim("a", "q1").await.unwrap().is_none());
    assert!(matches!(two.begin("a").await.unwrap(), NextItem::Later(1..)));
    one.release(claim).await;
    assert_eq!(due(&two.begin("a").await.unwrap()), Some("q1"), "it was given back");
    assert_eq!(
        one.settle("q1", Ok("{}".into()), Duration::ZERO).await.unwrap(),
        ItemChange::NotNow(ItemState::Delivering),
        "the line is another's"
    );
    assert_eq!(one.forget("q1", true).await.unwrap(), ItemChange::NotNow(ItemState::Delivering));
    two.settle("q1", Ok(r#"{"made":1}"#.into()), Duration::ZERO).await.unwrap();

    let read = one.item("q1").await.unwrap().unwrap();
    assert_eq!(read.outcome.as_deref(), Some(r#"{"made":1}"#), "any replica reads it");
    assert_eq!(due(&one.begin("a").await.unwrap()), Some("q2"));
    let busy = Failure::local(Cause::Overloaded, None, "busy");
    one.settle("q2", Err(busy), Duration::from_secs(600)).await.unwrap();
    assert!(matches!(two.peek("a").await.unwrap(), NextItem::Later(1..)));
    assert_eq!(two.retry("q2", false).await.unwrap(), ItemChange::Done);
    assert_eq!(due(&two.peek("a").await.unwrap()), Some("q2"), "due now, said by any replica");
    assert_eq!(one.forget("q2", false).await.unwrap(), ItemChange::Done);
    assert_eq!(two.item("q2").await.unwrap(), None);
}

#[tokio::test]
async fn an_item_whose_owner_is_gone_is_uncertain_and_the_owner_may_not_settle_it_later() {
    let folder = TempDir::new().unwrap();
    let Some(server) = started(&folder).await else { return };
    let config = fleet(&server);
    let gone = replica_with(&config, QueueBounds::default(), SHORT).await;
    let next = replica_with(&config, QueueBounds::default(), SHORT).await;
    gone.enqueue(write(1)).await.unwrap();
    gone.enqueue(call("b", 2, Effect::Idempotent)).await.unwrap();
    assert_eq!(due(&gone.begin("a").await.unwrap()), Some("q1"));
    assert_eq!(due(&gone.begin("b").await.unwrap()), Some("q2"));
    // It renews no lease any more, as if it had stopped.
    gone.close().await;

    until(&next, "q1", ItemState::Dead).await;
    let item = next.item("q1").await.unwrap().unwrap();
    assert_eq!(
        (item.may_have_executed, item.note.as_deref()),
        (true, Some("may have been executed when its gateway stopped"))
    );
    until(&next, "q2", ItemState::Waiting).await;
    let late = gone.settle("q1", Ok("{}".into()), Duration::ZERO).await.unwrap();
    assert_eq!(late, ItemChange::NotNow(ItemState::Dead));
    assert_eq!(due(&next.begin("b").await.unwrap()), Some("q2"), "repeating it is harmless");
    let late = gone.settle("q2", Ok("{}".into()), Duration::ZERO).await.unwrap();
    assert_eq!(late, ItemChange::NotNow(ItemState::Delivering), "the fence is another's");
}

#[tokio::test]
async fn the_script_itself_refuses_every_right_but_the_owners_and_every_revision_but_the_last() {
    let folder = TempDir::new().unwrap();
    let Some(server) = started(&folder).await else { return };
    let store = replica(&server, QueueBounds::default()).await;
    store.enqueue(write(1)).await.unwrap();
    assert_eq!(due(&store.begin("a").await.unwrap()), Some("q1"));
    let QueuePlace::Redis(queue) = &store.0 else { return };
    let shared = &queue.shared;
    let raw = shared.read(1).await.unwrap().unwrap();
    let sealed = shared.sealed(1, &shared.unsealed(&raw).unwrap()).unwrap();
    let put = async |rev: &[u8], right| {
        let put = shared.script.put(&shared.redis, rev, right, &sealed, SHORT).await;
        put.unwrap().is_some()
    };
    let (own, former) = (raw.fence.as_slice(), b"0".as_slice());
    for right in [
        ChangeRight::Own(former),
        ChangeRight::Mark(former),
        ChangeRight::Lapsed(former),
        ChangeRight::Lapsed(own),
        ChangeRight::Free,
    ] {
        assert!(!put(&raw.rev, right).await);
    }
    assert!(!put(b"0", ChangeRight::Own(own)).await);
    assert!(put(&raw.rev, ChangeRight::Own(own)).await);
    assert!(!put(&raw.rev, ChangeRight::Own(own)).await, "it has another revision by now");
}

#[tokio::test]
async fn a_claim_without_a_mark_passes_on_and_nothing_is_in_doubt() {
    let folder = TempDir::new().unwrap();
    let Some(server) = started(&folder).await else { return };
    let config = fleet(&server);
    let gone = replica_with(&config, QueueBounds::default(), SHORT).await;
    let next = replica_with(&config, QueueBounds::default(), SHORT).await;
    gone.enqueue(write(1)).await.unwrap();
    let claim = gone.claim("a", "q1").await.unwrap().unwrap();
    gone.close().await;
    let begun = async || next.begin("a").await.ok().filter(|next| due(next).is_some());
    let taken = soon(begun).await;
    assert_eq!(due(&taken), Some("q1"));
    let NextItem::Due(_, item) = taken else { return };
    assert_eq!((item.attempts, item.may_have_executed), (1, false));
    assert_eq!(gone.begin_item("a", "q1").await.unwrap(), NextItem::Nothing, "too late to send");
    drop(claim);
}

#[tokio::test]
async fn without_redis_nobody_waits_long_and_writes_are_refused_honestly() {
    let folder = TempDir::new().unwrap();
    let Some(mut server) = started(&folder).await else { return };
    let config = fleet(&server);
    let queue = RedisQueue::open(&config, QueueBounds::default(), SHORT, CALL_WAIT).await.unwrap();
    let store = QueueStore(QueuePlace::Redis(queue));
    let other = replica(&server, QueueBounds::default()).await;
    other.enqueue(write(1)).await.unwrap();
    let mut changes = store.changes();
    timeout(Duration::from_secs(60), changes.wait_for(|counts| counts.waiting == 1))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(due(&other.begin("a").await.unwrap()), Some("q1"));

    server.freeze().unwrap();
    let began = Instant::now();
    let first = store.enqueue(write(2)).await;
    assert!(matches!(first, Err(NotQueued::Refused(_) | NotQueued::Unknown(_))), "{first:?}");
    for n in 3..100 {
        let refused = store.enqueue(write(n)).await.unwrap_err();
        assert_eq!(refused, NotQueued::Refused("Redis is away".to_owned()));
    }
    let unknown = store.find(&write(1)).await;
    assert!(matches!(unknown, Err(NotQueued::Unknown(_))), "its server has items: {unknown:?}");
    assert_eq!(store.find(&call("b", 1, Effect::Write)).await, Ok(None), "this one had none");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    server.thaw().unwrap();
    server.kill().await.unwrap();
    let mut connection = match &store.0 {
        QueuePlace::Redis(queue) => queue.shared.connection.clone(),
        QueuePlace::Embedded(_) => return,
    };
    timeout(Duration::from_secs(60), connection.wait_for(|state| !state.is_connected()))
        .await
        .unwrap()
        .unwrap();
    assert!(store.is_idle("b") && !store.is_idle("a"), "what was seen last counts");
    server.restart().await.unwrap();
    // The owner of the item comes back with Redis in time, and says what became of it.
    let settled =
        soon(async || other.settle("q1", Ok("{}".into()), Duration::ZERO).await.ok()).await;
    assert_eq!(settled, ItemChange::Done);
    until(&store, "q1", ItemState::Delivered).await;
}

#[tokio::test]
async fn what_a_stranger_writes_is_never_sent_and_can_be_dropped() {
    let folder = TempDir::new().unwrap();
    let Some(server) = started(&folder).await else { return };
    let store = replica(&server, QueueBounds::default()).await;
    store.enqueue(write(1)).await.unwrap();
    store.enqueue(write(2)).await.unwrap();
    server
        .command(&[
            "EVAL",
            "return redis.call('HSET', KEYS[1], '1', redis.call('HGET', KEYS[1], '2'))",
            "1",
            "t:v1:queue:records",
        ])
        .await
        .unwrap();
    let refused = store.begin("a").await.unwrap_err();
    assert!(refused.why.contains("seawall queue drop q1"), "{refused}");
    let config = RedisConfig { key: Secret::new("another key, as long"), ..fleet(&server) };
    let stranger = replica_with(&config, QueueBounds::default(), SHORT).await;
    assert!(stranger.item("q2").await.is_err());
    let listed = stranger.list().await.unwrap();
    assert!(listed.iter().all(|brief| brief.tool.is_empty()), "{listed:?}");

    assert_eq!(store.forget("q1", false).await.unwrap(), ItemChange::Done);
    let next = soon(async || store.begin("a").await.ok().filter(|next| due(next).is_some())).await;
    assert_eq!(due(&next), Some("q2"));
}

#[tokio::test]
async fn a_redis_that_forgot_everything_gives_no_name_twice_and_every_key_ends_one_day() {
    let folder = TempDir::new().unwrap();
    let Some(server) = started(&folder).await else { return };
    let store = replica(&server, QueueBounds::default()).await;
    for n in 1..=3 {
        store.enqueue(write(n)).await.unwrap();
    }
    assert_eq!(due(&store.begin("a").await.unwrap()), Some("q1"));
    for key in server.command(&["KEYS", "*"]).await.unwrap() {
        let ttl = server.command(&["PTTL", &key]).await.unwrap();
        assert!(ttl[0].parse::<i64>().unwrap() > 0, "{key}: {ttl:?}");
    }
    server.wipe().await.unwrap();
    assert_eq!(
        store.settle("q1", Ok("{}".into()), Duration::ZERO).await.unwrap(),
        ItemChange::Unknown
    );
    assert_eq!(store.enqueue(write(4)).await.unwrap(), "q4");
    let mut changes = store.changes();
    let seen = changes.wait_for(|counts| counts.waiting == 1 && counts.delivering == 0);
    timeout(Duration::from_secs(60), seen).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_a_replica_of_redis_acknowledged_survives_a_failover_and_a_mark_is_not_lost() {
    let (folder, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let Some(mut first) = started(&folder).await else { return };
    let Some(second) = started(&other).await else { return };
    let port = first.address().port().to_string();
    second.command(&["CONFIG", "SET", "masterauth", PASSWORD]).await.unwrap();
    second.command(&["REPLICAOF", "127.0.0.1", &port]).await.unwrap();
    let config = RedisConfig { wait_replicas: 1, ..fleet(&first) };
    let store = replica_with(&config, QueueBounds::default(), SHORT).await;
    // Until the second has caught up, nobody can say that it has the item.
    let kept = soon(async || store.enqueue(write(1)).await.ok()).await;
    let id = soon(async || due(&store.peek("a").await.ok()?).map(str::to_owned)).await;
    let claim = soon(async || store.claim("a", &id).await.ok()?).await;
    let is_due = |next: &NextItem| due(next).is_some();
    soon(async || store.begin_item("a", &id).await.ok().filter(is_due)).await;
    first.kill().await.unwrap();
    second.command(&["REPLICAOF", "NO", "ONE"]).await.unwrap();

    let next = replica_with(&fleet(&second), QueueBounds::default(), SHORT).await;
    until(&next, &id, ItemState::Dead).await;
    assert!(next.item(&id).await.unwrap().unwrap().may_have_executed);
    assert!(next.item(&kept).await.unwrap().is_some());
    drop(claim);
}

#[tokio::test]
async fn a_move_that_is_killed_anywhere_goes_on_and_each_item_is_in_one_place() {
    let folder = TempDir::new().unwrap();
    let Some(server) = started(&folder).await else { return };
    let file = open(&folder.path().join("store")).unwrap();
    for n in 1..=5 {
        file.enqueue(write(n)).await.unwrap();
    }
    // One was sent and may have been executed.
    file.enqueue(call("b", 6, Effect::Idempotent)).await.unwrap();
    file.begin("b").await.unwrap();
    let lost = Failure { sent: Sent::Maybe, ..Failure::local(Cause::Network, None, "lost") };
    file.settle("q6", Err(lost), Duration::ZERO).await.unwrap();
    let redis = replica(&server, QueueBounds::default()).await;
    // As two moves leave it that were killed: one after an item was set aside, one after it was
    // added.
    let QueuePlace::Embedded(embedded) = &file.0 else { return };
    embedded.set_aside(1).await.unwrap();
    embedded.set_aside(2).await.unwrap();
    let QueuePlace::Redis(queue) = &redis.0 else { return };
    let second = embedded.item(2).await.unwrap().unwrap();
    let token = crate::queue::moving::token("here", 2, &second);
    queue.add(second.call, Some(token), 1).await.unwrap();

    let report = file.move_to(&redis, "here").await.unwrap();

    assert_eq!(report.left, ["q6"]);
    assert_eq!(report.moved.len(), 5);
    let left: Vec<String> = file.list().await.unwrap().into_iter().map(|brief| brief.id).collect();
    assert_eq!(left, ["q6"]);
    let mut numbers = Vec::new();
    for brief in redis.list().await.unwrap() {
        assert_eq!(brief.state, ItemState::Waiting);
        numbers.push(redis.item(&brief.id).await.unwrap().unwrap().call.arguments["n"].clone());
    }
    numbers.sort_by_key(|n| n.as_u64());
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert_eq!(file.move_to(&redis, "here").await.unwrap().moved, []);

    // Where Redis refuses, the item waits in the file as before.
    let full = QueueBounds { items: 1, ..QueueBounds::default() };
    let full = replica_with(&fleet(&server), full, SHORT).await;
    file.enqueue(write(7)).await.unwrap();
    assert!(file.move_to(&full, "here").await.is_err());
    let waits = file.item("q7").await.unwrap().unwrap();
    assert_eq!((waits.state, waits.may_have_executed), (ItemState::Waiting, false));
}

/// What the claimers of one history saw.
#[derive(Default)]
struct ClaimLedger {
    /// How often each item was sent.
    sent: BTreeMap<u64, u32>,
    /// Items whose attempt was settled by its owner.
    settled: BTreeSet<String>,
    /// The owner of each server's line, as the claimers see it.
    owners: BTreeMap<String, (usize, String)>,
}

fn n_of(item: &QueuedItem) -> u64 {
    item.call.arguments["n"].as_u64().unwrap()
}

/// One claimer: enqueues, begins, sends, and then settles, stops for longer than its lease, or
/// forgets what it held, as the dice say.
async fn claimer(
    me: usize,
    store: QueueStore,
    seed: u64,
    steps: u32,
    ledger: Arc<Mutex<ClaimLedger>>,
) {
    let rng = Rng::seeded(seed ^ ((me as u64) << 32));
    let mut changes = store.changes();
    for step in 0..steps {
        let server = if rng.unit() < 0.5 { "a" } else { "b" };
        let n = u32::try_from(me).unwrap() * 10_000 + step;
        if rng.unit() < 0.5 {
            store.enqueue(call(server, n, Effect::Write)).await.unwrap();
        }
        let Ok(NextItem::Due(id, item)) = store.begin(server).await else {
            let _whichever = timeout(SHORT / 8, changes.changed()).await;
            continue;
        };
        {
            let mut ledger = ledger.lock().unwrap();
            *ledger.sent.entry(n_of(&item)).or_default() += 1;
            ledger.owners.insert(server.to_owned(), (me, id.clone()));
        }
        let dice = rng.unit();
        if dice < 0.15 {
            // It is gone: nobody renews its lease, and nobody says how the attempt ended.
            let QueuePlace::Redis(queue) = &store.0 else { return };
            let held = queue.shared.holds(server).unwrap();
            queue.shared.let_go(server, &held.fence);
            continue;
        }
        if dice < 0.3 {
            // It sleeps; its lease is renewed all the same.
            tokio::time::sleep(SHORT).await;
        }
        let was_sent = rng.unit() > 0.3;
        let end = match was_sent {
            true => Ok("{}".to_owned()),
            false => Err(Failure::local(Cause::Network, None, "refused")),
        };
        if !was_sent {
            *ledger.lock().unwrap().sent.entry(n_of(&item)).or_default() -= 1;
        }
        let owner = ledger.lock().unwrap().owners.get(server).cloned();
        match store.settle(&id, end, Duration::ZERO).await.unwrap() {
            ItemChange::Done => {
                assert_eq!(owner, Some((me, id.clone())), "another owned the line meanwhile");
                if was_sent {
                    assert!(
                        ledger.lock().unwrap().settled.insert(id.clone()),
                        "{id} settled twice"
                    );
                }
            }
            other => assert_eq!(other, ItemChange::NotNow(ItemState::Dead), "{id}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_claimers_on_one_redis_never_own_a_line_together_and_never_send_twice() {
    let folder = TempDir::new().unwrap();
    let Some(server) = started(&folder).await else { return };
    let seed = std::env::var("SEAWALL_QUEUE_SEED").map_or(7, |seed| seed.parse().unwrap());
    let steps = std::env::var("SEAWALL_QUEUE_STEPS").map_or(100, |steps| steps.parse().unwrap());
    println!("SEAWALL_QUEUE_SEED={seed} SEAWALL_QUEUE_STEPS={steps}");
    let (config, ledger) = (fleet(&server), Arc::<Mutex<ClaimLedger>>::default());
    let mut claimers = tokio::task::JoinSet::new();
    for me in 0..8 {
        let store = replica_with(&config, QueueBounds::default(), SHORT).await;
        claimers.spawn(claimer(me, store, seed, steps, Arc::clone(&ledger)));
    }
    while let Some(ended) = claimers.join_next().await {
        ended.unwrap();
    }
    let store = replica_with(&config, QueueBounds::default(), SHORT).await;
    let mut changes = store.changes();
    let quiet = changes.wait_for(|counts| counts.delivering == 0);
    timeout(Duration::from_secs(120), quiet).await.unwrap().unwrap();

    let listed = store.list().await.unwrap();
    let ledger = ledger.lock().unwrap();
    let twice: Vec<_> = ledger.sent.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "sent twice: {twice:?}");
    let (mut made, mut dead, mut waiting) = (0, 0, 0);
    for brief in listed {
        match brief.state {
            ItemState::Delivered => made += 1,
            ItemState::Dead => {
                assert!(brief.may_have_executed, "{brief:?}");
                dead += 1;
            }
            _ => waiting += 1,
        }
    }
    assert_eq!(made, ledger.settled.len(), "every settled item is there");
    println!("delivered {made}, uncertain {dead}, waiting {waiting}");
    assert!(made > 0 && dead > 0, "delivered {made}, uncertain {dead}: the dice were too kind");
}
