//! The native half of the Python package `seawall`: binds the library's front doors and decides
//! nothing itself.
//!
//! The library's futures run on the caller's own event loop or thread (`run`). Python makes the
//! attempts; Rust decides whether, when and how often.

mod breaker;
mod caller;
mod chain;
mod load;
mod raise;
mod retry;
mod run;
mod signals;
mod timers;
mod value;

use pyo3::prelude::*;

/// What the Python half imports.
#[pymodule]
mod _core {
    #[pymodule_export]
    use crate::breaker::CircuitBreaker;
    #[pymodule_export]
    use crate::caller::ToolCaller;
    #[pymodule_export]
    use crate::chain::FallbackChain;
    #[pymodule_export]
    use crate::load::{classify_load_error, load, load_warnings};
    #[pymodule_export]
    use crate::retry::{Retry, effect_by_name};
    #[pymodule_export]
    use crate::run::Run;
    #[pymodule_export]
    use crate::timers::after_fork;
}
