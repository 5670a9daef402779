//! Whether this user can isolate pods without root: it is tried.

use std::fs;
use std::io;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::rootfs;
use crate::user_namespace;

const NONE: Option<&str> = None;

/// Tries all of it in `dir`; for a process of its own, which ends afterwards.
pub(crate) fn run(dir: &Path) -> io::Result<()> {
    user_namespace::enter()?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWPID)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    let root = dir.join("root");
    fs::create_dir_all(&root)?;
    rootfs::by_folder::mount_folders(&root, dir, None)?;
    fs::create_dir_all(root.join("etc/pumice-probe"))
}
