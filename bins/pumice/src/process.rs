//! This process: its runtime, its signals, its place among others when memory runs out, and the machine's name.
//!
//! *Called by*: every command that serves.

use std::time::Duration;

use anyhow::{Context as _, Result};
use pumice_linux::huge_pages;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{descriptors, logging};

/// With so much memory huge pages are worth it, in bytes.
const LARGE: u64 = 128 << 20;
/// How often it is looked whether a process has become so large.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What all asynchronous work of a command runs on. Whoever needs one is a server, or may be: it may open as many files as
/// the system allows, and takes huge pages when it is large.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    descriptors::raise_limit();
    huge_pages::refrain();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    runtime.spawn(take_huge_pages_when_large());
    Ok(runtime)
}

/// Huge pages make a large process faster, and cost a small one more memory than they are worth.
async fn take_huge_pages_when_large() {
    while !huge_pages::take_if_larger(LARGE) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A token that is cancelled by the first SIGINT or SIGTERM; a second one ends the process at once. SIGHUP opens the log
/// anew and ends nothing, also where it comes from a terminal that was closed: work doesn't hang on a window. A command
/// without a log is ended by it, as any other.
pub fn stop_on_signal() -> Result<CancellationToken> {
    let mut interrupt = signal(SignalKind::interrupt()).context("catch SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("catch SIGTERM")?;
    let hangup = logging::is_started().then(|| signal(SignalKind::hangup()));
    let mut hangup = hangup.transpose().context("catch SIGHUP")?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    #[allow(clippy::disallowed_methods)] // the process's own signals: nothing outlives this task
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = hung_up(hangup.as_mut()) => {
                    logging::reopen();
                    continue;
                }
            }
            if token.is_cancelled() {
                std::process::exit(130);
            }
            token.cancel();
        }
    });
    Ok(stop)
}

/// The next SIGHUP; never, where none is caught.
async fn hung_up(hangup: Option<&mut Signal>) {
    match hangup {
        Some(hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}

/// When the machine's memory runs out, programs of pods go before the process that keeps them.
pub fn go_last_for_memory() {
    if let Err(error) = pumice_linux::oom::spare_this_process() {
        tracing::info!(%error, "the kernel may end this process as early as any other when memory runs out");
    }
}

/// The name of this machine's node: its host name.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name
        .trim()
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '-' })
        .collect();
    let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    if name.is_empty() { "this-machine".to_owned() } else { name.to_owned() }
}
