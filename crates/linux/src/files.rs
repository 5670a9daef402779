//! Files that are either the old or the new version, never a torn one.
//!
//! Invariant: whoever reads a path written here sees one whole version. Everything is private to
//! its owner (0600). Called by the shim for `status.json` and by the agent for everything else.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::signal::{SigHandler, Signal, signal};

use crate::tree::removal;

/// What a written file has to survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The death of the writing process.
    Process,
    /// The loss of power.
    Power,
}

/// Puts `bytes` at `path` by way of a temporary file beside it.
pub fn write_atomic(path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = Path::new(&temporary);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(temporary)?;
    file.write_all(bytes)?;
    if durability == Durability::Power {
        file.sync_all()?;
    }
    drop(file);
    if durability == Durability::Process {
        return put_in_place(temporary, path);
    }
    fs::rename(temporary, path)?;
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// Where a file takes the place of another one, some file systems begin to write it to the disk at once. So the two change places, and
/// the one before goes.
fn put_in_place(temporary: &Path, path: &Path) -> io::Result<()> {
    match renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RenameFlags::RENAME_EXCHANGE) {
        Ok(()) => {
            // What is left of it the next one is written to.
            let _ = fs::remove_file(temporary);
            Ok(())
        }
        // There is none before, or the file system does not know how.
        Err(_) => fs::rename(temporary, path),
    }
}

/// A write beyond the largest size of a file (`ulimit -f`) fails, as one on a full disk does; else its signal would end the
/// process, be it for a line of a log. Programs of pods get the signal's default back.
///
/// For the beginning of a program.
#[allow(unsafe_code)]
pub fn fail_writes_beyond_the_limit() {
    // SAFETY: the signal is ignored, so no code of ours runs as its handler; programs call this before another thread runs.
    let _ = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
}

/// Whether a write failed as the disk, or what one may have of it, is full or takes no writes: it may do later.
pub fn is_for_want_of_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// Opens a file that is written line by line, for its owner alone.
pub fn append_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Reads a file of at most `bytes_max` bytes.
pub fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if read as u64 > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Creates a directory and its parents for this user only.
pub fn private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes a file or a whole directory, however long that takes; nothing there is fine.
///
/// For what this process made itself. What a pod may have shaped goes by [`crate::agent`]'s remover.
pub fn remove(path: &Path) -> io::Result<()> {
    Ok(removal::remove(path, &mut || true).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_written_file_is_whole_private_and_leaves_no_temporary() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("status.json");
        for (text, durability) in [("first, the longer one", Durability::Power), ("second", Durability::Process)] {
            write_atomic(&path, text.as_bytes(), durability).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_over_the_limit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_bounded(&path, 5).unwrap(), b"12345");
        assert_eq!(read_bounded(&path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn removing_what_is_not_there_is_fine() {
        let dir = tempfile::tempdir().unwrap();
        remove(&dir.path().join("absent")).unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        remove(&dir.path().join("a")).unwrap();
        assert!(!dir.path().join("a").exists());
    }
}
