//! Mounts by descriptor, as Linux has them since 5.2: made where nobody sees them, restricted, then attached.
//!
//! Invariant: neither what is mounted nor where is looked up by a name after it was opened, so nobody can exchange it in
//! between. Called by the shim for everything in a container's root, and by the agent for the program of its shims.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::statvfs::{FsFlags, fstatvfs};

/// What is not possible through a mount, as `fsmount` and `mount_setattr` take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// A view that is used as its source is.
    pub const NONE: Attributes = Attributes(0);
    /// No writes, and none to owners, modes or extended attributes; a device on it is used as ever.
    pub const READ_ONLY: Attributes = Attributes(0x1);
    /// Programs gain no rights by set-user-ID and set-group-ID bits, nor by file capabilities.
    pub const NO_SET_UID: Attributes = Attributes(0x2);
    /// Device nodes can't be opened.
    pub const NO_DEVICES: Attributes = Attributes(0x4);
    /// No file can be run as a program.
    pub const NO_PROGRAMS: Attributes = Attributes(0x8);
    /// Each access is written down; for a new file system only.
    pub const EXACT_ACCESS_TIMES: Attributes = Attributes(0x20);

    /// What neither of them allows.
    pub const fn and(self, other: Attributes) -> Attributes {
        Attributes(self.0 | other.0)
    }
}

/// Which mounts an attribute is set on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Alone,
    /// Those within it too.
    Within,
}

impl Reach {
    fn flag(self) -> libc::c_int {
        match self {
            Reach::Alone => 0,
            Reach::Within => libc::AT_RECURSIVE,
        }
    }
}

/// The owners of files are those that a user namespace has for the ids on the disk.
const MOUNT_ATTR_IDMAP: u64 = 0x10_0000;
// The C library's crate knows these on other systems only.
const OPEN_TREE_CLONE: libc::c_uint = 0x1;
const OPEN_TREE_CLOEXEC: libc::c_uint = libc::O_CLOEXEC as libc::c_uint;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 0x4;
const MOVE_MOUNT_T_EMPTY_PATH: libc::c_uint = 0x40;
const FSOPEN_CLOEXEC: libc::c_uint = 0x1;
const FSMOUNT_CLOEXEC: libc::c_uint = 0x1;
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

/// The kernel's `struct mount_attr`.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

impl MountAttr {
    fn set(attributes: Attributes) -> Self {
        Self { attr_set: attributes.0, attr_clr: 0, propagation: 0, userns_fd: 0 }
    }
}

/// A mount, reached by its root's descriptor. Where it was not attached it ends with this value.
#[derive(Debug)]
pub struct DetachedMount(OwnedFd);

