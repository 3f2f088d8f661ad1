//! Any Unix: the watcher knows the process groups of the servers, and ends them when the gateway is
//! gone. What left its group is not found.

mod groups;
mod parent;

use std::io;
use std::path::PathBuf;

use rustix::event::PollFlags;

pub(super) use self::groups::{NotedGroup as Tie, end_left, tie_to};
pub(crate) use self::parent::end_with;
pub(crate) use super::unknown_holder::{lock_holder, port_holder};

/// A pipe hangs up. A socket does when both its directions are closed.
pub(super) const HALF_CLOSED: PollFlags = PollFlags::empty();

/// This program. After an update, it is the new version.
pub(super) fn own_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// The watcher of a killed gateway has ended what was left: nothing tells the others apart.
pub(crate) async fn end_orphans() {}
