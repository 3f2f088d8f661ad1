//! Decides which state lives between calls: of servers, of tools, and of queued writes.

pub(crate) mod durable;
mod memory;
mod rest;
pub(crate) mod server;
pub(crate) mod tool;
mod writes;

pub use memory::MemoryQueue;
pub use server::Server;
pub use tool::Tool;

use std::sync::{self, atomic};
