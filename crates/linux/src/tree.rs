//! Folders that somebody else shaped, opened one step at a time.
//!
//! Invariant: a step goes from an open folder to one of its entries, never through a path, a symbolic link or a mount, so neither the length of a path, nor a link or a mount that is exchanged in between, leads anywhere else. Memory and open
//! descriptors don't grow with the number of entries. Used by [`removal`] and [`size`].

pub mod removal;
pub mod size;

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};

use crate::detached_mount::descriptor_path;

/// Bytes of entries that are read at a time.
const LISTING_BYTES: usize = 32 << 10;
/// Where the fields of an entry are that the kernel lists (`linux_dirent64`).
const OFFSET_AT: usize = 8;
const LENGTH_AT: usize = 16;
const KIND_AT: usize = 18;
const NAME_AT: usize = 19;

const FOLDER: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: CString,
    /// Whether it is a folder; none where the file system doesn't say.
    pub is_folder: Option<bool>,
    /// Where the listing goes on after it.
    pub next: i64,
}

/// An open folder and how far its entries have been read.
pub struct Folder {
    descriptor: OwnedFd,
    buffer: Box<[u8]>,
    filled: usize,
    at: usize,
}

impl Folder {
    /// The entries of an open folder, from its first.
    pub fn new(descriptor: OwnedFd) -> Folder {
        Folder::with_buffer(descriptor, LISTING_BYTES)
    }

    /// The same, read in parts of so many bytes; an entry takes at most 280.
    pub fn with_buffer(descriptor: OwnedFd, bytes: usize) -> Folder {
        Folder { descriptor, buffer: vec![0; bytes].into_boxed_slice(), filled: 0, at: 0 }
    }

    /// The folder at a path whose parents are trusted.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let descriptor = nix::fcntl::open(path, FOLDER, Mode::empty())?;
        Ok(Folder::new(descriptor))
    }

    /// The next entry; neither `.` nor `..`.
    pub fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        loop {
            if self.at >= self.filled {
                self.filled = list(self.descriptor.as_fd(), &mut self.buffer)?;
                self.at = 0;
                if self.filled == 0 {
                    return Ok(None);
                }
            }
            let Some((entry, length)) = parse(&self.buffer[self.at..self.filled]) else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the listing of a folder is malformed"));
            };
            self.at += length;
            if !matches!(entry.name.to_bytes(), b"." | b"..") {
                return Ok(Some(entry));
            }
        }
    }

    /// Goes on reading at the first entry again.
    pub fn rewind(&mut self) -> io::Result<()> {
        self.seek(0)
    }

    /// Goes on reading after the entry that told `next`.
    pub fn seek(&mut self, next: i64) -> io::Result<()> {
        nix::unistd::lseek(self.descriptor.as_fd(), next, nix::unistd::Whence::SeekSet)?;
        (self.filled, self.at) = (0, 0);
        Ok(())
    }

    /// Opens a folder in it. A link is refused by `ELOOP` or `ENOTDIR`, a mount by `EXDEV`.
    pub fn open_child(&self, name: &CStr) -> nix::Result<OwnedFd> {
        let within = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV;
        match openat2(self.as_fd(), name, OpenHow::new().flags(FOLDER).resolve(within)) {
            // Kernels before 5.6, and sandboxes that know no such call.
            Err(Errno::ENOSYS | Errno::EPERM) => self.open_child_and_compare(name),
            opened => opened,
        }
    }

    /// The same by calls that every kernel has.
    fn open_child_and_compare(&self, name: &CStr) -> nix::Result<OwnedFd> {
        let opened = openat(self.as_fd(), name, FOLDER, Mode::empty())?;
        if mount_id(opened.as_fd()) == mount_id(self.as_fd()) { Ok(opened) } else { Err(Errno::EXDEV) }
    }

    /// The same folder, to be read on its own.
    pub fn open_again(&self) -> nix::Result<OwnedFd> {
        openat(self.as_fd(), c".", FOLDER, Mode::empty())
    }

    /// The folder around it, wherever that is by now.
    pub fn open_parent(&self) -> nix::Result<OwnedFd> {
        openat(self.as_fd(), c"..", FOLDER, Mode::empty())
    }

    /// What an entry is; a link is not followed.
    pub fn look(&self, name: &CStr) -> nix::Result<FileStat> {
        fstatat(self.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    /// Lets the owner into a folder in it.
    pub fn let_into(&self, name: &CStr) -> nix::Result<()> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let folder = openat(self.as_fd(), name, flags, Mode::empty())?;
        // There is no `fchmod` of what may not be read; this name leads to just what was opened.
        fs::set_permissions(descriptor_path(&folder), fs::Permissions::from_mode(0o700)).map_err(errno)
    }

    /// Lets the owner change what is in it.
    pub fn let_change(&self) -> nix::Result<()> {
        nix::sys::stat::fchmod(self.as_fd(), Mode::S_IRWXU)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A folder and the name of an entry in it, of a path whose parents are trusted.
pub fn split(path: &Path) -> io::Result<(Folder, CString)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} has no parent", path.display())));
    };
    Ok((Folder::open(parent)?, CString::new(name.as_bytes())?))
}

