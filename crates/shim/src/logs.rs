//! A container's output into a file in the format of the Container Runtime Interface.
//!
//! `<time> <stdout|stderr> <F|P> <text>\n`, where `P` is a piece of a line without its end. Invariant:
//! the container is never held up by whoever reads the file, and its log takes bounded disk space. How much of its beginning
//! went for that stands beside it, so that a reader can be told.
//! Written by [`output`](super::output).

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use pumice_metrics::LossyLines;

use super::attach;
use super::journal::journal;
use pumice_linux::files::{self, Durability, append_private, private_dir};

/// A log larger than this is moved aside, unless the pod's spec says otherwise; one older file is kept.
pub const LOG_BYTES_MAX: u64 = 256 << 20;
/// What stands before the text of a line: a time to the nanosecond, the stream and the tag.
const HEAD_BYTES: u64 = 40;
/// Longest number of bytes in decimal.
const NUMBER_BYTES_MAX: u64 = 20;

/// Which stream of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// As a log names it.
    pub fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }

    /// As clients that are attached know it.
    pub(crate) fn channel(self) -> u8 {
        match self {
            Stream::Stdout => attach::STDOUT,
            Stream::Stderr => attach::STDERR,
        }
    }
}

/// Where the log of the `attempt`th run of a container is, under its pod's directory.
pub fn log_path(pod_dir: &Path, container: &str, attempt: u32) -> PathBuf {
    pod_dir.join("logs").join(container).join(format!("{attempt}.log"))
}

/// Where the older part of a log is, when it grew too large.
pub fn rotated_path(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

/// Where it stands how many bytes of a log's text are gone.
fn gone_path(path: &Path) -> PathBuf {
    path.with_extension("log.gone")
}

/// How many bytes of text went from a log's beginning.
pub fn gone_bytes(path: &Path) -> u64 {
    let bytes = files::read_bounded(&gone_path(path), NUMBER_BYTES_MAX).unwrap_or_default();
    std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The log file of one run of a container.
pub struct LogFile {
    path: PathBuf,
    file: File,
    bytes_max: u64,
    bytes: u64,
    lines: LossyLines,
    /// Why lines are lost just now: it is said once.
    failing: Option<String>,
    /// Bytes of text: in the file, in the one that was moved aside, and in those before it, which are gone.
    text: u64,
    text_aside: u64,
    text_gone: u64,
}

impl LogFile {
    /// Opens a log for appending, which is moved aside when it would become larger than `bytes_max`.
    pub fn open(path: PathBuf, bytes_max: u64) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            private_dir(parent)?;
        }
        let file = append_private(&path)?;
        let bytes = file.metadata()?.len();
        // A run has a file of its own, so what is there already is next to nothing, and its heads are not looked for.
        let text_aside = fs::metadata(rotated_path(&path)).map_or(0, |aside| aside.len());
        let text_gone = gone_bytes(&path);
        let (text, lines) = (bytes, LossyLines::new());
        Ok(LogFile { path, file, bytes_max, bytes, text, text_aside, text_gone, lines, failing: None })
    }

    /// Writes whole lines. Those that the disk doesn't take are lost, and reported by a line when it takes some again.
    pub(super) fn write(&mut self, lines: &[u8], now: Timestamp) {
        if self.bytes > 0
            && self.bytes + lines.len() as u64 > self.bytes_max
            && let Err(error) = self.rotate()
        {
            self.fails(&error);
        }
        let reason = self.failing.as_deref().unwrap_or_default();
        let report = |lost| lost_line(lost, reason, now);
        let written = self.lines.write(&mut self.file, lines, report);
        self.bytes += written.bytes;
        let heads = lines.iter().filter(|byte| **byte == b'\n').count() as u64 * HEAD_BYTES;
        self.text += written.bytes.saturating_sub(heads);
        if let Some(lost) = written.reported {
            journal(&format!("{}: {lost} lines were lost", self.path.display()));
        }
        match written.error {
            Some(error) => self.fails(&error),
            None => self.failing = None,
        }
    }

    /// Reports what was lost, now that there may be room again; whether there is nothing left to report.
    pub fn catch_up(&mut self, now: Timestamp) -> bool {
        if self.lines.is_behind() {
            self.write(b"", now);
        }
        !self.lines.is_behind()
    }

    /// The old part is moved aside only when there is a file to go on with: a full disk must not cost what was written.
    fn rotate(&mut self) -> io::Result<()> {
        let fresh = self.path.with_extension("log.new");
        let file = append_private(&fresh)?;
        let gone = self.text_gone + self.text_aside;
        if gone > 0
            && let Err(error) =
                files::write_atomic(&gone_path(&self.path), gone.to_string().as_bytes(), Durability::Process)
        {
            // A reader is then told of fewer bytes than are gone, which is no reason to lose lines.
            journal(&format!("{}: what is gone is not written down: {error}", self.path.display()));
        }
        fs::rename(&self.path, rotated_path(&self.path))?;
        fs::rename(&fresh, &self.path)?;
        self.file = file;
        (self.text_gone, self.text_aside) = (gone, self.text);
        (self.bytes, self.text) = (0, 0);
        Ok(())
    }

    fn fails(&mut self, error: &io::Error) {
        let reason = error.to_string();
        if self.failing.as_ref() != Some(&reason) {
            journal(&format!("{}: lines are lost: {reason}", self.path.display()));
            self.failing = Some(reason);
        }
    }
}

