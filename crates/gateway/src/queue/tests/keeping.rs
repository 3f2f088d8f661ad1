//! Tests which items are kept, for how long, and how many.

use std::os::unix::fs::PermissionsExt;

use futures_util::FutureExt;
use seawall::{Cause, DurableQueue, Failure, NotQueued, Sent, WriteFate};

use super::*;
use crate::queue::NextItem;

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
    assert_eq!((mode(&path), mode(again.path().unwrap())), (0o700, 0o600));
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1, "no draft is left");
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
async fn a_second_process_is_told_who_has_the_file() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();

    let trouble = open(folder.path()).unwrap_err();

    assert!(
        matches!(&trouble, StoreTrouble::InUse { path } if Some(path.as_path()) == store.path()),
        "{trouble}"
    );
    assert!(trouble.to_string().contains("in use by another process"), "{trouble}");
    store.close().await;
    open(folder.path()).unwrap();
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
