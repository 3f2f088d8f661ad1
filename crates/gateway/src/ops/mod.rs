//! Everything that is not on the path of a call.

pub mod admin;
mod barred;
pub mod check;
pub mod cli;
pub mod config;
pub mod demo;
pub mod descriptors;
pub mod journal;
pub mod lifecycle;
pub mod log;
pub mod memory;
pub mod plural;
pub mod remote;
pub mod store;
pub mod telemetry;
