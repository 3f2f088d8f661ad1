//! Seawall's gateway: what stands between MCP clients and MCP servers.

pub mod ops;
pub mod wire;
