//! A small process that outlives the gateway by a moment: the orphans of a killed gateway end at
//! once, and not when the next gateway starts.
//!
//! Children die with their gateway by themselves; the processes that they started do not. The
//! watcher holds the reading end of a pipe whose writing end only the gateway has. When the gateway
//! is gone, also by SIGKILL, the watcher ends every process with its mark.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use super::orphans;

/// The hidden command; the flag makes the process the watcher itself.
pub(crate) const COMMAND: &str = "watch-gateway";
const DETACHED: &str = "--detached";

/// The writing end of the pipe, held for as long as the gateway lives.
static ALIVE: OnceLock<Option<ChildStdin>> = OnceLock::new();

/// Starts the watcher, once; without a watcher, the next gateway ends the orphans.
pub(crate) fn start(program: &Path) {
    ALIVE.get_or_init(|| {
        let mut process = Command::new(program);
        process
            .arg(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let mut child = process.spawn().ok()?;
        let alive = child.stdin.take();
        // This child only starts the watcher and exits, so that the watcher is no child of the
        // gateway.
        std::thread::spawn(move || child.wait());
        alive
    });
}

/// Runs the watcher: waits until its gateway is gone, then ends the orphans.
pub(crate) fn watch(is_detached: bool) -> io::Result<()> {
    if !is_detached {
        let mut process = Command::new("/proc/self/exe");
        return process.args([COMMAND, DETACHED]).process_group(0).spawn().map(drop);
    }
    let mut nothing = [0; 64];
    // The gateway never writes: the read returns when the kernel closes the gateway's end, even
    // after SIGKILL.
    while io::stdin().lock().read(&mut nothing)? > 0 {}
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(orphans::sweep());
    Ok(())
}
