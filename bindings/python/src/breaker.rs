//! Decides nothing: binds the library's circuit breakers.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use seawall::{Breaker, BreakerPolicy, BreakerStatus, Env, GuardedError};

use crate::raise;
use crate::run::{Run, attempt};
use crate::value::{refused, seconds};

/// Circuit breakers by name, under one policy.
#[pyclass(frozen, module = "seawall._core")]
pub(crate) struct CircuitBreaker(seawall::CircuitBreaker);

impl CircuitBreaker {
    pub(crate) fn breaker(&self, name: &str) -> Arc<Breaker> {
        self.0.breaker(name)
    }
}

#[pymethods]
impl CircuitBreaker {
    #[new]
    fn new(failures: u32, cooldown: f64, probes: u32, successes: u32) -> PyResult<Self> {
        let cooldown = seconds("cooldown_s", cooldown)?;
        let policy = BreakerPolicy { probes, successes, ..BreakerPolicy::new(failures, cooldown) };
        seawall::CircuitBreaker::new(policy, &Env::new()).map(Self).map_err(refused)
    }

    /// One call under the breaker called `name`.
    fn run(&self, name: &str) -> Run {
        let breaker = self.0.breaker(name);
        Run::new(async move {
            match breaker.call(|| attempt(|py| Ok(py.None()))).await {
                Ok(value) => Ok(value),
                Err(GuardedError::Open(open)) => {
                    Err(Python::attach(|py| raise::circuit_open(py, &open)))
                }
                Err(GuardedError::Failed(raised)) => {
                    Err(Python::attach(|py| raise::again(py, &raised.exception)))
                }
            }
        })
    }

    /// The state of one breaker, or nothing if no call has used its name.
    fn status<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.0.status(name).map(|snapshot| shown(py, &snapshot)).transpose()
    }

    /// The state of every breaker.
    fn all_status(&self) -> HashMap<String, &'static str> {
        let states = self.0.all_status().into_iter();
        states.map(|(name, status)| (name.to_string(), word(status))).collect()
    }

    /// Closes the breaker called `name`; `false` if there is none.
    fn reset(&self, name: &str) -> bool {
        self.0.reset(name)
    }
}

/// A breaker's state as `seawall.BreakerStatus` takes it.
pub(crate) fn shown<'py>(
    py: Python<'py>,
    snapshot: &seawall::BreakerSnapshot,
) -> PyResult<Bound<'py, PyDict>> {
    let shown = PyDict::new(py);
    shown.set_item("status", word(snapshot.status))?;
    shown.set_item("failures", snapshot.failures)?;
    shown.set_item("trips", snapshot.trips)?;
    shown.set_item("retry_after_s", snapshot.remaining.map(|left| left.as_secs_f64()))?;
    Ok(shown)
}

pub(crate) fn word(status: BreakerStatus) -> &'static str {
    match status {
        BreakerStatus::Closed => "closed",
        BreakerStatus::Open => "open",
        BreakerStatus::HalfOpen => "half_open",
    }
}
