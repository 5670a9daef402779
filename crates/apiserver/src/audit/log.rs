//! The file of the audit log: written by a thread of its own, rotated by size.
//!
//! Invariant: giving a line never waits, and what waits to be written is never more than [`WAITING_BYTES_MAX`]; a line
//! beyond that is lost, counted, and said in the server's log and in the file. The file is its owner's alone.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::sync::oneshot;

/// Most bytes of lines that wait to be written.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Most files that are kept beside the one being written.
const BACKUPS_MAX: u32 = 1000;

/// Where the log is, and how large it gets.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    pub path: PathBuf,
    /// When it is this large another one is begun, in bytes.
    pub bytes_max: u64,
    /// How many of those before are kept, as `FILE.1`, the newest, and so on.
    pub backups: u32,
}

/// Why there is no audit log.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// Its file can't be opened.
    #[error("cannot write the audit log {path}", path = path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Its thread did not start.
    #[error("cannot start the thread of the audit log")]
    Start(#[source] io::Error),
}

/// What became of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) given: u64,
    pub(super) lost: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Log {
    sender: Sender<Message>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting_bytes: AtomicUsize,
    given: AtomicU64,
    lost: AtomicU64,
    /// Whether lines are being lost: it is said once.
    losing: AtomicBool,
}

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    Reopen,
    Flush(oneshot::Sender<()>),
}

impl Log {
    pub(super) fn open(options: AuditOptions) -> Result<Self, AuditError> {
        let failed = |source| AuditError::Open { path: options.path.clone(), source };
        let file = Rotated::open(options.clone()).map_err(failed)?;
        // Bounded by bytes, see `give`.
        let (sender, receiver) = channel();
        let shared = Arc::new(Shared::default());
        let of_writer = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("audit-log".to_owned());
        thread.spawn(move || write_all(file, &receiver, &of_writer)).map_err(AuditError::Start)?;
        Ok(Self { sender, shared })
    }

    /// Takes a line to be written, or loses it.
    pub(super) fn give(&self, line: Vec<u8>) {
        let bytes = line.len();
        self.shared.given.fetch_add(1, Relaxed);
        let waiting = self.shared.waiting_bytes.fetch_add(bytes, Relaxed);
        if waiting + bytes > WAITING_BYTES_MAX || self.sender.send(Message::Line(line)).is_err() {
            self.shared.waiting_bytes.fetch_sub(bytes, Relaxed);
            self.shared.lose();
        }
    }

    pub(super) fn reopen(&self) {
        // A writer that is gone writes nowhere.
        let _ = self.sender.send(Message::Reopen);
    }

    pub(super) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.sender.send(Message::Flush(done)).is_ok() {
            let _ = written.await;
        }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts { given: self.shared.given.load(Relaxed), lost: self.shared.lost.load(Relaxed) }
    }
}

impl Shared {
    fn lose(&self) {
        self.lost.fetch_add(1, Relaxed);
        if !self.losing.swap(true, Relaxed) {
            tracing::warn!("the audit log can't be written as fast as requests come: lines are lost");
        }
    }
}

/// Writes until nobody can give lines any more.
fn write_all(mut file: Rotated, receiver: &Receiver<Message>, shared: &Shared) {
    let (mut failing, mut told) = (false, 0);
    while let Ok(first) = receiver.recv() {
        let mut next = Some(first);
        let mut flushed = Vec::new();
        while let Some(message) = next {
            match message {
                Message::Flush(done) => flushed.push(done),
                Message::Reopen => file.reopen(),
                Message::Line(line) => {
                    let written = file.write(&line);
                    shared.waiting_bytes.fetch_sub(line.len(), Relaxed);
                    if let Err(error) = &written {
                        shared.lost.fetch_add(1, Relaxed);
                        if !failing {
                            tracing::warn!(path = %file.options.path.display(), %error, "the audit log can't be written");
                        }
                    }
                    failing |= written.is_err();
                }
            }
            next = receiver.try_recv().ok();
        }
        // All that waited is written.
        let lost = shared.lost.load(Relaxed);
        if lost > told && !failing && file.write(lost_line(lost - told).as_bytes()).is_ok() {
            tracing::warn!(lost = lost - told, "lines of the audit log were lost");
            shared.losing.store(false, Relaxed);
            told = lost;
        }
        let flushed_all = file.file.flush();
        if let (Err(error), false) = (&flushed_all, failing) {
            tracing::warn!(path = %file.options.path.display(), %error, "the audit log can't be written");
        }
        // What a full disk doesn't take stays in the buffer, and goes first when there is room.
        failing = flushed_all.is_err();
        for done in flushed {
            // Who no longer listens is no failure.
            let _ = done.send(());
        }
    }
}

/// Says in the log itself that it has a gap.
fn lost_line(lost: u64) -> String {
    format!(
        "{{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",\"level\":\"Metadata\",\
         \"annotations\":{{\"pumice.sh/events-lost\":\"{lost}\"}}}}\n"
    )
}

