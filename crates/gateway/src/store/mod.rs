//! State on disk that outlives the process: the write journal and the catalog cache.

pub(crate) mod catalog_cache;
pub(crate) mod journal;
