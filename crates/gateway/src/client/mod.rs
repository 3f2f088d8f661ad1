//! Client-side state: a client's session, the streams it reads, its calls in flight.

pub(crate) mod caller;
pub(crate) mod calls;
pub(crate) mod client_limits;
pub(crate) mod detached;
pub(crate) mod event_id;
pub(crate) mod missing;
pub(crate) mod pending;
pub(crate) mod results;
pub(crate) mod server_set;
pub(crate) mod session;
pub(crate) mod stream;
