//! Decides when an attempt may start, when a call is tried again, and how long it may take: each
//! policy by itself, usable alone.

mod balance;
pub(crate) mod breaker;
pub(crate) mod budget;
pub(crate) mod bulkhead;
pub(crate) mod hedge;
pub(crate) mod line;
pub(crate) mod rate_queue;
pub(crate) mod retry;
pub(crate) mod retry_after;
pub(crate) mod silence;
pub(crate) mod watch;

use std::sync::{self, atomic};
