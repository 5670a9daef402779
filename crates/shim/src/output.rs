//! What a container writes, on its way into its log.
//!
//! Invariant: text without the end of its line (a question, a progress bar) is in the log soon after it was written, as a piece of a line.
//! A line that comes at once is not cut by a line of the other stream, as far as [`WHOLE_BYTES_MAX`] go; no stream waits
//! for the other for longer than [`HELD_MAX`]. Owned by a [`Process`](super::process::Process).

use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::attached::Attached;
use super::logs::{LogFile, Stream, line};

/// A line longer than this is written in pieces, as containerd does.
const PIECE_BYTES_MAX: usize = 16 << 10;
/// Bytes taken from a pipe at once, so that one container does not starve the others.
const READ_BYTES_MAX: usize = 64 << 10;
/// Reads at the end of a container; without a pid namespace somebody may still be writing.
const FINISH_ROUNDS_MAX: u32 = 1024;
/// How long text waits for the end of its line before it is written without.
const FLUSH_AFTER: Duration = Duration::from_millis(100);
/// A line up to this length is not cut by the other stream.
const WHOLE_BYTES_MAX: usize = 16 << 20;
/// How long the rest of a long line is waited for before the other stream is read.
const REST_WITHIN: Duration = Duration::from_millis(100);
/// The longest that a stream is left unread since the other one writes a long line.
const HELD_MAX: Duration = Duration::from_secs(1);

/// What a container writes: both of its streams, or its terminal.
pub(crate) struct Output {
    pipes: Vec<LogPipe>,
    /// The stream that is not read until the other one has ended its line, and since when.
    paused: Option<(usize, Instant)>,
}

impl Output {
    /// Takes over the read ends of both pipes, which must be non-blocking.
    pub(crate) fn new(stdout: File, stderr: File) -> Self {
        Output { pipes: vec![LogPipe::new(stdout, Stream::Stdout), LogPipe::new(stderr, Stream::Stderr)], paused: None }
    }

    /// Of a container on a terminal, which comes later by [`Output::set_terminal`].
    pub(crate) fn of_terminal() -> Self {
        Output { pipes: Vec::new(), paused: None }
    }

    /// Takes over the end of a terminal at which its output is read, which must be non-blocking.
    pub(crate) fn set_terminal(&mut self, keyboard: File) {
        self.pipes = vec![LogPipe::new(keyboard, Stream::Stdout)];
    }

    /// The pipes to poll, while somebody may still write to them.
    pub(crate) fn pollable(&self) -> impl Iterator<Item = &File> {
        let paused = self.paused.map(|(which, _)| which);
        let read = self.pipes.iter().enumerate().filter(move |(which, _)| Some(*which) != paused);
        read.filter_map(|(_, pipe)| pipe.open.then_some(&pipe.pipe))
    }

    /// When there is something to do although nothing was written.
    pub(crate) fn next_turn(&self) -> Option<Instant> {
        let flushes = self.pipes.iter().filter_map(|pipe| pipe.flush_at);
        let release = self.paused.map(|(which, since)| {
            let grew_at = self.other(which).and_then(|other| other.grew_at);
            grew_at.map_or(since, |grew| grew + REST_WITHIN).min(since + HELD_MAX)
        });
        flushes.chain(release).min()
    }

    /// Moves what is there into the log, and to those who are attached, as far as these can take it. A log that can't be written
    /// (full disk) loses lines, not the container.
    pub(crate) fn pump(&mut self, log: &mut LogFile, attached: &mut Attached, now: Timestamp, at: Instant) {
        for which in 0..self.pipes.len() {
            if self.holds(which, at) {
                continue;
            }
            let pipe = &mut self.pipes[which];
            if !attached.holds_up() {
                pipe.pump(log, attached, now, at);
            }
            pipe.flush(log, now, at);
        }
    }

    /// Takes everything that is left when nobody writes any more.
    pub(crate) fn finish(&mut self, log: &mut LogFile, attached: &mut Attached, now: Timestamp, at: Instant) {
        for pipe in &mut self.pipes {
            let mut rounds = 0;
            while pipe.open && rounds < FINISH_ROUNDS_MAX && pipe.pump(log, attached, now, at) {
                rounds += 1;
            }
            pipe.write_partial(log, now);
        }
    }

