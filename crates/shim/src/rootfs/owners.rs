//! Whose the files of a container's root are, where its users are its pod's own.
//!
//! Invariant: what is shown of the host, and volumes, have the same owners in the container as on the disk. What is made in the root
//! on the way, such as places for volumes, is the container's root's, as if its root had made it.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use caps::CapSet;
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use super::{RootError, create_dir, mounted, open_folder, view};
use crate::own_users::UserNamespace;
use pumice_linux::detached_mount::{Attributes, DetachedMount};

/// Maps owners, or leaves them as they are.
#[derive(Clone, Copy)]
pub(super) struct Owners<'a>(Option<&'a UserNamespace>);

impl<'a> Owners<'a> {
    pub(super) fn of(users: Option<&'a UserNamespace>) -> Self {
        Self(users)
    }

    /// The machine's user that is `uid` in the container.
    pub(super) fn uid(self, uid: u32) -> u32 {
        self.0.map_or(uid, |users| users.uid(uid).unwrap_or(NOBODY))
    }

    /// The machine's group that is `gid` in the container.
    pub(super) fn gid(self, gid: u32) -> u32 {
        self.0.map_or(gid, |users| users.gid(gid).unwrap_or(NOBODY))
    }

    /// Has the files of a mount that was never attached belong to the container's users, and takes possibilities away from it. The
    /// container's root would open the node of a device of the machine's that lies there: none can be opened.
    pub(super) fn map(self, shown: &DetachedMount, path: &Path, limits: Attributes) -> Result<(), RootError> {
        match self.0 {
            Some(users) => {
                let mapped = shown.map_owners(users.as_fd(), limits.and(Attributes::NO_DEVICES));
                mapped.map_err(|source| RootError::Owners { path: path.into(), source })
            }
            None if limits == Attributes::NONE => Ok(()),
            None => mounted("a view", path, shown.restrict(limits)),
        }
    }

    /// Another view of a file or folder of the host.
    pub(super) fn view(self, path: &Path) -> Result<DetachedMount, RootError> {
        self.limited_view(path, Attributes::NONE)
    }

    fn limited_view(self, path: &Path, limits: Attributes) -> Result<DetachedMount, RootError> {
        let shown = view(path)?;
        self.map(&shown, path, limits)?;
        Ok(shown)
    }

    /// The same of what the host has anyway, without some possibilities, and without what is mounted within it where that can't have
    /// other owners.
    pub(super) fn view_of_host(self, path: &Path, limits: Attributes) -> Result<DetachedMount, RootError> {
        self.limited_view(path, limits).or_else(|_| {
            let shown = DetachedMount::alone(path)
                .map_err(|errno| RootError::Source { path: path.into(), source: errno.into() })?;
            self.map(&shown, path, limits)?;
            Ok(shown)
        })
    }

    /// A folder as a layer of an overlay that the container's users own; `name` tells it apart from others in `dir`.
    pub(super) fn layer(self, folder: &Path, dir: &Path, name: &str) -> Result<PathBuf, RootError> {
        if self.0.is_none() {
            return Ok(folder.to_owned());
        }
        let place = dir.join(name);
        create_dir(&place)?;
        let shown = DetachedMount::alone(folder)
            .map_err(|errno| RootError::Source { path: folder.into(), source: errno.into() })?;
        self.map(&shown, folder, Attributes::NONE)?;
        mounted("a layer", &place, shown.attach(open_folder(&place)?.as_fd()))?;
        Ok(place)
    }

    /// Gives a folder on the host to the container's root.
    pub(super) fn give_to_root(self, folder: &Path) -> Result<(), RootError> {
        if self.0.is_none() {
            return Ok(());
        }
        std::os::unix::fs::lchown(folder, Some(self.uid(0)), Some(self.gid(0)))
            .map_err(|source| RootError::Create { path: folder.into(), source })
    }

    /// Has all that this process makes from now on be the container's root's, until the value is dropped. It has the machine's
    /// rights to files all the same.
    pub(super) fn make_as_root(self) -> Result<Making, RootError> {
        if self.0.is_some() {
            setfsgid(Gid::from_raw(self.gid(0)));
            setfsuid(Uid::from_raw(self.uid(0)));
            let permitted = caps::read(None, CapSet::Permitted).map_err(without_rights)?;
            caps::set(None, CapSet::Effective, &permitted).map_err(without_rights)?;
        }
        Ok(Making { is_other: self.0.is_some() })
    }
}

/// The kernel's name for an id that a user namespace does not have.
const NOBODY: u32 = 65534;

fn without_rights(error: caps::errors::CapsError) -> RootError {
    RootError::Create { path: "/".into(), source: std::io::Error::other(error) }
}

/// Whether a descriptor is a device's.
pub(super) fn is_device(file: impl AsFd) -> bool {
    let kind = fstat(file).map(|found| SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT);
    matches!(kind, Ok(SFlag::S_IFCHR | SFlag::S_IFBLK))
}

/// While it lives, files are made for another user.
pub(super) struct Making {
    is_other: bool,
}

impl Drop for Making {
    fn drop(&mut self) {
        if self.is_other {
            setfsuid(Uid::effective());
            setfsgid(Gid::effective());
        }
    }
}
