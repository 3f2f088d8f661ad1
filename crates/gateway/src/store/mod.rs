//! State that outlives the process, on disk: the write journal, the catalog cache and the audit
//! log; and the Redis that replicas share.

pub(crate) mod audit;
pub(crate) mod catalog_cache;
pub(crate) mod journal;
pub(crate) mod redis;
