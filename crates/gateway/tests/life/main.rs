//! The life of a server: it dies, hangs, restarts, forgets, rests; the client notices no more than
//! it must.
//!
//! Names that begin with `p` and a number are the pains of users that they are about, `t` the
//! acceptance tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

#[allow(
    dead_code,
    unused_imports,
    reason = "what the hostile tests need is more than is needed here"
)]
#[path = "../hostile/kit/mod.rs"]
mod kit;

mod comeback;
mod deaths;
mod leftovers;
#[cfg(seawall_portable)]
mod portable;
mod processes;
mod reconnect;
mod rest;
mod restart;
mod sessions;
mod status;

use std::time::Duration;

use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use self::kit::ledger::Ledger;
use self::kit::{Gateway, Legacy};

/// Policies that try once and have nothing to stand in: what a server's life does by itself is to
/// be seen.
pub(crate) const ONCE: &str =
    "[defaults]\nretry = { attempts = 1 }\nfallback = []\nbreaker = { failures = 0 }\n";

/// Far less than a call waits that is not told of its server's end, and more than a busy machine
/// takes to tell it.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(10);

/// The failure that an answer of a tool is.
fn failed(answer: &Value) -> &Value {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    &answer["result"]["_meta"]["seawall/failure"]
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

/// How many lines of a gateway's log contain this.
fn count(gateway: &Gateway, text: &str) -> usize {
    gateway.log.lock().unwrap().iter().filter(|line| line.contains(text)).count()
}

/// A client says goodbye.
async fn leave(client: &Legacy) {
    let headers = client.headers();
    let left =
        kit::http::send(client.address, Method::DELETE, &client.path, &headers, Default::default())
            .await;
    assert_eq!(left.status(), 200);
}
