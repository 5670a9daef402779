//! What images bring into a pod: the layers of a container's root, folders that its image declares as volumes, and volumes that are
//! images.
//!
//! Invariant: a layer is never written to. What is mounted is found by descriptors below the root, so no link of an image leads out
//! of it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use pumice_linux::detached_mount::{DetachedMount, descriptor_path};
use pumice_linux::paths::{Missing, open_in_root, open_path};

use super::owners::Owners;
use super::{Root, RootError, create_dir, is_same, mounted};
use crate::own_users::UserNamespace;
use crate::spec::{ContainerSpec, RootKind, ShimSpec};

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

/// Has the folders that a container's image declares as volumes there, and takes writes in them also where the root takes none. Each
/// is a view of the root's own folder: it begins with what the image has in it, and what is written counts in the container's layer
/// and goes with it.
pub(super) fn make_declared(root: &Root<'_>, container: &ContainerSpec) -> Result<(), RootError> {
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
