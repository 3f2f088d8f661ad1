//! Tests when queued calls are sent, in virtual time.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use seawall::{Cause, Disposition, DurableQueue, Env, Failure, Rng, Sent};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::queue::{Delivery, ItemState, SendPermit, StateCounts, deliver};

/// A server that answers as the test says, and keeps a ledger of the calls it executed and when.
struct LedgerServer {
    is_well: watch::Sender<bool>,
    /// The failures of the next attempts; later attempts succeed.
    ends: Mutex<VecDeque<Failure>>,
    takes: Duration,
    /// How many attempts a breaker rejects first.
    refusals: AtomicU32,
    began: Instant,
    /// Arguments, and seconds since the beginning.
    ledger: Mutex<Vec<(u64, u64)>>,
}

impl LedgerServer {
    fn new(is_well: bool, ends: impl IntoIterator<Item = Failure>) -> Self {
        Self {
            is_well: watch::Sender::new(is_well),
            ends: Mutex::new(ends.into_iter().collect()),
            takes: Duration::ZERO,
            refusals: AtomicU32::new(0),
            began: Instant::now(),
            ledger: Mutex::default(),
        }
    }

    fn executed(&self) -> Vec<u64> {
        self.ledger.lock().unwrap().iter().map(|(n, _)| *n).collect()
    }

    fn times(&self) -> Vec<u64> {
        self.ledger.lock().unwrap().iter().map(|(_, at)| *at).collect()
    }
}

impl Delivery for LedgerServer {
    type Turn = ();

    async fn ready(&self, _: &str) {
        self.is_well.subscribe().wait_for(|is_well| *is_well).await.map(drop).unwrap();
    }

    async fn back(&self) {
        let mut is_well = self.is_well.subscribe();
        is_well.mark_unchanged();
        is_well.wait_for(|is_well| !*is_well).await.map(drop).unwrap();
        is_well.wait_for(|is_well| *is_well).await.map(drop).unwrap();
    }

