//! The process itself: its log, its end, its descriptors, its children.

pub mod descriptors;
pub(crate) mod lifecycle;
pub mod log;
pub(crate) mod plural;
pub(crate) mod random;
