//! Decides the present time and how long a call may take: clocks and deadlines.

pub(crate) mod clock;
mod counter;
pub(crate) mod deadline;
pub(crate) mod stamp;
#[cfg(test)]
mod tests;

use std::sync::atomic;
