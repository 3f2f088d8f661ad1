//! A client: its session, the streams on which it hears, its calls under way.

pub mod caller;
pub mod calls;
pub mod client_limits;
pub mod detached;
pub mod event_id;
pub mod missing;
pub mod pending;
pub mod results;
pub mod server_set;
pub mod session;
pub mod stream;
