//! What the agent of an ordinary user does with files of other ids that its pods have: counting them, taking and giving folders.
//!
//! Each is done by a process of its own in the user namespace that such pods have ([`crate::user_namespace`]), where this user is root.
//! Removing them is [`crate::remove`]'s. Invariant: a path is never gone along but for its last name, whose parents are the agent's.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::unistd::{Gid, Uid, fchown};

use super::journal::journal;
use pumice_linux::tree::size::Size;

/// Word that has the files below a folder counted, whose path follows. Standard output is a socket, by which numbers of entries come
/// in and [`Counted`] goes out, a line each.
pub const COUNT: &str = "--count";
/// Word that gives a folder to the root of the user namespace; its path follows.
pub const TAKE: &str = "--take";
/// Word that gives a folder, and what is made in it from then on, to a group; that group and the path follow.
pub const GIVE_TO_GROUP: &str = "--give-to-group";

/// How far a count is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Bytes on disk that were found so far.
    pub bytes: u64,
    /// How many of the entries asked for it did not take.
    pub entries_left: u32,
    /// Whether that is all.
    pub is_all: bool,
}

/// Ends the line of a count that is finished.
const ALL: &str = "all";
const SO_FAR: &str = "so far";

impl Counted {
    fn line(self) -> String {
        format!("{} {} {}\n", self.bytes, self.entries_left, if self.is_all { ALL } else { SO_FAR })
    }

    /// What a line says.
    pub fn parse(line: &str) -> Option<Counted> {
        let mut parts = line.trim_end().splitn(3, ' ');
        let (bytes, entries_left) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Counted { bytes, entries_left, is_all: parts.next()? == ALL })
    }
}

/// Counts what is below `path` for as long as somebody asks how far it is.
pub(crate) fn count(path: &Path) -> ExitCode {
    done(&format!("count {}", path.display()), count_for(path))
}

fn count_for(path: &Path) -> io::Result<()> {
    let socket = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut size = Size::of(path)?;
    let mut requests = BufReader::new(&socket);
    loop {
        let mut line = String::new();
        if requests.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut entries = line.trim_end().parse().map_err(io::Error::other)?;
        let is_all = size.go_on(&mut entries);
        (&socket).write_all(Counted { bytes: size.bytes(), entries_left: entries, is_all }.line().as_bytes())?;
        if is_all {
            return Ok(());
        }
    }
}

/// Gives the folder at `path` to root, so that the agent may move it and look into it.
pub(crate) fn take(path: &Path) -> ExitCode {
    let taken = folder(path).and_then(|folder| {
        fchown(&folder, Some(Uid::from_raw(0)), Some(Gid::from_raw(0)))?;
        Ok(fchmod(&folder, Mode::S_IRWXU)?)
    });
    done(&format!("take {}", path.display()), taken)
}

/// Gives the folder at `path` to a group.
pub(crate) fn give_to_group(group: &str, path: &Path) -> ExitCode {
    let given = folder(path).and_then(|folder| {
        let mode = Mode::from_bits_truncate(fstat(&folder)?.st_mode);
        fchown(&folder, None, Some(Gid::from_raw(group.parse().map_err(io::Error::other)?)))?;
        Ok(fchmod(&folder, mode | Mode::S_ISGID)?)
    });
    done(&format!("give {} to group {group}", path.display()), given)
}

fn folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

fn done(what: &str, result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            journal(&format!("can't {what}: {error}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_read_as_it_was_written() {
        for counted in [
            Counted { bytes: 0, entries_left: 7, is_all: true },
            Counted { bytes: u64::MAX, entries_left: 0, is_all: false },
        ] {
            assert_eq!(Counted::parse(&counted.line()), Some(counted));
        }
        assert_eq!(Counted::parse("no count"), None);
    }
}
