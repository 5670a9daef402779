//! Notes and the progress line on standard error.
//!
//! Invariant: nothing here reaches standard output, and a progress line is drawn only on a terminal,
//! at most four times a second; elsewhere a note is printed when the job's phase changes.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pumice_api::batch::Job;
use pumice_jobs::job::{Counts, JobRef};
use pumice_jobs::monitor::{MemoryNotices, Progress};

use crate::environment::Surroundings;
use crate::failure::Failure;
use crate::output;

/// How often a second the progress line is drawn again.
const REDRAWS_HZ: u8 = 4;
/// Characters of the progress line where no terminal says.
const WIDTH: usize = 120;

/// Standard error of a command that waits.
pub struct Terminal {
    bar: Option<ProgressBar>,
    /// Whether the progress line makes way for data that is in the middle of a line.
    covered: bool,
    blocks: bool,
    quiet: bool,
    name: String,
    progress: Progress,
    started: tokio::time::Instant,
    phase: String,
    waits: String,
    memory: MemoryNotices,
}

impl Terminal {
    /// For a job called `name`. Must run inside a Tokio runtime.
    pub fn new(name: &str, no_progress: bool, plain: bool) -> Self {
        Terminal {
            bar: draws(no_progress).then(progress_line),
            covered: false,
            blocks: !plain,
            quiet: no_progress,
            name: name.to_owned(),
            progress: Progress::default(),
            started: tokio::time::Instant::now(),
            phase: String::new(),
            waits: String::new(),
            memory: MemoryNotices::default(),
        }
    }

    /// Shows the state of the job.
    pub fn state(&mut self, job: &Job) {
        let elapsed_ms = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.progress.observe(Counts::of(job), elapsed_ms);
        let phase = job.status.state.phase.as_ref().map_or_else(|| "New".to_owned(), ToString::to_string);
        if phase != self.phase {
            if phase != "Pending" && phase != "New" {
                self.waits.clear();
            }
            // Without a line to redraw, changes of phase are what is worth a line. The first states
            // pass within milliseconds and say nothing.
            if !self.has_line() && !self.phase.is_empty() && phase != "Pending" {
                let line = self.progress.line(WIDTH, false);
                let text = format!("{}: {phase} · {line}", self.name);
                self.progress_note(&text);
            }
            self.phase = phase;
        }
        for notice in self.memory.take(job) {
            self.progress_note(&format!("{}: {notice}", self.name));
        }
        self.draw();
    }

    /// Shows why the job waits.
    pub fn waits(&mut self, reason: &str) {
        self.waits = reason.to_owned();
        if !self.has_line() {
            let text = format!("{}: waits: {reason}", self.name);
            self.progress_note(&text);
        }
        self.draw();
    }

    /// A note that stays.
    pub fn note(&self, text: &str) {
        let before = if self.covered { "\n" } else { "" };
        let print = || {
            // There is nowhere to report a closed standard error to.
            let _ = writeln!(std::io::stderr().lock(), "{before}{text}");
        };
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Data, printed past the progress line. That is away while data on the same terminal has not ended its line.
    pub fn data(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let open = bytes.last().is_some_and(|byte| *byte != b'\n') && std::io::stdout().is_terminal();
        if open && let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
            self.covered = true;
        }
        match &self.bar {
            Some(bar) => bar.suspend(|| output::bytes(bytes))?,
            None => output::bytes(bytes)?,
        }
        if self.covered && !open {
            self.covered = false;
            self.bar = Some(progress_line());
            self.draw();
        }
        Ok(())
    }

    /// Takes the progress line away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if self.covered {
            say("");
        }
    }

    /// Whether there is a progress line, be it away for a moment.
    fn has_line(&self) -> bool {
        self.bar.is_some() || self.covered
    }

    fn progress_note(&self, text: &str) {
        if !self.quiet {
            self.note(text);
        }
    }

    fn draw(&self) {
        let Some(bar) = &self.bar else { return };
        let columns = width().saturating_sub(self.name.chars().count() + 1);
        let line = self.progress.line(columns, self.blocks);
        let text = match self.waits.as_str() {
            "" => format!("{} {line}", self.name),
            reason => format!("{} waits: {reason}", self.name),
        };
        bar.set_message(text);
    }
}

fn progress_line() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(REDRAWS_HZ));
    if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
        bar.set_style(style);
    }
    // A message that came too soon after the one before is drawn by the next tick.
    bar.enable_steady_tick(Duration::from_millis(1000 / u64::from(REDRAWS_HZ)));
    bar
}

/// Whether a progress line is drawn.
pub fn draws(no_progress: bool) -> bool {
    !no_progress && std::io::stderr().is_terminal()
}

/// Characters of a line on standard error.
pub fn width() -> usize {
    console::Term::stderr().size_checked().map_or(WIDTH, |(_, columns)| usize::from(columns))
}

/// A line on standard error.
pub fn say(text: &str) {
    // There is nowhere to report a closed standard error to.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Says that the wait ends and the job doesn't, and how to come back or to end it.
pub fn say_interrupted(job: &JobRef) {
    let (name, flag) = (&job.name, job.namespace_flag());
    say(&format!("job {name} goes on; jobctl wait {name}{flag} waits for it again"));
    say(&format!("next:  jobctl cancel {name}{flag}, if it shall end"));
}

/// Whether what goes to standard output may have colours.
pub fn colours(surroundings: &Surroundings) -> bool {
    !surroundings.plain && std::io::stdout().is_terminal()
}

/// The time, for ages in tables.
#[allow(clippy::disallowed_methods)]
pub fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
