//! Quotas of projects: the kernel counts what is in a pod's folders, and refuses more than a bound.
//!
//! ext4 with `prjquota` and XFS with `pquota` give each file the project of the folder that it is made in. Each folder that a pod
//! writes to has a project of its own here. Invariant: a number is taken only when the kernel says that it has no file, so none
//! is used again while files of it live, also those that are removed and still open. Nothing is written down about it: a folder
//! tells its project, also after a restart.

use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;

use pumice_linux::files;
use pumice_shim::capability_set::without_resource_right;

/// Numbers of projects that are ours, far from those that people and kubelets choose.
const FIRST: u32 = 0x5000_0000;
const COUNT: u32 = 1 << 24;
/// Numbers that are looked at for one that is free.
const LOOKS_MAX: u32 = 1000;
/// The bound of the folder that says whether all of it works, and what is written there against it. XFS wants some hundred KiB for
/// a new file alone.
const PROBE_BOUND: u64 = 1 << 20;
const PROBE_BYTES: usize = 4 << 20;

/// Why folders can't have projects.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuotaError {
    #[error("can't give a folder a project")]
    Project(#[source] io::Error),
    #[error("can't read or set a quota")]
    Quota(#[source] io::Error),
    #[error("every number is taken")]
    NoNumber,
    #[error("a file can grow beyond its quota")]
    NotEnforced,
}

/// Gives out numbers of projects.
#[derive(Debug)]
pub(crate) struct Projects {
    next: AtomicU32,
}

impl Projects {
    /// Begins somewhere, so that two nodes on one disk hardly ever look at the same number at the same time.
    pub(crate) fn new() -> Projects {
        let anywhere = RandomState::new().build_hasher().finish() % u64::from(COUNT);
        Projects { next: AtomicU32::new(u32::try_from(anywhere).unwrap_or(0)) }
    }

    /// Tries all of it in `probe`, which is made and removed.
    ///
    /// # Errors
    /// Where this file system, its mount or this user can't have it.
    pub(crate) fn detect(probe: &Path) -> Result<Projects, QuotaError> {
        let projects = Projects::new();
        let tried = projects.try_in(probe);
        release(probe);
        let _ = files::remove(probe);
        tried.map(|()| projects)
    }

    fn try_in(&self, probe: &Path) -> Result<(), QuotaError> {
        fs::create_dir_all(probe).map_err(QuotaError::Project)?;
        self.assign(probe, Some(PROBE_BOUND))?;
        let mut file = File::create(probe.join("file")).map_err(QuotaError::Project)?;
        // What is refused may be found out when it goes to the disk.
        let write = || file.write_all(&vec![b'x'; PROBE_BYTES]).and_then(|()| file.sync_all());
        // Who has that right is refused nothing.
        let written = without_resource_right(write);
        let used = used(probe).map_err(QuotaError::Quota)?;
        match (written, used) {
            (Err(_), Some(_)) => Ok(()),
            _ => Err(QuotaError::NotEnforced),
        }
    }

    /// Gives an empty folder a project, unless it has one, and lets it have `bytes` at most, or any number.
    pub(crate) fn assign(&self, folder: &Path, bytes: Option<u64>) -> Result<(), QuotaError> {
        let folder = open(folder).map_err(QuotaError::Project)?;
        let attributes = attributes(&folder).map_err(QuotaError::Project)?;
        let project = match is_ours(attributes.project) {
            true => attributes.project,
            false => self.free(&folder)?,
        };
        // Before anything can be in it.
        bound(&folder, project, bytes).map_err(QuotaError::Quota)?;
        let own = Attributes { project, flags: attributes.flags | INHERITED, ..attributes };
        set_attributes(&folder, &own).map_err(QuotaError::Project)
    }

    /// A number that no file has.
    fn free(&self, folder: &OwnedFd) -> Result<u32, QuotaError> {
        for _ in 0..LOOKS_MAX {
            let project = FIRST + self.next.fetch_add(1, Ordering::Relaxed) % COUNT;
            let found = quota(folder, project).map_err(QuotaError::Quota)?;
            if found.is_none_or(|quota| quota.dqb_curinodes == 0 && quota.dqb_curspace == 0) {
                return Ok(project);
            }
        }
        Err(QuotaError::NoNumber)
    }
}

/// Bytes of the files that were made in a folder, wherever they are now; `None` where it has no project of ours.
pub(crate) fn used(folder: &Path) -> io::Result<Option<u64>> {
    let folder = open(folder)?;
    let project = attributes(&folder)?.project;
    if !is_ours(project) {
        return Ok(None);
    }
    Ok(quota(&folder, project)?.map(|quota| quota.dqb_curspace))
}

/// Takes the bound from a folder's project, which is then forgotten with its last file.
pub(crate) fn release(folder: &Path) {
    let project_of = |folder: &OwnedFd| attributes(folder).map(|found| found.project);
    if let Ok(folder) = open(folder)
        && let Ok(project) = project_of(&folder)
        && is_ours(project)
    {
        let _ = bound(&folder, project, None);
    }
}

fn is_ours(project: u32) -> bool {
    (FIRST..FIRST + COUNT).contains(&project)
}

fn open(folder: &Path) -> io::Result<OwnedFd> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    Ok(fs::OpenOptions::new().read(true).custom_flags(flags).open(folder)?.into())
}

