//! Decides what happens to this process when its parent ends, also by SIGKILL: a thread looks, and
//! sends it SIGTERM.

use std::io;
use std::time::Duration;

use rustix::process::{Signal, getpid, getppid, kill_process};

/// How often the thread looks.
const LOOK: Duration = Duration::from_millis(200);

/// Ends this process as by SIGTERM when `parent` ends; fails if it has ended already.
#[expect(clippy::disallowed_methods, reason = "it looks at the system, in time that no test moves")]
pub(crate) fn end_with(parent: u32) -> io::Result<()> {
    // The system gives a process whose parent has ended to another parent.
    let is_there =
        move || getppid().map(|pid| pid.as_raw_nonzero().get()) == Some(parent.cast_signed());
    if !is_there() {
        return Err(io::Error::other("its parent is gone"));
    }
    std::thread::Builder::new().name("parent".to_owned()).spawn(move || {
        while is_there() {
            std::thread::sleep(LOOK);
        }
        let _sent = kill_process(getpid(), Signal::TERM);
    })?;
    Ok(())
}
