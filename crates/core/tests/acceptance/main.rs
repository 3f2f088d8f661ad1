//! What docs/requirements.md asks of the library, in virtual time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

mod answers;
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
mod layers;
mod leases;
mod load;
mod meaning;
mod pauses;
mod pipeline;
mod queued;
mod real_tools;
mod reconfigured;
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
