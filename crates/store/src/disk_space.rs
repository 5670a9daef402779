//! How much room the disk has that a store grows on.
//!
//! Invariant: a look costs one call of the kernel and reads nothing of the disk.

use std::path::Path;

use nix::sys::statvfs::statvfs;

/// A small disk is short of room when less than this part of it is free.
const SHARE: u64 = 10;

/// Room on a file system, as far as users who aren't root may fill it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// What is free, in bytes.
    pub free_bytes: u64,
    /// How large it is, in bytes.
    pub total_bytes: u64,
}

impl DiskSpace {
    /// The room where `path` is; none where the kernel doesn't say.
    pub fn of(path: &Path) -> Option<Self> {
        let found = statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
        Some(Self { free_bytes: bytes(found.blocks_available()), total_bytes: bytes(found.blocks()) })
    }

    /// Whether less than `warn_bytes` is free, or less than a tenth of a disk that is smaller than ten times that.
    pub fn is_short(&self, warn_bytes: u64) -> bool {
        self.free_bytes < warn_bytes.min(self.total_bytes / SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_disk_is_short_of_room_later_than_a_large_one() {
        let is_short = |free_bytes, total_bytes| DiskSpace { free_bytes, total_bytes }.is_short(1_000);
        for (free, total, short) in
            [(999, 100_000, true), (1_000, 100_000, false), (99, 1_000, true), (100, 1_000, false), (0, 0, false)]
        {
            assert_eq!(is_short(free, total), short, "{free} of {total}");
        }
        assert!(DiskSpace::of(Path::new("/")).unwrap().total_bytes > 0);
        assert_eq!(DiskSpace::of(Path::new("/nowhere/at/all")), None);
    }
}
