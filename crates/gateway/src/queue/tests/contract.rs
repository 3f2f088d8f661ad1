//! What every store of the queue promises, tested with the file and with a real Redis.

use seawall::{Cause, DurableQueue, Env, Failure, NotQueued, Rng, Sent, WriteFate};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::queue::{Delivery, ItemChange, ItemState, NextItem, SendPermit, deliver};

/// Where the queue under test is.
enum Place {
    File(TempDir),
    Redis { server: Box<RedisServer>, _folder: TempDir },
}

impl Place {
    fn is_shared(&self) -> bool {
        matches!(self, Self::Redis { .. })
    }

    async fn open(&self, bounds: QueueBounds) -> QueueStore {
        self.open_at("one", bounds).await
    }

    /// Several queues have several names.
    async fn open_at(&self, name: &str, bounds: QueueBounds) -> QueueStore {
        match self {
            Self::File(folder) => {
                QueueStore::open(&folder.path().join(name), bounds, today()).unwrap()
            }
            Self::Redis { server, .. } => {
                let config = RedisConfig { prefix: name.to_owned(), ..fleet(server) };
                replica_with(&config, bounds, Duration::from_secs(60)).await
            }
        }
    }
}

macro_rules! in_both {
    ($($promise:ident,)*) => {
        mod in_a_file {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise(&super::Place::File(super::TempDir::new().unwrap())).await;
            })*
        }

        mod in_redis {
            $(#[tokio::test]
            async fn $promise() {
                let folder = super::TempDir::new().unwrap();
                let started = super::RedisServer::start(folder.path()).await.unwrap();
                let Some(server) = started.map(Box::new) else { return };
                super::$promise(&super::Place::Redis { server, _folder: folder }).await;
            })*
        }
    };
}

in_both! {
    a_call_is_told_to_wait_until_it_is_done_and_nobody_elses_is,
    a_result_that_is_an_error_is_told_apart_also_after_a_restart_and_where_it_is_not_kept,
    a_full_queue_refuses_and_results_give_way,
    what_is_too_large_or_destroys_is_not_kept,
    a_dead_item_can_be_retried_or_dropped,
    a_dead_item_that_may_have_been_executed_is_sent_again_only_if_that_is_meant_or_harmless,
    pages_follow_each_other_and_show_what_is_asked_for,
    a_list_shows_what_the_admin_interface_promises,
    items_leave_in_their_order_and_what_fails_waits_or_dies_as_it_should,
}

async fn a_call_is_told_to_wait_until_it_is_done_and_nobody_elses_is(place: &Place) {
    let store = place.open(QueueBounds::default()).await;
    // A queue that others share may get items at any time.
    let is_idle = |store: &QueueStore, server| place.is_shared() || store.is_idle(server);
    assert!(is_idle(&store, "a"));
    store.enqueue(write(1)).await.unwrap();
    store.enqueue(write(2)).await.unwrap();
    assert!(!store.is_idle("a") && is_idle(&store, "b"));
    store.close().await;
    assert!(store.find(&write(2)).await.is_err(), "it cannot say, and does not say no");

    let store = place.open(QueueBounds::default()).await;
    assert!(!store.is_idle("a") && is_idle(&store, "b"), "what the last gateway left is seen");
    assert_eq!(waiting(&store, &write(2)).await.as_deref(), Some("q2"));
    let others = [
        QueuedWrite { caller: "somebody else".to_owned(), ..write(1) },
        QueuedWrite { tool: "other".to_owned(), ..write(1) },
        QueuedWrite { server: "b".to_owned(), ..write(1) },
        write(3),
    ];
    for other in others {
        assert_eq!(waiting(&store, &other).await, None, "{other:?}");
    }

    assert!(matches!(store.begin("a").await.unwrap(), NextItem::Due(..)));
    assert_eq!(waiting(&store, &write(1)).await.as_deref(), Some("q1"), "it is under way");
    store.settle("q1", Ok("{}".into()), Duration::ZERO).await.unwrap();
    assert_eq!(waiting(&store, &write(1)).await, None);
    assert!(!store.is_idle("a"), "another waits");
    assert!(store.remove("q2").await);
    assert_eq!(waiting(&store, &write(2)).await, None);
    assert!(!store.is_idle("a"), "one was made lately");
    assert!(store.remove("q1").await);
    assert!(is_idle(&store, "a"));
}

