//! Seawall's gateway: stands between MCP clients and MCP servers, loses nothing, and speaks both eras of the protocol.
//!
//! Read [`dispatch`] first: it is the path of a call. `accept` is where clients come in, `catalog` finds the server,
//! `bridge` speaks the other era, `upstream` is the way to the servers, `wire` is the messages themselves. What is not
//! on that path is in `ops`.

pub mod accept;
pub mod answer;
pub mod bridge;
pub mod call;
pub mod calls;
pub mod carry;
pub mod catalog;
pub mod client_limits;
pub mod detached;
pub mod dispatch;
pub mod gateway;
pub mod ops;
pub mod policies;
pub mod queue;
pub mod resources;
pub mod results;
pub mod served;
pub mod session;
pub mod upstream;
pub mod watched;
pub mod wire;
