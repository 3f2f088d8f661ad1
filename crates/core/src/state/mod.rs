//! Decides what is remembered between calls: about servers, about tools, and about writes that wait.

pub(crate) mod durable;
mod memory;
pub(crate) mod names;
pub(crate) mod server;
pub(crate) mod tool;

pub use memory::MemoryQueue;
pub use server::Server;
pub use tool::Tool;
