//! Decides how a failure is reported: a code and fields for programs, texts for models.

pub(crate) mod event;
mod listening;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
#[cfg(feature = "pipeline")]
pub(crate) mod readers;
#[cfg(feature = "pipeline")]
mod render;
#[cfg(feature = "pipeline")]
pub(crate) mod texts;
#[cfg(feature = "pipeline")]
pub(crate) mod tool_result;
#[cfg(feature = "tracing")]
mod trace;

#[cfg(feature = "pipeline")]
pub use render::{Format, Rendering};

use std::sync::atomic;

#[cfg(feature = "pipeline")]
pub(crate) use texts::served;
