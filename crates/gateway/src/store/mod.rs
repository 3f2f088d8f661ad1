//! What outlives a process: the queue of writes, the writes in flight, what servers listed last.

pub(crate) mod catalog_cache;
pub mod embedded;
pub(crate) mod journal;
