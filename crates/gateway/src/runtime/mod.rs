//! The process itself: log, shutdown, descriptors, random ids, its HTTP client.

pub mod descriptors;
pub mod http_client;
pub(crate) mod lifecycle;
pub mod log;
pub(crate) mod plural;
pub(crate) mod random;
