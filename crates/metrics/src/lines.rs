//! Lines to a file or a terminal that may refuse them, as on a full disk.
//!
//! Invariant: writing never panics, and no line is torn: what the file took of a line is completed by the next write that
//! succeeds. Lines in between are lost, counted, and reported in the file itself as soon as it takes lines again. Used for
//! the log of each program and for the output of containers.

use std::io::{self, Write};

use crate::Cell;

/// Lines of this process's own log that were lost. There is one log in a process, so there is one number.
pub static LOG_LINES_LOST: Cell = Cell::new();

/// The metric of [`LOG_LINES_LOST`].
const NAME: &str = "pumice_log_lines_lost_total";
const HELP: &str = "Lines of this process's log that could not be written, as on a full disk";

impl crate::Page {
    /// How many lines of this process's log were lost.
    pub fn log_lines_lost(&mut self) {
        self.counter(NAME, HELP, LOG_LINES_LOST.get());
    }
}

/// What is left to write, and what was lost since the last report.
#[derive(Debug, Default)]
pub struct LossyLines {
    /// The end of a line whose beginning was written.
    rest: Vec<u8>,
    lost: u64,
}

/// What became of one write.
#[derive(Debug, Default)]
pub struct Written {
    /// How many bytes the file took, earlier lines and the report included.
    pub bytes: u64,
    /// How many of the lines were lost.
    pub lost: u64,
    /// How many earlier lines were reported as lost.
    pub reported: Option<u64>,
    /// Why the file didn't take all.
    pub error: Option<io::Error>,
}

impl LossyLines {
    /// Nothing written and nothing lost.
    pub const fn new() -> Self {
        Self { rest: Vec::new(), lost: 0 }
    }

    /// Writes whole lines, after a line by `report` if earlier ones were lost.
    pub fn write(&mut self, out: &mut impl Write, lines: &[u8], report: impl FnOnce(u64) -> Vec<u8>) -> Written {
        let mut written = Written::default();
        let ready = self.catch_up(out, report, &mut written);
        let taken = if ready { self.take(out, lines, &mut written) } else { 0 };
        written.lost = count(&lines[taken..]);
        self.lost += written.lost;
        written
    }

    /// Whether a line is unfinished or a loss is not reported yet.
    pub fn is_behind(&self) -> bool {
        !self.rest.is_empty() || self.lost > 0
    }

    /// Completes a torn line and reports what was lost; whether all that was written.
    fn catch_up(&mut self, out: &mut impl Write, report: impl FnOnce(u64) -> Vec<u8>, written: &mut Written) -> bool {
        let rest = std::mem::take(&mut self.rest);
        let taken = self.take(out, &rest, written);
        if written.error.is_some() {
            // Nothing at all was taken of it: it is still the rest.
            if taken == 0 {
                self.rest = rest;
            }
            return false;
        }
        if self.lost == 0 {
            return true;
        }
        let line = report(self.lost);
        if self.take(out, &line, written) > 0 {
            written.reported = Some(self.lost);
            self.lost = 0;
        }
        written.error.is_none()
    }

    /// Writes lines; answers how many bytes are written or will be, since they complete a line that has begun.
    fn take(&mut self, out: &mut impl Write, lines: &[u8], written: &mut Written) -> usize {
        let mut taken = 0;
        while taken < lines.len() && written.error.is_none() {
            match out.write(&lines[taken..]) {
                Ok(0) => written.error = Some(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => taken += bytes.min(lines.len() - taken),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => written.error = Some(error),
            }
        }
        written.bytes += taken as u64;
        if taken == 0 || lines[taken - 1] == b'\n' {
            return taken;
        }
        let end = lines[taken..].iter().position(|byte| *byte == b'\n').map_or(lines.len(), |end| taken + end + 1);
        self.rest = lines[taken..end].to_vec();
        end
    }
}

/// How many lines there are, an unfinished last one included.
fn count(lines: &[u8]) -> u64 {
    lines.split_inclusive(|byte| *byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with so much room.
    #[derive(Default)]
    struct Disk {
        text: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.text.extend_from_slice(&bytes[..taken]);
            self.room -= taken;
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn report(lost: u64) -> Vec<u8> {
        format!("lost {lost}\n").into_bytes()
    }

    // INV-56
    #[test]
    fn lost_lines_are_counted_and_reported_when_there_is_room_again() {
        let (mut lines, mut disk) = (LossyLines::default(), Disk { room: 2, ..Disk::default() });
        assert_eq!(lines.write(&mut disk, b"a\n", report).lost, 0);
        let full = lines.write(&mut disk, b"b\nc\n", report);
        assert_eq!((full.lost, full.error.unwrap().kind()), (2, io::ErrorKind::StorageFull));
        assert_eq!(lines.write(&mut disk, b"d\n", report).lost, 1);
        assert!(lines.is_behind());
        disk.room = 100;
        let written = lines.write(&mut disk, b"e\n", report);
        assert_eq!((written.lost, written.reported, written.bytes), (0, Some(3), 9));
        assert_eq!(disk.text, b"a\nlost 3\ne\n");
        assert!(!lines.is_behind());
    }

    #[test]
    fn a_torn_line_is_completed_wherever_it_is_torn() {
        let text = b"first\nsecond\nthird\n";
        for (room, more) in (0..=text.len()).flat_map(|room| (0..12).map(move |more| (room, more))) {
            let (mut lines, mut disk) = (LossyLines::default(), Disk { room, ..Disk::default() });
            let mut lost = lines.write(&mut disk, text, report).lost;
            disk.room = more;
            lost += lines.write(&mut disk, b"x\n", report).lost;
            disk.room = 100;
            lost += lines.write(&mut disk, b"y\n", report).lost;
            let (mut known, mut reported) = (0, 0);
            for line in String::from_utf8(disk.text).unwrap().lines() {
                match line.strip_prefix("lost ") {
                    Some(count) => reported += count.parse::<u64>().unwrap(),
                    None => {
                        assert!(["first", "second", "third", "x", "y"].contains(&line), "{room} {more}: {line}");
                        known += 1;
                    }
                }
            }
            assert_eq!((known + lost, reported), (5, lost), "{room} {more}");
        }
    }

    #[test]
    fn an_unfinished_line_counts_as_one() {
        assert_eq!([count(b""), count(b"a"), count(b"a\n"), count(b"a\nb")], [0, 1, 1, 2]);
    }
}
