//! The policies as a client and a server see them: the gateway in its own process, a server that
//! fails as it is told.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

mod breaker;
mod chaos;
mod fallback;
mod killed;
#[allow(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "../gateway/kit.rs"]
mod kit;
mod memory;
mod owners;
mod presets;
mod queue;
mod queue_fleet;
mod rejoin;
mod retry;
mod server;
mod texts;
mod timeouts;
#[allow(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "../hostile/kit/upstream.rs"]
mod upstream;
