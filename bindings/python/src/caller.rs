//! Decides nothing: binds the library's tool caller.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use seawall::{
    Annotations, Answer, Call, CallerOptions, FailureReport, FallbackBody, Outcome, Policy, Preset,
    Settings, TextStyle, ToolFacts, whole_seconds,
};

use crate::breaker::{shown, word};
use crate::retry::effect_named;
use crate::run::{Run, attempt};
use crate::value::{Value, error_text, refused, seconds, weigh};

/// Calls the tools of one server with all policies.
#[pyclass(frozen, module = "seawall._core")]
pub(crate) struct ToolCaller(Arc<seawall::ToolCaller<Value>>);

/// The settings of one tool that differ from its preset.
#[derive(FromPyObject, Default)]
struct Changes {
    effect: Option<String>,
    hints: Option<(Option<bool>, Option<bool>, Option<bool>)>,
    attempts: Option<u32>,
    base_backoff_s: Option<f64>,
    timeout_s: Option<f64>,
    attempt_timeout_s: Option<f64>,
    failures: Option<u32>,
    cooldown_s: Option<f64>,
    cache_s: Option<f64>,
}

#[pymethods]
impl ToolCaller {
    #[new]
    fn new(server: String, preset: &str) -> PyResult<Self> {
        let preset = match preset {
            "default" => Preset::Default,
            "blog" => Preset::Blog,
            "gitnexus" => Preset::Gitnexus,
            "caipe" => Preset::Caipe,
            _ => return Err(PyValueError::new_err(format!("there is no preset {preset:?}"))),
        };
        let settings = Settings { error_text, style: preset.style(), ..Settings::new(weigh) };
        let options = CallerOptions { server, preset, ..CallerOptions::default() };
        let caller = seawall::ToolCaller::with_options(settings, options).map_err(refused)?;
        Ok(Self(Arc::new(caller)))
    }

    /// Sets the policy of a tool: what its name and hints tell, then the changes.
    fn tool(&self, name: &str, changes: Changes) -> PyResult<()> {
        let mut facts = ToolFacts::named(name);
        if let Some(effect) = &changes.effect {
            facts.effect = Some(effect_named(effect)?);
        }
        if let Some((read_only_hint, destructive_hint, idempotent_hint)) = changes.hints {
            facts.annotations = Annotations { read_only_hint, destructive_hint, idempotent_hint };
        }
        let mut adjusted = Ok(());
        let adjust = |policy: &mut Policy| adjusted = changes.adjust(policy);
        self.0.tool(facts, adjust).map_err(refused)?;
        adjusted
    }

    /// One call. Its attempts get `(number, tool, arguments, timeout)`.
    fn run(
        &self,
        tool: String,
        arguments: &Bound<'_, PyAny>,
        caller: Option<&str>,
        session: Option<&str>,
    ) -> PyResult<Run> {
        let arguments: serde_json::Value = pythonize::depythonize(arguments)
            .map_err(|error| PyTypeError::new_err(format!("arguments must be JSON: {error}")))?;
        let call = Call::new(arguments)
            .by(caller.unwrap_or_default())
            .in_session(session.unwrap_or_default());
        let tools = Arc::clone(&self.0);
        Ok(Run::new(async move {
            let send = |made: seawall::Attempt| {
                let running = attempt(|py| {
                    let arguments = pythonize::pythonize(py, &*made.arguments)?;
                    let asked = (made.number, made.tool(), arguments, made.timeout.as_secs_f64());
                    Ok(asked.into_pyobject(py)?.into_any().unbind())
                });
                async move { running.await.map(Value::new).map_err(|raised| raised.signals) }
            };
            let answer = tools.call(&tool, call, send).await;
            Python::attach(|py| Ok(told(py, &answer)?.into_any().unbind()))
        }))
    }

    /// The state of a tool's breaker, or nothing if the tool is not known.
    fn breaker_status<'py>(
        &self,
        py: Python<'py>,
        tool: &str,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.0.breaker_status(tool).map(|snapshot| shown(py, &snapshot)).transpose()
    }

    /// The state of every known tool's breaker.
    fn all_breaker_status(&self) -> HashMap<String, &'static str> {
        let states = self.0.all_breaker_status().into_iter();
        states.map(|(name, status)| (name.to_string(), word(status))).collect()
    }

    /// Closes a tool's breaker; `false` if there is none.
    fn reset_breaker(&self, tool: &str) -> bool {
        self.0.reset_breaker(tool)
    }
}

impl Changes {
    fn adjust(&self, policy: &mut Policy) -> PyResult<()> {
        if let Some(attempts) = self.attempts {
            policy.retry.attempts = attempts;
        }
        if let Some(base) = self.base_backoff_s {
            policy.retry.backoff.base = seconds("base_backoff_s", base)?;
        }
        if let Some(timeout) = self.timeout_s {
            policy.timeout = seconds("timeout_s", timeout)?;
        }
        if let Some(timeout) = self.attempt_timeout_s {
            policy.attempt_timeout = Some(seconds("attempt_timeout_s", timeout)?);
        }
        if let (Some(failures), Some(breaker)) = (self.failures, &mut policy.breaker) {
            breaker.failures = failures;
        }
        if let (Some(cooldown), Some(breaker)) = (self.cooldown_s, &mut policy.breaker) {
            breaker.cooldown = seawall::Cooldown::fixed(seconds("cooldown_s", cooldown)?);
        }
        if let Some(fresh) = self.cache_s {
            policy.cache.fresh = Some(seconds("cache_s", fresh)?);
        }
        Ok(())
    }
}

/// An answer as `seawall.Answer` takes it.
fn told<'py>(py: Python<'py>, answer: &Answer<Value>) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    told.set_item("value", answer.value().map(|value| value.get(py)))?;
    told.set_item("tool", &*answer.tool)?;
    told.set_item("attempts", answer.attempts)?;
    told.set_item("elapsed_s", answer.elapsed.as_secs_f64())?;
    told.set_item("warnings", &answer.warnings)?;
    told.set_item("final_step", answer.final_step())?;
    match &answer.outcome {
        Outcome::Live(_) => {}
        Outcome::ToolError(error) => told.set_item("report", report(py, &error.report)?)?,
        Outcome::Served(served) => {
            told.set_item("served_by", &served.by)?;
            told.set_item("note", &served.note)?;
            told.set_item("age_s", served.age.map(|age| age.as_secs_f64()))?;
            if let FallbackBody::Items(items) = &served.body {
                let items: Vec<_> =
                    items.iter().filter_map(|item| item.result.as_ref().ok()).collect();
                let values: Vec<_> = items.into_iter().map(|value| value.get(py)).collect();
                told.set_item("value", values)?;
            }
        }
        Outcome::Failed(failed) => told.set_item("report", report(py, failed)?)?,
    }
    Ok(told)
}

/// A failure as `seawall.FailureReport` takes it.
fn report<'py>(py: Python<'py>, report: &FailureReport) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    told.set_item("code", report.code.as_str())?;
    told.set_item("message", report.text(TextStyle::Plain))?;
    told.set_item("retryable", report.code.is_retryable())?;
    told.set_item("retry_after", report.retry_after.map(whole_seconds))?;
    told.set_item("attempts", report.attempts)?;
    told.set_item("may_have_executed", report.may_have_executed)?;
    Ok(told)
}
