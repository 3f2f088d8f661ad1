//! Decides how else a call can be answered: a chain of steps, a simpler search, the page before, a
//! batch item by item.

#[cfg(feature = "pipeline")]
mod argument;
pub(crate) mod chain;
#[cfg(feature = "pipeline")]
pub(crate) mod page;
#[cfg(feature = "pipeline")]
pub(crate) mod simplify;
#[cfg(feature = "pipeline")]
pub(crate) mod split;
