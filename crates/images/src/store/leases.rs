//! What must stay though no image has it yet: the content of a pull that is under way.
//!
//! Invariant: a lease lasts as long as the process that took it, at most: its file is locked, and one that nobody has locked
//! counts for nothing.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use super::error::{StoreError, io_error};
use super::{LEASES, Store, WHOLE};
use crate::digest::Digest;

/// Content that stays until this is dropped.
#[derive(Debug)]
pub struct Lease {
    path: PathBuf,
    /// Locked as long as it is open.
    file: File,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // One that stays is removed with the next pruning.
        let _ = fs::remove_file(&self.path);
    }
}

impl Store {
    /// Has these blobs and layers stay, whether they are there already or come while it lasts.
    pub fn lease(&self, digests: &[Digest]) -> Result<Lease, StoreError> {
        let _whole = self.lock(WHOLE)?;
        let (path, mut file) = loop {
            let name = format!("{}-{}", std::process::id(), self.counter.fetch_add(1, Ordering::Relaxed));
            let path = self.dir.join(LEASES).join(name);
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => break (path, file),
                // Of another store of this process, or left by a process of the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io_error("making", &path)(error)),
            }
        };
        file.lock().map_err(io_error("locking", &path))?;
        write(&mut file, digests).map_err(io_error("writing", &path))?;
        Ok(Lease { path, file })
    }

    /// Has more stay by the same lease.
    pub fn extend_lease(&self, lease: &mut Lease, digest: &Digest) -> Result<(), StoreError> {
        let _whole = self.lock(WHOLE)?;
        write(&mut lease.file, std::slice::from_ref(digest)).map_err(io_error("writing", &lease.path))
    }

    /// What leases have stay; leases of processes that ended are removed. For who has the whole store locked.
    pub(super) fn leased(&self) -> Result<BTreeSet<Digest>, StoreError> {
        let mut leased = BTreeSet::new();
        for (_, path) in self.entries(LEASES)? {
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(io_error("opening", &path)(error)),
            };
            match file.try_lock() {
                Ok(()) => fs::remove_file(&path).map_err(io_error("removing", &path))?,
                Err(TryLockError::WouldBlock) => {
                    let text = fs::read_to_string(&path).map_err(io_error("reading", &path))?;
                    leased.extend(text.lines().filter_map(|line| line.parse::<Digest>().ok()));
                }
                Err(TryLockError::Error(error)) => return Err(io_error("locking", &path)(error)),
            }
        }
        Ok(leased)
    }
}

/// A line for each.
fn write(file: &mut File, digests: &[Digest]) -> io::Result<()> {
    let text: String = digests.iter().map(|digest| format!("{digest}\n")).collect();
    file.write_all(text.as_bytes())
}
