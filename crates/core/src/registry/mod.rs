//! Decides what is remembered between calls: about servers, about tools, and about writes that
//! wait.

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