/// Says within a log that it has a gap.
fn lost_line(lost: u64, reason: &str, now: Timestamp) -> Vec<u8> {
    let text = format!("pumice: {lost} lines of output were lost here, since the log could not be written: {reason}");
    let mut out = Vec::new();
    line(text.as_bytes(), 'F', Stream::Stderr, now, &mut out);
    out
}

/// Adds a stored line. `P` is a piece of one without its end, `F` ends one.
pub(super) fn line(text: &[u8], tag: char, stream: Stream, now: Timestamp, out: &mut Vec<u8>) {
    let head = format!("{} {} {tag} ", now.strftime("%Y-%m-%dT%H:%M:%S.%9fZ"), stream.name());
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(text);
    out.push(b'\n');
}

/// The text of the last lines of a log, at most `bytes_max` bytes and `lines_max` lines.
pub fn tail(path: &Path, lines_max: usize, bytes_max: usize) -> String {
    use std::io::Seek;
    let Ok(mut file) = File::open(path) else { return String::new() };
    let length = file.metadata().map(|meta| meta.len()).unwrap_or(0);
    let mut bytes = Vec::new();
    let from = length.saturating_sub(4 * bytes_max as u64);
    if file.seek(io::SeekFrom::Start(from)).is_err() || file.take(length - from).read_to_end(&mut bytes).is_err() {
        return String::new();
    }
    let stored = String::from_utf8_lossy(&bytes);
    let mut text = String::new();
    for mut fields in stored.lines().map(|line| line.splitn(4, ' ')) {
        if let (Some(tag), Some(piece)) = (fields.nth(2), fields.next()) {
            text.push_str(piece);
            text.push_str(if tag == "F" { "\n" } else { "" });
        }
    }
    let lines: Vec<&str> = text.lines().collect();
    let joined = lines[lines.len().saturating_sub(lines_max)..].join("\n");
    let mut from = joined.len().saturating_sub(bytes_max);
    while !joined.is_char_boundary(from) {
        from += 1;
    }
    joined[from..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at() -> Timestamp {
        Timestamp::from_nanosecond(1_475_137_809_669_794_202).unwrap()
    }

    /// As whole lines of standard error are stored.
    fn stored(text: &str) -> String {
        let mut out = Vec::new();
        text.lines().for_each(|one| line(one.as_bytes(), 'F', Stream::Stderr, at(), &mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_log_takes_bounded_space() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c/0.log");
        let mut log = LogFile::open(path.clone(), 100).unwrap();
        let mut write = |text: &str| log.write(stored(text).as_bytes(), at());
        write("first\n");
        write("second\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), stored("first\nsecond\n"));
        assert!(!rotated_path(&path).exists());
        write("third\n");
        assert_eq!(gone_bytes(&path), 0, "all of it is there, in two files");
        assert_eq!(fs::read_to_string(rotated_path(&path)).unwrap(), stored("first\nsecond\n"));
        // More at once than a file holds.
        let much = "x\n".repeat(9);
        write(&much);
        assert_eq!(fs::read_to_string(&path).unwrap(), stored(&much));
        assert_eq!(fs::read_to_string(rotated_path(&path)).unwrap(), stored("third\n"));
        assert_eq!(gone_bytes(&path), 13, "first and second");
        write("last\n");
        assert_eq!(gone_bytes(&path), 19);
        let names = fs::read_dir(dir.path().join("c")).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<std::collections::BTreeSet<_>>().len(), 3);
    }

    #[test]
    fn lines_that_a_full_disk_refused_are_told_of_in_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c/0.log");
        let mut log = LogFile::open(path.clone(), LOG_BYTES_MAX).unwrap();
        let file = std::mem::replace(&mut log.file, File::options().write(true).open("/dev/full").unwrap());
        log.write(b"first\nsecond\n", at());
        log.write(b"third\n", at());
        assert!(!log.catch_up(at()), "there is no room yet");
        log.file = file;
        assert!(log.catch_up(at()));
        log.write(b"fourth\n", at());
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(
            lines[0].contains(" stderr F pumice: 3 lines of output were lost here") && lines[0].contains("No space")
        );
        assert_eq!(lines[1], "fourth");
    }

    #[test]
    fn the_tail_holds_text_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let mut out = stored("a\nb b\n").into_bytes();
        line("c".as_bytes(), 'P', Stream::Stderr, at(), &mut out);
        line(" é".as_bytes(), 'F', Stream::Stderr, at(), &mut out);
        fs::write(&path, out).unwrap();
        assert_eq!(tail(&path, 2, 100), "b b\nc é");
        assert_eq!(tail(&path, 9, 1), "");
        assert_eq!(tail(&path, 9, 2), "é");
        assert_eq!(tail(&dir.path().join("absent"), 9, 9), "");
    }
}
