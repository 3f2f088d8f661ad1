//! What a client can rely on when its server speaks legacy SSE or WebSocket: the real `seawall`, on
//! stdio and on HTTP, in front of honest servers and of others.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

mod client;
mod connect;
mod ending;
mod fallback;
mod same;
mod server;
mod wicked;
