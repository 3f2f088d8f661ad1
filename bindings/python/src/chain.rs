//! Decides nothing: binds the library's fallback chain.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use seawall::{RetryPolicy, Step};

use crate::raise;
use crate::retry::{backoff, effect_named};
use crate::run::{Run, attempt};
use crate::value::{Value, refused, seconds};

/// Steps that are tried in order, each behind its own breaker.
#[pyclass(frozen, module = "seawall._core")]
pub(crate) struct FallbackChain(Arc<seawall::FallbackChain<Value>>);

tokio::task_local! {
    /// What the last failed attempt of the running call raised.
    static LAST: Arc<Mutex<Option<Py<PyAny>>>>;
}

#[pymethods]
impl FallbackChain {
    #[new]
    fn new(
        steps: Vec<String>,
        effect: &str,
        attempts: u32,
        base: f64,
        timeout: f64,
    ) -> PyResult<Self> {
        let steps = steps.into_iter().enumerate().map(|(place, name)| step(place, name)).collect();
        let backoff = backoff(base, base.max(5.0), 0.2)?;
        let chain = seawall::FallbackChain::new(steps)
            .and_then(|chain| chain.timeout(seconds("timeout_s", timeout).unwrap_or_default()))
            .map_err(refused)?;
        let chain = chain
            .retry(RetryPolicy::new(attempts, backoff), effect_named(effect)?)
            .map_err(refused)?;
        Ok(Self(Arc::new(chain)))
    }

    /// One call; its attempts get the place of their step, from 0.
    fn run(&self) -> Run {
        let chain = Arc::clone(&self.0);
        let last = Arc::new(Mutex::new(None));
        Run::new(async move {
            let result = LAST.scope(Arc::clone(&last), chain.run()).await;
            Python::attach(|py| match result {
                Ok(chained) => {
                    let took = chained.total_duration.as_secs_f64();
                    let (value, step) = (chained.value.get(py), chained.final_step);
                    let parts = (value, step, chained.attempts, took, chained.warnings);
                    Ok(parts.into_pyobject(py)?.into_any().unbind())
                }
                Err(error) => {
                    let last = last.lock().unwrap_or_else(PoisonError::into_inner);
                    Err(raise::chain(py, &error, last.as_ref()))
                }
            })
        })
    }
}

fn step(place: usize, name: String) -> Step<Value> {
    Step::new(name, move || {
        let running = attempt(|py| Ok(place.into_pyobject(py)?.into_any().unbind()));
        async move {
            running.await.map(Value::new).map_err(|raised| {
                let _ = LAST.try_with(|last| {
                    *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(raised.exception);
                });
                raised.signals
            })
        }
    })
}
