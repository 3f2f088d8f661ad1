//! What servers list: `listed` reads it, `quarantine` leaves out what no client can read, `drift`
//! says what changed, `names` gives things public names, `missing` says who is not there.

pub mod cached_lists;
pub mod drift;
pub mod listed;
pub mod names;
pub mod quarantine;
pub mod schema;
