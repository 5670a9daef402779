//! How much a tree takes on disk, counted in parts.
//!
//! Invariant: it only reads, and its descriptors are bounded: those of the first [`OPEN_MAX`] levels stay open, deeper ones
//! are come back to by `..`, and only where that leads to the folder it came from. What is counted is never more than
//! there was: a file with several names is counted by its share for each of them.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use nix::errno::Errno;

use super::{Entry, Folder, identity, is_folder};

/// Levels that stay open.
const OPEN_MAX: usize = 16;
/// Bytes of entries that are read at a time in deeper ones, whose listing is begun anew after each folder in them.
const DEEP_LISTING_BYTES: usize = 2 << 10;
/// Deepest level that is counted: each takes some memory here, and more of the disk.
const DEPTH_MAX: usize = 1 << 20;
/// The unit of a file's size on disk, in bytes.
const BLOCK_BYTES: u64 = 512;

/// A count under way.
pub struct Size {
    device: u64,
    /// The first levels.
    open: Vec<Folder>,
    /// Those below, without the deepest.
    closed: Vec<Closed>,
    /// The deepest, if it is below the first levels.
    deepest: Option<Folder>,
    bytes: u64,
    unreadable: u64,
}

/// A level that is come back to.
struct Closed {
    identity: (u64, u64),
    next: i64,
}

impl Size {
    /// Begins to count what is below `path`, on its own file system.
    pub fn of(path: &Path) -> io::Result<Size> {
        let top = Folder::open(path)?;
        let (device, _) = identity(top.as_fd())?;
        Ok(Size { device, open: vec![top], closed: Vec::new(), deepest: None, bytes: 0, unreadable: 0 })
    }

    /// Bytes on disk that were found so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Folders, and entries of folders, that this process may not read.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Goes on for at most `entries` more, which are taken from that number; whether all is counted.
    pub fn go_on(&mut self, entries: &mut u32) -> bool {
        loop {
            let Some(folder) = self.deepest.as_mut().or(self.open.last_mut()) else { return true };
            if *entries == 0 {
                return false;
            }
            match folder.next_entry() {
                Ok(Some(entry)) => {
                    *entries -= 1;
                    if let Some(child) = self.count(&entry) {
                        self.descend(child, entry.next);
                    }
                }
                // What can't be read to its end is left out.
                Ok(None) | Err(_) => self.ascend(),
            }
        }
    }

    /// Adds an entry; opens it if it is a folder.
    fn count(&mut self, entry: &Entry) -> Option<OwnedFd> {
        let folder = self.deepest.as_ref().or(self.open.last())?;
        let found = folder.look(&entry.name);
        self.unreadable += u64::from(matches!(found, Err(Errno::EACCES)));
        let found = found.ok().filter(|found| found.st_dev == self.device)?;
        let bytes = u64::try_from(found.st_blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES);
        if !is_folder(&found) {
            self.bytes = self.bytes.saturating_add(bytes / found.st_nlink.max(1));
            return None;
        }
        let opened = folder.open_child(&entry.name);
        // A mount of the same file system shows what is counted where it is.
        if !matches!(opened, Err(Errno::EXDEV)) {
            self.bytes = self.bytes.saturating_add(bytes);
        }
        self.unreadable += u64::from(matches!(opened, Err(Errno::EACCES)));
        opened.ok()
    }

    fn descend(&mut self, child: OwnedFd, next: i64) {
        let Some(parent) = &self.deepest else {
            if self.open.len() < OPEN_MAX {
                self.open.push(Folder::new(child));
            } else {
                self.deepest = Some(Folder::with_buffer(child, DEEP_LISTING_BYTES));
            }
            return;
        };
        if self.closed.len() >= DEPTH_MAX {
            return;
        }
        if let Ok(identity) = identity(parent.as_fd()) {
            self.closed.push(Closed { identity, next });
            self.deepest = Some(Folder::with_buffer(child, DEEP_LISTING_BYTES));
        }
    }

