//! The lists of servers: `listed` and `schema` read the definition of a tool, `quarantine` leaves
//! out tools that no client can read, `drift` names the changes between two lists, `names` gives
//! entries their public names, `uri_template` finds the template of a URI, and `cached_lists`
//! compares lists with the cached ones.

pub(crate) mod cached_lists;
pub(crate) mod drift;
pub(crate) mod listed;
pub(crate) mod names;
pub(crate) mod quarantine;
pub(crate) mod schema;
pub(crate) mod uri_template;
