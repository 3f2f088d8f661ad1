//! The wire: JSON-RPC messages as the bytes they came in, read once, changed by splicing, never
//! rebuilt.
//!
//! `limits` says how much is too much, `budget` how much of it at once; `scan` finds the parts,
//! `message` knows what they mean, `outline` tells what it can of what is no message; `edit`
//! changes them, `build` writes the few messages that are our own; `lines` and `sse` frame them;
//! `header` mirrors them into HTTP.

pub mod arguments;
pub mod budget;
pub mod build;
pub mod content;
pub mod edit;
pub mod hash;
pub mod header;
pub mod id;
pub mod limits;
pub mod lines;
pub mod message;
pub mod names;
pub mod outline;
pub mod pieces;
pub mod scan;
pub mod server_info;
pub mod sse;

pub use id::Id;
pub use message::{Message, MessageKind};
pub use outline::Outline;
pub use scan::{Reject, Span};

#[cfg(test)]
mod tests;
