//! Decides nothing: binds the library's retry.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use seawall::{Backoff, Effect, GaveUp, Jitter, LimitedRetry, RetryPolicy, ToolFacts};

use crate::breaker::CircuitBreaker;
use crate::raise;
use crate::run::{Ended, Run, attempt};
use crate::signals::Raised;
use crate::value::{refused, seconds};

/// How work of one effect is retried.
#[pyclass(frozen, module = "seawall._core")]
pub(crate) struct Retry {
    limited: LimitedRetry,
    breaker: String,
}

#[pymethods]
impl Retry {
    #[new]
    #[pyo3(signature = (effect, attempts, base, max, jitter, timeout, attempt_timeout, breaker))]
    #[expect(clippy::too_many_arguments, reason = "the settings, by their names in Python")]
    fn new(
        effect: &str,
        attempts: u32,
        base: f64,
        max: f64,
        jitter: f64,
        timeout: Option<f64>,
        attempt_timeout: Option<f64>,
        breaker: Option<(PyRef<'_, CircuitBreaker>, String)>,
    ) -> PyResult<Self> {
        let policy = RetryPolicy::new(attempts, backoff(base, max, jitter)?);
        let retry = seawall::Retry::new(effect_named(effect)?).policy(policy).map_err(refused)?;
        let mut limited = LimitedRetry::from(retry);
        if let Some(timeout) = timeout {
            limited = limited.timeout(seconds("timeout_s", timeout)?).map_err(refused)?;
        }
        if let Some(timeout) = attempt_timeout {
            let timeout = seconds("attempt_timeout_s", timeout)?;
            limited = limited.attempt_timeout(timeout).map_err(refused)?;
        }
        let mut name = String::new();
        if let Some((breakers, of)) = breaker {
            limited = limited.breaker(breakers.breaker(&of));
            name = of;
        }
        Ok(Self { limited, breaker: name })
    }

    /// A call that is retried. Its attempts get their number.
    fn run(&self) -> Run {
        let (retry, breaker) = (self.limited.clone(), self.breaker.clone());
        Run::new(async move {
            let work =
                |number: u32| attempt(|py| Ok(number.into_pyobject(py)?.into_any().unbind()));
            match retry.call(work).await {
                Ok(retried) => Ok(retried.value),
                Err(gave_up) => failed(&breaker, &gave_up),
            }
        })
    }
}

/// The last exception itself where an attempt raised one.
fn failed(breaker: &str, gave_up: &GaveUp<Option<Raised>>) -> Ended {
    Python::attach(|py| {
        Err(match &gave_up.error {
            Some(raised) => raise::again(py, &raised.exception),
            None => raise::own(py, breaker, &gave_up.failure),
        })
    })
}

/// The effect that a function's name tells, as it would a tool's.
#[pyfunction]
pub(crate) fn effect_by_name(name: &str) -> &'static str {
    match ToolFacts::named(name).effect() {
        Effect::ReadOnly => "read_only",
        Effect::Idempotent => "idempotent",
        Effect::Write => "write",
        Effect::Destructive => "destructive",
    }
}

pub(crate) fn effect_named(name: &str) -> PyResult<Effect> {
    Ok(match name {
        "read_only" => Effect::ReadOnly,
        "idempotent" => Effect::Idempotent,
        "write" => Effect::Write,
        "destructive" => Effect::Destructive,
        _ => {
            return Err(PyValueError::new_err(format!(
                "effect must be read_only, idempotent, write or destructive, not {name:?}"
            )));
        }
    })
}

pub(crate) fn backoff(base: f64, max: f64, jitter: f64) -> PyResult<Backoff> {
    Ok(Backoff {
        base: seconds("base_backoff_s", base)?,
        max: seconds("max_backoff_s", max)?,
        jitter: if jitter == 0.0 { Jitter::None } else { Jitter::Additive(jitter) },
        clamp: false,
    })
}
