//! Tests which items are kept, for how long, and how many.

use std::os::unix::fs::PermissionsExt;

use futures_util::FutureExt;
use seawall::{Cause, DurableQueue, Failure, NotQueued, Sent, WriteFate};

use super::*;
use crate::queue::{ItemChange, ItemState, NextItem};

#[tokio::test]
async fn items_are_there_after_a_restart_and_ids_are_never_given_twice() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("deep/store");
    let store = open(&path).unwrap();
    assert_eq!(store.enqueue(write(1)).await.unwrap(), "q1");
    assert_eq!(store.enqueue(write(2)).await.unwrap(), "q2");
    assert_eq!(store.next("a").await, Some(("q1".to_owned(), write(1))));
    assert!(store.remove("q2").await && !store.remove("q2").await);
    store.close().await;
    assert!(
        matches!(store.enqueue(write(9)).await, Err(NotQueued::Refused(why)) if why == "the queue is closed")
    );

    let again = open(&path).unwrap();
    assert_eq!(again.enqueue(write(3)).await.unwrap(), "q3");
    let listed = again.list().await.unwrap();
    assert_eq!(listed.iter().map(|item| item.id.as_str()).collect::<Vec<_>>(), ["q1", "q3"]);
    assert_eq!(again.item("q1").await.unwrap().unwrap().call, write(1));
    for strange in ["q2", "q01", "q", "1", "q-1", "q99999999999999999999"] {
        assert_eq!(again.item(strange).await.unwrap(), None, "{strange}");
    }
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(again.path())), (0o700, 0o600));
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1, "no draft is left");
}

#[tokio::test]
async fn a_call_is_told_to_wait_until_it_is_done_and_nobody_elses_is() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
    assert!(store.is_idle("a"));
    store.enqueue(write(1)).await.unwrap();
    store.enqueue(write(2)).await.unwrap();
    assert!(!store.is_idle("a") && store.is_idle("b"));
    store.close().await;
    assert!(store.find(&write(2)).await.is_err(), "it cannot say, and does not say no");

    let store = open(folder.path()).unwrap();
    assert!(!store.is_idle("a") && store.is_idle("b"), "what the last gateway left is seen");
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
    assert!(store.is_idle("a"));
}

async fn waiting(store: &QueueStore, call: &QueuedWrite) -> Option<String> {
    let kept = store.find(call).await.unwrap();
    kept.filter(|kept| matches!(kept.fate, WriteFate::Waits | WriteFate::UnderWay))
        .map(|kept| kept.id)
}

#[tokio::test]
async fn what_became_of_a_call_is_known_for_an_hour_also_to_the_next_gateway() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
    for n in 1..=4 {
        store.enqueue(write(n)).await.unwrap();
    }
    let refused = Failure { sent: Sent::Yes, ..Failure::local(Cause::InvalidInput, None, "no") };
    let ends = [Ok("{}".to_owned()), Err(refused), Err(Failure::local(Cause::Denied, None, "no"))];
    for (id, end) in ["q1", "q2", "q3"].into_iter().zip(ends) {
        assert!(matches!(store.begin("a").await.unwrap(), NextItem::Due(..)));
        store.settle(id, end, Duration::ZERO).await.unwrap();
    }
    // The end of the gateway cuts the attempt off.
    assert!(matches!(store.begin("a").await.unwrap(), NextItem::Due(..)));
    store.close().await;

    let later = Duration::from_secs(7);
    let store = QueueStore::open(folder.path(), QueueBounds::default(), today() + later).unwrap();
    let mut fates = Vec::new();
    for n in 1..=5 {
        fates.push(store.find(&write(n)).await.unwrap().map(|kept| kept.fate));
    }
    let is_about =
        |ago: Duration, seconds: u64| (seconds - 2..=seconds + 5).contains(&ago.as_secs());
    assert!(
        matches!(fates[..], [Some(WriteFate::Executed(one)), Some(WriteFate::Uncertain(two)), Some(WriteFate::NotExecuted),
            Some(WriteFate::Uncertain(four)), None] if is_about(one, 7) && is_about(two, 7) && four.as_secs() < 5),
        "{fates:?}"
    );
    assert!(!store.is_idle("a"));
    store.close().await;
    let much_later = Duration::from_secs(2 * 60 * 60);
    let store =
        QueueStore::open(folder.path(), QueueBounds::default(), today() + much_later).unwrap();
    assert!(store.is_idle("a"), "it matters to nobody any more");
}

