//! The job library's errors as Python's exceptions.
//!
//! Invariant: every exception of ours is a `CoreError` with the exit code `jobctl` would have ended with and, where
//! there is one, the next command.

use pumice_jobs::error::sentence;
use pumice_jobs::platform::next_command;
use pumice_jobs::platform::target::Target;
use pumice_jobs::{Error, Exit};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    pumice._core,
    CoreError,
    PyException,
    "What jobctl would have ended with; see exit_code and next_command."
);
create_exception!(pumice._core, UsageError, CoreError, "What was asked for is wrong in itself.");
create_exception!(pumice._core, NotFoundError, CoreError, "No such job or pod.");
create_exception!(pumice._core, DeniedError, CoreError, "Not allowed.");
create_exception!(pumice._core, UnreachableError, CoreError, "No answer; trying again makes sense.");
create_exception!(pumice._core, ConflictError, CoreError, "It exists already, or changed meanwhile.");
create_exception!(pumice._core, TimedOutError, CoreError, "The job has not ended in the time given.");

/// Adds the exceptions to the module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    for class in [
        py.get_type::<CoreError>(),
        py.get_type::<UsageError>(),
        py.get_type::<NotFoundError>(),
        py.get_type::<DeniedError>(),
        py.get_type::<UnreachableError>(),
        py.get_type::<ConflictError>(),
        py.get_type::<TimedOutError>(),
    ] {
        module.add(class.name()?, class)?;
    }
    // Also on the class, so that an exception somebody raises without them has both.
    let base = py.get_type::<CoreError>();
    base.setattr("exit_code", Exit::JobFailed.code())?;
    base.setattr("next_command", py.None())
}

/// The exception for an error; `target` is what was talked to, which the advice depends on.
pub fn exception(py: Python<'_>, error: impl Into<Error>, target: Option<&Target>) -> PyErr {
    let error = error.into();
    raised(py, error.exit(), sentence(&error), next_command(&error, target))
}

/// The exception for an exit code.
pub fn raised(py: Python<'_>, exit: Exit, text: String, next_command: Option<String>) -> PyErr {
    let raised = match exit {
        Exit::Usage => UsageError::new_err(text),
        Exit::NotFound => NotFoundError::new_err(text),
        Exit::Denied => DeniedError::new_err(text),
        Exit::Unreachable => UnreachableError::new_err(text),
        Exit::Conflict => ConflictError::new_err(text),
        Exit::TimedOut => TimedOutError::new_err(text),
        _ => CoreError::new_err(text),
    };
    let value = raised.value(py);
    let told = value.setattr("exit_code", exit.code()).and_then(|()| value.setattr("next_command", next_command));
    told.map_or_else(|failed| failed, |()| raised)
}

/// The exception for a call that can't be meant, whatever the platform says.
pub fn misuse(py: Python<'_>, text: &str) -> PyErr {
    raised(py, Exit::Usage, text.to_owned(), None)
}
