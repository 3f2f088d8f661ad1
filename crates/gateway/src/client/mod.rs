//! A client: its session, the streams on which it hears, its calls under way.

pub mod caller;
pub mod calls;
pub mod event_id;
pub mod pending;
pub mod session;
pub mod stream;
