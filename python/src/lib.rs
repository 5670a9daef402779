//! `pumice._core`: the job library for Python. Wiring only; what it does is in `pumice-jobs`.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bundle;
mod connection;
mod days;
mod errors;
mod json;
mod messages;
mod render;
mod runtime;
mod stream;

use std::time::Duration;

use pyo3::prelude::*;

/// The job library of `jobctl`, for Python. The types are in `_core.pyi`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<connection::Connection>()?;
    module.add_class::<stream::Stream>()?;
    module.add_function(wrap_pyfunction!(connection::bring_up, module)?)?;
    module.add_class::<bundle::BundleSlice>()?;
    module.add_class::<bundle::BundleResults>()?;
    module.add_class::<bundle::BundleRows>()?;
    module.add_function(wrap_pyfunction!(bundle::write_bundle, module)?)?;
    module.add_function(wrap_pyfunction!(render::render, module)?)?;
    module.add_function(wrap_pyfunction!(render::link_notes, module)?)?;
    module.add_function(wrap_pyfunction!(days::days, module)?)?;
    errors::add_to(module)
}

/// Seconds as Python counts them.
fn seconds(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| errors::misuse(py, "a timeout is a number of seconds, 0 or more, and None for no timeout"))
}
