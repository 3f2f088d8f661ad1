//! Decides when an attempt may start, when a call is retried, and how long it may take: one
//! resilience policy per file, each usable alone.

mod balance;
pub(crate) mod breaker;
pub(crate) mod budget;
pub(crate) mod bulkhead;
#[cfg(feature = "pipeline")]
pub(crate) mod hedge;
pub(crate) mod line;
#[cfg(feature = "pipeline")]
pub(crate) mod rate_queue;
pub(crate) mod retry;
#[cfg(feature = "pipeline")]
pub(crate) mod retry_after;
#[cfg(feature = "pipeline")]
pub(crate) mod silence;
pub(crate) mod watch;

#[cfg(feature = "pipeline")]
use std::sync;
use std::sync::atomic;
