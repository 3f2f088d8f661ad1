//! Between the eras: a legacy client and a modern server, or the other way round, as if they spoke
//! the same.
//!
//! `to_modern` and `to_legacy` translate a call and its answer; `subscribe` does it for what
//! servers say by themselves; `park` holds a call whose server wants to know something; `pool`
//! holds the conversations of stateless clients.

pub(crate) mod input_required;
pub(crate) mod pool;
pub(crate) mod subscribe;
pub(crate) mod to_legacy;
pub(crate) mod to_modern;
