//! What images bring into a pod: the layers of a container's root, what is added to it for the container's user, folders that its image
//! declares as volumes, and volumes that are images.
//!
//! Invariant: a layer is never written to. What is mounted is found by descriptors below the root, so no link of an image leads out
//! of it.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use pumice_linux::detached_mount::{DetachedMount, descriptor_path};
use pumice_linux::paths::{FileRights, Missing, open_in_root, open_path, write_in_root};

use super::owners::Owners;
use super::{Root, RootError, create_dir, is_same, mounted};
use crate::own_users::UserNamespace;
use crate::spec::{ContainerSpec, RootKind, ShimSpec};

/// Folders in which everybody may make files.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
/// Where homes are made for users that an image does not know.
const HOMES: &str = "/home";
/// An image's list of users.
pub(crate) const USERS: &str = "/etc/passwd";
/// Largest list that gets a line, in bytes.
const USERS_BYTES_MAX: u64 = 4 << 20;
/// Folder within the pod's directory for what its volumes of images are mounted from.
const VOLUME_LAYERS: &str = "image-volumes";

/// An image's layers, the uppermost first, as the kernel takes them. By descriptors, since the paths of many would be longer than
/// what a mount may be told.
pub(super) fn layers(owners: Owners<'_>, image: &[PathBuf], dir: &Path) -> Result<Vec<OwnedFd>, RootError> {
    let mut opened = Vec::new();
    for (index, layer) in image.iter().enumerate().rev() {
        opened.push(opened_at(owners.layer(layer, dir, &format!("image-{index}"))?)?);
    }
    if opened.is_empty() {
        opened.push(nothing(dir, "empty")?);
    }
    Ok(opened)
}

fn nothing(dir: &Path, name: &str) -> Result<OwnedFd, RootError> {
    let nothing = dir.join(name);
    create_dir(&nothing)?;
    opened_at(nothing)
}

fn opened_at(path: PathBuf) -> Result<OwnedFd, RootError> {
    open_path(&path).map_err(|source| RootError::Source { path, source })
}

/// Adds to an image's root what programs rely on: folders for temporary files, and a name and a home for a user that the image does not
/// know. Then the folders that it declares.
pub(super) fn prepare(root: &Root<'_>, container: &ContainerSpec) -> Result<(), RootError> {
    if container.image_layers.is_none() {
        return Ok(());
    }
    for path in TEMPORARY {
        make_missing(root, Path::new(path), 0o1777)?;
    }
    if let Some(home) = &container.unlisted_home {
        add_user(root, container, home)?;
        if home.starts_with(HOMES)
            && let Some(made) = make_missing(root, home, 0o700)?
        {
            let (uid, gid) = (root.owners.uid(container.uid), root.owners.gid(container.gid));
            std::os::unix::fs::chown(descriptor_path(&made), Some(uid), Some(gid)).map_err(not_created(home))?;
        }
    }
    make_declared(root, container)
}

fn not_created(path: &Path) -> impl Fn(io::Error) -> RootError {
    move |source| RootError::Create { path: path.into(), source }
}

/// Makes a folder where the image has nothing, and says if it was made.
fn make_missing(root: &Root<'_>, path: &Path, mode: u32) -> Result<Option<OwnedFd>, RootError> {
    match open_in_root(root.directory.as_fd(), path, Missing::Refuse) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found.map(|_| None).map_err(not_created(path)),
    }
    let made = open_in_root(root.directory.as_fd(), path, Missing::MakeFolder).map_err(not_created(path))?;
    let mode = fs::Permissions::from_mode(mode);
    fs::set_permissions(descriptor_path(&made), mode).map_err(not_created(path))?;
    Ok(Some(made))
}

/// Gives the container's user a line in its copy of the list of users, where the image has one.
fn add_user(root: &Root<'_>, container: &ContainerSpec, home: &Path) -> Result<(), RootError> {
    let path = Path::new(USERS);
    let list = match open_in_root(root.directory.as_fd(), path, Missing::Refuse) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(not_created(path))?,
    };
    let found = fs::metadata(descriptor_path(&list)).map_err(not_created(path))?;
    let home = home.to_string_lossy();
    if !found.is_file() || found.len() > USERS_BYTES_MAX || home.contains([':', '\n']) {
        return Ok(());
    }
    let mut text = fs::read(descriptor_path(&list)).map_err(not_created(path))?;
    if text.last().is_some_and(|last| *last != b'\n') {
        text.push(b'\n');
    }
    let (uid, gid) = (container.uid, container.gid);
    text.extend(format!("{uid}:x:{uid}:{gid}::{home}:/bin/sh\n").bytes());
    let rights = FileRights { uid: None, gid: None, mode: found.mode() & 0o777 };
    write_in_root(root.directory.as_fd(), path, &text, rights).map_err(not_created(path))
}

/// Has the folders that a container's image declares as volumes there, and takes writes in them also where the root takes none. Each
/// is a view of the root's own folder: it begins with what the image has in it, and what is written counts in the container's layer
/// and goes with it.
fn make_declared(root: &Root<'_>, container: &ContainerSpec) -> Result<(), RootError> {
    for path in &container.declared_volumes {
        let made = open_in_root(root.directory.as_fd(), path, Missing::MakeFolder);
        let made = made.map_err(|source| RootError::Create { path: path.clone(), source })?;
        // A link may lead to the root, which is not to take writes for that.
        if container.read_only_root && !is_same(made.as_fd(), root.directory.as_fd()) {
            let view = DetachedMount::of_descriptor(made.as_fd());
            mounted("a volume of the image", path, view.and_then(|view| view.attach(made.as_fd())))?;
        }
    }
    Ok(())
}

/// Mounts those volumes of a pod that are images where its containers take volumes from. For the shim's own mount namespace.
pub(crate) fn mount_volumes(spec: &ShimSpec, users: Option<&UserNamespace>, dir: &Path) -> Result<(), RootError> {
    for (index, volume) in spec.image_volumes.iter().enumerate() {
        if spec.isolation.root == RootKind::Host {
            return Err(RootError::NoOverlay { layer: volume.path.clone() });
        }
        let own = dir.join(VOLUME_LAYERS).join(index.to_string());
        create_dir(&own)?;
        create_dir(&volume.path)?;
        let mut lowers = layers(Owners::of(users), &volume.layers, &own)?;
        if lowers.len() < 2 {
            // The kernel takes no overlay of one folder.
            lowers.push(nothing(&own, "below")?);
        }
        let lowers = lowers.iter().map(descriptor_path).collect::<Vec<_>>().join(":");
        let options = format!("lowerdir={lowers}{}", if spec.isolation.user { ",userxattr" } else { "" });
        let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let overlay = mount(Some("overlay"), &volume.path, Some("overlay"), flags, Some(options.as_str()));
        mounted("the image of a volume", &volume.path, overlay)?;
    }
    Ok(())
}
