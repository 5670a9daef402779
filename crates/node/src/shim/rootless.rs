//! Isolation for users without root: a user namespace in which this user is root.
//!
//! Invariant: nothing is gained on the host: inside, user 0 is this user, and no other user exists.
//! The host's tree can't be one lower layer there, because the kernel locks the mounts on it; so
//! each of its top folders becomes an overlay of its own.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid};

use super::rootfs::{UPPER, escaped};

const NONE: Option<&str> = None;
/// Folders that every container has of its own.
const OWN: [&str; 3] = ["proc", "sys", "dev"];

/// Becomes root of a new user namespace. Needs a process with one thread.
pub(crate) fn enter_user_namespace() -> io::Result<()> {
    let (uid, gid) = (Uid::effective(), Gid::effective());
    unshare(CloneFlags::CLONE_NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Makes `root` look like the host's root: an overlay for each folder, whose layers are in `layers`,
/// with an image's layer over it.
pub(crate) fn mount_folders(root: &Path, layers: &Path, image: Option<&Path>) -> io::Result<()> {
    mount(Some("tmpfs"), root, Some("tmpfs"), MsFlags::MS_NODEV, Some("mode=0755"))?;
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        if OWN.iter().any(|own| name == *own) {
            continue;
        }
        let (target, kind) = (root.join(&name), entry.file_type()?);
        if kind.is_symlink() {
            symlink(fs::read_link(&path)?, &target)?;
        } else if kind.is_dir() {
            fs::create_dir(&target)?;
            let over = image.map(|image| image.join(&name)).filter(|over| over.is_dir());
            mount_folder(&path, over.as_deref(), &target, layers, Path::new(&name))?;
        }
    }
    for entry in image.map(fs::read_dir).transpose()?.into_iter().flatten() {
        let (name, path) = {
            let entry = entry?;
            (entry.file_name(), entry.path())
        };
        let target = root.join(&name);
        // A folder that the host does not have is the image's alone.
        if path.is_dir() && !target.exists() {
            fs::create_dir(&target)?;
            mount_folder(&path, None, &target, layers, Path::new(&name))?;
        }
    }
    Ok(())
}

fn mount_folder(path: &Path, over: Option<&Path>, target: &Path, layers: &Path, name: &Path) -> io::Result<()> {
    let (upper, work) = (layers.join(UPPER).join(name), layers.join("work").join(name));
    fs::create_dir_all(&upper)?;
    fs::create_dir_all(&work)?;
    if let Ok(found) = fs::metadata(path) {
        // The upper folder's mode is the folder's; this user must be able to enter it later.
        fs::set_permissions(&upper, found.permissions())?;
    }
    let lowers: Vec<String> = over.into_iter().chain([path]).map(escaped).collect();
    let (upper, work) = (escaped(&upper), escaped(&work));
    let options = format!("lowerdir={},upperdir={upper},workdir={work},userxattr", lowers.join(":"));
    let made = mount(Some("overlay"), target, Some("overlay"), MsFlags::MS_NODEV, Some(options.as_str()));
    if let (Err(errno), Some(_)) = (made, over) {
        return Err(errno.into());
    }
    if made.is_err() {
        // Something is mounted within it: shown as it is, with what this user may write there.
        mount(Some(path), target, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
    }
    Ok(())
}

/// Tries all of it in `dir`; for a process of its own, which ends afterwards.
pub(crate) fn probe(dir: &Path) -> io::Result<()> {
    enter_user_namespace()?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWPID)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    let root = dir.join("root");
    fs::create_dir_all(&root)?;
    mount_folders(&root, dir, None)?;
    fs::create_dir_all(root.join("etc/pumice-probe"))
}
