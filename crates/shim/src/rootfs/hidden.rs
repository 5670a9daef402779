//! Folders of the host that no container sees, by whatever path: the platform's data directory.
//!
//! Invariant: a volume that lies in one is not mounted, and where one lies in a volume an empty folder is mounted over it. What is
//! the platform's own, such as the volumes that it makes for pods, lies there by its name, and is shown. The agent has refused
//! volumes by their paths before; here links that somebody has exchanged since count, too.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::{MountSpec, NOTHING, Root, RootError, is_same, mounted, new_tmpfs};
use pumice_linux::detached_mount::{DetachedMount, descriptor_path};
use pumice_linux::mount_table::MountTable;
use pumice_linux::paths::{Missing, is_folder, open_in_root};

/// What is hidden, and how the host's folders are mounted.
pub(super) struct Hidden<'a> {
    folders: &'a [PathBuf],
    /// None where no volume is the host's.
    table: Option<MountTable>,
}

impl<'a> Hidden<'a> {
    pub(super) fn of(folders: &'a [PathBuf], volumes: &[MountSpec]) -> io::Result<Self> {
        let is_hosts = volumes.iter().any(|volume| !is_in(folders, &volume.source));
        let table = if is_hosts && !folders.is_empty() { Some(MountTable::read()?) } else { None };
        Ok(Self { folders, table })
    }

    /// Refuses what lies in a hidden folder though it is called otherwise.
    pub(super) fn check(&self, volume: &MountSpec, source: &OwnedFd) -> Result<(), RootError> {
        let Some((table, real)) = self.of_host(volume, source)? else { return Ok(()) };
        let found = table.fs_path(&real);
        let lies_in = |folder: &PathBuf| {
            let folder = table.fs_path(&real_path(folder));
            found.as_ref().zip(folder).is_some_and(|(found, folder)| found.below(&folder).is_some())
        };
        match self.folders.iter().any(lies_in) {
            true => Err(RootError::Hidden { path: volume.source.clone() }),
            false => Ok(()),
        }
    }

    /// Covers hidden folders that a volume shows, which is mounted by now.
    pub(super) fn cover(&self, volume: &MountSpec, source: &OwnedFd, shown: &DetachedMount) -> Result<(), RootError> {
        let Some((table, real)) = self.of_host(volume, source)? else { return Ok(()) };
        for way in self.folders.iter().flat_map(|folder| table.ways(&real, &real_path(folder))) {
            let failed = |source| RootError::Source { path: volume.source.join(&way), source };
            match open_in_root(shown.as_fd(), &way, Missing::Refuse) {
                Err(error) if is_absent(&error) => {}
                opened => put_nothing_over(&opened.map_err(failed)?, &way)?,
            }
        }
        Ok(())
    }

    /// Covers them where they have their own paths.
    pub(super) fn hide(&self, root: &Root) -> Result<(), RootError> {
        for path in self.folders {
            let target = match open_in_root(root.directory.as_fd(), path, Missing::Refuse) {
                Err(error) if is_absent(&error) => continue,
                opened => opened.map_err(|source| RootError::Create { path: path.clone(), source })?,
            };
            if is_folder(&target).unwrap_or(false) && !is_same(target.as_fd(), root.directory.as_fd()) {
                put_nothing_over(&target, path)?;
            }
        }
        Ok(())
    }

    /// The mounts, and the path of what is mounted, where that is not the platform's own.
    fn of_host(&self, volume: &MountSpec, source: &OwnedFd) -> Result<Option<(&MountTable, PathBuf)>, RootError> {
        let Some(table) = self.table.as_ref().filter(|_| !is_in(self.folders, &volume.source)) else { return Ok(None) };
        let real = fs::read_link(descriptor_path(source));
        let real = real.map_err(|error| RootError::Source { path: volume.source.clone(), source: error })?;
        Ok(Some((table, real)))
    }
}

fn is_in(folders: &[PathBuf], path: &Path) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

/// A folder that can't be reached any more is called as it was.
fn real_path(folder: &Path) -> PathBuf {
    fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned())
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn put_nothing_over(target: &OwnedFd, path: &Path) -> Result<(), RootError> {
    let nothing = new_tmpfs(c"0000", c"4k", NOTHING);
    mounted("nothing", path, nothing.and_then(|nothing| nothing.attach(target.as_fd())))
}
