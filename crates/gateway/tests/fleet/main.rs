//! Replicas that share a real Redis: three gateways, each in its own process, before one server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the gateways run in their own processes, in real time"
)]

#[allow(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "../admin/admin_api.rs"]
mod admin_api;
mod away;
mod breakers;
#[allow(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "../gateway/kit.rs"]
mod kit;
#[allow(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "../admin/prometheus.rs"]
mod prometheus;
mod rates;
mod replicas;
#[allow(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "../policies/server.rs"]
mod server;
#[allow(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "../hostile/kit/upstream.rs"]
mod upstream;
