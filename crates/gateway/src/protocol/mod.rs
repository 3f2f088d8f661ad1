//! The wire: JSON-RPC messages as the bytes they came in, read once, changed by splicing, never
//! rebuilt.
//!
//! `limits` says how much is too much, `budget` how much of it at once; `scan` finds the parts,
//! `message` knows what they mean, `outline` tells what it can of what is no message; `edit`
//! changes them, `build` writes the few messages that are our own; `lines` and `sse` frame them;
//! `header` mirrors them into HTTP.

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