/// The file, and those before it.
struct Rotated {
    options: AuditOptions,
    file: BufWriter<File>,
    bytes: u64,
}

impl Rotated {
    fn open(options: AuditOptions) -> io::Result<Self> {
        let file = append_to(&options.path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { options, file: BufWriter::new(file), bytes })
    }

    /// Goes on in the file that has the name now, or in a new one.
    fn reopen(&mut self) {
        let path = &self.options.path;
        let opened = self.file.flush().and_then(|()| Self::open(self.options.clone()));
        match opened {
            Ok(opened) => {
                tracing::info!(path = %path.display(), "the audit log was opened anew");
                *self = opened;
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the audit log can't be opened anew; it goes on where it was");
            }
        }
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.options.bytes_max {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Nothing is moved before there is a file to go on with: a full disk must not cost what was written.
    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let fresh = appended_by(&self.options.path, "new");
        let file = append_to(&fresh)?;
        let backups = self.options.backups.min(BACKUPS_MAX);
        for number in (1..backups).rev() {
            move_if_there(&numbered(&self.options.path, number), &numbered(&self.options.path, number + 1))?;
        }
        if backups > 0 {
            move_if_there(&self.options.path, &numbered(&self.options.path, 1))?;
        }
        fs::rename(&fresh, &self.options.path)?;
        self.file = BufWriter::new(file);
        self.bytes = 0;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    appended_by(path, &number.to_string())
}

fn appended_by(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{ending}"));
    path.with_file_name(name)
}

fn move_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn options(directory: &Path, bytes_max: u64, backups: u32) -> AuditOptions {
        AuditOptions { path: directory.join("audit.log"), bytes_max, backups }
    }

    #[tokio::test]
    async fn files_are_private_rotated_and_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let log = Log::open(options(directory.path(), 100, 2)).unwrap();
        for number in 0..100 {
            log.give(format!("{number:029}\n").into_bytes());
        }
        log.flush().await;
        let names = ["audit.log", "audit.log.1", "audit.log.2"];
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), names.len());
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        let lines: Vec<String> =
            names.iter().rev().flat_map(|name| read(name).lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        let last: Vec<String> = (100 - lines.len()..100).map(|number| format!("{number:029}")).collect();
        assert_eq!(lines, last, "the newest, in order");
        for name in names {
            let metadata = fs::metadata(directory.path().join(name)).unwrap();
            assert!(metadata.len() <= 100);
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(log.counts(), Counts { given: 100, lost: 0 });
    }

    #[tokio::test]
    async fn a_log_is_appended_to() {
        let directory = tempfile::tempdir().unwrap();
        for line in ["a\n", "b\n"] {
            let log = Log::open(options(directory.path(), 1000, 2)).unwrap();
            log.give(line.into());
            log.flush().await;
        }
        assert_eq!(fs::read_to_string(directory.path().join("audit.log")).unwrap(), "a\nb\n");
    }

    #[tokio::test]
    async fn a_file_that_was_moved_away_is_left_alone_once_the_log_is_opened_anew() {
        let directory = tempfile::tempdir().unwrap();
        let log = Log::open(options(directory.path(), 1000, 2)).unwrap();
        let (path, moved) = (directory.path().join("audit.log"), directory.path().join("audit.log-old"));
        log.give(b"a\n".to_vec());
        log.flush().await;
        fs::rename(&path, &moved).unwrap();
        log.give(b"b\n".to_vec());
        log.reopen();
        log.give(b"c\n".to_vec());
        log.flush().await;
        assert_eq!(fs::read_to_string(&moved).unwrap(), "a\nb\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "c\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    // INV-8
    /// A pipe that nobody reads: the writer is stuck, and givers go on.
    #[tokio::test]
    async fn a_disk_that_hangs_loses_lines_and_holds_nobody_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        nix_fifo(&path);
        let reader = File::options().read(true).write(true).open(&path).unwrap();
        let log = Log::open(AuditOptions { path, bytes_max: u64::MAX, backups: 0 }).unwrap();
        let line = vec![b'x'; 1 << 20];
        for _ in 0..40 {
            log.give(line.clone());
        }
        let counts = log.counts();
        assert!(counts.lost >= 20, "{counts:?}");
        assert!(log.shared.waiting_bytes.load(Relaxed) <= WAITING_BYTES_MAX);
        drop(reader);
    }

    fn nix_fifo(path: &Path) {
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    }

    // INV-8
    #[tokio::test]
    async fn lost_lines_are_told_in_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let log = Log::open(options(directory.path(), 1 << 20, 2)).unwrap();
        log.shared.lose();
        log.shared.lose();
        log.give(b"{}\n".to_vec());
        log.flush().await;
        let text = fs::read_to_string(directory.path().join("audit.log")).unwrap();
        assert!(text.contains("\"pumice.sh/events-lost\":\"2\""), "{text}");
    }
}
