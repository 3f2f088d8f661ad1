//! Descriptors: as many as the system lets us have, because every connection and every child needs
//! some.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than this is of no use to anybody.
const MOST: u64 = 65_536;

/// Raises the limit that the shell set to the one that the system sets.
pub fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(MOST, |most| most.min(MOST));
    if limit.current.is_some_and(|now| now < wanted) {
        let _stays = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}
