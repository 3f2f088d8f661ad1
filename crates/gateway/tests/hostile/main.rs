//! Attacks on the running gateway, over real sockets and real processes: clients and servers are
//! both untrusted.
//!
//! Every attack shows that the limit holds, that the error says what is wrong, that the next
//! healthy request works, that memory stays bounded, and that no process is left behind.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

mod connections;
mod crowds;
mod guard;
mod http_servers;
mod kit;
mod large;
mod lists;
mod lives;
mod servers;
mod sessions;
mod wire;
