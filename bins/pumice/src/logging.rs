//! The log of this process: lines on standard error, which may be a terminal, a pipe or a file.
//!
//! Invariant: no write of a line ends, panics or fails anything: what standard error doesn't take is counted
//! (`pumice_log_lines_lost_total`) and reported in the log as soon as it takes lines again. Where standard error is a file,
//! SIGHUP opens its name anew, so that a file that was moved away can be compressed or removed; the log of a platform in the
//! background is moved to `up.log.1` by itself when it has grown to [`LOG_BYTES_MAX`].

use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::fcntl::OFlag;
use nix::unistd::{dup2_stderr, dup2_stdout};
use pumice_clock::now;
use pumice_metrics::{LOG_LINES_LOST, LossyLines};

/// The log of a platform in the background is moved aside at this size; one older file is kept.
const LOG_BYTES_MAX: u64 = 64 << 20;

/// After lines were lost, how often standard error is tried again while nothing else is to be written.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// Standard error, of which a process has one.
static LOG: OnceLock<Log> = OnceLock::new();

/// Writes what `filter` lets through to standard error from now on. `rotated` is a file that is moved aside when it grows
/// large, if standard error is that file.
pub fn start(filter: &str, rotated: Option<&Path>) -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .with_context(|| format!("--log {filter:?} is no filter; try info or pumice_scheduler=debug"))?;
    let log = LOG.get_or_init(|| Log::of_stderr(rotated));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || log)
        .with_ansi(io::stderr().is_terminal())
        // The subscriber would tell of a failed write by a macro that panics where standard error can't be written.
        .log_internal_errors(false)
        .init();
    Ok(())
}

/// Whether this process has a log.
pub fn is_started() -> bool {
    LOG.get().is_some()
}

/// Opens the file of the log anew, as after it was moved away. Nothing where standard error is no file.
pub fn reopen() {
    let Some(log) = LOG.get() else { return };
    match log.reopen() {
        Ok(Some(path)) => tracing::info!(path = %path.display(), "the log was opened anew"),
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "the log can't be opened anew; it goes on where it was"),
    }
}

/// Where the lines go.
struct Log(Mutex<Target>);

struct Target {
    lines: LossyLines,
    /// Why the last line was lost.
    reason: String,
    file: Option<NamedFile>,
    /// Whether a thread waits to report lost lines ([`Log::catch_up`]).
    catches_up: bool,
}

/// Standard error, where it is a file that has a name.
struct NamedFile {
    path: PathBuf,
    bytes: u64,
    /// Whether it is moved aside when it grows large.
    rotates: bool,
    /// Whether standard output is the same file.
    with_stdout: bool,
}

impl Log {
    fn of_stderr(rotated: Option<&Path>) -> Self {
        let file = NamedFile::of_stderr(rotated);
        Self(Mutex::new(Target { lines: LossyLines::default(), reason: String::new(), file, catches_up: false }))
    }

    fn target(&self) -> MutexGuard<'_, Target> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes lines. If they are lost, a thread reports that when it can, though no other line comes.
    fn take(&'static self, text: &[u8]) {
        let mut target = self.target();
        target.write(text);
        if target.lines.is_behind() && !target.catches_up {
            let spawned = thread::Builder::new().name("log".to_owned()).spawn(|| self.catch_up());
            // Else the next line tries.
            target.catches_up = spawned.is_ok();
        }
    }

    fn catch_up(&self) {
        loop {
            thread::sleep(TRY_EVERY);
            let mut target = self.target();
            target.write(&[]);
            if !target.lines.is_behind() {
                target.catches_up = false;
                return;
            }
        }
    }

    fn reopen(&self) -> io::Result<Option<PathBuf>> {
        let mut target = self.target();
        let Some(file) = &mut target.file else { return Ok(None) };
        file.reopen()?;
        Ok(Some(file.path.clone()))
    }
}

/// Takes all it is given, whatever becomes of it.
impl Write for &'static Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.take(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Target {
    fn write(&mut self, text: &[u8]) {
        if let Some(file) = &mut self.file {
            // One that can't be moved grows until it can.
            let _ = file.rotate_before(text.len());
        }
        let reason = &self.reason;
        let report = |lost| report(lost, reason).into_bytes();
        let written = self.lines.write(&mut io::stderr(), text, report);
        LOG_LINES_LOST.add(written.lost);
        if let Some(error) = written.error {
            self.reason = error.to_string();
        }
        if let Some(file) = &mut self.file {
            file.bytes += written.bytes;
        }
    }
}

fn report(lost: u64, reason: &str) -> String {
    format!("{} WARN pumice: {lost} lines of this log were lost, since it could not be written: {reason}\n", now())
}

impl NamedFile {
    fn of_stderr(rotated: Option<&Path>) -> Option<Self> {
        let path = fs::read_link("/proc/self/fd/2").ok()?;
        let metadata = fs::metadata("/proc/self/fd/2").ok().filter(fs::Metadata::is_file)?;
        let same = |path: &Path| {
            fs::metadata(path).is_ok_and(|other| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino()))
        };
        same(&path).then(|| Self {
            bytes: metadata.len(),
            rotates: rotated.is_some_and(same),
            with_stdout: same(Path::new("/proc/self/fd/1")),
            path,
        })
    }

    /// Moves the file aside if `more` bytes would make it too large.
    fn rotate_before(&mut self, more: usize) -> io::Result<()> {
        if !self.rotates || self.bytes + more as u64 <= LOG_BYTES_MAX {
            return Ok(());
        }
        let aside = older(&self.path);
        fs::rename(&self.path, &aside)?;
        self.reopen().inspect_err(|_| {
            // It is written under its own name again.
            let _ = fs::rename(&aside, &self.path);
        })
    }

    fn reopen(&mut self) -> io::Result<()> {
        let file = open(&self.path)?;
        let bytes = file.metadata()?.len();
        dup2_stderr(&file)?;
        if self.with_stdout {
            dup2_stdout(&file)?;
        }
        self.bytes = bytes;
        Ok(())
    }
}

/// Opens a log for appending; it is its owner's alone, and a link that somebody laid there is not followed.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW.bits();
    File::options().create(true).append(true).mode(0o600).custom_flags(flags).open(path)
}

/// Where the older part of a log is.
pub fn older(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}
