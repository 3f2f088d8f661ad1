//! Linux: the kernel kills a server when its gateway dies, and a mark in the environment finds what
//! the server started, wherever it went.

mod holder;
mod marks;
mod parent;

use std::io::{self, Read};
use std::path::PathBuf;

use rustix::event::PollFlags;
use rustix::process::Signal;

pub(crate) use self::holder::{of_lock as lock_holder, of_port as port_holder};
pub(super) use self::marks::Mark as Tie;
pub(crate) use self::marks::sweep as end_orphans;

/// A pipe hangs up; a socket, which node gives to its children, tells it of one direction.
pub(super) const HALF_CLOSED: PollFlags = PollFlags::RDHUP;

/// This program: a name that outlives a new version of the file.
pub(super) fn own_program() -> io::Result<PathBuf> {
    Ok("/proc/self/exe".into())
}

/// Ends this process as by SIGTERM when its parent ends.
pub(crate) fn end_with(parent: u32) -> io::Result<()> {
    parent::end_with(parent, Signal::TERM)
}

/// Ends this process, which becomes a server, with its gateway.
pub(super) fn tie_to(gateway: u32) -> io::Result<()> {
    parent::end_with(gateway, Signal::KILL)
}

/// Waits until the gateway is gone, which never says anything, then ends what it left.
pub(super) async fn end_left(mut gateway: impl Read) -> io::Result<()> {
    let mut nothing = [0; 64];
    while gateway.read(&mut nothing)? > 0 {}
    marks::sweep().await;
    Ok(())
}
