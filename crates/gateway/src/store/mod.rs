//! State on disk that outlives the process: the write journal, the catalog cache and the audit log.

pub(crate) mod audit;
pub(crate) mod catalog_cache;
pub(crate) mod journal;
