//! Decides how JSON-RPC messages are handled on the wire: kept as the bytes they came in, scanned
//! once, changed by splicing, never rebuilt.
//!
//! `limits` holds the size and time limits, `budget` the memory shared by all clients. `scan` finds
//! the parts of a message, `message` gives them their meaning, and `outline` finds the id of input
//! that is not a valid message. `edit` changes messages, `build` writes the few messages of the
//! gateway itself, `lines` and `sse` frame them, and `header` mirrors them into HTTP headers.

pub(crate) mod arguments;
pub(crate) mod budget;
pub(crate) mod build;
pub(crate) mod content;
pub(crate) mod edit;
pub(crate) mod hash;
pub(crate) mod header;
pub(crate) mod id;
pub(crate) mod limits;
pub(crate) mod lines;
pub(crate) mod message;
pub(crate) mod names;
pub(crate) mod outline;
pub(crate) mod pieces;
pub(crate) mod scan;
pub(crate) mod server_info;
pub(crate) mod sse;

pub(crate) use id::Id;
pub(crate) use message::{Message, MessageKind};
pub(crate) use outline::Outline;
pub(crate) use scan::{Reject, Span};

#[cfg(test)]
mod tests;
