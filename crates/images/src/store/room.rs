//! How full the store's disk is.

use std::path::{Path, PathBuf};

use nix::sys::statvfs::{Statvfs, statvfs};

use super::error::{StoreError, errno_error};
use super::limits::Limits;

/// Bytes that are written between two looks at the disk.
const LOOK_BYTES: u64 = 4 << 20;
/// Files that are made between two looks at the disk.
const LOOK_FILES: u64 = 1000;

/// The disk as users who aren't root may fill it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    pub used_bytes: u64,
    /// What is used, and what users who aren't root may use yet.
    pub total_bytes: u64,
}

impl Usage {
    pub(super) fn of(path: &Path) -> Result<Usage, StoreError> {
        let found = look(path)?;
        let used_bytes = bytes(&found, found.blocks().saturating_sub(found.blocks_free()));
        Ok(Usage { used_bytes, total_bytes: used_bytes.saturating_add(bytes(&found, found.blocks_available())) })
    }

    /// How much lies above so many percent.
    pub(super) fn above(self, percent: u64) -> u64 {
        self.used_bytes.saturating_sub(self.total_bytes / 100 * percent)
    }
}

fn look(path: &Path) -> Result<Statvfs, StoreError> {
    statvfs(path).map_err(errno_error("reading how full the disk is of", path))
}

fn bytes(found: &Statvfs, blocks: u64) -> u64 {
    blocks.saturating_mul(found.fragment_size())
}

/// Refuses what would take the disk's last room.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    percent: u64,
    bytes_max: u64,
    /// Since the last look at the disk.
    bytes: u64,
    files: u64,
}

impl Reserve {
    pub(super) fn new(path: &Path, limits: &Limits) -> Reserve {
        let (percent, bytes_max) = (limits.reserve_percent, limits.reserve_bytes_max);
        Reserve { path: path.to_owned(), percent, bytes_max, bytes: LOOK_BYTES, files: LOOK_FILES }
    }

    /// For so many bytes that are to be written.
    pub(super) fn take_bytes(&mut self, count: u64) -> Result<(), StoreError> {
        self.bytes = self.bytes.saturating_add(count);
        if self.bytes < LOOK_BYTES {
            return Ok(());
        }
        self.bytes = 0;
        self.check(count)
    }

    /// For a file that is to be made.
    pub(super) fn take_file(&mut self) -> Result<(), StoreError> {
        self.files += 1;
        if self.files < LOOK_FILES {
            return Ok(());
        }
        self.files = 0;
        let found = look(&self.path)?;
        let reserve = found.files() / 100 * self.percent;
        // Some file systems have as many as they like, and say none.
        if found.files() > 0 && found.files_available() < reserve {
            return Err(StoreError::Inodes { path: self.path.clone(), free: found.files_available(), reserve });
        }
        self.check(0)
    }

    /// Whether the reserve stays free when so many bytes are written.
    pub(super) fn check(&self, wanted_bytes: u64) -> Result<(), StoreError> {
        let found = look(&self.path)?;
        let free_bytes = bytes(&found, found.blocks_available());
        let reserve_bytes = (bytes(&found, found.blocks()) / 100 * self.percent).min(self.bytes_max);
        if free_bytes < reserve_bytes.saturating_add(wanted_bytes) {
            return Err(StoreError::Reserve { path: self.path.clone(), free_bytes, reserve_bytes, wanted_bytes });
        }
        Ok(())
    }
}
