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
    user_namespace::enter(None)?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWPID)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    let root = dir.join("root");
    fs::create_dir_all(&root)?;
    drop(rootfs::by_folder::mount_folders(&root, dir, None)?);
    // On most machines something is mounted within one folder or another, which then can't be written to.
    let mut made = Err(io::ErrorKind::NotFound.into());
    for folder in fs::read_dir(&root)? {
        let folder = folder?.path();
        if folder.is_dir() && !folder.is_symlink() {
            made = fs::create_dir(folder.join("pumice-probe"));
            if made.is_ok() {
                break;
            }
        }
    }
    made
}
