//! Seawall's gateway: stands between MCP clients and MCP servers, loses nothing, and speaks both eras of the protocol.
//!
//! The folders are layers, in the order in which they stand here: a folder uses those above it. `call` is the life of a
//! call; read [`call::dispatch`] first.

pub mod protocol;

pub mod config;
pub mod runtime;
pub mod store;
pub mod upstream;

pub mod call;
pub mod catalog;
pub mod client;
pub mod gateway;
pub mod policy;
pub mod queue;
pub mod translate;

pub mod admin;
pub mod check;
pub mod cli;
pub mod demo;
pub mod frontend;
pub mod remote;
