//! The life of a call, from the client that asked to the server and back. Read `dispatch` first.

pub mod client_limits;
pub mod detached;
pub mod dispatch;
pub mod execute;
pub mod fallback;
pub mod idle_timeout;
pub mod reply;
pub mod resources;
pub mod results;
