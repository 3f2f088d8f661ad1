//! What servers list: `listed` reads it, `quarantine` leaves out what no client can read, `drift`
//! says what changed, `names` gives things public names, `missing` says who is not there.

pub(crate) mod cached_lists;
pub(crate) mod drift;
pub(crate) mod listed;
pub(crate) mod names;
pub(crate) mod quarantine;
pub(crate) mod schema;
