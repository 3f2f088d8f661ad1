//! The lock-free parts under every interleaving of two or three threads.
//!
//! The very sources of the library are compiled here against loom's atomics and locks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]
#![allow(dead_code, unused_imports, unreachable_pub, reason = "the sources are used in part")]

#[path = "../../src/attempt/balance.rs"]
mod balance;
#[path = "../../src/time/counter.rs"]
mod counter;
#[path = "../../src/admit/ledger/dirty_sessions.rs"]
mod dirty_sessions;
#[path = "../../src/attempt/breaker/gate.rs"]
mod gate;
#[path = "../../src/admit/gcra.rs"]
mod gcra;
#[path = "../../src/admit/halves.rs"]
mod halves;
#[path = "../../src/attempt/breaker/incident.rs"]
mod incident;
#[path = "../../src/model/invalid.rs"]
mod invalid;
#[path = "../../src/attempt/breaker/lease.rs"]
mod lease;
#[path = "../../src/attempt/line.rs"]
mod line;
#[path = "../../src/report/listening.rs"]
mod listening;
#[path = "../../src/model/names.rs"]
mod names;
#[path = "../../src/model/policy/breaker.rs"]
mod policy;
#[path = "../../src/registry/rest.rs"]
mod rest;
#[path = "../../src/attempt/retry_after.rs"]
mod retry_after;
#[path = "../../src/model/rng.rs"]
mod rng;
#[path = "../../src/attempt/silence.rs"]
mod silence;
#[path = "../../src/attempt/breaker/slow_start.rs"]
mod slow_start;
#[path = "../../src/time/clock.rs"]
mod source;
#[path = "../../src/attempt/breaker/states.rs"]
mod states;
#[path = "../../src/attempt/breaker/stripe.rs"]
mod stripe;
#[path = "../../src/attempt/breaker/tally.rs"]
mod tally;
#[path = "../../src/admit/ledger/uncertain.rs"]
mod uncertain;
#[path = "../../src/attempt/breaker/window.rs"]
mod window;
#[path = "../../src/registry/writes.rs"]
mod writes;

mod admit;
mod after_closing;
mod attempt;
mod breaker;
mod clock;
mod remembered;

/// Where the sources look for each other.
mod model {
    pub(crate) use super::{invalid, rng};

    pub(crate) mod policy {
        pub(crate) use crate::policy as breaker;
    }
}

mod time {
    pub(crate) use super::source as clock;
}

mod key {
    pub(crate) use seawall::CallKey;
}

/// What the library takes from the standard library, taken from loom.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard, RwLock};
}

use std::time::Duration;

use loom::sync::atomic;
use policy::{BreakerPolicy, BreakerStatus, WindowRule};
use rng::Rng;
use seawall::BreakerMode;
use source::{Clock, Moment, nanos};

const SECOND: Duration = Duration::from_secs(1);
