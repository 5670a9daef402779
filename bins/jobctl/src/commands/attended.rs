//! A job that is waited for on a terminal: what `run`, `wait` and `progress` share.
//!
//! Invariant: Ctrl-C ends the wait and never the job, and what comes next is said; [`Attended::next`] is cancellation safe.

use anyhow::Context;
use pumice_jobs::Connection;
use pumice_jobs::job::JobRef;
use pumice_jobs::logs::LogOptions;
use pumice_jobs::monitor::{RunEvent, RunMonitor};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Session;
use crate::failure::Failure;
use crate::terminal::{self, Terminal};

/// A job, and the terminal that tells of it.
pub struct Attended {
    /// What happens to the job.
    pub monitor: RunMonitor,
    pub terminal: Terminal,
    interrupt: Signal,
    job: JobRef,
}

impl Attended {
    /// Attends a job, with its logs if `logs` says which; without the progress line if `plain`. Must run inside a Tokio
    /// runtime.
    pub fn new(
        session: &Session,
        connection: &Connection,
        job: &JobRef,
        logs: Option<LogOptions>,
        plain: bool,
    ) -> Result<Self, Failure> {
        let quiet = session.global.no_progress || plain;
        Ok(Attended {
            monitor: RunMonitor::new(connection.clone(), job.clone(), logs),
            terminal: Terminal::new(&job.name, quiet, session.surroundings.plain),
            interrupt: signal(SignalKind::interrupt()).context("cannot hear signals").map_err(Failure::Machine)?,
            job: job.clone(),
        })
    }

    /// The next event, which is shown already but for logs; `None` after Ctrl-C. The progress line is gone after the
    /// last one.
    pub async fn next(&mut self) -> Result<Option<RunEvent>, Failure> {
        let event = tokio::select! {
            biased;
            _ = self.interrupt.recv() => {
                self.terminal.finish();
                terminal::say_interrupted(&self.job);
                return Ok(None);
            }
            event = self.monitor.next() => event?,
        };
        match &event {
            RunEvent::State(state) => self.terminal.state(state),
            RunEvent::Waits(why) => self.terminal.waits(&why.one_line()),
            RunEvent::Lost(detail) => self.terminal.note(&format!("no answer, trying again: {detail}")),
            RunEvent::Back => self.terminal.note("the server answers again"),
            RunEvent::LogsLost(error) => self.terminal.note(&format!("a log can't be read on: {error}")),
            RunEvent::Log(_) => {}
            RunEvent::Ended(_) => self.terminal.finish(),
        }
        Ok(Some(event))
    }
}
