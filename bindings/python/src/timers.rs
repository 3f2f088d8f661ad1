//! Decides which thread watches the clock: one for the whole process, started on first use.
//!
//! The library waits with tokio's timers. This thread only turns them; every future is polled on
//! the thread of its Python caller.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle};

/// Taken only while the interpreter is attached, so that no other thread holds it in a fork.
static TIMERS: Mutex<Option<Handle>> = Mutex::new(None);

/// The runtime whose timers the library uses.
pub(crate) fn handle() -> PyResult<Handle> {
    let mut timers = TIMERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*timers {
        return Ok(handle.clone());
    }
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("seawall-timers".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    *timers = Some(handle.clone());
    Ok(handle)
}

/// A forked child has no timer thread; its first call starts one.
#[pyfunction]
pub(crate) fn after_fork() {
    *TIMERS.lock().unwrap_or_else(PoisonError::into_inner) = None;
}
