//! What process 1 of a container tells its shim, and a program beside it those who asked for it.

use std::fs::File;
use std::io::Write;

use nix::sys::wait::WaitStatus;

use crate::discarded::Discarded;

/// What process 1 tells its shim, one line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The program's process was made.
    Started,
    /// The program could not be started, and why.
    Failed(String),
    /// The disk has no room for what the program needs to be started, and why.
    NoRoom(String),
    /// The program exited with a code.
    Exited(i32),
    /// The program was killed by a signal.
    Killed(i32),
    /// What the container wrote is gone with it.
    Discarded(Discarded),
}

impl Report {
    /// Writes the line to whoever listens.
    pub fn send(&self, mut pipe: &File) {
        // The shim may be gone; then there is nobody to tell.
        let _ = pipe.write_all(self.line().as_bytes());
    }

    /// As it is sent, its end of line included.
    pub fn line(&self) -> String {
        match self {
            Report::Started => "S\n".to_owned(),
            Report::Failed(text) => format!("F{}\n", text.replace('\n', " ")),
            Report::NoRoom(text) => format!("N{}\n", text.replace('\n', " ")),
            Report::Exited(code) => format!("X{code}\n"),
            Report::Killed(signal) => format!("K{signal}\n"),
            // Text and numbers always have a form in JSON, which has no line breaks of its own.
            Report::Discarded(found) => format!("D{}\n", serde_json::to_string(found).unwrap_or_default()),
        }
    }

    /// The end of a process.
    pub fn of(end: WaitStatus) -> Option<Report> {
        match end {
            WaitStatus::Exited(_, code) => Some(Report::Exited(code)),
            WaitStatus::Signaled(_, signal, _) => Some(Report::Killed(signal as i32)),
            _ => None,
        }
    }

    /// Reads a line as [`Report::line`] writes it; `None` where it is another.
    pub fn parse(line: &str) -> Option<Report> {
        let (kind, rest) = line.split_at_checked(1)?;
        match kind {
            "S" => Some(Report::Started),
            "F" => Some(Report::Failed(rest.to_owned())),
            "N" => Some(Report::NoRoom(rest.to_owned())),
            "X" => rest.parse().ok().map(Report::Exited),
            "K" => rest.parse().ok().map(Report::Killed),
            "D" => serde_json::from_str(rest).ok().map(Report::Discarded),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    #[test]
    fn reports_are_read_as_they_were_sent() {
        let reports = [
            Report::Started,
            Report::Failed("a\nb".into()),
            Report::NoRoom("c".into()),
            Report::Exited(3),
            Report::Killed(9),
            Report::Discarded(Discarded { files: 2, partial: true, first: vec!["/a\nb".into(), "/é".into()] }),
        ];
        let mut file = tempfile::tempfile().unwrap();
        for report in &reports {
            report.send(&file);
        }
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let read: Vec<_> = text.lines().map(|line| Report::parse(line).unwrap()).collect();
        assert_eq!(read[1], Report::Failed("a b".into()));
        assert_eq!((&read[..1], &read[2..]), (&reports[..1], &reports[2..]));
        for nonsense in ["", "?", "X", "Kx", "é"] {
            assert_eq!(Report::parse(nonsense), None, "{nonsense}");
        }
    }
}
