//! Fifty operations on the durable queue, each acknowledged on stdout: what `tests/crash/run` kills
//! at every step.
//!
//! `queue_script run FOLDER LEDGER` does them, with a server that writes what it executes into the
//! ledger. `queue_script drain FOLDER LEDGER` is the restart: shows every item, delivers what
//! waits, shows every item again. `queue_script speed FOLDER LEDGER` says what keeping a call
//! costs, alone and together with others.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use seawall::{Cause, DurableQueue, Effect, Env, Failure, NotQueued, QueuedWrite, Sent};
use seawall_gateway::queue::{
    Delivery, ItemChange, ItemState, NextItem, QueueBounds, QueueStore, SendPermit, deliver,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, what, folder, ledger] = arguments.as_slice() else { return ExitCode::from(2) };
    // One blocking thread, so that the Nth write is the same one each time.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    let Ok(runtime) = runtime else { return ExitCode::FAILURE };
    let Ok(ledger) = OpenOptions::new().append(true).create(true).open(ledger) else {
        return ExitCode::FAILURE;
    };
    runtime.block_on(async {
        let hour = if what == "drain" { 1 } else { 0 };
        let today = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + 3600 * hour);
        let folder = folder.clone();
        let opened = tokio::task::spawn_blocking(move || {
            QueueStore::open(Path::new(&folder), QueueBounds::default(), today)
        });
        let store = match opened.await {
            Err(_) => return ExitCode::FAILURE,
            Ok(Ok(store)) => store,
            Ok(Err(trouble)) => {
                say(&format!("closed {trouble}"));
                return ExitCode::from(3);
            }
        };
        let server = Server(ledger);
        match what.as_str() {
            "drain" => drain(&store, &server).await,
            "speed" => speed(&store).await,
            _ => run(&store, &server).await,
        }
        store.close().await;
        say("end");
        ExitCode::SUCCESS
    })
}

/// One line, in one write.
fn say(line: &str) {
    let _gone = std::io::stdout().write_all(format!("{line}\n").as_bytes());
}

/// Executes whatever it gets.
struct Server(File);

impl Server {
    fn execute(&self, call: &QueuedWrite) -> Result<String, Failure> {
        let line = format!("{}\n", call.arguments["n"]);
        let written = (&self.0).write_all(line.as_bytes());
        let maybe = |error: std::io::Error| Failure::local(Cause::Network, None, error.to_string());
        written
            .map(|()| "{}".to_owned())
            .map_err(|error| Failure { sent: Sent::Maybe, ..maybe(error) })
    }
}

impl Delivery for Server {
    type Turn = ();

    async fn ready(&self, _: &str) {}

    async fn back(&self) {
        std::future::pending().await
    }

    async fn send(&self, call: QueuedWrite, leave: &SendPermit<'_>) -> Result<String, Failure> {
        match leave.take().await {
            true => self.execute(&call),
            false => Err(Failure::local(Cause::Network, None, "its turn has passed")),
        }
    }
}

async fn run(store: &QueueStore, server: &Server) {
    let (mut last, mut dead) = (String::new(), String::new());
    for n in 0..50 {
        match (n % 5, n / 5 % 4) {
            (0 | 1, _) => last = enqueue(store, n, Effect::Write).await.unwrap_or(last),
            (2, _) => drop(enqueue(store, n, Effect::Idempotent).await),
            (3, _) => drop(attempt(store, server, None).await),
            (_, 0) => drop(
                join_all([100, 200, 300].map(|more| enqueue(store, n + more, Effect::Write))).await,
            ),
            (_, 1) => drop(attempt(store, server, Some(Sent::Never)).await),
            (_, 2) => dead = attempt(store, server, Some(Sent::Maybe)).await.unwrap_or_default(),
            _ => {
                // Said before it is asked for: a kill in between leaves either.
                say(&format!("forgetting {last}"));
                if store.forget(&last, true).await.is_ok_and(|changed| changed == ItemChange::Done)
                {
                    say(&format!("forgotten {last}"));
                }
                say(&format!("retrying {dead}"));
                if store.retry(&dead, true).await.is_ok_and(|changed| changed == ItemChange::Done) {
                    say(&format!("retried {dead}"));
                }
            }
        }
    }
}

/// 512 bytes of arguments, as a small write has.
async fn speed(store: &QueueStore) {
    for together in [1, 10, 100] {
        let (rounds, began) = (50, tokio::time::Instant::now());
        for _ in 0..rounds {
            let call = || QueuedWrite {
                arguments: json!({ "text": "x".repeat(500) }),
                ..call(0, Effect::Write)
            };
            join_all((0..together).map(|_| store.enqueue(call()))).await;
        }
        let each = began.elapsed().as_secs_f64() * 1000.0 / f64::from(rounds);
        say(&format!("{together} at a time: {each:.1} ms until all are kept"));
    }
}

fn call(n: u32, effect: Effect) -> QueuedWrite {
    let (server, tool, caller) = ("s".to_owned(), "append".to_owned(), String::new());
    QueuedWrite { server, tool, arguments: json!({ "n": n }), caller, effect, principal: None }
}

async fn enqueue(store: &QueueStore, n: u32, effect: Effect) -> Option<String> {
    match store.enqueue(call(n, effect)).await {
        Ok(id) => {
            say(&format!("kept {id} {n}"));
            Some(id)
        }
        Err(NotQueued::Refused(_)) => {
            say(&format!("refused {n}"));
            None
        }
        Err(NotQueued::Unknown(_)) => None,
    }
}

/// One attempt on the first item; it fails without having been executed, after it, or works.
async fn attempt(store: &QueueStore, server: &Server, fails: Option<Sent>) -> Option<String> {
    let Ok(NextItem::Due(id, item)) = store.begin("s").await else { return None };
    let end = match fails {
        Some(Sent::Never) => Err(Failure::local(Cause::Network, None, "refused")),
        Some(sent) => {
            let _lost = server.execute(&item.call);
            Err(Failure { sent, ..Failure::local(Cause::Network, None, "lost") })
        }
        None => server.execute(&item.call),
    };
    let is_delivered = end.is_ok();
    let settled = store.settle(&id, end, Duration::ZERO).await;
    if is_delivered && settled.is_ok_and(|changed| changed == ItemChange::Done) {
        say(&format!("delivered {id}"));
    }
    Some(id)
}

async fn drain(store: &QueueStore, server: &Server) {
    show(store, "found").await;
    let (env, stop) = (Env::new(), CancellationToken::new());
    let mut changes = store.changes();
    let done = async {
        let _closed =
            changes.wait_for(|tally| tally.waiting + tally.delivering == 0).await.map(drop);
        stop.cancel();
    };
    tokio::join!(deliver(store, "s", server, &env, &stop), done);
    show(store, "left").await;
}

async fn show(store: &QueueStore, when: &str) {
    for brief in store.list().await.unwrap_or_default() {
        if let Ok(Some(item)) = store.item(&brief.id).await {
            let state = match item.state {
                ItemState::Waiting => "waiting",
                ItemState::Delivering => "delivering",
                ItemState::Delivered => "delivered",
                ItemState::Dead => "dead",
            };
            let note = item.note.unwrap_or_default();
            say(&format!("{when} {} {} {state} {note}", brief.id, item.call.arguments["n"]));
        }
    }
}
