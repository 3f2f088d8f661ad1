//! Which servers' tools a client gets, and what it is told of the rest: at the running gateway,
//! with real processes and sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

mod failed_lists;
mod kit;
mod pains;
mod required;
mod startup;
mod statuses;
#[path = "../hostile/kit/upstream.rs"]
#[allow(dead_code, reason = "what is not needed here is needed there")]
mod upstream;
mod warm;
mod warnings;
