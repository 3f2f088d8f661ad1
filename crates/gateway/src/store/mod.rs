//! State on disk that outlives the process: the durable queue, the write journal, the catalog
//! cache.

pub(crate) mod catalog_cache;
pub mod embedded;
pub(crate) mod journal;