    fn other(&self, which: usize) -> Option<&LogPipe> {
        self.pipes.iter().enumerate().find(|(index, _)| *index != which).map(|(_, pipe)| pipe)
    }

    /// Whether a stream is left alone for now, since the other one is in the middle of a long line.
    fn holds(&mut self, which: usize, at: Instant) -> bool {
        let since = self.paused.filter(|(paused, _)| *paused == which).map_or(at, |(_, since)| since);
        let holds = self.other(which).is_some_and(|other| other.is_amid_long_line(at)) && at < since + HELD_MAX;
        match self.paused {
            _ if holds => self.paused = Some((which, since)),
            Some((paused, _)) if paused == which => self.paused = None,
            _ => {}
        }
        holds
    }
}

/// The reading end of one stream, with the line it is in the middle of.
struct LogPipe {
    pipe: File,
    stream: Stream,
    /// Text that is not written yet, without the end of its line.
    partial: Vec<u8>,
    /// When that is written without waiting for more.
    flush_at: Option<Instant>,
    /// Bytes of the line so far; a carriage return begins it anew, as a progress bar does.
    line_bytes: usize,
    /// When it was read from last.
    grew_at: Option<Instant>,
    open: bool,
}

impl LogPipe {
    fn new(pipe: File, stream: Stream) -> Self {
        LogPipe { pipe, stream, partial: Vec::new(), flush_at: None, line_bytes: 0, grew_at: None, open: true }
    }

    fn is_amid_long_line(&self, at: Instant) -> bool {
        let long = self.line_bytes > PIECE_BYTES_MAX && self.line_bytes <= WHOLE_BYTES_MAX;
        self.open && long && self.grew_at.is_some_and(|grew| at < grew + REST_WITHIN)
    }

    /// Reads once; whether there may be more.
    fn pump(&mut self, log: &mut LogFile, attached: &mut Attached, now: Timestamp, at: Instant) -> bool {
        let mut buffer = [0; READ_BYTES_MAX];
        match self.pipe.read(&mut buffer) {
            Ok(0) => self.open = false,
            Ok(read) => {
                self.take(&buffer[..read], log, now, at);
                attached.write(self.stream.channel(), &buffer[..read], at);
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.open = false,
        }
        false
    }

    fn take(&mut self, bytes: &[u8], log: &mut LogFile, now: Timestamp, at: Instant) {
        let mut out = Vec::with_capacity(bytes.len() + 64);
        render(bytes, &mut self.partial, self.stream, now, &mut out);
        if !out.is_empty() {
            log.write(&out, now);
            self.flush_at = None;
        }
        self.line_bytes = match bytes.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')) {
            Some(end) => bytes.len() - end - 1,
            None => self.line_bytes.saturating_add(bytes.len()),
        };
        self.grew_at = Some(at);
        self.flush_at = if self.partial.is_empty() { None } else { Some(self.flush_at.unwrap_or(at + FLUSH_AFTER)) };
    }

    /// Writes text that has waited long enough for the end of its line.
    fn flush(&mut self, log: &mut LogFile, now: Timestamp, at: Instant) {
        if self.flush_at.is_some_and(|due| at >= due) {
            self.write_partial(log, now);
        }
    }

    fn write_partial(&mut self, log: &mut LogFile, now: Timestamp) {
        self.flush_at = None;
        if !self.partial.is_empty() {
            let mut out = Vec::new();
            line(&self.partial, 'P', self.stream, now, &mut out);
            self.partial.clear();
            log.write(&out, now);
        }
    }
}

