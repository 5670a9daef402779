//! Which of the host's other file systems a container sees.
//!
//! An overlay shows one file system only; `/usr`, `/home` or `/opt` may be others. They are shown
//! read-only, because writes there could not be thrown away.

use std::fs;
use std::path::{Path, PathBuf};

use pumice_linux::mount_table::unescaped;

/// File systems that hold people's files; the rest is the kernel's own.
const KINDS: [&str; 20] = [
    "ext2", "ext3", "ext4", "xfs", "btrfs", "bcachefs", "zfs", "f2fs", "erofs", "squashfs", "overlay", "nfs", "nfs4",
    "cifs", "9p", "virtiofs", "lustre", "ceph", "beegfs", "gpfs",
];
/// Never shown: the container has its own, or nobody's program needs them.
const SKIPPED: [&str; 8] =
    ["/proc", "/sys", "/dev", "/run", "/snap", "/boot", "/var/lib/docker", "/var/lib/containers"];
/// Mounts shown at most, against a host with thousands.
const SHOWN_MAX: usize = 64;

/// Mount points of other file systems, parents first, without those at or below `hidden`.
pub(crate) fn visible(hidden: &[PathBuf]) -> Vec<PathBuf> {
    select(&fs::read_to_string("/proc/self/mounts").unwrap_or_default(), hidden)
}

fn select(mounts: &str, hidden: &[PathBuf]) -> Vec<PathBuf> {
    let shown = mounts.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (path, kind) = (unescaped(fields.next()?), fields.next()?);
        let skipped = SKIPPED.iter().map(Path::new).chain(hidden.iter().map(PathBuf::as_path));
        let wanted =
            KINDS.contains(&kind) && path != Path::new("/") && !skipped.into_iter().any(|dir| path.starts_with(dir));
        wanted.then_some(path)
    });
    let mut shown: Vec<_> = shown.collect();
    shown.sort();
    shown.dedup();
    shown.truncate(SHOWN_MAX);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_with_peoples_files_are_shown() {
        let mounts = "/dev/vda / ext4 rw 0 0\nproc /proc proc rw 0 0\n/dev/vdb /home ext4 rw 0 0\n\
                      srv:/x /my\\040data nfs4 rw 0 0\n/dev/vda /run/netns ext4 rw 0 0\n\
                      /dev/vdc /data/pumice/volumes xfs rw 0 0\ntmpfs /tmp tmpfs rw 0 0\nbroken\n";
        let shown = select(mounts, &["/data/pumice".into()]);
        assert_eq!(shown, [Path::new("/home"), Path::new("/my data")]);
    }
}
