//! The one runtime of the process, and waiting on it from Python.
//!
//! Invariant: while something is waited for the interpreter is free, and a signal (Ctrl-C) ends the wait within
//! [`SIGNALS_EVERY`]; what was waited for is dropped then, so it must be cancellation safe. A forked child makes a
//! runtime of its own, because the threads of its parent's are not in it.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

/// How often a wait looks whether there was a signal.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);
/// Threads that answer the network; the waiting itself is done by the threads that ask.
const WORKERS: usize = 2;

/// The runtime and the process that made it. Never dropped: a process ends without asking it.
///
/// Taken only by threads that hold the interpreter, so a fork, which holds it too, never finds it taken.
static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// The runtime of this process, made when first asked for.
pub fn runtime(_py: Python<'_>) -> PyResult<&'static Runtime> {
    let mut made = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    match *made {
        Some((maker, runtime)) if maker == process => Ok(runtime),
        // The first one here, or a child: what its parent made is left alone, as dropping it would wait for threads.
        _ => {
            let runtime =
                Builder::new_multi_thread().worker_threads(WORKERS).thread_name("pumice").enable_all().build()?;
            let runtime: &'static Runtime = Box::leak(Box::new(runtime));
            *made = Some((process, runtime));
            Ok(runtime)
        }
    }
}

/// Waits for `future` with the interpreter set free. Fails only with what a signal's handler raised.
pub fn wait<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let runtime = runtime(py)?;
    let mut future = Box::pin(future);
    loop {
        let slice = py.detach(|| runtime.block_on(async { tokio::time::timeout(SIGNALS_EVERY, &mut future).await }));
        match slice {
            Ok(output) => return Ok(output),
            Err(_) => py.check_signals()?,
        }
    }
}

/// Something whose parts live in this process's runtime. A forked child neither uses nor drops it: the threads that
/// would answer, or give back a lock, are not there.
pub struct Owned<T> {
    value: Option<T>,
    process: u32,
}

impl<T> Owned<T> {
    /// Makes it this process's.
    pub fn new(value: T) -> Self {
        Owned { value: Some(value), process: std::process::id() }
    }

    /// It, in the process that made it; nothing in a forked child.
    pub fn here(&self) -> Option<&T> {
        if self.process == std::process::id() { self.value.as_ref() } else { None }
    }

    /// Takes it out, in the process that made it; nothing in a forked child.
    pub fn take(&mut self) -> Option<T> {
        if self.process == std::process::id() { self.value.take() } else { None }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