    async fn send(&self, call: QueuedWrite, leave: &SendPermit<'_>) -> Result<String, Failure> {
        if self
            .refusals
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok()
        {
            return Err(Failure::local(
                Cause::CircuitOpen,
                Some(Duration::from_millis(300)),
                "few may pass",
            ));
        }
        if !leave.take().await {
            return Err(never());
        }
        tokio::time::sleep(self.takes).await;
        let n = call.arguments["n"].as_u64().unwrap();
        let end = self.ends.lock().unwrap().pop_front();
        if end.as_ref().is_none_or(|failure| failure.sent != Sent::Never) {
            self.ledger.lock().unwrap().push((n, self.began.elapsed().as_secs()));
        }
        end.map_or_else(|| Ok(format!(r#"{{"done":{n}}}"#)), Err)
    }
}

fn never() -> Failure {
    Failure::local(Cause::Network, None, "connection refused")
}

fn maybe() -> Failure {
    Failure { sent: Sent::Maybe, ..Failure::local(Cause::Network, None, "connection lost") }
}

fn env() -> Env {
    Env::new().with_rng(Rng::fixed(0.0))
}

/// Delivers until the queue is in the wanted state.
async fn deliver_until(
    store: &QueueStore,
    server: &LedgerServer,
    is_there: impl FnMut(&StateCounts) -> bool,
) {
    let (env, stop) = (env(), CancellationToken::new());
    let mut changes = store.changes();
    let seen = async {
        changes.wait_for(is_there).await.unwrap();
        stop.cancel();
    };
    let both = async { tokio::join!(deliver(store, "a", server, &env, &stop), seen) };
    tokio::time::timeout(Duration::from_secs(100_000), both).await.expect("it never came to that");
}

fn all_done(tally: &StateCounts) -> bool {
    tally.waiting + tally.delivering == 0
}

async fn note(store: &QueueStore, id: &str) -> (ItemState, String) {
    let item = store.item(id).await.unwrap().unwrap();
    (item.state, item.note.unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn calls_leave_in_order_when_their_server_is_well_and_their_results_can_be_read() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
    for n in 1..=5 {
        store.enqueue(write(n)).await.unwrap();
        store.enqueue(call("b", 100 + n, Effect::Write)).await.unwrap();
    }
    let server = LedgerServer::new(false, []);
    let well = async {
        tokio::time::sleep(Duration::from_secs(40)).await;
        server.is_well.send_replace(true);
    };
    tokio::join!(well, deliver_until(&store, &server, |tally| tally.delivered == 5));

    assert_eq!(server.executed(), [1, 2, 3, 4, 5], "and nothing of the other server");
    assert_eq!(server.times(), [40; 5]);
    let item = store.item("q3").await.unwrap().unwrap();
    assert_eq!(
        (item.state, item.attempts, item.outcome.as_deref()),
        (ItemState::Delivered, 1, Some(r#"{"done":2}"#))
    );
    assert_eq!(store.changes().borrow().waiting, 5);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_not_executed_waits_longer_each_time_and_holds_its_line() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
    for n in 1..=2 {
        store.enqueue(write(n)).await.unwrap();
    }
    let open_breaker = Failure::local(Cause::CircuitOpen, None, "open");
    let busy = Failure { retry_after: Some(Duration::from_secs(30)), ..never() };
    let server = LedgerServer::new(true, [never(), never(), open_breaker, busy]);
    deliver_until(&store, &server, all_done).await;

    assert_eq!(server.executed(), [1, 2]);
    assert_eq!(server.times(), [1 + 2 + 4 + 30; 2], "1 s, 2 s, 4 s, and what the server asked for");
    assert_eq!(store.item("q1").await.unwrap().unwrap().attempts, 5);
}

#[tokio::test(start_paused = true)]
async fn what_a_breaker_refuses_stays_as_it_is_and_is_no_attempt() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
    for n in 1..=2 {
        store.enqueue(write(n)).await.unwrap();
    }
    let server = LedgerServer { refusals: AtomicU32::new(9), ..LedgerServer::new(true, []) };
    let looked = async {
        tokio::time::sleep(Duration::from_millis(8500)).await;
        let item = store.item("q1").await.unwrap().unwrap();
        assert_eq!((item.state, item.attempts, item.note), (ItemState::Waiting, 0, None));
    };
    tokio::join!(looked, deliver_until(&store, &server, all_done));

    assert_eq!(
        (server.executed(), server.times()),
        (vec![1, 2], vec![9; 2]),
        "a second after each refusal, no longer each time"
    );
    for id in ["q1", "q2"] {
        let item = store.item(id).await.unwrap().unwrap();
        assert_eq!((item.state, item.attempts), (ItemState::Delivered, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_executed_is_sent_again_only_if_that_is_harmless() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
    store.enqueue(write(1)).await.unwrap();
    store.enqueue(call("a", 2, Effect::Idempotent)).await.unwrap();
    let refused =
        Failure { disposition: Disposition::Denied, ..Failure::local(Cause::Denied, None, "no") };
    store.enqueue(write(3)).await.unwrap();
    let server = LedgerServer::new(true, [maybe(), maybe(), maybe()]);
    deliver_until(&store, &server, all_done).await;

    assert_eq!(server.executed(), [1, 2, 2, 2, 3]);
    assert_eq!(
        note(&store, "q1").await,
        (ItemState::Dead, "may have been executed: connection lost".to_owned())
    );
    assert_eq!(note(&store, "q2").await.0, ItemState::Delivered);

    store.enqueue(call("a", 4, Effect::Idempotent)).await.unwrap();
    let server = LedgerServer::new(true, [refused]);
    deliver_until(&store, &server, |tally| tally.dead == 2).await;
    assert_eq!(note(&store, "q4").await, (ItemState::Dead, "was not executed: no".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_waits_too_long_is_dead_and_what_is_done_is_forgotten_a_day_later() {
    let folder = tempfile::TempDir::new().unwrap();
    let bounds = QueueBounds { waits: 600_000, ..QueueBounds::default() };
    let store = QueueStore::open(folder.path(), bounds, today()).unwrap();
    store.enqueue(write(1)).await.unwrap();
    let server = LedgerServer::new(true, []);
    deliver_until(&store, &server, all_done).await;
    store.enqueue(write(2)).await.unwrap();
    let down = LedgerServer::new(true, (0..100).map(|_| never()));
    deliver_until(&store, &down, |tally| tally.dead == 1).await;

    assert_eq!(down.executed(), [] as [u64; 0]);
    assert_eq!(
        down.ends.lock().unwrap().len(),
        100 - 15,
        "1 s, 2 s, 4 s … 60 s: so many attempts in ten minutes"
    );
    assert_eq!(down.began.elapsed().as_secs(), 603, "found out at the next attempt");
    let why = "was not executed: its server was not back in time (last: connection refused)";
    assert_eq!(note(&store, "q2").await, (ItemState::Dead, why.to_owned()));
    assert!(store.item("q1").await.unwrap().is_some());
    tokio::time::advance(Duration::from_secs(24 * 3600)).await;
    assert_eq!(store.item("q1").await.unwrap(), None, "a day is over");
    tokio::time::advance(Duration::from_secs(7 * 24 * 3600)).await;
    assert_eq!(store.item("q2").await.unwrap(), None, "a week is over");
    assert_eq!(store.list().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_the_attempt_under_way_and_loses_nothing() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
    store.enqueue(write(1)).await.unwrap();
    store.enqueue(write(2)).await.unwrap();
    let server = LedgerServer { takes: Duration::from_secs(10), ..LedgerServer::new(true, []) };
    let (env, stop) = (env(), CancellationToken::new());
    let stopped = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        stop.cancel();
    };
    tokio::join!(deliver(&store, "a", &server, &env, &stop), stopped);
    store.close().await;

    let store = open(folder.path()).unwrap();
    assert_eq!(note(&store, "q1").await.0, ItemState::Delivered);
    assert_eq!(note(&store, "q2").await.0, ItemState::Waiting);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_is_cut_off_counts_as_one_that_may_have_been_executed() {
    for is_restart in [true, false] {
        let folder = tempfile::TempDir::new().unwrap();
        let mut store = open(folder.path()).unwrap();
        for (n, effect) in [(1, Effect::Idempotent), (2, Effect::Write)] {
            let id = store.enqueue(call("a", n, effect)).await.unwrap();
            let server =
                LedgerServer { takes: Duration::from_secs(1000), ..LedgerServer::new(true, []) };
            let (env, stop) = (env(), CancellationToken::new());
            let cut = tokio::time::timeout(
                Duration::from_secs(5),
                deliver(&store, "a", &server, &env, &stop),
            )
            .await;
            assert!(cut.is_err());
            assert_eq!(note(&store, &id).await.0, ItemState::Delivering);
            if is_restart {
                store.close().await;
                store = open(folder.path()).unwrap();
            }
            if effect == Effect::Idempotent {
                let server = LedgerServer::new(true, []);
                deliver_until(&store, &server, |tally| tally.delivered == 1).await;
                assert_eq!(server.executed(), [1], "sent again: that is harmless");
            }
        }
        store.enqueue(write(3)).await.unwrap();
        let server = LedgerServer::new(true, []);
        deliver_until(&store, &server, all_done).await;
        assert_eq!(server.executed(), [3], "q2 is not sent again");
        let how = if is_restart { "the gateway stopped" } else { "its delivery was cut off" };
        assert_eq!(
            note(&store, "q2").await,
            (ItemState::Dead, format!("may have been executed when {how}"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_back_holds_nothing_up() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
    store.enqueue(write(1)).await.unwrap();
    store.close().await;

    let earlier = today() - Duration::from_secs(365 * 24 * 3600);
    let store = QueueStore::open(folder.path(), QueueBounds::default(), earlier).unwrap();
    let server = LedgerServer::new(true, []);
    deliver_until(&store, &server, all_done).await;
    assert_eq!((server.executed(), server.times()), (vec![1], vec![0]));
}

#[tokio::test(start_paused = true)]
async fn what_pauses_after_many_failures_is_sent_at_once_when_its_server_is_back() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
    store.enqueue(write(1)).await.unwrap();
    let server = LedgerServer::new(true, (0..5).map(|_| never()));
    let back = async {
        // The pauses are 1, 2, 4, 8 and 16 seconds: the last of them is cut short.
        tokio::time::sleep(Duration::from_secs(18)).await;
        server.is_well.send_replace(false);
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.is_well.send_replace(true);
        std::future::pending().await
    };
    tokio::select! {
        () = deliver_until(&store, &server, |tally| tally.delivered == 1) => {}
        () = back => {}
    }
    assert!(server.times()[0] < 25, "{:?}", server.times());
}
