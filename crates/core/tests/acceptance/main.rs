//! The acceptance tests T1–T11, T13, T15–T17, T22 and T23, by name, in virtual time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

mod answers;
mod article;
mod batch;
mod breaker;
mod bulkhead;
mod cancel;
mod chain;
mod copies;
mod doubt;
mod dropped;
mod evidence;
mod guard;
mod held;
mod honesty;
mod incidents;
mod kit;
mod load;
mod meaning;
mod pauses;
mod pipeline;
mod queued;
mod real_tools;
mod recover;
mod rejoin;
mod restore;
mod retry;
mod second_chance;
mod settings;
mod silent;
mod slow_start;
mod steps;
mod strangers;
mod tool_errors;
mod turns;
