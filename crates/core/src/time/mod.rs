//! Decides what time it is, and how long something may take.

pub(crate) mod clock;
mod counter;
pub(crate) mod deadline;
pub(crate) mod stamp;
#[cfg(test)]
mod tests;

use std::sync::atomic;