async fn a_result_that_is_an_error_is_told_apart_also_after_a_restart_and_where_it_is_not_kept(
    place: &Place,
) {
    let store = place.open(QueueBounds::default()).await;
    let wrong = r#"{"content":[],"isError":true}"#.to_owned();
    let long = format!(r#"{{"isError": true, "content": ["{}"]}}"#, "x".repeat(300 << 10));
    for (n, outcome) in
        [wrong, long, r#"{"content":[{"isError":true}]}"#.to_owned()].into_iter().enumerate()
    {
        let id = store.enqueue(write(1)).await.unwrap();
        store.begin("a").await.unwrap();
        assert_eq!(
            store.settle(&id, Ok(outcome), Duration::ZERO).await.unwrap(),
            ItemChange::Done,
            "{n}"
        );
    }
    store.close().await;
    let store = place.open(QueueBounds::default()).await;
    let told: Vec<bool> = store.list().await.unwrap().iter().map(|brief| brief.is_error).collect();
    assert_eq!((told, store.changes().borrow().with_error), (vec![true, true, false], 2));
    assert_eq!(
        store.retry("q1", true).await.unwrap(),
        ItemChange::WentWrong,
        "it was made, and is not made twice"
    );
    assert_eq!(store.forget("q1", false).await.unwrap(), ItemChange::WentWrong);
    assert_eq!(store.forget("q1", true).await.unwrap(), ItemChange::Done);
}

async fn waiting(store: &QueueStore, call: &QueuedWrite) -> Option<String> {
    let kept = store.find(call).await.unwrap();
    kept.filter(|kept| matches!(kept.fate, WriteFate::Waits | WriteFate::UnderWay))
        .map(|kept| kept.id)
}

async fn a_full_queue_refuses_and_results_give_way(place: &Place) {
    let store = place.open(QueueBounds { items: 2, ..QueueBounds::default() }).await;
    store.enqueue(write(1)).await.unwrap();
    store.enqueue(write(2)).await.unwrap();
    let refused = store.enqueue(write(3)).await.unwrap_err();
    assert_eq!(refused, NotQueued::Refused("2 calls are in it already".to_owned()));

    assert!(matches!(store.begin("a").await.unwrap(), NextItem::Due(..)));
    assert_eq!(
        store.settle("q1", Ok("{}".into()), Duration::ZERO).await.unwrap(),
        ItemChange::Done
    );
    let last = store.enqueue(write(4)).await.unwrap();
    assert_eq!(store.item("q1").await.unwrap(), None, "its result made room");
    assert_eq!(store.item(&last).await.unwrap().unwrap().call, write(4));

    let small = QueueBounds { bytes: 400, ..QueueBounds::default() };
    let store = place.open_at("small", small).await;
    store.enqueue(write(1)).await.unwrap();
    assert!(
        matches!(store.enqueue(write(2)).await, Err(NotQueued::Refused(why)) if why.contains("bytes already"))
    );
    assert_eq!(store.forget("q1", false).await.unwrap(), ItemChange::Done);
    store.enqueue(write(2)).await.unwrap();
}

async fn what_is_too_large_or_destroys_is_not_kept(place: &Place) {
    let store = place.open(QueueBounds::default()).await;
    let mut large = write(1);
    large.arguments = "x".repeat(crate::protocol::limits::QUEUED).into();
    assert!(
        matches!(store.enqueue(large).await, Err(NotQueued::Refused(why)) if why.contains("more than"))
    );
    let destroys = call("a", 1, Effect::Destructive);
    assert!(
        matches!(store.enqueue(destroys).await, Err(NotQueued::Refused(why)) if why.contains("destroys"))
    );

    store.enqueue(write(1)).await.unwrap();
    store.begin("a").await.unwrap();
    store.settle("q1", Ok("x".repeat(300 << 10)), Duration::ZERO).await.unwrap();
    let item = store.item("q1").await.unwrap().unwrap();
    assert_eq!((item.state, item.outcome), (ItemState::Delivered, None));
    assert_eq!(item.note.unwrap(), "executed; its result of 307200 bytes is too large to keep");
}

async fn a_dead_item_can_be_retried_or_dropped(place: &Place) {
    let store = place.open(QueueBounds::default()).await;
    store.enqueue(write(1)).await.unwrap();
    store.begin("a").await.unwrap();
    let busy = seawall::Failure::local(seawall::Cause::Overloaded, None, "busy");
    store.settle("q1", Err(busy), Duration::from_secs(600)).await.unwrap();
    assert!(matches!(store.peek("a").await.unwrap(), NextItem::Later(_)));
    assert_eq!(store.retry("q1", false).await.unwrap(), ItemChange::Done, "what waits is due now");
    store.begin("a").await.unwrap();
    assert_eq!(store.forget("q1", false).await.unwrap(), ItemChange::NotNow(ItemState::Delivering));
    assert!(!store.remove("q1").await, "an item that is being sent stays");
    let wrong = seawall::Failure::local(seawall::Cause::InvalidInput, None, "no such tool");
    store.settle("q1", Err(wrong), Duration::ZERO).await.unwrap();
    let item = store.item("q1").await.unwrap().unwrap();
    assert_eq!(
        (item.state, item.note.as_deref()),
        (ItemState::Dead, Some("was not executed: no such tool"))
    );

    assert_eq!(store.retry("q1", false).await.unwrap(), ItemChange::Done);
    assert!(
        matches!(store.begin("a").await.unwrap(), NextItem::Due(id, item) if id == "q1" && item.attempts == 3)
    );
    assert_eq!(store.retry("q1", true).await.unwrap(), ItemChange::NotNow(ItemState::Delivering));
    store.settle("q1", Ok(r#"{"content":[]}"#.into()), Duration::ZERO).await.unwrap();
    assert_eq!(
        store.retry("q1", true).await.unwrap(),
        ItemChange::NotNow(ItemState::Delivered),
        "it is made once"
    );
    let item = store.item("q1").await.unwrap().unwrap();
    assert_eq!((item.outcome.as_deref(), item.note), (Some(r#"{"content":[]}"#), None));
    assert_eq!(
        item.call.arguments,
        serde_json::Value::Null,
        "arguments of a delivered call are forgotten"
    );
    assert_eq!(
        store.forget("q1", false).await.unwrap(),
        ItemChange::NotNow(ItemState::Delivered),
        "its client may read it"
    );
    assert_eq!(store.forget("q1", true).await.unwrap(), ItemChange::Done);
    assert_eq!(store.forget("q1", true).await.unwrap(), ItemChange::Unknown);
}

async fn a_dead_item_that_may_have_been_executed_is_sent_again_only_if_that_is_meant_or_harmless(
    place: &Place,
) {
    let store = place.open(QueueBounds::default()).await;
    let harmless = QueuedWrite { effect: seawall::Effect::Idempotent, ..write(2) };
    for call in [write(1), harmless] {
        let id = store.enqueue(call).await.unwrap();
        store.begin("a").await.unwrap();
        let denied = seawall::Failure::local(seawall::Cause::Denied, None, "no");
        let denied = seawall::Failure { sent: seawall::Sent::Maybe, ..denied };
        store.settle(&id, Err(denied), Duration::ZERO).await.unwrap();
        let item = store.item(&id).await.unwrap().unwrap();
        assert_eq!((item.state, item.may_have_executed), (ItemState::Dead, true));
    }
    assert_eq!(store.retry("q1", false).await.unwrap(), ItemChange::InDoubt);
    assert_eq!(store.item("q1").await.unwrap().unwrap().state, ItemState::Dead);
    assert_eq!(store.retry("q2", false).await.unwrap(), ItemChange::Done);
    assert_eq!(store.retry("q1", true).await.unwrap(), ItemChange::Done);
    assert!(store.item("q1").await.unwrap().unwrap().may_have_executed, "it still may have been");
}

async fn pages_follow_each_other_and_show_what_is_asked_for(place: &Place) {
    let store = place.open(QueueBounds::default()).await;
    for n in 1..=5 {
        store.enqueue(write(n)).await.unwrap();
    }
    store.begin("a").await.unwrap();
    let page = async |after, states: &[ItemState], most| {
        let (items, has_more) = store.page(after, states.to_vec(), most).await.unwrap();
        (items.into_iter().map(|item| item.id).collect::<Vec<_>>(), has_more)
    };
    let all = [ItemState::Waiting, ItemState::Delivering];
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    assert_eq!(page(0, &all, 3).await, (ids(&["q1", "q2", "q3"]), true));
    assert_eq!(page(3, &all, 3).await, (ids(&["q4", "q5"]), false));
    assert_eq!(page(0, &[ItemState::Waiting], 4).await, (ids(&["q2", "q3", "q4", "q5"]), false));
    assert_eq!(page(u64::MAX, &all, 3).await, (vec![], false));
}

async fn a_list_shows_what_the_admin_interface_promises(place: &Place) {
    let store = place.open(QueueBounds::default()).await;
    store.enqueue(write(1)).await.unwrap();

    let mut shown = serde_json::to_value(store.list().await.unwrap()).unwrap();
    let came = shown[0]["enqueued"].take().as_u64().unwrap();
    let next = shown[0]["nextAttempt"].take().as_u64().unwrap();
    let expected = serde_json::json!([{
        "id": "q1", "tool": "append", "server": "a", "state": "waiting", "isError": false, "attempts": 0,
        "nextAttempt": null, "enqueued": null, "mayHaveExecuted": false, "lastError": null,
    }]);
    assert_eq!(shown, expected);
    assert!(came == next && came > 1_700_000_000_000);
}

/// A server that fails as it is told, and else executes.
struct Ends(std::sync::Mutex<(Vec<Failure>, Vec<u64>)>);

impl Delivery for Ends {
    type Turn = ();

    async fn ready(&self, _: &str) {}

    async fn back(&self) {
        std::future::pending().await
    }

    async fn send(&self, call: QueuedWrite, leave: &SendPermit<'_>) -> Result<String, Failure> {
        if !leave.take().await {
            return Err(Failure::local(Cause::Network, None, "its turn has passed"));
        }
        let (ends, executed) = &mut *self.0.lock().unwrap();
        let end = ends.pop();
        if end.as_ref().is_none_or(|failure| failure.sent != Sent::Never) {
            executed.push(call.arguments["n"].as_u64().unwrap());
        }
        end.map_or_else(|| Ok("{}".to_owned()), Err)
    }
}

async fn items_leave_in_their_order_and_what_fails_waits_or_dies_as_it_should(place: &Place) {
    let store = place.open(QueueBounds::default()).await;
    for n in 1..=3 {
        store.enqueue(write(n)).await.unwrap();
        store.enqueue(call("b", 100 + n, Effect::Write)).await.unwrap();
    }
    let never = Failure::local(Cause::Network, None, "connection refused");
    let maybe = Failure { sent: Sent::Maybe, ..never.clone() };
    // The first attempt does not reach the server, and the second may have been executed.
    let ends = Ends(std::sync::Mutex::new((vec![maybe, never], Vec::new())));
    let (env, stop) = (Env::new().with_rng(Rng::fixed(0.0)), CancellationToken::new());
    let mut changes = store.changes();
    let seen = async {
        let over = changes.wait_for(|counts| counts.waiting == 3 && counts.delivering == 0);
        over.await.unwrap();
        stop.cancel();
    };
    tokio::time::timeout(Duration::from_secs(60), async {
        tokio::join!(deliver(&store, "a", &ends, &env, &stop), seen)
    })
    .await
    .unwrap();

    assert_eq!(ends.0.lock().unwrap().1, [1, 2, 3], "and nothing of the other server");
    let mut became = Vec::new();
    for brief in store.list().await.unwrap() {
        if brief.server == "a" {
            became.push((brief.state, brief.attempts, brief.may_have_executed));
        }
    }
    let (dead, made) = (ItemState::Dead, ItemState::Delivered);
    assert_eq!(became, [(dead, 2, true), (made, 1, false), (made, 1, false)]);
}