impl DetachedMount {
    /// Another view of an existing file or folder, with what is mounted within it.
    pub fn of_path(source: &Path) -> nix::Result<Self> {
        let path = CString::new(source.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
        open_tree(libc::AT_FDCWD, &path, Reach::Within, 0)
    }

    /// The same without what is mounted within it.
    pub fn alone(source: &Path) -> nix::Result<Self> {
        let path = CString::new(source.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
        open_tree(libc::AT_FDCWD, &path, Reach::Alone, 0)
    }

    /// The same of what a descriptor is for.
    pub fn of_descriptor(source: BorrowedFd<'_>) -> nix::Result<Self> {
        open_tree(source.as_raw_fd(), c"", Reach::Within, libc::AT_EMPTY_PATH as libc::c_uint)
    }

    /// A new file system with options, each a name with or without a value.
    pub fn new(kind: &CStr, options: &[(&CStr, Option<&CStr>)], attributes: Attributes) -> nix::Result<Self> {
        let system = fsopen(kind)?;
        for (name, value) in options {
            let command = if value.is_some() { FSCONFIG_SET_STRING } else { FSCONFIG_SET_FLAG };
            fsconfig(&system, command, Some(name), *value)?;
        }
        fsconfig(&system, FSCONFIG_CMD_CREATE, None, None)?;
        fsmount(&system, attributes)
    }

    /// Takes possibilities away from the mount and all within it.
    pub fn restrict(&self, attributes: Attributes) -> nix::Result<()> {
        mount_setattr(self.as_fd(), &MountAttr::set(attributes), Reach::Within)
    }

    /// Has files of the mount, and of all within it, belong to the users and groups of a user namespace that are called as the
    /// owners on the disk are, and takes possibilities away from them. For what was never attached; not every file system takes it.
    pub fn map_owners(&self, users: BorrowedFd<'_>, attributes: Attributes) -> nix::Result<()> {
        let users = u64::try_from(users.as_raw_fd()).map_err(|_| Errno::EBADF)?;
        let wanted = MountAttr { userns_fd: users, ..MountAttr::set(Attributes(MOUNT_ATTR_IDMAP).and(attributes)) };
        mount_setattr(self.as_fd(), &wanted, Reach::Within)
    }

    /// Shows it at `target`, a folder for a folder, a file for anything else.
    pub fn attach(&self, target: BorrowedFd<'_>) -> nix::Result<()> {
        move_mount(self.as_fd(), target)
    }

    /// The same, with no writes through it.
    pub fn attach_read_only(&self, target: BorrowedFd<'_>) -> nix::Result<()> {
        match self.restrict(Attributes::READ_ONLY) {
            // Before Linux 5.12 only what is attached can be changed.
            Err(Errno::ENOSYS) => {
                self.attach(target)?;
                remount_read_only(self.as_fd())
            }
            restricted => restricted.and_then(|()| self.attach(target)),
        }
    }
}

impl AsFd for DetachedMount {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<DetachedMount> for OwnedFd {
    fn from(mount: DetachedMount) -> OwnedFd {
        mount.0
    }
}

/// Refuses writes through a mount that is attached, but not through those within it.
pub fn make_read_only(root: BorrowedFd<'_>) -> nix::Result<()> {
    match mount_setattr(root, &MountAttr::set(Attributes::READ_ONLY), Reach::Alone) {
        Err(Errno::ENOSYS) => remount_read_only(root),
        made => made,
    }
}

/// A name for what a descriptor is for, as long as `/proc` is there.
pub fn descriptor_path(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

fn remount_read_only(root: BorrowedFd<'_>) -> nix::Result<()> {
    const NONE: Option<&str> = None;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | kept_flags(root);
    mount(NONE, descriptor_path(root).as_str(), NONE, flags, NONE)
}

/// Flags of a mount that a user namespace must not take off.
fn kept_flags(root: BorrowedFd<'_>) -> MsFlags {
    let Ok(found) = fstatvfs(root) else { return MsFlags::empty() };
    let pairs = [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ];
    pairs.into_iter().filter(|(has, _)| found.flags().contains(*has)).map(|(_, keep)| keep).collect()
}

#[allow(unsafe_code)]
fn open_tree(folder: RawFd, path: &CStr, reach: Reach, more: libc::c_uint) -> nix::Result<DetachedMount> {
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | reach.flag() as libc::c_uint | more;
    // SAFETY: the path is a C string that lives until the call returns; a non-negative result is a new descriptor.
    unsafe { owned(libc::syscall(libc::SYS_open_tree, folder, path.as_ptr(), flags)) }.map(DetachedMount)
}

#[allow(unsafe_code)]
fn fsopen(kind: &CStr) -> nix::Result<OwnedFd> {
    // SAFETY: as in `open_tree`.
    unsafe { owned(libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC)) }
}

#[allow(unsafe_code)]
fn fsconfig(system: &OwnedFd, command: libc::c_uint, name: Option<&CStr>, value: Option<&CStr>) -> nix::Result<()> {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: name and value are C strings that live until the call returns, or null where the command takes none.
    let set =
        unsafe { libc::syscall(libc::SYS_fsconfig, system.as_raw_fd(), command, pointer(name), pointer(value), 0) };
    Errno::result(set).map(drop)
}

#[allow(unsafe_code)]
fn fsmount(system: &OwnedFd, attributes: Attributes) -> nix::Result<DetachedMount> {
    // SAFETY: takes integers only; a non-negative result is a new descriptor.
    unsafe { owned(libc::syscall(libc::SYS_fsmount, system.as_raw_fd(), FSMOUNT_CLOEXEC, attributes.0)) }
        .map(DetachedMount)
}

#[allow(unsafe_code)]
fn mount_setattr(root: BorrowedFd<'_>, wanted: &MountAttr, reach: Reach) -> nix::Result<()> {
    // SAFETY: the kernel reads `wanted`, whose size it is told, and an empty C string; both live until the call returns.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            root.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | reach.flag(),
            std::ptr::from_ref(wanted),
            size_of::<MountAttr>(),
        )
    };
    Errno::result(set).map(drop)
}

#[allow(unsafe_code)]
fn move_mount(root: BorrowedFd<'_>, target: BorrowedFd<'_>) -> nix::Result<()> {
    let (from, to) = (root.as_raw_fd(), target.as_raw_fd());
    let flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    // SAFETY: two open descriptors and two empty C strings.
    let moved = unsafe { libc::syscall(libc::SYS_move_mount, from, c"".as_ptr(), to, c"".as_ptr(), flags) };
    Errno::result(moved).map(drop)
}

/// The descriptor that a system call has made.
///
/// # Safety
/// `result` is what a call returned whose non-negative results are descriptors that nobody else owns.
#[allow(unsafe_code)]
unsafe fn owned(result: libc::c_long) -> nix::Result<OwnedFd> {
    let descriptor = Errno::result(result)?;
    // SAFETY: contract of this function.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) })
}
