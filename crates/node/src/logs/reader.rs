//! Reading a container's log file: from the end, from a time, and on as it grows.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http_body::Frame;
use jiff::Timestamp;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use crate::logs::query::LogQuery;
use crate::shim_watch::LogWatch;
use pumice_shim::logs::{self, gone_bytes, log_path, rotated_path};
use pumice_shim::status::{ShimPhase, ShimStatus};

/// How often a log that is followed is looked at where the kernel gives no more watches.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const CHUNK_BYTES: usize = 64 << 10;
/// Longest line that is waited for; what has no end after that is passed on as it is.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Which log is read, and how.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub dir: PathBuf,
    pub container: String,
    pub attempt: u32,
    /// What is wanted of it.
    pub query: LogQuery,
}

/// The text of a log in pieces.
pub(crate) fn stream(source: Source) -> impl Stream<Item = io::Result<Frame<Bytes>>> + Send {
    let reader = Reader {
        left: source.query.limit_bytes,
        source,
        begun: false,
        file: None,
        watch: None,
        pending: Vec::new(),
        whole_line: true,
        preface: None,
    };
    futures::stream::try_unfold(reader, |mut reader| async move {
        let piece = reader.next().await?;
        Ok(piece.map(|bytes| (Frame::data(bytes), reader)))
    })
}

struct Reader {
    source: Source,
    begun: bool,
    file: Option<File>,
    watch: Option<LogWatch>,
    /// Bytes read that are not a whole line yet.
    pending: Vec<u8>,
    left: Option<u64>,
    /// Whether the next piece of text starts a line.
    whole_line: bool,
    /// What is said before the first line that is read.
    preface: Option<String>,
}

impl Reader {
    /// The next piece of text; none at the end.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if self.left == Some(0) {
            return Ok(None);
        }
        if !self.begun {
            self.begun = true;
            // Watched before it is read: what comes meanwhile is news.
            self.watch = if self.source.query.follow { self.watch() } else { None };
            self.preface = self.preface();
            if let Some(lines) = self.source.query.tail_lines {
                let text = self.tail(lines).await?;
                if !text.is_empty() {
                    return Ok(Some(self.limited(text)));
                }
            }
        }
        loop {
            // Asked before reading: what was written before the end is read after it.
            let over = !self.source.query.follow || self.ended();
            let mut text = self.read().await?;
            if !text.is_empty() {
                return Ok(Some(self.limited(std::mem::take(&mut text))));
            }
            if self.go_on().await? {
                continue;
            }
            if over {
                return Ok(None);
            }
            match &self.watch {
                Some(watch) => watch.changed().await?,
                None => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Says that the beginning of a log is gone, to who asked for all of it.
    fn preface(&self) -> Option<String> {
        let LogQuery { tail_lines: None, since: None, .. } = self.source.query else { return None };
        let path = log_path(&self.source.dir, &self.source.container, self.source.attempt);
        let gone = Some(gone_bytes(&path)).filter(|gone| *gone > 0)?;
        Some(format!(
            "[pumice: the first {gone} bytes of this log are gone: it was larger than what is kept of a log]\n"
        ))
    }

    fn watch(&self) -> Option<LogWatch> {
        let path = log_path(&self.source.dir, &self.source.container, self.source.attempt);
        LogWatch::new(path.parent()?, &self.source.dir).ok()
    }

    /// Whether the run that is read has ended.
    fn ended(&self) -> bool {
        let Ok(status) = ShimStatus::read(&self.source.dir) else { return true };
        let container = status.container(&self.source.container);
        let running = container.is_some_and(|c| c.is_running() && c.restart_count == self.source.attempt);
        status.phase == ShimPhase::Done || !running
    }

    /// The lines that are wanted of the end of the log, after which it goes on.
    async fn tail(&mut self, lines: u64) -> io::Result<Vec<u8>> {
        let mut tail = Tail::new(lines);
        loop {
            let piece = self.read().await?;
            if !piece.is_empty() {
                tail.push(&piece);
            } else if !self.go_on().await? {
                return Ok(tail.into_text());
            }
        }
    }

    /// Goes on to the next file, if there is one; otherwise this one may still grow.
    async fn go_on(&mut self) -> io::Result<bool> {
        let Some(next) = self.successor().await? else { return Ok(false) };
        // What was written to the old one just before it was moved aside is read first.
        let unread = match &mut self.file {
            Some(file) => file.stream_position().await? < file.metadata().await?.len(),
            None => false,
        };
        if !unread {
            self.file = Some(next);
        }
        Ok(true)
    }

    /// The file that comes after the one that is read, where a log that grew too large was moved aside; none where that is the
    /// latest.
    async fn successor(&self) -> io::Result<Option<File>> {
        let path = log_path(&self.source.dir, &self.source.container, self.source.attempt);
        // The latest first: one that is moved aside meanwhile is found as the older one then, and read from its beginning.
        let (latest, older) = (open_file(&path).await?, open_file(&rotated_path(&path)).await?);
        let Some(own) = inode(self.file.as_ref()).await? else { return Ok(older.or(latest)) };
        if inode(latest.as_ref()).await? == Some(own) {
            return Ok(None);
        }
        Ok(if inode(older.as_ref()).await? == Some(own) { latest } else { older.or(latest) })
    }

    /// Reads what there is and returns its text; empty at the end of the file.
    async fn read(&mut self) -> io::Result<Vec<u8>> {
        let Some(file) = &mut self.file else { return Ok(Vec::new()) };
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let read = file.read(&mut buffer).await?;
            if read == 0 {
                return Ok(Vec::new());
            }
            self.pending.extend_from_slice(&buffer[..read]);
            let end = match self.pending.iter().rposition(|byte| *byte == b'\n') {
                Some(at) => at + 1,
                None if self.pending.len() > LINE_BYTES_MAX => self.pending.len(),
                None => continue,
            };
            let lines: Vec<u8> = self.pending.drain(..end).collect();
            let mut text = Vec::with_capacity(lines.len());
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                if let Some(preface) = self.preface.take() {
                    // It has the time of the line that it stands before.
                    let time = line.split(|byte| *byte == b' ').next().unwrap_or_default();
                    // Whichever stream is read is told.
                    let stream = self.source.query.stream.unwrap_or(logs::Stream::Stdout).name();
                    let said = [time, b" ", stream.as_bytes(), b" F ", preface.as_bytes()].concat();
                    render(&said, &self.source.query, &mut self.whole_line, &mut text);
                }
                render(line, &self.source.query, &mut self.whole_line, &mut text);
            }
            if !text.is_empty() {
                return Ok(text);
            }
        }
    }

    fn limited(&mut self, mut text: Vec<u8>) -> Bytes {
        if let Some(left) = &mut self.left {
            text.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= text.len() as u64;
        }
        text.into()
    }
}

