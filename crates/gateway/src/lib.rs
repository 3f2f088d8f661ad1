//! Seawall's gateway: stands between MCP clients and MCP servers, loses no message, and speaks both
//! eras of the protocol.
//!
//! The folders are layers: `protocol`, `config`, `runtime`, `platform`, `trace`, `store`, `queue`,
//! `authz`, `upstream`, `client`, `translate`, `catalog`, `policy`, `route`, `call`, `gateway`,
//! `frontend`, `admin`, `check`, `remote`, `top`, `cli`. A folder uses only the folders before it.
//! `call` is the life of a call; read `call` first.

mod admin;
mod authz;
mod call;
mod catalog;
mod check;
pub mod cli;
mod client;
mod config;
mod fleet;
mod frontend;
mod gateway;
mod platform;
mod policy;
mod protocol;
pub mod queue;
mod reload;
mod remote;
mod route;
mod runtime;
mod store;
mod top;
mod trace;
mod translate;
mod upstream;

pub use config::{Config, StartupConfig, load as load_config, schema};
pub use protocol::names::Era;
pub use runtime::lifecycle::Lifecycle;
pub use runtime::{descriptors, http_client, log};
pub use upstream::call::{ClientSink, NoClient};
pub use upstream::handshake::HandshakeParams;
pub use upstream::status::Observations;
pub use upstream::{Connection, ConnectionSupervisor, Server, UpstreamFailure};