    fn ascend(&mut self) {
        let Some(done) = self.deepest.take() else {
            self.open.pop();
            return;
        };
        let Some(Closed { identity: wanted, next }) = self.closed.pop() else { return };
        let parent = done.open_parent().ok().filter(|parent| identity(parent.as_fd()) == Ok(wanted));
        let parent = parent.and_then(|parent| {
            let mut parent = Folder::with_buffer(parent, DEEP_LISTING_BYTES);
            parent.seek(next).ok().map(|()| parent)
        });
        if parent.is_none() {
            // It was moved while it was counted: what lies between is left out.
            self.closed.clear();
        }
        self.deepest = parent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::nest;
    use std::fs;
    use std::io::Write as _;

    const MI: u64 = 1 << 20;

    fn size(path: &Path, mut entries: u32) -> u64 {
        let mut size = Size::of(path).unwrap();
        size.go_on(&mut entries);
        size.bytes()
    }

    fn about(bytes: u64, mebibytes: u64) -> bool {
        bytes.abs_diff(mebibytes * MI) < MI / 4
    }

    /// Writes a file of so many MiB into a folder.
    fn write(folder: &Folder, name: &std::ffi::CStr, mebibytes: u64) {
        use nix::fcntl::{OFlag, openat};
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY;
        let file = openat(folder.as_fd(), name, flags, nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::File::from(file).write_all(&vec![b'x'; (mebibytes * MI) as usize]).unwrap();
    }

    #[test]
    fn what_lies_deeper_than_any_path_is_long_is_counted_in_whatever_parts() {
        let dir = tempfile::tempdir().unwrap();
        let name = std::ffi::CString::new("n".repeat(200)).unwrap();
        nest(dir.path(), 60, &name);
        let mut deepest = Folder::open(dir.path()).unwrap();
        for level in 0..60 {
            write(&deepest, c"beside", u64::from(level % 20 == 0));
            deepest = Folder::new(deepest.open_child(&name).unwrap());
        }
        write(&deepest, c"hidden", 7);
        let all = size(dir.path(), u32::MAX);
        assert!((10 * MI..11 * MI).contains(&all), "{all}");
        let mut parts = Size::of(dir.path()).unwrap();
        let mut rounds = 1;
        while !parts.go_on(&mut { 7 }) {
            rounds += 1;
        }
        assert_eq!(parts.bytes(), all);
        assert!(rounds > 10, "{rounds}");
        drop(deepest);
        crate::files::remove(dir.path()).unwrap();
    }

    #[test]
    fn a_file_with_several_names_is_counted_once_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let big = dir.path().join("big");
        fs::write(&big, vec![b'x'; (3 * MI) as usize]).unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        for name in ["again", "sub/a", "sub/b"] {
            fs::hard_link(&big, dir.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink("/usr", dir.path().join("link")).unwrap();
        assert!(about(size(dir.path(), u32::MAX), 3));
        assert!(size(dir.path(), 1) < MI, "the rest is left out");
    }

    #[test]
    fn a_folder_that_is_moved_meanwhile_does_not_lead_the_count_astray() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, elsewhere) = (dir.path().join("tree"), dir.path().join("elsewhere"));
        fs::create_dir_all(&tree).unwrap();
        fs::create_dir_all(&elsewhere).unwrap();
        fs::write(elsewhere.join("big"), vec![b'x'; (5 * MI) as usize]).unwrap();
        nest(&tree, 40, c"d");
        let mut size = Size::of(&tree).unwrap();
        // As deep as it goes, but for the way back.
        assert!(!size.go_on(&mut { 40 }));
        let deep = tree.join(vec!["d"; 30].join("/"));
        fs::rename(&deep, elsewhere.join("moved")).unwrap();
        while !size.go_on(&mut { 100 }) {}
        assert!(size.bytes() < MI, "{}", size.bytes());
    }
}
