//! The process itself: log, shutdown, descriptors, random ids.

pub mod descriptors;
pub(crate) mod lifecycle;
pub mod log;
pub(crate) mod plural;
pub(crate) mod random;