/// The kernel's `struct fsxattr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

/// What is made in a folder has its project (`FS_XFLAG_PROJINHERIT`).
const INHERITED: u32 = 0x200;
const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f_u32 as libc::Ioctl;
const FS_IOC_FSSETXATTR: libc::Ioctl = 0x401c_5820;

#[allow(unsafe_code)]
fn attributes(folder: &OwnedFd) -> io::Result<Attributes> {
    let mut found = Attributes::default();
    // SAFETY: the descriptor is open, and the kernel writes an `fsxattr`, which `Attributes` is.
    Errno::result(unsafe { libc::ioctl(folder.as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut found) })?;
    Ok(found)
}

#[allow(unsafe_code)]
fn set_attributes(folder: &OwnedFd, attributes: &Attributes) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the kernel reads an `fsxattr`, which `Attributes` is.
    Errno::result(unsafe { libc::ioctl(folder.as_raw_fd(), FS_IOC_FSSETXATTR, &raw const *attributes) })?;
    Ok(())
}

const PROJECTS: libc::c_int = 2;
/// Bytes of the blocks in which bounds are counted.
const QUOTA_BLOCK: u64 = 1024;

/// What the kernel knows of a project; `None` where it has never heard of it.
fn quota(folder: &OwnedFd, project: u32) -> io::Result<Option<libc::dqblk>> {
    // SAFETY: all of its fields are numbers.
    #[allow(unsafe_code)]
    let mut found: libc::dqblk = unsafe { std::mem::zeroed() };
    match control(folder, libc::Q_GETQUOTA, project, &mut found) {
        Ok(()) => Ok(Some(found)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Lets a project have so many bytes at most, or any number.
fn bound(folder: &OwnedFd, project: u32, bytes: Option<u64>) -> io::Result<()> {
    // SAFETY: all of its fields are numbers.
    #[allow(unsafe_code)]
    let mut bounds: libc::dqblk = unsafe { std::mem::zeroed() };
    // None is 0.
    bounds.dqb_bhardlimit = bytes.map_or(0, |bytes| bytes.div_ceil(QUOTA_BLOCK).max(1));
    bounds.dqb_valid = libc::QIF_BLIMITS;
    Ok(control(folder, libc::Q_SETQUOTA, project, &mut bounds)?)
}

#[allow(unsafe_code)]
fn control(folder: &OwnedFd, command: libc::c_int, project: u32, quota: &mut libc::dqblk) -> nix::Result<()> {
    let command = libc::QCMD(command, PROJECTS);
    // SAFETY: the descriptor is open, and the kernel reads or writes a `dqblk`.
    let done = unsafe { libc::syscall(libc::SYS_quotactl_fd, folder.as_raw_fd(), command, project, &raw mut *quota) };
    Errno::result(done).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_project_of_ours_is_not_counted_by_one() {
        let dir = tempfile::tempdir().unwrap();
        // Where a file system has no projects, it can't say of which one a folder is.
        assert!(!matches!(used(dir.path()), Ok(Some(_))));
        assert!(used(&dir.path().join("none")).is_err());
        release(dir.path());
    }

    #[test]
    fn what_is_tried_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let probe = dir.path().join("probe");
        // Most disks of tests have none: the virtual machine's tests are about those that do.
        let _ = Projects::detect(&probe);
        assert!(!probe.exists());
    }

    #[test]
    fn numbers_are_ours() {
        for (project, ours) in [(0, false), (FIRST - 1, false), (FIRST, true), (FIRST + COUNT - 1, true)] {
            assert_eq!(is_ours(project), ours, "{project}");
        }
    }
}
