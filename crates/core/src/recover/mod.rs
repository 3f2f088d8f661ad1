//! Decides how else a call can be answered: a fallback chain, a simpler search, the previous page,
//! a batch item by item.

#[cfg(feature = "pipeline")]
mod argument;
pub(crate) mod chain;
#[cfg(feature = "pipeline")]
pub(crate) mod page;
#[cfg(feature = "pipeline")]
pub(crate) mod simplify;
#[cfg(feature = "pipeline")]
pub(crate) mod split;
