//! `Stream`: what goes on, one message at a time, for Python's `for` and for threads that look now and then.
//!
//! Invariant: threads that read the same stream take turns and each message is given once; Ctrl-C and a timeout lose
//! none. After the end, an error or `close` nothing comes.

use std::time::Duration;

use futures::StreamExt;
use pumice_jobs::Error;
use pumice_jobs::platform::target::Target;
use pyo3::prelude::*;
use serde_json::Value;
use tokio::sync::{Mutex, watch};

use crate::errors::{exception, misuse};
use crate::json;
use crate::messages::Messages;
use crate::runtime::{Owned, wait};

/// Messages about a job, as dictionaries with a `kind`.
#[pyclass(frozen, module = "pumice._core")]
pub struct Stream {
    /// `None` once nothing comes.
    messages: Owned<Mutex<Option<Messages>>>,
    ended: watch::Sender<bool>,
    target: Target,
}

impl Stream {
    /// A stream of these messages from `target`.
    pub fn new(messages: Messages, target: Target) -> Self {
        Stream { messages: Owned::new(Mutex::new(Some(messages))), ended: watch::Sender::new(false), target }
    }

    /// The next message; `None` at the end. Cancellation safe.
    async fn next(&self, messages: &Mutex<Option<Messages>>) -> Option<Result<Value, Error>> {
        let mut ended = self.ended.subscribe();
        let next = tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => None,
            next = async { messages.lock().await.as_mut()?.next().await } => next,
        };
        if !matches!(next, Some(Ok(_))) {
            self.ended.send_replace(true);
            // Lets go of the server now and not when Python drops this; whoever else reads is told the end.
            *messages.lock().await = None;
        }
        next
    }

    fn read<'py>(&self, py: Python<'py>, timeout: Option<Duration>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let messages = self.messages.here().ok_or_else(|| {
            misuse(py, "this stream was opened before a fork, by the parent: open another in this process")
        })?;
        let next = async {
            match timeout {
                Some(timeout) => tokio::time::timeout(timeout, self.next(messages)).await.unwrap_or(None),
                None => self.next(messages).await,
            }
        };
        match wait(py, next)? {
            None => Ok(None),
            Some(Ok(message)) => json::to_python(py, &message).map(Some),
            Some(Err(error)) => Err(exception(py, error, Some(&self.target))),
        }
    }
}

#[pymethods]
impl Stream {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.read(py, None)
    }

    /// The next message, or None if none comes within `timeout` seconds; look at `ended` then.
    fn poll<'py>(&self, py: Python<'py>, timeout: f64) -> PyResult<Option<Bound<'py, PyAny>>> {
        let timeout = crate::seconds(py, timeout)?;
        self.read(py, Some(timeout))
    }

    /// Whether nothing comes any more.
    #[getter]
    fn ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// End it; who waits for a message is told the end.
    fn close(&self) {
        self.ended.send_replace(true);
        // A reader that has it now lets go of it itself.
        if let Some(mut messages) = self.messages.here().and_then(|messages| messages.try_lock().ok()) {
            *messages = None;
        }
    }
}
