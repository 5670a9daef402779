//! Reading a container's log file: from the end, from a time, and on as it grows.

use std::collections::VecDeque;
use std::io::{self, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http_body::Frame;
use jiff::Timestamp;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::log_query::LogQuery;
use super::shim_watch::LogWatch;
use crate::shim::logs::{log_path, rotated_path};
use crate::shim::status::{ShimPhase, ShimStatus};

/// How often a log that is followed is looked at where the kernel gives no more watches.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const CHUNK_BYTES: usize = 64 << 10;
/// Longest line that is waited for; what has no end after that is passed on as it is.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Which log is read, and how.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// The pod's directory.
    pub dir: PathBuf,
    /// The container.
    pub container: String,
    /// The run.
    pub attempt: u32,
    /// What is wanted of it.
    pub query: LogQuery,
}

/// The text of a log in pieces.
pub(crate) fn stream(source: Source) -> impl Stream<Item = io::Result<Frame<Bytes>>> + Send {
    let reader = Reader {
        left: source.query.limit_bytes,
        source,
        file: None,
        watch: None,
        pending: Vec::new(),
        whole_line: true,
    };
    futures::stream::try_unfold(reader, |mut reader| async move {
        let piece = reader.next().await?;
        Ok(piece.map(|bytes| (Frame::data(bytes), reader)))
    })
}

struct Reader {
    source: Source,
    file: Option<File>,
    watch: Option<LogWatch>,
    /// Bytes read that are not a whole line yet.
    pending: Vec<u8>,
    left: Option<u64>,
    /// Whether the next piece of text starts a line.
    whole_line: bool,
}

impl Reader {
    /// The next piece of text; none at the end.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if self.left == Some(0) {
            return Ok(None);
        }
        if self.file.is_none() {
            // Watched before it is read: what comes meanwhile is news.
            self.watch = self.source.query.follow.then(|| self.watch()).flatten();
            let text = self.open().await?;
            if !text.is_empty() {
                return Ok(Some(self.limited(text)));
            }
        }
        loop {
            // Asked before reading: what was written before the end is read after it.
            let over = !self.source.query.follow || self.ended();
            let mut text = self.read().await?;
            if !text.is_empty() {
                return Ok(Some(self.limited(std::mem::take(&mut text))));
            }
            if over {
                return Ok(None);
            }
            match &self.watch {
                Some(watch) => watch.changed().await?,
                None => tokio::time::sleep(LOOK_EVERY).await,
            }
            self.reopen_if_rotated().await?;
        }
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

    /// Opens the log at the first byte that is wanted; with `tailLines`, returns those lines.
    async fn open(&mut self) -> io::Result<Vec<u8>> {
        let path = log_path(&self.source.dir, &self.source.container, self.source.attempt);
        let mut text = Vec::new();
        let mut tail = self.source.query.tail_lines.map(Tail::new);
        for path in [rotated_path(&path), path] {
            let file = match File::open(&path).await {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            self.file = Some(file);
            if tail.is_none() && path.extension().is_some_and(|extension| extension == "log") {
                break;
            }
            loop {
                let piece = self.read().await?;
                if piece.is_empty() {
                    break;
                }
                match &mut tail {
                    Some(tail) => tail.push(&piece),
                    None => text.extend(piece),
                }
            }
        }
        Ok(tail.map_or(text, Tail::into_text))
    }

    async fn reopen_if_rotated(&mut self) -> io::Result<()> {
        let path = log_path(&self.source.dir, &self.source.container, self.source.attempt);
        let (Some(file), Ok(now)) = (&mut self.file, tokio::fs::metadata(&path).await) else { return Ok(()) };
        if file.seek(SeekFrom::Current(0)).await? > now.len() {
            self.file = Some(File::open(&path).await?);
        }
        Ok(())
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

/// Adds the text of one stored line, if it is wanted.
fn render(line: &[u8], query: &LogQuery, whole_line: &mut bool, out: &mut Vec<u8>) {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let (Some(time), Some(_stream), Some(tag), Some(text)) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return;
    };
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
            match self.lines.back_mut().filter(|_| self.open) {
                Some(last) => last.extend_from_slice(line),
                None => self.lines.push_back(line.to_vec()),
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
