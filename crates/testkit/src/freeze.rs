//! Stops a child process where it is, and lets it go on: connections are taken by the kernel, and
//! nobody answers.

use std::io;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::process::Child;

/// Stops the process, and returns once all its threads have stopped: until then one of them might
/// still answer.
pub(crate) fn freeze(child: &Child) -> io::Result<()> {
    let id = id(child)?;
    kill_process(id, Signal::STOP)?;
    waitid(WaitId::Pid(id), WaitIdOptions::STOPPED)?;
    Ok(())
}

/// Lets the process go on.
pub(crate) fn thaw(child: &Child) -> io::Result<()> {
    Ok(kill_process(id(child)?, Signal::CONT)?)
}

fn id(child: &Child) -> io::Result<Pid> {
    let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    id.ok_or_else(|| io::Error::other("the program has ended"))
}
