//! The disk on which a folder lies, and what shares out its time.
//!
//! Called by the agent when it finds out what this machine can do.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::mount_table::unescaped;

/// Where the kernel lists disks by their numbers.
const DISKS: &str = "/sys/dev/block";

/// The number of a whole disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskNumber {
    pub major: u32,
    pub minor: u32,
}

/// As the kernel writes it: `254:0`.
impl fmt::Display for DiskNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl DiskNumber {
    /// The disk with a folder's files.
    ///
    /// # Errors
    /// Where the file system is on no disk of this machine, such as one in memory or of another machine, or on several.
    pub fn under(folder: &Path) -> io::Result<DiskNumber> {
        let number = fs::metadata(folder)?.dev();
        let number = match libc::major(number) {
            // The file system counts for itself, as btrfs does.
            0 => {
                let mounts = fs::read_to_string("/proc/self/mountinfo")?;
                let source = source(&mounts, &format!("0:{}", libc::minor(number))).ok_or_else(none)?;
                fs::metadata(unescaped(source)).map_err(|_| none())?.rdev()
            }
            _ => number,
        };
        whole(Path::new(DISKS), DiskNumber { major: libc::major(number), minor: libc::minor(number) })
    }

    /// The scheduler that was chosen for it, if one was, such as `mq-deadline`.
    pub fn scheduler(self) -> Option<String> {
        let text = fs::read_to_string(Path::new(DISKS).join(self.to_string()).join("queue/scheduler")).ok()?;
        Some(chosen(&text)?.to_owned())
    }
}

fn none() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the file system is on no disk of this machine")
}

/// What is mounted of a file system with this number, by the text of `/proc/self/mountinfo`.
fn source<'t>(mounts: &'t str, number: &str) -> Option<&'t str> {
    let of_line = |line: &'t str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let found = mount.split(' ').nth(2)?;
        if found == number { file_system.split(' ').nth(1) } else { None }
    };
    mounts.lines().find_map(of_line).filter(|source| source.starts_with('/'))
}

/// The disk that has a partition: the kernel limits no partitions.
fn whole(disks: &Path, part: DiskNumber) -> io::Result<DiskNumber> {
    let folder = disks.join(part.to_string());
    if !folder.join("dev").exists() {
        return Err(none());
    }
    if !folder.join("partition").exists() {
        return Ok(part);
    }
    let disk = fs::canonicalize(folder)?.join("../dev");
    let text = fs::read_to_string(disk)?;
    let number = text
        .trim()
        .split_once(':')
        .and_then(|(major, minor)| Some(DiskNumber { major: major.parse().ok()?, minor: minor.parse().ok()? }));
    number.ok_or_else(none)
}

fn chosen(schedulers: &str) -> Option<&str> {
    schedulers.split_once('[')?.1.split_once(']').map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_leads_to_its_disk() {
        let dir = tempfile::tempdir().unwrap();
        let disks = dir.path().join("dev");
        fs::create_dir_all(dir.path().join("vda/vda1")).unwrap();
        fs::create_dir(&disks).unwrap();
        fs::write(dir.path().join("vda/dev"), "254:0\n").unwrap();
        fs::write(dir.path().join("vda/vda1/dev"), "254:1\n").unwrap();
        fs::write(dir.path().join("vda/vda1/partition"), "1\n").unwrap();
        std::os::unix::fs::symlink("../vda", disks.join("254:0")).unwrap();
        std::os::unix::fs::symlink("../vda/vda1", disks.join("254:1")).unwrap();
        let disk = DiskNumber { major: 254, minor: 0 };
        for minor in [0, 1] {
            assert_eq!(whole(&disks, DiskNumber { major: 254, minor }).unwrap(), disk);
        }
        assert_eq!(whole(&disks, DiskNumber { major: 7, minor: 0 }).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn what_is_on_no_disk_is_known() {
        let mounts =
            "22 1 0:44 / /data rw shared:1 - btrfs /dev/sda2 rw\n23 1 0:45 / /run rw - tmpfs tmpfs rw\nnonsense\n";
        assert_eq!(source(mounts, "0:44"), Some("/dev/sda2"));
        assert_eq!((source(mounts, "0:45"), source(mounts, "0:46")), (None, None));
        assert!(DiskNumber::under(Path::new("/proc")).is_err());
        assert_eq!(chosen("none [mq-deadline] kyber bfq\n"), Some("mq-deadline"));
        assert_eq!(chosen("none\n"), None);
    }
}
