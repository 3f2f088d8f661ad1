//! Decides how many file descriptors the process may open: as many as the system allows, because
//! every connection and every child needs some.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The gateway needs no more descriptors than this.
const MOST: u64 = 65_536;

/// Raises the soft limit, which the shell set, to the system's hard limit.
pub fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(MOST, |most| most.min(MOST));
    if limit.current.is_some_and(|now| now < wanted) {
        let _stays = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}
