//! Mounts of the container's own making, and those that cover what is the host's.
//!
//! Each attempt has its own mount namespace where it may mount at all, so nothing is left mounted.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, pivot_root};

use super::syscall::{call, open};
use super::{done, open_to_write, read_secret, write_same};
use crate::facts::Facts;
use crate::table::{Control, PodKind, Row};

const NONE: Option<&str> = None;

const fn admin(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::Usual, control: Control::Capability("SYS_ADMIN") }
}

pub const ROWS: &[Row] = &[
    admin("mount memory", |facts| mount_at(&folder(facts)?, "tmpfs", None)),
    admin("mount another view of the root", |facts| bind_root(facts).map(drop)),
    admin("mount another view of the root, which covers nothing of the data directory", |facts| {
        let view = bind_root(facts)?;
        read_secret(&within(&view, &facts.data_dir.join("secret")), &facts.secret)
    }),
    admin("mount a /proc without covers", |facts| {
        let at = folder(facts)?;
        mount_at(&at, "proc", None)?;
        open_to_write(&at.join("sys/kernel/core_pattern").to_string_lossy())
    }),
    admin("mount debugfs", |facts| mount_at(&folder(facts)?, "debugfs", None)),
    admin("change release_agent of control groups", |facts| control_group_file(facts, "release_agent")),
    admin("change notify_on_release of control groups", |facts| control_group_file(facts, "notify_on_release")),
    admin("make /sys writable", |_| {
        mount(NONE, "/sys", NONE, MsFlags::MS_REMOUNT | MsFlags::MS_BIND, NONE)?;
        open_to_write("/sys/kernel/mm/transparent_hugepage/enabled")
    }),
    admin("make /sys writable by mount_setattr", |_| {
        const MOUNT_ATTR_RDONLY: u64 = 1;
        let mut attributes = [0, MOUNT_ATTR_RDONLY, 0, 0];
        call!(SYS_mount_setattr, libc::AT_FDCWD, c"/sys", 0, &mut attributes, size_of::<[u64; 4]>())?;
        open_to_write("/sys/kernel/mm/transparent_hugepage/enabled")
    }),
    admin("make a read-only volume writable", |_| {
        mount(NONE, "/read-only", NONE, MsFlags::MS_REMOUNT | MsFlags::MS_BIND, NONE)?;
        open_to_write("/read-only/file")
    }),
    admin("take away what covers /proc/sys", |_| {
        umount2("/proc/sys", MntFlags::MNT_DETACH)?;
        open_to_write("/proc/sys/kernel/core_pattern")
    }),
    admin("take away what covers the data directory", |facts| {
        umount2(&facts.data_dir, MntFlags::MNT_DETACH)?;
        read_secret(&facts.data_dir.join("secret"), &facts.secret)
    }),
    // The filter has it for no right: what makes the root of a container is no container.
    Row {
        name: "pivot_root",
        attempt: |facts| {
            let at = folder(facts)?;
            mount_at(&at, "tmpfs", None)?;
            chdir(&at)?;
            Ok(pivot_root(".", ".")?)
        },
        pod: PodKind::Usual,
        control: Control::Unprivileged,
    },
    admin("fsopen", |_| done(open!(SYS_fsopen, c"tmpfs", 0))),
    admin("open_tree and move_mount", |facts| {
        const OPEN_TREE_CLONE: u32 = 1;
        const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;
        let view = open!(SYS_open_tree, libc::AT_FDCWD, c"/", OPEN_TREE_CLONE)?;
        let at = CString::new(folder(facts)?.as_os_str().as_bytes())?;
        done(call!(SYS_move_mount, view.as_raw_fd(), c"", libc::AT_FDCWD, at.as_c_str(), MOVE_MOUNT_F_EMPTY_PATH))
    }),
];

/// An empty folder of this attempt's own.
pub(super) fn folder(facts: &Facts) -> io::Result<PathBuf> {
    let path = facts.scratch().join(std::process::id().to_string());
    fs::create_dir(&path)?;
    Ok(path)
}

pub(super) fn mount_at(at: &Path, kind: &str, options: Option<&str>) -> io::Result<()> {
    Ok(mount(Some("none"), at, Some(kind), MsFlags::empty(), options)?)
}

/// The root file system alone, without what is mounted in it.
fn bind_root(facts: &Facts) -> io::Result<PathBuf> {
    let at = folder(facts)?;
    mount(Some("/"), &at, NONE, MsFlags::MS_BIND, NONE)?;
    Ok(at)
}

fn within(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn control_group_file(facts: &Facts, name: &str) -> io::Result<()> {
    let at = folder(facts)?;
    mount_at(&at, "cgroup", Some("pids"))?;
    write_same(&at.join(name).to_string_lossy())
}
