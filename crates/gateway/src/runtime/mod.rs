//! The process itself: its log, its end, its descriptors, its children.

pub mod descriptors;
pub mod lifecycle;
pub mod log;
pub mod plural;
pub mod random;
