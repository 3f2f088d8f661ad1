//! The process itself: log, shutdown, its parent, descriptors, random ids, its HTTP client.

pub mod descriptors;
pub mod http_client;
pub(crate) mod lifecycle;
pub mod log;
pub(crate) mod parent;
pub(crate) mod plural;
pub(crate) mod random;
pub(crate) mod stop;
