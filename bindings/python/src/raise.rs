//! Decides which exception Python raises when the library itself ends a call.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use seawall::{Cause, ChainError, CircuitOpen, Failure};

static CIRCUIT_OPEN: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static TIMED_OUT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static EXHAUSTED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static STOPPED: PyOnceLock<Py<PyType>> = PyOnceLock::new();

fn class<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyType>>,
    name: &str,
) -> PyResult<&'py Bound<'py, PyType>> {
    cell.import(py, "seawall._errors", name)
}

fn raised(made: PyResult<Bound<'_, PyAny>>) -> PyErr {
    made.map_or_else(|error| error, PyErr::from_value)
}

/// The exception itself, with its traceback.
pub(crate) fn again(py: Python<'_>, exception: &Py<PyAny>) -> PyErr {
    PyErr::from_value(exception.bind(py).clone())
}

/// A breaker refused the call.
pub(crate) fn circuit_open(py: Python<'_>, open: &CircuitOpen) -> PyErr {
    open_for(py, &open.to_string(), &open.name, open.retry_after)
}

fn open_for(py: Python<'_>, message: &str, name: &str, retry_after: Duration) -> PyErr {
    raised(
        class(py, &CIRCUIT_OPEN, "CircuitOpenError")
            .and_then(|class| class.call1((message, name, retry_after.as_secs_f64()))),
    )
}

/// The library ended the call: no attempt raised this.
pub(crate) fn own(py: Python<'_>, name: &str, failure: &Failure) -> PyErr {
    match failure.cause {
        Cause::CircuitOpen | Cause::Unavailable => {
            open_for(py, &failure.message, name, failure.retry_after.unwrap_or_default())
        }
        _ => raised(
            class(py, &TIMED_OUT, "AttemptTimeout")
                .and_then(|class| class.call1((&failure.message,))),
        ),
    }
}

/// No step of a chain returned a value. `last` is what the last attempt raised.
pub(crate) fn chain(py: Python<'_>, error: &ChainError, last: Option<&Py<PyAny>>) -> PyErr {
    let raised = match error {
        ChainError::Exhausted { warnings, attempts, .. } => raised(
            class(py, &EXHAUSTED, "FallbackExhaustedError")
                .and_then(|class| class.call1((error.to_string(), warnings, attempts))),
        ),
        ChainError::Stopped { step, warnings, attempts, .. } => raised(
            class(py, &STOPPED, "FallbackStoppedError")
                .and_then(|class| class.call1((error.to_string(), step, warnings, attempts))),
        ),
    };
    if let Some(last) = last {
        raised.set_cause(py, Some(again(py, last)));
    }
    raised
}
