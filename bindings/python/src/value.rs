//! Decides how a Python object passes through the library: shared, weighed, and looked at for a
//! tool's own error.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

/// A Python object that the library may keep and hand out again.
#[derive(Clone)]
pub(crate) struct Value(Arc<Py<PyAny>>);

impl Value {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Self(Arc::new(object))
    }

    pub(crate) fn get(&self, py: Python<'_>) -> Py<PyAny> {
        self.0.clone_ref(py)
    }
}

/// Beyond this depth, and for objects of other types, an object counts as this many bytes.
const OPAQUE: usize = 256;
const DEPTH: u32 = 8;

/// The size of an answer in bytes, exact enough to bound a cache.
pub(crate) fn weigh(value: &Value) -> usize {
    Python::attach(|py| size(value.0.bind(py), DEPTH))
}

fn size(object: &Bound<'_, PyAny>, depth: u32) -> usize {
    if let Ok(text) = object.cast::<PyString>() {
        return text.len().unwrap_or(OPAQUE);
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return bytes.as_bytes().len();
    }
    if depth == 0 {
        return OPAQUE;
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        return dict.iter().map(|(key, held)| size(&key, 1) + size(&held, depth - 1)).sum();
    }
    if let Ok(list) = object.cast::<PyList>() {
        return list.iter().map(|held| size(&held, depth - 1)).sum();
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return tuple.iter().map(|held| size(&held, depth - 1)).sum();
    }
    let fields = object.getattr_opt("__dict__").ok().flatten();
    OPAQUE + fields.map_or(0, |fields| size(&fields, depth - 1))
}

/// The text of an answer that the tool marked as an error: an MCP result with `isError`.
pub(crate) fn error_text(value: &Value) -> Option<String> {
    Python::attach(|py| {
        let object = value.0.bind(py);
        let marked = match object.cast::<PyDict>() {
            Ok(dict) => dict.get_item("isError").ok().flatten(),
            Err(_) if object.is_instance_of::<PyString>() => None,
            Err(_) => object.getattr_opt("isError").ok().flatten(),
        };
        if !marked?.is_truthy().ok()? {
            return None;
        }
        let blocks = field(object, "content")?;
        let texts: Vec<String> = blocks
            .try_iter()
            .ok()?
            .filter_map(|block| field(&block.ok()?, "text")?.extract().ok())
            .collect();
        Some(texts.join("\n"))
    })
}

fn field<'py>(object: &Bound<'py, PyAny>, name: &str) -> Option<Bound<'py, PyAny>> {
    match object.cast::<PyDict>() {
        Ok(dict) => dict.get_item(name).ok().flatten(),
        Err(_) => object.getattr_opt(name).ok().flatten(),
    }
}

/// Seconds from Python as a duration; the policy that gets it refuses what makes no sense.
pub(crate) fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_| {
        pyo3::exceptions::PyValueError::new_err(format!("{name} must be a time in seconds"))
    })
}

/// A setting that the library refuses, as Python raises it.
pub(crate) fn refused(invalid: seawall::Invalid) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(invalid.to_string())
}