async fn open_file(path: &Path) -> io::Result<Option<File>> {
    match File::open(path).await {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a file is known by, wherever it is moved.
async fn inode(file: Option<&File>) -> io::Result<Option<u64>> {
    match file {
        Some(file) => Ok(Some(file.metadata().await?.ino())),
        None => Ok(None),
    }
}

/// Adds the text of one stored line, if it is wanted.
fn render(line: &[u8], query: &LogQuery, whole_line: &mut bool, out: &mut Vec<u8>) {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let (Some(time), Some(stream), Some(tag), Some(text)) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return;
    };
    if query.stream.is_some_and(|wanted| wanted.name().as_bytes() != stream) {
        return;
    }
    if query.since.is_some_and(|since| parse_time(time).is_some_and(|at| at < since)) {
        return;
    }
    if query.timestamps && *whole_line {
        out.extend_from_slice(time);
        out.push(b' ');
    }
    out.extend_from_slice(text);
    *whole_line = tag == b"F";
    if *whole_line {
        out.push(b'\n');
    }
}

fn parse_time(bytes: &[u8]) -> Option<Timestamp> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// The last lines of a text that comes in pieces.
struct Tail {
    lines_max: u64,
    lines: VecDeque<Vec<u8>>,
    open: bool,
}

impl Tail {
    fn new(lines_max: u64) -> Self {
        Tail { lines_max, lines: VecDeque::new(), open: false }
    }

    fn push(&mut self, text: &[u8]) {
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            match self.lines.back_mut() {
                Some(last) if self.open => last.extend_from_slice(line),
                _ => self.lines.push_back(line.to_vec()),
            }
            self.open = !line.ends_with(b"\n");
            while self.lines.len() as u64 > self.lines_max {
                self.lines.pop_front();
                self.open &= !self.lines.is_empty();
            }
        }
    }

    fn into_text(self) -> Vec<u8> {
        self.lines.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt as _;
    use pumice_linux::files::Durability;
    use pumice_shim::status::ContainerState;

    #[test]
    fn the_last_lines_are_found_across_pieces() {
        for (lines, expected) in [(0, ""), (1, "cd\n"), (2, "b\ncd\n"), (9, "a\nb\ncd\n")] {
            let mut tail = Tail::new(lines);
            for piece in ["a\nb", "\nc", "d\n"] {
                tail.push(piece.as_bytes());
            }
            assert_eq!(String::from_utf8(tail.into_text()).unwrap(), expected, "{lines}");
        }
    }

    /// A pod whose container runs, and the path of its log.
    fn running(dir: &Path) -> (ShimStatus, PathBuf) {
        let mut status = ShimStatus::new([].into_iter(), ["c"].into_iter(), Timestamp::UNIX_EPOCH);
        status.containers[0].state = ContainerState::Running { started_at: Timestamp::UNIX_EPOCH, pid: None };
        status.write(dir, Durability::Process).unwrap();
        let path = log_path(dir, "c", 0);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        (status, path)
    }

    fn append(path: &Path, lines: &[&str]) {
        let text: String = lines.iter().map(|line| format!("2023-11-14T22:13:20Z stdout F {line}\n")).collect();
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    }

    fn read(dir: &Path, query: LogQuery) -> impl Stream<Item = String> {
        let source = Source { dir: dir.to_owned(), container: "c".into(), attempt: 0, query };
        stream(source).map(|piece| String::from_utf8(piece.unwrap().into_data().unwrap().to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_log_is_followed_to_the_files_that_come_after() {
        let dir = tempfile::tempdir().unwrap();
        let (mut status, path) = running(dir.path());
        append(&path, &["one"]);
        let query = LogQuery { follow: true, ..LogQuery::default() };
        let mut followed = std::pin::pin!(read(dir.path(), query));
        assert_eq!(followed.next().await.unwrap(), "one\n");
        append(&path, &["two"]);
        std::fs::rename(&path, rotated_path(&path)).unwrap();
        // Longer than the one before, so that its length says nothing.
        append(&path, &["three", "four", "five"]);
        let mut text = String::new();
        while text != "two\nthree\nfour\nfive\n" {
            text += &followed.next().await.unwrap();
        }
        // Twice, while nobody looked.
        for line in ["six", "seven"] {
            std::fs::rename(&path, rotated_path(&path)).unwrap();
            append(&path, &[line]);
        }
        status.phase = ShimPhase::Done;
        status.write(dir.path(), Durability::Process).unwrap();
        assert_eq!(followed.collect::<String>().await, "six\nseven\n");
    }

    #[tokio::test]
    async fn what_was_moved_aside_is_part_of_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let (_, path) = running(dir.path());
        append(&rotated_path(&path), &["a", "b"]);
        append(&path, &["c"]);
        for (tail_lines, expected) in [(None, "a\nb\nc\n"), (Some(2), "b\nc\n"), (Some(1), "c\n"), (Some(0), "")] {
            let query = LogQuery { tail_lines, ..LogQuery::default() };
            assert_eq!(read(dir.path(), query).collect::<String>().await, expected, "{tail_lines:?}");
        }
    }

    #[tokio::test]
    async fn a_log_that_lost_its_beginning_says_so_to_who_reads_it_from_there() {
        let dir = tempfile::tempdir().unwrap();
        let (_, path) = running(dir.path());
        append(&rotated_path(&path), &["a"]);
        append(&path, &["b"]);
        std::fs::write(path.with_extension("log.gone"), "123").unwrap();
        let all = LogQuery::default;
        let said = "[pumice: the first 123 bytes of this log are gone: it was larger than what is kept of a log]\n";
        let time = "2023-11-14T22:13:20Z ";
        for (query, expected) in [
            (all(), format!("{said}a\nb\n")),
            (LogQuery { timestamps: true, ..all() }, format!("{time}{said}{time}a\n{time}b\n")),
            (LogQuery { limit_bytes: Some(8), ..all() }, "[pumice:".to_owned()),
            (LogQuery { tail_lines: Some(9), ..all() }, "a\nb\n".to_owned()),
            (LogQuery { since: Some(Timestamp::UNIX_EPOCH), ..all() }, "a\nb\n".to_owned()),
        ] {
            assert_eq!(read(dir.path(), query.clone()).collect::<String>().await, expected, "{query:?}");
        }
        for unreadable in ["", "-5", "many", "0", "123456789012345678901"] {
            std::fs::write(path.with_extension("log.gone"), unreadable).unwrap();
            assert_eq!(read(dir.path(), all()).collect::<String>().await, "a\nb\n", "{unreadable}");
        }
    }

    #[test]
    fn a_broken_line_is_left_out() {
        let mut out = Vec::new();
        let mut whole = true;
        for line in ["", "x", "2023-11-14T22:13:20Z stdout F", "2023-11-14T22:13:20Z stdout F ok\n"] {
            render(line.as_bytes(), &LogQuery::default(), &mut whole, &mut out);
        }
        assert_eq!(out, b"ok\n");
    }
}
