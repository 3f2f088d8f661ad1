//! Translates between the eras, so that a legacy client can use a modern server, and a modern
//! client a legacy server.
//!
//! `to_modern` and `to_legacy` translate a call and its answer; `subscribe` translates
//! notifications that servers send by themselves; `input_required` parks a call whose server asks a
//! question; `pool` holds the connections of stateless clients.

pub(crate) mod input_required;
pub(crate) mod pool;
pub(crate) mod subscribe;
pub(crate) mod to_legacy;
pub(crate) mod to_modern;
