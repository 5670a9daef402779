//! Where files lie, whatever they are called: in which file system, and at which path within it.
//!
//! A folder has as many paths as there are mounts of it. Invariant: two paths lead to one file only where their places are the
//! same. Called to keep the platform's data directory from pods, whose volumes may name it by any path.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// The mounts that this process sees.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Where a file or folder lies: in which file system, and at which path within it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsPath {
    /// The file system's number.
    device: String,
    path: PathBuf,
}

impl FsPath {
    /// The way from `folder` down to this, if it lies there: an empty path for `folder` itself.
    pub fn below(&self, folder: &FsPath) -> Option<&Path> {
        if self.device == folder.device { self.path.strip_prefix(&folder.path).ok() } else { None }
    }
}

struct Mount {
    device: String,
    /// Which folder of the file system is mounted.
    root: PathBuf,
    point: PathBuf,
}

/// All mounts, in the order in which they were made.
pub struct MountTable(Vec<Mount>);

impl MountTable {
    /// Those of this process's mount namespace.
    pub fn read() -> io::Result<MountTable> {
        Ok(MountTable::parse(&fs::read_to_string(MOUNTS)?))
    }

    fn parse(text: &str) -> MountTable {
        let mount = |line: &str| {
            let mut fields = line.split(' ').skip(2);
            let device = fields.next()?.to_owned();
            Some(Mount { device, root: unescaped(fields.next()?), point: unescaped(fields.next()?) })
        };
        MountTable(text.lines().filter_map(mount).collect())
    }

    /// Where an absolute path without links leads.
    pub fn fs_path(&self, path: &Path) -> Option<FsPath> {
        let mounts = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        // Of two at one point the later hides the earlier.
        let mount = mounts.max_by_key(|mount| mount.point.components().count())?;
        Some(mount.fs_path(path.strip_prefix(&mount.point).ok()?))
    }

    /// Each way from `folder` down to `hidden` that mounts open: by its own path, and by those of folders that are mounted a second
    /// time. Both are absolute paths without links.
    pub fn ways(&self, folder: &Path, hidden: &Path) -> Vec<PathBuf> {
        let Some(target) = self.fs_path(hidden) else { return Vec::new() };
        let own = self.fs_path(folder).and_then(|found| Some(target.below(&found)?.to_owned()));
        let within = self.0.iter().filter_map(|mount| {
            let way = mount.point.strip_prefix(folder).ok()?;
            Some(way.join(target.below(&mount.fs_path(Path::new("")))?))
        });
        own.into_iter().chain(within).collect()
    }
}

impl Mount {
    fn fs_path(&self, within: &Path) -> FsPath {
        FsPath { device: self.device.clone(), path: self.root.join(within) }
    }
}

/// Whether `path`, as far as it exists, lies in `folder`, by whatever path that is reached.
///
/// # Errors
/// When the mounts or one of the paths can't be read.
pub fn lies_in(path: &Path, folder: &Path) -> io::Result<bool> {
    let existing = path.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(Path::new("/"));
    let table = MountTable::read()?;
    let fs_path = |path: &Path| fs::canonicalize(path).map(|real| table.fs_path(&real));
    let (found, folder) = (fs_path(existing)?, fs_path(folder)?);
    Ok(found.zip(folder).is_some_and(|(found, folder)| found.below(&folder).is_some()))
}

/// The kernel writes blanks and the like as a backslash and three octal digits.
pub fn unescaped(field: &str) -> PathBuf {
    let bytes = field.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match octal(&bytes[at..]) {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

/// The byte that a backslash and three octal digits at the start of `text` stand for.
fn octal(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"\\")?.get(..3)?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk, another one, a folder of the first in two other places, one of them on the second.
    const TABLE: &str = "21 1 8:1 / / rw - ext4 /dev/a rw\n22 21 8:2 / /data rw - ext4 /dev/b rw\n\
                         23 21 8:1 /home/ada /mnt/my\\040home rw - ext4 /dev/a rw\n\
                         24 22 8:1 /home /data/all rw - ext4 /dev/a rw\n\
                         25 21 0:5 / /proc rw - proc proc rw\n";

    #[test]
    fn a_path_has_one_place_whatever_it_is_called() {
        let table = MountTable::parse(TABLE);
        let fs_path = |path: &str| table.fs_path(Path::new(path)).map(|found| (found.device, found.path));
        let of = |device: &str, path: &str| Some((device.to_owned(), PathBuf::from(path)));
        for (path, expected) in [
            ("/home/ada/x", of("8:1", "/home/ada/x")),
            ("/mnt/my home/x", of("8:1", "/home/ada/x")),
            ("/data/all/ada/x", of("8:1", "/home/ada/x")),
            ("/data/x", of("8:2", "/x")),
            ("/data", of("8:2", "/")),
        ] {
            assert_eq!(fs_path(path), expected, "{path}");
        }
    }

    #[test]
    fn all_ways_to_a_hidden_folder_are_found() {
        let table = MountTable::parse(TABLE);
        let hidden = Path::new("/home/ada/pumice");
        for (folder, expected) in [
            ("/home/ada", vec!["pumice"]),
            ("/home/ada/pumice", vec![""]),
            ("/home/bob", vec![]),
            ("/mnt/my home", vec!["pumice"]),
            ("/mnt", vec!["my home/pumice"]),
            ("/data", vec!["all/ada/pumice"]),
            ("/", vec!["home/ada/pumice", "home/ada/pumice", "mnt/my home/pumice", "data/all/ada/pumice"]),
        ] {
            let mut found = table.ways(Path::new(folder), hidden);
            let mut expected: Vec<PathBuf> = expected.into_iter().map(PathBuf::from).collect();
            for ways in [&mut found, &mut expected] {
                ways.sort();
                ways.dedup();
            }
            assert_eq!(found, expected, "{folder}");
        }
    }

    #[test]
    fn what_does_not_exist_lies_where_it_would_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir(&data).unwrap();
        std::os::unix::fs::symlink(&data, dir.path().join("link")).unwrap();
        for (path, expected) in
            [("data", true), ("data/new/folder", true), ("link/new", true), ("other", false), ("", false)]
        {
            assert_eq!(lies_in(&dir.path().join(path), &data).unwrap(), expected, "{path:?}");
        }
    }
}
