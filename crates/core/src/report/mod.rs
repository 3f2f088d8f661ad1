//! Decides what is told about a failure: a code and fields for machines, words for models.

pub(crate) mod event;
mod listening;
pub(crate) mod readers;
mod render;
pub(crate) mod texts;
pub(crate) mod tool_result;

pub use render::{Format, Rendering};

use std::sync::atomic;

pub(crate) use texts::served;
