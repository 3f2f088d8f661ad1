//! A small process that outlives the gateway by a moment: what a killed gateway leaves behind ends
//! at once, and not when the next gateway starts.
//!
//! The watcher holds the reading end of a pipe whose writing end only the gateway has. When the
//! gateway is gone, also by SIGKILL, the watcher ends what the system finds of its servers.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

use super::system;

/// The hidden command; the flag makes the process the watcher itself.
const COMMAND: &str = "watch-gateway";
const DETACHED: &str = "--detached";

/// Starts a watcher. Returns the writing end of its pipe, to be held as long as the gateway lives.
pub(super) fn start(program: &Path) -> Option<ChildStdin> {
    let mut process = Command::new(program);
    process.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = process.process_group(0).spawn().ok()?;
    let pipe = child.stdin.take();
    // This child only starts the watcher and exits, so that the watcher is no child of the gateway.
    std::thread::spawn(move || child.wait());
    pipe
}

/// Runs the watcher: waits until its gateway is gone, then ends what it left.
pub(crate) fn watch(is_detached: bool) -> io::Result<()> {
    if !is_detached {
        let mut process = Command::new(system::own_program()?);
        return process.args([COMMAND, DETACHED]).process_group(0).spawn().map(drop);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    // The pipe comes to its end when the kernel closes the gateway's, even after SIGKILL.
    runtime.block_on(system::end_left(io::stdin().lock()))
}
