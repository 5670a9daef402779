//! The folder in which each pod of this node has a folder.
//!
//! Invariant: it is for this user only, and its file system is told that what lies in one pod's folder has nothing to do with
//! what lies in another's. Called when an agent is made.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::errno::Errno;
use pumice_linux::files::private_dir;

/// `FS_TOPDIR_FL` of `linux/fs.h`: the folders in this one belong to hierarchies of their own.
const TOP_OF_HIERARCHIES: libc::c_int = 0x2_0000;

/// Makes the folder, if it is missing.
pub(crate) fn make(path: &Path) -> io::Result<()> {
    private_dir(path)?;
    // Nothing but speed depends on it. A file system that takes no such hint spreads its folders by itself.
    let _ = spread(path);
    Ok(())
}

/// Has ext4 spread the pods' folders over its groups of inodes. It would else keep them all in one group, with all that is in them.
/// Pods come and go: where the file system has no journal, whoever makes a file there looks at each inode of the group that was freed
/// within the last minutes, which are thousands, and a pod's start and end took twice the CPU time.
fn spread(path: &Path) -> nix::Result<()> {
    let folder = File::open(path).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
    let flags = flags(&folder)?;
    if flags & TOP_OF_HIERARCHIES == 0 {
        set_flags(&folder, flags | TOP_OF_HIERARCHIES)?;
    }
    Ok(())
}

#[allow(unsafe_code)]
fn flags(file: &File) -> nix::Result<libc::c_int> {
    let mut flags: libc::c_int = 0;
    // SAFETY: the call writes an `int` to `flags`, which is one, though the request's name says `long`.
    Errno::result(unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags) })?;
    Ok(flags)
}

#[allow(unsafe_code)]
fn set_flags(file: &File, flags: libc::c_int) -> nix::Result<()> {
    // SAFETY: the call reads an `int` from `flags`, which is one, though the request's name says `long`.
    Errno::result(unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const flags) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ext4_is_told_that_pods_have_nothing_to_do_with_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pods");
        make(&path).unwrap();
        make(&path).unwrap();
        let kind = nix::sys::statfs::statfs(&path).unwrap().filesystem_type();
        if kind == nix::sys::statfs::EXT4_SUPER_MAGIC {
            assert_ne!(flags(&File::open(&path).unwrap()).unwrap() & TOP_OF_HIERARCHIES, 0);
        }
    }
}
