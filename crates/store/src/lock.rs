//! The lock that keeps a second process out of a data directory.
//!
//! Invariant: while a [`DirectoryLock`] lives, no other process holds one on the same directory.
//! The kernel drops the lock with the process, so a stale file is harmless. Taken by [`crate::Store`].

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Name of the lock file in the data directory.
const LOCK_FILE: &str = "lock";
/// Longest process id that is read back.
const PID_BYTES_MAX: u64 = 32;

/// Sole ownership of a data directory, released on drop.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

/// Why a data directory could not be locked.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process has it.
    #[error(
        "data directory {directory} is in use by process {pid}; stop it or choose another directory",
        directory = directory.display()
    )]
    InUse {
        directory: PathBuf,
        /// The holder's process id, `unknown` when it has not written it yet.
        pid: String,
    },
    /// The lock file cannot be made or locked.
    #[error("cannot lock {path}; check that the directory is writable", path = path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl DirectoryLock {
    /// Locks `directory`, which must exist, without waiting.
    pub fn acquire(directory: &Path) -> Result<Self, LockError> {
        let path = directory.join(LOCK_FILE);
        let failed = |source| LockError::Open { path: path.clone(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::InUse { directory: directory.to_path_buf(), pid: read_pid(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // The pid only serves the other side's message: a full disk must not keep us from starting.
        if let Err(error) = write_pid(&mut file) {
            tracing::debug!(%error, "process id not written to the lock file");
        }
        Ok(Self { _file: file })
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}", std::process::id())
}

fn read_pid(file: &mut File) -> String {
    let mut text = String::new();
    let known = file.take(PID_BYTES_MAX).read_to_string(&mut text).is_ok();
    let pid = text.trim();
    if known && !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()) {
        pid.to_owned()
    } else {
        "unknown".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_told_who_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirectoryLock::acquire(dir.path()).unwrap();
        let text = DirectoryLock::acquire(dir.path()).unwrap_err().to_string();
        assert!(text.contains(&dir.path().display().to_string()), "{text}");
        assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
        drop(first);
        DirectoryLock::acquire(dir.path()).unwrap();
    }

    #[test]
    fn a_missing_directory_is_an_error_not_a_panic() {
        let dir = tempfile::tempdir().unwrap();
        let error = DirectoryLock::acquire(&dir.path().join("absent")).unwrap_err();
        assert!(matches!(error, LockError::Open { .. }));
    }
}
