//! Decides nothing: binds how an agent loads its servers, and the lines about those that failed.

use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use seawall::{
    Backoff, Cause, ConnectServer, DeniedText, Disposition, Failure, FailureSignals, LoadOptions,
    LoadReport, ServerOutcome, load_tools,
};

use crate::run::{Run, attempt};
use crate::value::{refused, seconds};

/// Whether a server that failed to load with this text is `transient`, `permanent` or `denied`. An
/// explicit status outranks one in the text; an ambiguous 403 is a denial.
#[pyfunction]
#[pyo3(signature = (error_msg, status_code = None))]
pub(crate) fn classify_load_error(error_msg: &str, status_code: Option<u16>) -> &'static str {
    word(seawall::classify_load_error(error_msg, status_code))
}

fn word(disposition: Disposition) -> &'static str {
    match disposition {
        Disposition::Transient => "transient",
        Disposition::Permanent => "permanent",
        Disposition::Denied => "denied",
    }
}

/// Python connects to a server, and probes one whose error says nothing.
struct Connect;

impl ConnectServer<Py<PyAny>> for Connect {
    async fn connect(&self, server: &str) -> Result<Vec<Py<PyAny>>, FailureSignals> {
        let tools = attempt(|py| Ok(("connect", server).into_pyobject(py)?.into_any().unbind()));
        let tools = tools.await.map_err(|raised| raised.signals)?;
        Python::attach(|py| tools.extract(py)).map_err(|error: PyErr| error.to_string().into())
    }

    async fn probe(&self, server: &str) -> Option<FailureSignals> {
        let probe = attempt(|py| Ok(("probe", server).into_pyobject(py)?.into_any().unbind()));
        probe.await.err().map(|raised| raised.signals)
    }
}

/// Loads all servers at once; ends with one `(server, status, tools, error, attempts)` for each.
#[pyfunction]
pub(crate) fn load(
    servers: Vec<String>,
    attempts: u32,
    base: f64,
    attempt_timeout: f64,
    timeout: f64,
) -> PyResult<Run> {
    let base = seconds("base_backoff_s", base)?;
    let options = LoadOptions {
        attempts,
        backoff: Backoff { base, max: base.max(Backoff::LOAD.max), ..Backoff::LOAD },
        attempt_timeout: seconds("attempt_timeout_s", attempt_timeout)?,
        timeout: seconds("timeout_s", timeout)?,
        ..LoadOptions::default()
    };
    options.validate().map_err(refused)?;
    Ok(Run::new(async move {
        let report = load_tools(servers, &Connect, &options).await.map_err(refused)?;
        Python::attach(|py| {
            let outcomes: Vec<_> = report.outcomes.into_iter().map(outcome).collect();
            Ok(outcomes.into_pyobject(py)?.into_any().unbind())
        })
    }))
}

type Outcome = (String, &'static str, Vec<Py<PyAny>>, Option<String>, u32);

fn outcome(outcome: ServerOutcome<Py<PyAny>>) -> Outcome {
    let (status, error, attempts) = (outcome.status(), outcome.error(), outcome.attempts);
    (outcome.server_id, status, outcome.result.unwrap_or_default(), error, attempts)
}

/// The lines about servers that did not load, for the model's prompt and for the user.
#[pyfunction]
pub(crate) fn load_warnings(
    failed_servers: Vec<String>,
    failed_errors: HashMap<String, String>,
    failed_status: HashMap<String, String>,
    legacy_denied_text: bool,
) -> PyResult<(Vec<String>, Vec<String>)> {
    let outcomes = failed_servers.into_iter().map(|server_id| {
        let disposition = match failed_status.get(&server_id).map(String::as_str) {
            Some("transient") => Disposition::Transient,
            Some("denied") => Disposition::Denied,
            Some("permanent") | None => Disposition::Permanent,
            Some(other) => {
                return Err(PyValueError::new_err(format!(
                    "the status of {server_id} must be transient, permanent or denied, not {other:?}"
                )));
            }
        };
        let message = failed_errors.get(&server_id).cloned().unwrap_or_default();
        let failure = Failure { disposition, ..Failure::local(Cause::Misbehaved, None, message) };
        Ok(ServerOutcome::<()> { server_id, result: Err(failure), attempts: 1 })
    });
    let report = LoadReport { outcomes: outcomes.collect::<PyResult<_>>()? };
    let denied = if legacy_denied_text { DeniedText::Legacy } else { DeniedText::Diagnostic };
    let warnings = report.warnings_with(denied);
    Ok((warnings.prompt, warnings.streamed))
}
