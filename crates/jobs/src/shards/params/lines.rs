//! Bytes as lines of bounded length, counted.
//!
//! Invariant: no more is kept than the caller's bound, however long a line is. Called by `table`.

use std::io::{self, BufRead, Read as _};

/// A source of lines.
pub(super) struct Lines<R> {
    input: R,
    /// How many lines were read.
    count: u64,
}

/// How reading a line went.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A line was added.
    Line,
    /// There is none.
    End,
    /// It goes beyond the bound.
    TooLong,
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R) -> Self {
        Self { input, count: 0 }
    }

    /// How many lines were read.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Adds the next line with its end to `text`, which may get `bytes_max` bytes.
    pub fn read(&mut self, text: &mut Vec<u8>, bytes_max: usize) -> io::Result<Read> {
        let before = text.len();
        // One byte more than allowed tells a line that is just as long from one that goes on.
        let room = (bytes_max + 1).saturating_sub(before) as u64;
        self.input.by_ref().take(room).read_until(b'\n', text)?;
        if text.len() == before {
            return Ok(if room == 0 { Read::TooLong } else { Read::End });
        }
        self.count += 1;
        if self.count == 1 && text.starts_with("\u{feff}".as_bytes()) {
            text.drain(..'\u{feff}'.len_utf8());
        }
        Ok(if text.len() > bytes_max { Read::TooLong } else { Read::Line })
    }
}

/// A line without its end, which is `\n` or `\r\n`.
pub(super) fn without_end(line: &str) -> &str {
    line.strip_suffix('\n').map_or(line, |line| line.strip_suffix('\r').unwrap_or(line))
}
