//! A store made anew from a backup.
//!
//! Invariant: the store appears under its name complete or not at all, and its revisions begin above every one that the
//! store of the backup may have given out after it. Made by `pumice restore`, which holds the objects one at a time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::lock::DirectoryLock;
use crate::log::disk::{DiskLog, io_error, sync_parent};
use crate::log::{Append, Log, LogError};
use crate::object::Object;
use crate::store::{OpenError, STORE_FILE};

/// How far above the backup's revision a restored store begins.
///
/// Whoever still knows a revision of the old life asks for one below this store's first, and is told to list again (410
/// Gone); and no revision means two things, since the old life can't have got that far: that is 100,000 writes a second
/// for four months.
pub const RESTORE_SKIPS: u64 = 1_000_000_000_000;

/// Name of the file until it is whole.
const UNFINISHED: &str = "store.restoring";
/// Most objects, and bytes of them, written by one commit.
const COMMIT_OBJECTS_MAX: usize = 5_000;
const COMMIT_BYTES_MAX: usize = 8 << 20;

/// A store that is being made. Dropped before [`Restore::finish`], it leaves no store.
#[derive(Debug)]
pub struct Restore {
    directory: PathBuf,
    log: DiskLog,
    revision: u64,
    pending: Append,
    pending_bytes: usize,
    _lock: DirectoryLock,
}

/// Whether `directory` holds a store.
pub fn holds_store(directory: &Path) -> bool {
    directory.join(STORE_FILE).exists()
}

impl Restore {
    /// Begins a store with the identity `uid`, of a backup at `revision`, in `directory`, which `lock` is of and which
    /// holds no store: one that is there would be replaced.
    pub fn begin(directory: &Path, lock: DirectoryLock, uid: &str, revision: u64) -> Result<Self, OpenError> {
        let path = directory.join(UNFINISHED);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io_error("remove", &path, error).into());
            }
            _ => {}
        }
        let revision = revision.saturating_add(RESTORE_SKIPS);
        let log = DiskLog::new_file(&path, uid)?;
        let pending = Append { revision, ..Append::default() };
        Ok(Self { directory: directory.to_path_buf(), log, revision, pending, pending_bytes: 0, _lock: lock })
    }

    /// Adds an object, at the revision that it had.
    pub fn put(&mut self, object: Object) -> Result<(), LogError> {
        self.pending_bytes += object.body.len();
        self.pending.writes.insert(object.key.clone(), Some(Arc::new(object)));
        if self.pending.writes.len() < COMMIT_OBJECTS_MAX && self.pending_bytes < COMMIT_BYTES_MAX {
            return Ok(());
        }
        self.commit()
    }

    /// Gives the store its name; answers its revision.
    pub fn finish(mut self) -> Result<u64, LogError> {
        self.commit()?;
        let Self { directory, log, revision, .. } = self;
        // Closing writes what a later opening would have to repair.
        drop(log);
        let path = directory.join(STORE_FILE);
        fs::rename(directory.join(UNFINISHED), &path).map_err(|error| io_error("create", &path, error))?;
        sync_parent(&path)?;
        Ok(revision)
    }

    fn commit(&mut self) -> Result<(), LogError> {
        self.log.append(&self.pending)?;
        self.pending.writes.clear();
        self.pending_bytes = 0;
        Ok(())
    }
}
