//! The host's root for a user without root, each top folder an overlay of its own: the kernel locks the mounts on the host's tree
//! there, so that the whole of it can't be one lower layer.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::mount::{MsFlags, mount};

use super::{UPPER, escaped};

const NONE: Option<&str> = None;
/// Folders that every container has of its own.
const OWN: [&str; 3] = ["proc", "sys", "dev"];

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
