//! The operator's admin as an operator finds it: the gateway in its own process, its admin listener
//! over real sockets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]
#![allow(clippy::disallowed_methods, reason = "the gateway runs in its own process, in real time")]

mod access;
mod admin_api;
mod agentgateway;
mod audit;
mod breakers;
mod collector;
mod commands;
mod dashboard;
mod events;
mod force;
mod health;
#[allow(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "../gateway/kit.rs"]
mod kit;
mod logs;
mod metrics;
mod policy;
mod prometheus;
mod queue;
mod reload;
mod reload_calls;
mod restart;
mod secrets;
#[allow(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "../policies/server.rs"]
mod server;
mod terminal;
mod traces;
mod troubles;
#[allow(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "../hostile/kit/upstream.rs"]
mod upstream;
