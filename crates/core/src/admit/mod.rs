//! Decides which state admission keeps between calls: the ledger of identical calls, cached
//! responses and rate limits.

#[cfg(feature = "pipeline")]
pub(crate) mod cache;
#[cfg(feature = "pipeline")]
mod gatekeeper;
mod gcra;
#[cfg(feature = "pipeline")]
mod halves;
#[cfg(feature = "pipeline")]
pub(crate) mod key;
#[cfg(feature = "pipeline")]
pub(crate) mod ledger;
pub(crate) mod rate_limiter;

use std::sync::atomic;

#[cfg(feature = "pipeline")]
use std::sync;

#[cfg(feature = "pipeline")]
pub(crate) use gatekeeper::{CallerRates, Gatekeeper};
