//! Moments of the history as Python's callers write them.

use jiff::Timestamp;
use pumice_jobs::history::when;
use pyo3::prelude::*;

use crate::errors::misuse;

/// Reads a moment, if one is given.
pub fn moment(py: Python<'_>, text: Option<&str>) -> PyResult<Option<Timestamp>> {
    text.map(|text| when::moment(text, now())).transpose().map_err(|error| refused(py, &error))
}

/// What is wrong with an argument.
pub fn refused(py: Python<'_>, error: &dyn std::fmt::Display) -> PyErr {
    misuse(py, &error.to_string())
}

#[allow(clippy::disallowed_methods, reason = "what is so long ago is so from now")]
fn now() -> Timestamp {
    Timestamp::now()
}