/// Cuts `bytes` into log lines; what has no end yet stays in `partial`.
fn render(bytes: &[u8], partial: &mut Vec<u8>, stream: Stream, now: Timestamp, out: &mut Vec<u8>) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let room = PIECE_BYTES_MAX - partial.len();
        match rest.iter().take(room + 1).position(|byte| *byte == b'\n') {
            Some(end) => {
                partial.extend_from_slice(&rest[..end]);
                line(partial, 'F', stream, now, out);
                partial.clear();
                rest = &rest[end + 1..];
            }
            None => {
                let taken = rest.len().min(room);
                partial.extend_from_slice(&rest[..taken]);
                rest = &rest[taken..];
                if partial.len() == PIECE_BYTES_MAX && !rest.is_empty() {
                    line(partial, 'P', stream, now, out);
                    partial.clear();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::path::PathBuf;

    use super::*;
    use crate::logs::LOG_BYTES_MAX;
    use pumice_clock as clock;

    fn now() -> Timestamp {
        Timestamp::from_nanosecond(1_475_137_809_669_794_202).unwrap()
    }

    fn rendered(chunks: &[&[u8]]) -> (String, usize) {
        let (mut partial, mut out) = (Vec::new(), Vec::new());
        for chunk in chunks {
            render(chunk, &mut partial, Stream::Stderr, now(), &mut out);
        }
        (String::from_utf8(out).unwrap(), partial.len())
    }

    #[test]
    fn lines_carry_time_stream_and_tag() {
        let (out, left) = rendered(&[b"one\ntw", b"o\n\nthree"]);
        let head = "2016-09-29T08:30:09.669794202Z stderr F ";
        assert_eq!(out, format!("{head}one\n{head}two\n{head}\n"));
        assert_eq!(left, 5);
    }

    #[test]
    fn a_long_line_is_written_in_pieces() {
        let long = vec![b'x'; PIECE_BYTES_MAX * 2 + 5];
        let (out, left) = rendered(&[&long, b"\n"]);
        let lines: Vec<(&str, usize)> = out
            .lines()
            .map(|line| {
                let mut fields = line.splitn(4, ' ');
                (fields.nth(2).unwrap(), fields.next().unwrap().len())
            })
            .collect();
        assert_eq!(lines, [("P", PIECE_BYTES_MAX), ("P", PIECE_BYTES_MAX), ("F", 5)]);
        assert_eq!(left, 0);
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_one_line() {
        let mut exact = vec![b'x'; PIECE_BYTES_MAX];
        exact.push(b'\n');
        assert_eq!(rendered(&[&exact]).0.lines().count(), 1);
        assert_eq!(rendered(&[&exact[..PIECE_BYTES_MAX], b"\n"]).0.lines().count(), 1);
    }

    /// A container's output, the ends that its program has, and its log.
    struct Written {
        output: Output,
        log: LogFile,
        stdout: io::PipeWriter,
        stderr: io::PipeWriter,
        path: PathBuf,
        _dir: tempfile::TempDir,
    }

    impl Written {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("0.log");
            let log = LogFile::open(path.clone(), LOG_BYTES_MAX).unwrap();
            let pipe = || {
                let (read, write) = io::pipe().unwrap();
                let read = File::from(std::os::fd::OwnedFd::from(read));
                let set = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
                nix::fcntl::fcntl(&read, set).unwrap();
                (read, write)
            };
            let ((stdout_read, stdout), (stderr_read, stderr)) = (pipe(), pipe());
            Written { output: Output::new(stdout_read, stderr_read), log, stdout, stderr, path, _dir: dir }
        }

        fn pump(&mut self, at: Instant) {
            self.output.pump(&mut self.log, &mut Attached::new(None, false), now(), at);
        }

        /// What is in the log: stream, tag and text of each line; long texts by their length.
        fn stored(&self) -> Vec<String> {
            let text = fs::read_to_string(&self.path).unwrap();
            let short = |text: &str| if text.len() > 20 { text.len().to_string() } else { text.to_owned() };
            text.lines().filter_map(|line| line.split_once(' ')).map(|(_, rest)| short(rest)).collect()
        }
    }

    #[test]
    fn text_without_the_end_of_its_line_is_written_soon() {
        let mut written = Written::new();
        let began = clock::monotonic();
        written.stdout.write_all(b"\r 10%").unwrap();
        written.pump(began);
        assert_eq!(written.stored(), [""; 0], "its end may come at once");
        assert_eq!(written.output.next_turn(), Some(began + FLUSH_AFTER));
        // More of it does not put it off.
        written.stdout.write_all(b" ##").unwrap();
        written.pump(began + FLUSH_AFTER / 2);
        written.pump(began + FLUSH_AFTER);
        assert_eq!(written.stored(), ["stdout P \r 10% ##"]);
        assert_eq!(written.output.next_turn(), None);
        written.stdout.write_all(b"\r100%\n").unwrap();
        written.pump(began + 3 * FLUSH_AFTER);
        assert_eq!(written.stored(), ["stdout P \r 10% ##", "stdout F \r100%"]);
    }

    #[test]
    fn a_long_line_is_not_cut_by_the_other_stream() {
        let mut written = Written::new();
        let began = clock::monotonic();
        let piece = vec![b'x'; 2 * PIECE_BYTES_MAX];
        written.stdout.write_all(&piece).unwrap();
        written.pump(began);
        written.stderr.write_all(b"warning\n").unwrap();
        written.pump(began);
        assert_eq!(written.output.pollable().count(), 1, "what is not read must not wake who polls");
        assert!(written.output.next_turn().is_some());
        written.stdout.write_all(&piece).unwrap();
        written.stdout.write_all(b"\n").unwrap();
        written.pump(began + REST_WITHIN / 2);
        let lengths: Vec<String> = written.stored();
        assert_eq!(lengths.last().unwrap(), "stderr F warning", "{lengths:?}");
        assert_eq!(lengths.iter().filter(|line| line.starts_with("stderr")).count(), 1);
        assert_eq!(written.output.pollable().count(), 2);
    }

    #[test]
    fn a_stream_waits_for_the_other_one_for_a_moment_only() {
        // The rest does not come; it comes without an end; the line began anew.
        let silent: &[(u32, &[u8])] = &[];
        let endless: &[(u32, &[u8])] = &[(50, b"x"), (100, b"x"), (150, b"x"), (200, b"x")];
        let bar: &[(u32, &[u8])] = &[(1, b"\r 10%")];
        for (writes, waits_ms) in [(silent, 100), (endless, 300), (bar, 1)] {
            let mut written = Written::new();
            let began = clock::monotonic();
            written.stdout.write_all(&vec![b'x'; 2 * PIECE_BYTES_MAX]).unwrap();
            written.pump(began);
            written.stderr.write_all(b"w\n").unwrap();
            for (after_ms, bytes) in writes {
                written.pump(began);
                written.stdout.write_all(bytes).unwrap();
                written.pump(began + Duration::from_millis(u64::from(*after_ms)));
            }
            let has = |written: &Written| written.stored().iter().any(|line| line == "stderr F w");
            if waits_ms > 1 {
                written.pump(began + Duration::from_millis(waits_ms - 1));
                assert!(!has(&written), "{waits_ms}");
            }
            written.pump(began + Duration::from_millis(waits_ms));
            assert!(has(&written), "{waits_ms}");
        }
        let mut written = Written::new();
        let began = clock::monotonic();
        written.stdout.write_all(&vec![b'x'; 2 * PIECE_BYTES_MAX]).unwrap();
        written.pump(began);
        written.stderr.write_all(b"w\n").unwrap();
        for tenth in 0..=20 {
            written.stdout.write_all(b"x").unwrap();
            written.pump(began + HELD_MAX * tenth / 20);
        }
        assert!(
            written.stored().iter().any(|line| line == "stderr F w"),
            "it is read after {HELD_MAX:?} at the latest"
        );
    }

    #[test]
    fn what_is_left_is_written_at_the_end() {
        let mut written = Written::new();
        let at = clock::monotonic();
        written.stdout.write_all(b"a\nb").unwrap();
        written.stderr.write_all(b"c\n").unwrap();
        written.output.finish(&mut written.log, &mut Attached::new(None, false), now(), at);
        assert_eq!(written.stored(), ["stdout F a", "stdout P b", "stderr F c"]);
    }
}
