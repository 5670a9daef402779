//! Lines of a log as they come, as many as are wanted.
//!
//! Invariant: what is kept is whole lines in their order, from a moment on, and never more bytes than there may be. Pure.

use jiff::Timestamp;

/// The lines that are kept, each with its time before it and its end.
#[derive(Debug)]
pub(super) struct Lines {
    since: Option<Timestamp>,
    bytes_max: usize,
    taken: Vec<u8>,
    /// The beginning of a line of which more is to come; no longer than may be kept.
    begun: Vec<u8>,
    more: bool,
}

impl Lines {
    /// Those from `since` on, at most so many bytes of them.
    pub(super) fn new(since: Option<Timestamp>, bytes_max: usize) -> Self {
        Self { since, bytes_max, taken: Vec::new(), begun: Vec::new(), more: false }
    }

    /// Takes in what comes next. False when nothing more is wanted.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() && !self.more {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
            // Of a line that is too long the beginning is enough.
            let room = (self.bytes_max + 1).saturating_sub(self.begun.len());
            self.begun.extend_from_slice(&part[..part.len().min(room)]);
            if end.is_some() {
                self.line();
            }
            bytes = rest;
        }
        !self.more
    }

    /// All that is kept, and whether there is more. A last line without an end is a line where nothing more comes; else it is
    /// left for another time.
    pub(super) fn finish(mut self, ended: bool) -> (Vec<u8>, bool) {
        if ended && !self.begun.is_empty() && !self.more {
            self.line();
        }
        (self.taken, self.more)
    }

    /// Keeps the line that has come, or leaves it out.
    fn line(&mut self) {
        let mut line = std::mem::take(&mut self.begun);
        if self.is_before(&line) {
            return;
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        if self.taken.len() + line.len() <= self.bytes_max {
            return self.taken.append(&mut line);
        }
        self.more = true;
        if self.taken.is_empty() {
            // It would be too long for any answer.
            line.truncate(self.bytes_max);
            self.taken = line;
        }
    }

    /// Whether it was written before the moment. One without a time is not.
    fn is_before(&self, line: &[u8]) -> bool {
        let Some(since) = self.since else { return false };
        let time = line.split(|byte| *byte == b' ').next().and_then(|time| std::str::from_utf8(time).ok());
        time.and_then(|time| time.trim_end().parse::<Timestamp>().ok()).is_some_and(|time| time < since)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOG: &str =
        "2026-01-01T00:00:00.1Z a\n2026-01-01T00:00:00.2Z b c\n2026-01-01T00:00:00.2Z \n2026-01-01T00:00:01Z d\n";

    fn time(text: &str) -> Option<Timestamp> {
        Some(text.parse().unwrap())
    }

    fn gather(since: Option<Timestamp>, bytes_max: usize, pieces: &[&[u8]], ended: bool) -> (String, bool) {
        let mut lines = Lines::new(since, bytes_max);
        for piece in pieces {
            if !lines.take(piece) {
                break;
            }
        }
        let (taken, more) = lines.finish(ended);
        (String::from_utf8(taken).unwrap(), more)
    }

    #[test]
    fn lines_are_kept_from_a_moment_on_as_far_as_there_is_room() {
        let all = LOG.split_inclusive('\n').collect::<Vec<_>>();
        for (since, bytes_max, taken, more) in [
            (None, 1000, &all[..], false),
            (None, LOG.len(), &all[..], false),
            (None, LOG.len() - 1, &all[..3], true),
            // That moment is among them: several lines may have it.
            (time("2026-01-01T00:00:00.2Z"), 1000, &all[1..], false),
            (time("2026-01-01T00:00:00.20000001Z"), 1000, &all[3..], false),
            (time("2026-01-01T00:00:00.2Z"), 30, &all[1..2], true),
            (time("2027-01-01T00:00:00Z"), 1000, &[], false),
        ] {
            assert_eq!(
                gather(since, bytes_max, &[LOG.as_bytes()], false),
                (taken.concat(), more),
                "{since:?} {bytes_max}"
            );
        }
        // A line that is longer than any answer may be is cut.
        assert_eq!(gather(None, 10, &[LOG.as_bytes()], false), ("2026-01-01".to_owned(), true));
    }

    #[test]
    fn a_line_without_an_end_is_one_when_nothing_more_comes() {
        let begun = b"2026-01-01T00:00:00Z half";
        assert_eq!(gather(None, 100, &[begun], false), (String::new(), false));
        assert_eq!(gather(None, 100, &[begun], true), ("2026-01-01T00:00:00Z half\n".to_owned(), false));
        assert_eq!(gather(None, 100, &[b"no time\n"], true), ("no time\n".to_owned(), false));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_in_which_pieces_they_come(
            texts in prop::collection::vec("[a-z ]{0,20}", 0..12),
            cuts in prop::collection::vec(1_usize..30, 1..10),
            bytes_max in 1_usize..200,
            ended: bool,
        ) {
            let log: String = texts.iter().map(|text| format!("2026-01-01T00:00:00Z {text}\n")).collect();
            let whole = gather(None, bytes_max, &[log.as_bytes()], ended);
            let (mut pieces, mut rest, mut cuts) = (Vec::new(), log.as_bytes(), cuts.iter().cycle());
            while let (Some(cut), false) = (cuts.next(), rest.is_empty()) {
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                (pieces, rest) = ([pieces, vec![piece]].concat(), after);
            }
            prop_assert_eq!(&gather(None, bytes_max, &pieces, ended), &whole);
            prop_assert!(whole.0.len() <= bytes_max && log.starts_with(&whole.0));
            prop_assert_eq!(whole.1, log.len() > bytes_max);
        }
    }
}
