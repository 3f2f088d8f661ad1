//! One small process that outlives the gateway by a moment: what a killed gateway leaves behind
//! ends at once, and not when the next gateway starts.
//!
//! Children die with their gateway by themselves; what they started does not. The watcher holds the
//! end of a pipe whose other end only the gateway has. When the gateway is gone, however it went,
//! the watcher ends whatever carries its mark.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use super::orphans;

/// The hidden command, and how it is told that it is the watcher itself.
pub(crate) const COMMAND: &str = "watch-gateway";
const DETACHED: &str = "--detached";

/// Held for as long as the gateway lives.
static ALIVE: OnceLock<Option<ChildStdin>> = OnceLock::new();

/// Starts the watcher, once; a gateway without one leaves its leftovers to the next.
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
        // The one that was started only starts the other, so that the watcher is nobody's child.
        std::thread::spawn(move || child.wait());
        alive
    });
}

/// Is the watcher: waits until its gateway is gone, then ends what that left behind.
pub(crate) fn watch(is_detached: bool) -> io::Result<()> {
    if !is_detached {
        let mut process = Command::new("/proc/self/exe");
        return process.args([COMMAND, DETACHED]).process_group(0).spawn().map(drop);
    }
    let mut nothing = [0; 64];
    while io::stdin().lock().read(&mut nothing)? > 0 {}
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(orphans::sweep());
    Ok(())
}
