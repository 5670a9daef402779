//! Content whose digest is known only when all of it is there, such as the files of an archive that can be read once.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use super::error::{StoreError, io_error};
use super::locks::Lock;
use super::room::Reserve;
use super::{Lease, PARTIAL, SPOOL, Store, sync_parent};
use crate::digest::Hasher;
use crate::manifest::Blob;

/// A blob that is being written. Dropped, it leaves nothing.
pub struct Spool<'s> {
    store: &'s Store,
    path: PathBuf,
    file: File,
    hasher: Hasher,
    length: u64,
    reserve: Reserve,
    _lock: Lock,
}

impl Store {
    /// Begins to write a blob of any digest.
    pub fn spool(&self) -> Result<Spool<'_>, StoreError> {
        let (path, lock) = self.place_of_its_maker()?;
        // What is there is of a process of the same number that ended.
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = file.map_err(io_error("making", &path))?;
        Ok(Spool { store: self, path, file, hasher: Hasher::new(), length: 0, reserve: self.reserve(), _lock: lock })
    }
}

impl Store {
    /// A name in `partial` that nobody else has, and its lock. What is there once nobody has the lock is removed.
    pub(super) fn place_of_its_maker(&self) -> Result<(PathBuf, Lock), StoreError> {
        let name = format!("{SPOOL}{}-{}", std::process::id(), self.counter.fetch_add(1, Ordering::Relaxed));
        let lock = self.lock(&name)?;
        Ok((self.dir.join(PARTIAL).join(name), lock))
    }
}

impl Spool<'_> {
    /// Adds the bytes that follow.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.reserve.take_bytes(count)?;
        self.file.write_all(bytes).map_err(io_error("writing", &self.path))?;
        self.hasher.update(bytes);
        self.length += count;
        Ok(())
    }

    /// Makes a blob of it, which stays at least as long as the lease.
    pub fn finish(self, lease: &mut Lease) -> Result<Blob, StoreError> {
        self.store.extend_lease(lease, &self.hasher.clone().finish())?;
        self.put()
    }

    /// Makes a blob of it. Whoever brings the same content meanwhile is not waited for: it is the same.
    pub(super) fn put(self) -> Result<Blob, StoreError> {
        let blob = Blob { digest: self.hasher.clone().finish(), size: self.length };
        if self.store.has_blob(&blob.digest) {
            return Ok(blob);
        }
        let target = self.store.blob_path(&blob.digest);
        self.file.sync_data().map_err(io_error("writing", &self.path))?;
        fs::rename(&self.path, &target).map_err(io_error("renaming", &self.path))?;
        sync_parent(&target)?;
        Ok(blob)
    }
}

impl Drop for Spool<'_> {
    fn drop(&mut self) {
        // Nothing is there if it became a blob.
        let _ = fs::remove_file(&self.path);
    }
}