/// Whether what was looked at is a folder.
pub fn is_folder(found: &FileStat) -> bool {
    found.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits()
}

/// Which file an open one is, whatever its name.
pub fn identity(folder: BorrowedFd<'_>) -> nix::Result<(u64, u64)> {
    let found = fstat(folder)?;
    Ok((found.st_dev, found.st_ino))
}

/// The number of a kernel's answer.
pub fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// The mount that an open file was reached through; bind mounts of one file system differ.
fn mount_id(file: BorrowedFd<'_>) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// Fills `buffer` with the next entries; 0 at the end.
#[allow(unsafe_code)]
fn list(folder: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most the given length into a buffer that is ours for the length of the call.
    let filled = unsafe { libc::syscall(libc::SYS_getdents64, folder.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) };
    match Errno::result(filled) {
        Ok(filled) => Ok(usize::try_from(filled).unwrap_or(0).min(buffer.len())),
        // Somebody removed the folder while it was open.
        Err(Errno::ENOENT) => Ok(0),
        Err(errno) => Err(errno.into()),
    }
}

/// The first entry of a listing, and its length.
fn parse(listing: &[u8]) -> Option<(Entry, usize)> {
    let next = i64::from_ne_bytes(listing.get(OFFSET_AT..LENGTH_AT)?.try_into().ok()?);
    let length = usize::from(u16::from_ne_bytes(listing.get(LENGTH_AT..KIND_AT)?.try_into().ok()?));
    let is_folder = match *listing.get(KIND_AT)? {
        libc::DT_UNKNOWN => None,
        kind => Some(kind == libc::DT_DIR),
    };
    let name = CStr::from_bytes_until_nul(listing.get(NAME_AT..length)?).ok()?.to_owned();
    Some((Entry { name, is_folder, next }, length))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Makes so many levels of folders below `path`, by descriptors.
    pub fn nest(path: &Path, levels: u32, name: &CStr) {
        let mut folder = Folder::open(path).unwrap();
        for _ in 0..levels {
            nix::sys::stat::mkdirat(folder.as_fd(), name, Mode::S_IRWXU).unwrap();
            folder = Folder::new(folder.open_child(name).unwrap());
        }
    }

    #[test]
    fn every_entry_is_listed_once_and_again_from_where_it_was_told() {
        let dir = tempfile::tempdir().unwrap();
        let names: std::collections::BTreeSet<String> = (0..3000).map(|i| format!("{i}{}", "x".repeat(200))).collect();
        names.iter().for_each(|name| drop(fs::File::create(dir.path().join(name)).unwrap()));
        let mut folder = Folder::open(dir.path()).unwrap();
        let read =
            |folder: &mut Folder| -> Vec<Entry> { std::iter::from_fn(|| folder.next_entry().unwrap()).collect() };
        let found = read(&mut folder);
        let text = |entry: &Entry| entry.name.to_str().unwrap().to_owned();
        assert_eq!(found.len(), names.len());
        assert_eq!(found.iter().map(text).collect::<std::collections::BTreeSet<_>>(), names);
        assert!(found.iter().all(|entry| entry.is_folder == Some(false)));
        folder.seek(found[1999].next).unwrap();
        assert_eq!(read(&mut folder), found[2000..]);
        folder.rewind().unwrap();
        assert_eq!(read(&mut folder), found);
    }

    #[test]
    fn neither_links_nor_mounts_are_gone_through() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("real")).unwrap();
        symlink("real", dir.path().join("link")).unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let ways: [fn(&Folder, &CStr) -> nix::Result<OwnedFd>; 2] =
            [Folder::open_child, Folder::open_child_and_compare];
        for open in ways {
            assert!(open(&folder, c"real").is_ok());
            assert!(matches!(open(&folder, c"link"), Err(Errno::ELOOP | Errno::ENOTDIR)));
            assert_eq!(open(&folder, c"none").unwrap_err(), Errno::ENOENT);
            let root = Folder::open(Path::new("/")).unwrap();
            assert_eq!(open(&root, c"proc").unwrap_err(), Errno::EXDEV);
        }
    }

    #[test]
    fn a_malformed_listing_is_refused() {
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[0; NAME_AT]), None);
        let mut listing = [b'x'; 32];
        listing[LENGTH_AT..KIND_AT].copy_from_slice(&32_u16.to_ne_bytes());
        assert_eq!(parse(&listing), None, "a name must end");
        listing[31] = 0;
        assert_eq!(parse(&listing).unwrap().1, 32);
    }
}
