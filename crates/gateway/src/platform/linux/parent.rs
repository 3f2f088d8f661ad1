//! Decides what happens to this process when its parent ends, also by SIGKILL: the kernel sends it
//! a signal.

use std::io;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Asks the kernel to send `signal` to this process when `parent` ends; fails if it has ended
/// already. To be called by the main thread, which lives as long as the process.
pub(super) fn end_with(parent: u32, signal: Signal) -> io::Result<()> {
    set_parent_process_death_signal(Some(signal))?;
    // A parent that died before the death signal was set sends none: the changed parent pid shows
    // it.
    let is_orphan = getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent.cast_signed());
    if is_orphan { Err(io::Error::other("its parent is gone")) } else { Ok(()) }
}
