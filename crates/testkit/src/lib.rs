//! Servers and clients for tests.

pub mod authz;
pub mod fixture;
mod freeze;
pub mod page;
pub mod redis;
pub mod scripted;
pub mod world;
