//! Locks between processes and threads, each a file.
//!
//! Invariant: who has the lock of a name has the file that is at that name now: a file is removed only by whoever has it
//! locked, and whoever gets a lock looks whether its file is still the one at the name. The kernel lets go of the locks of a
//! process that ends.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A lock, until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    /// Locked as long as it is open.
    _file: File,
}

impl Lock {
    /// Waits until nobody else has the lock.
    pub(super) fn wait(path: &Path) -> io::Result<Lock> {
        loop {
            let file = open(path)?;
            file.lock()?;
            if is_at(&file, path)? {
                return Ok(Lock { path: path.to_owned(), _file: file });
            }
        }
    }

    /// None if somebody has it.
    pub(super) fn attempt(path: &Path) -> io::Result<Option<Lock>> {
        loop {
            let file = open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if is_at(&file, path)? {
                return Ok(Some(Lock { path: path.to_owned(), _file: file }));
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while it is still locked. One that stays does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(identity(found) == identity(file.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_a_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let (mut most, at_once) = (0, std::sync::atomic::AtomicU32::new(0));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        (0..50).fold(0, |most: u32, _| {
                            let lock = Lock::wait(&path).unwrap();
                            let now = at_once.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
                            std::thread::yield_now();
                            at_once.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                            drop(lock);
                            most.max(now)
                        })
                    })
                })
                .collect();
            most = threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap();
        });
        assert_eq!(most, 1);
        let lock = Lock::wait(&path).unwrap();
        assert!(Lock::attempt(&path).unwrap().is_none());
        drop(lock);
        assert!(Lock::attempt(&path).unwrap().is_some());
        assert!(!path.exists());
    }
}
