//! Everything that is not on the path of a call.

pub mod config;
