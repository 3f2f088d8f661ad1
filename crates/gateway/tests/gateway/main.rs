//! The gateway as a client sees it: real processes, real pipes, real sockets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

mod drain;
mod eras;
mod kit;
mod life;
mod merged;
mod transparent;
