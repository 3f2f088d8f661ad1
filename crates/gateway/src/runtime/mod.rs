//! The process itself: log, shutdown, descriptors, turns of tasks, random ids, the time of day, its
//! HTTP client.

pub(crate) mod clock;
pub mod descriptors;
pub mod http_client;
pub(crate) mod lifecycle;
pub mod log;
mod log_limit;
pub(crate) mod plural;
pub(crate) mod random;
pub(crate) mod stop;
pub(crate) mod turn;
