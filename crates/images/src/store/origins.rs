//! Who gave the store a blob, as long as no image's record says so: a process that ends between the two loses nothing.
//!
//! Invariant: an origin is written before the blob that it gave has its name, and stays right whatever becomes of the blob, as it
//! is of content by its digest. Lost in a loss of power, it costs a download.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pumice_linux::files::Durability;

use super::error::{StoreError, io_error};
use super::locks::Lock;
use super::{JSON, LOCKS, ORIGINS, Origin, Store, read_record, write_record};
use crate::digest::Digest;

impl Store {
    /// Who gave a blob, as far as it was written down here.
    pub fn origins(&self, digest: &Digest) -> Result<BTreeSet<Origin>, StoreError> {
        read(&path(&self.dir, digest))
    }

    /// Remembers that somebody gave all of a blob.
    pub fn add_origin(&self, digest: &Digest, origin: &Origin) -> Result<(), StoreError> {
        add(&self.dir, digest, origin)
    }

    /// Forgets those of blobs that are gone. For who has the whole store locked.
    pub(super) fn remove_origins(&self, stays: &dyn Fn(&Digest) -> bool) -> Result<(), StoreError> {
        for (digest, path) in self.digests(ORIGINS, JSON)? {
            if self.has_blob(&digest) || stays(&digest) {
                continue;
            }
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io_error("removing", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// In the store at this folder.
pub(super) fn add(dir: &Path, digest: &Digest, origin: &Origin) -> Result<(), StoreError> {
    let lock = dir.join(LOCKS).join(ORIGINS);
    let _lock = Lock::wait(&lock).map_err(io_error("locking", &lock))?;
    let path = path(dir, digest);
    let mut origins = read(&path)?;
    if origins.insert(origin.clone()) { write_record(&path, &origins, Durability::Process) } else { Ok(()) }
}

fn path(dir: &Path, digest: &Digest) -> PathBuf {
    dir.join(ORIGINS).join(format!("{}{JSON}", digest.hex()))
}

fn read(path: &Path) -> Result<BTreeSet<Origin>, StoreError> {
    match read_record(path) {
        // As after a loss of power.
        Err(StoreError::Record { path, source }) => {
            tracing::warn!(path = %path.display(), %source, "passing over a damaged record of who gave a blob");
            Ok(BTreeSet::new())
        }
        read => Ok(read?.unwrap_or_default()),
    }
}
