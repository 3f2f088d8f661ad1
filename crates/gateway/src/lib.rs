//! Seawall's gateway: stands between MCP clients and MCP servers, loses nothing, and speaks both
//! eras of the protocol.
//!
//! The folders are layers: `protocol`, `config`, `runtime`, `store`, `upstream`, `client`,
//! `translate`, `catalog`, `policy`, `route`, `call`, `queue`, `gateway`, `frontend`, `admin`,
//! `check`, `remote`, `demo`, `cli`. A folder uses only those before it. `call` is the life of a
//! call; read [`call::dispatch`] first.

pub mod admin;
pub mod call;
pub mod catalog;
pub mod check;
pub mod cli;
pub mod client;
pub mod config;
pub mod demo;
pub mod frontend;
pub mod gateway;
pub mod policy;
pub mod protocol;
pub mod queue;
pub mod remote;
pub mod route;
pub mod runtime;
pub mod store;
pub mod translate;
pub mod upstream;
