//! `bring_up`: a platform for who has none yet, as `jobctl run` starts it.

use std::path::PathBuf;

use pumice_jobs::platform::target::{Environment, Flags};
use pumice_jobs::platform::{autostart, contexts};
use pyo3::prelude::*;

use crate::errors::exception;

/// Brings up the platform of this machine where nothing names another and none runs; gives the line that says so.
#[pyfunction]
#[pyo3(signature = (beside=None))]
pub fn bring_up(py: Python<'_>, beside: Option<PathBuf>) -> PyResult<Option<String>> {
    let environment = Environment::read(|name| std::env::var_os(name));
    let (target, _) = contexts::resolve(Flags::default(), &environment).map_err(|error| exception(py, error, None))?;
    py.detach(|| autostart::ensure(&target, &environment, beside.as_deref()))
        .map_err(|error| exception(py, error, Some(&target)))
}
