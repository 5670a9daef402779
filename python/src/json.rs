//! Values between Python and the job library, by way of JSON text and Python's own `json`.
//!
//! Invariant: what goes in is bounded by [`TEXT_BYTES_MAX`] and by both parsers' limits on depth; what is no JSON
//! (NaN, a set, a cycle) is refused by Python in its own words.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;
use serde_json::Value;

/// The most bytes of one value from Python.
const TEXT_BYTES_MAX: usize = pumice_jobs::manifest::MANIFEST_BYTES_MAX as usize;

/// A value of ours as Python's dictionaries, lists and so on.
pub fn to_python<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value).map_err(|error| PyValueError::new_err(error.to_string()))?;
    py.import("json")?.call_method1("loads", (text,))
}

/// A Python value as JSON.
pub fn from_python(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let py = value.py();
    let options = PyDict::new(py);
    options.set_item("allow_nan", false)?;
    let text: String = py.import("json")?.call_method("dumps", (value,), Some(&options))?.extract()?;
    if text.len() > TEXT_BYTES_MAX {
        return Err(PyValueError::new_err(format!("{} bytes as JSON; at most {TEXT_BYTES_MAX} go", text.len())));
    }
    serde_json::from_str(&text).map_err(|error| PyValueError::new_err(error.to_string()))
}
