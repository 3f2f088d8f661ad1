//! Decides which thread watches the clock: one for the whole process, started on first use.
//!
//! The library waits with tokio's timers. This thread only turns them; every future is polled on a
//! thread of node.

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

use tokio::runtime::{Builder, Handle};

static TIMERS: OnceLock<Handle> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());

/// The runtime whose timers the library uses.
pub(crate) fn handle() -> io::Result<&'static Handle> {
    if let Some(handle) = TIMERS.get() {
        return Ok(handle);
    }
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = TIMERS.get() {
        return Ok(handle);
    }
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("seawall-timers".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(TIMERS.get_or_init(|| handle))
}