#[tokio::test]
async fn a_list_shows_what_the_admin_interface_promises() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
    store.enqueue(write(1)).await.unwrap();

    let mut shown = serde_json::to_value(store.list().await.unwrap()).unwrap();
    let came = shown[0]["enqueued"].take().as_u64().unwrap();
    let next = shown[0]["nextAttempt"].take().as_u64().unwrap();
    let expected = serde_json::json!([{
        "id": "q1", "tool": "append", "server": "a", "state": "waiting", "isError": false, "attempts": 0,
        "nextAttempt": null, "enqueued": null, "mayHaveExecuted": false, "lastError": null,
    }]);
    assert_eq!(shown, expected);
    assert!(came == next && (1_800_000_000_000..1_800_000_060_000).contains(&came));
}

#[tokio::test]
async fn a_full_queue_refuses_and_results_give_way() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = QueueStore::open(
        folder.path(),
        QueueBounds { items: 2, ..QueueBounds::default() },
        today(),
    )
    .unwrap();
    store.enqueue(write(1)).await.unwrap();
    store.enqueue(write(2)).await.unwrap();
    let refused = store.enqueue(write(3)).await.unwrap_err();
    assert_eq!(refused, NotQueued::Refused("2 calls are in it already".to_owned()));

    assert!(matches!(store.begin("a").await.unwrap(), NextItem::Due(..)));
    assert_eq!(
        store.settle("q1", Ok("{}".into()), Duration::ZERO).await.unwrap(),
        ItemChange::Done
    );
    assert_eq!(store.enqueue(write(4)).await.unwrap(), "q3");
    assert_eq!(store.item("q1").await.unwrap(), None, "its result made room");

    let small = folder.path().join("small");
    let store =
        QueueStore::open(&small, QueueBounds { bytes: 400, ..QueueBounds::default() }, today())
            .unwrap();
    store.enqueue(write(1)).await.unwrap();
    assert!(
        matches!(store.enqueue(write(2)).await, Err(NotQueued::Refused(why)) if why.contains("bytes already"))
    );
    assert_eq!(store.forget("q1", false).await.unwrap(), ItemChange::Done);
    store.enqueue(write(2)).await.unwrap();
}

#[tokio::test]
async fn what_is_too_large_or_destroys_is_not_kept() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
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

#[tokio::test]
async fn a_second_process_is_told_who_has_the_file() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();

    let trouble = open(folder.path()).unwrap_err();

    assert!(matches!(&trouble, StoreTrouble::InUse { path } if path == store.path()), "{trouble}");
    assert!(trouble.to_string().contains("in use by another process"), "{trouble}");
    store.close().await;
    open(folder.path()).unwrap();
}

#[tokio::test]
async fn a_dead_item_can_be_retried_or_dropped() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
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

#[tokio::test]
async fn a_result_that_is_an_error_is_told_apart_also_after_a_restart_and_where_it_is_not_kept() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
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
    let store = open(folder.path()).unwrap();
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

#[tokio::test]
async fn a_dead_item_that_may_have_been_executed_is_sent_again_only_if_that_is_meant_or_harmless() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
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

#[tokio::test]
async fn pages_follow_each_other_and_show_what_is_asked_for() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
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

#[tokio::test]
async fn a_call_that_was_called_off_before_its_turn_is_not_kept() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
    let mut called_off = store.enqueue(write(1));
    assert!(called_off.as_mut().now_or_never().is_none());
    drop(called_off);

    assert_eq!(store.enqueue(write(2)).await.unwrap(), "q1");
    assert_eq!(store.list().await.unwrap().len(), 1);
}
