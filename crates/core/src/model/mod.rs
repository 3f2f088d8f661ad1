//! Decides the data types that every layer shares: call, attempt, failure, answer, policy.

#[cfg(feature = "pipeline")]
pub(crate) mod answer;
#[cfg(feature = "pipeline")]
pub(crate) mod call;
#[cfg(feature = "pipeline")]
pub(crate) mod control;
pub(crate) mod duration;
pub(crate) mod effect;
pub(crate) mod failure;
pub(crate) mod gitnexus;
pub(crate) mod invalid;
pub(crate) mod names;
pub(crate) mod note;
pub(crate) mod policy;
#[cfg(feature = "pipeline")]
pub(crate) mod preset;
#[cfg(feature = "pipeline")]
pub(crate) mod report;
pub(crate) mod rng;
pub(crate) mod sanitize;
pub(crate) mod siblings;
pub(crate) mod signals;
pub(crate) mod style;
#[cfg(test)]
mod tests;
pub(crate) mod tool_errors;

use std::sync::{self, atomic};
