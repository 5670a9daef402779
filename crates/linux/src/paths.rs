//! Paths within a root that is not ours, looked up once.
//!
//! Invariant: whatever links and `..` a tree holds, and whoever exchanges them meanwhile, what is opened or made is below
//! the root: each component is opened without following it, below a descriptor that was reached in the same way, and
//! callers use the descriptor, never the name again. Called before mounting into a container's root, for volumes'
//! sub-paths, and for the files that the agent writes into volumes.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Links followed in one path, as in the kernel.
const LINKS_MAX: usize = 40;
/// Times that an entry is looked for again that somebody makes or removes meanwhile.
const ATTEMPTS_MAX: usize = 40;
/// Rights of folders that are made on the way, less the process's umask.
const FOLDER_MODE: Mode = Mode::from_bits_truncate(0o777);
/// Rights of files that are made.
const FILE_MODE: Mode = Mode::from_bits_truncate(0o644);

/// What becomes of a path that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    Refuse,
    /// It is made, a folder, with the folders before it.
    MakeFolder,
    /// It is made, an empty file, with the folders before it.
    MakeFile,
}

/// Opens `path` as a process would whose root is `root`, for use as a place only (`O_PATH`): nothing is read, no device
/// is opened.
pub fn open_in_root(root: BorrowedFd<'_>, path: &Path, missing: Missing) -> io::Result<OwnedFd> {
    let mut walk = Walk { root, passed: Vec::new(), pending: parts(path).collect(), links: 0, attempts: 0 };
    while let Some(part) = walk.pending.pop_front() {
        walk.step(part, missing)?;
    }
    walk.passed.pop().map_or_else(|| root.try_clone_to_owned(), Ok)
}

/// Whose a file is that is written, and what its mode is.
#[derive(Debug, Clone, Copy)]
pub struct FileRights {
    /// None is this process's.
    pub uid: Option<u32>,
    /// None is this process's.
    pub gid: Option<u32>,
    pub mode: u32,
}

/// Puts a file at `path` below `root`, by way of a temporary one beside it; folders before it are made. What is there is
/// replaced, not written to, unless it is a folder.
pub fn write_in_root(root: BorrowedFd<'_>, path: &Path, bytes: &[u8], rights: FileRights) -> io::Result<()> {
    let Some(name) = path.file_name() else { return Err(Errno::EISDIR.into()) };
    let folder = open_in_root(root, path.parent().unwrap_or(Path::new("")), Missing::MakeFolder)?;
    let mut temporary = name.to_owned();
    temporary.push(format!(".{}.new", std::process::id()));
    match unlinkat(&folder, temporary.as_os_str(), UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(&folder, temporary.as_os_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
    file.write_all(bytes)?;
    std::os::unix::fs::fchown(&file, rights.uid, rights.gid)?;
    file.set_permissions(Permissions::from_mode(rights.mode))?;
    Ok(renameat(&folder, temporary.as_os_str(), &folder, name)?)
}

/// Opens an existing path of our own, following links, for use as a place only.
pub fn open_path(path: &Path) -> io::Result<OwnedFd> {
    Ok(nix::fcntl::open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// Whether a descriptor is a folder's.
pub fn is_folder(file: impl AsFd) -> io::Result<bool> {
    Ok(kind(file)? == SFlag::S_IFDIR)
}

fn kind(file: impl AsFd) -> nix::Result<SFlag> {
    Ok(SFlag::from_bits_truncate(fstat(file)?.st_mode) & SFlag::S_IFMT)
}

/// A path half gone.
struct Walk<'r> {
    root: BorrowedFd<'r>,
    /// What was opened on the way, so that `..` needs no look-up.
    passed: Vec<OwnedFd>,
    pending: VecDeque<OsString>,
    links: usize,
    attempts: usize,
}

impl Walk<'_> {
    fn here(&self) -> BorrowedFd<'_> {
        self.passed.last().map_or(self.root, AsFd::as_fd)
    }

    fn step(&mut self, part: OsString, missing: Missing) -> io::Result<()> {
        if part == ".." {
            self.passed.pop();
            return Ok(());
        }
        match self.open(&part, OFlag::O_DIRECTORY) {
            Ok(folder) => self.pass(folder),
            Err(Errno::ENOTDIR | Errno::ELOOP) => return self.pass_other(part),
            Err(Errno::ENOENT) if missing != Missing::Refuse => {
                self.make(&part, missing)?;
                return self.again(part);
            }
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    fn pass(&mut self, found: OwnedFd) {
        self.passed.push(found);
        self.attempts = 0;
    }

    fn open(&self, part: &OsString, more: OFlag) -> nix::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | more;
        openat(self.here(), part.as_os_str(), flags, Mode::empty())
    }

    /// Takes a file in, or what a link says.
    fn pass_other(&mut self, part: OsString) -> io::Result<()> {
        let found = match self.open(&part, OFlag::empty()) {
            Ok(found) => found,
            Err(Errno::ENOENT) => return self.again(part),
            Err(errno) => return Err(errno.into()),
        };
        match kind(&found)? {
            SFlag::S_IFLNK => {}
            // A file has nothing below it, not even `..`.
            kind if kind != SFlag::S_IFDIR && !self.pending.is_empty() => return Err(Errno::ENOTDIR.into()),
            _ => {
                self.pass(found);
                return Ok(());
            }
        }
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::ELOOP.into());
        }
        let target = readlinkat(&found, "")?;
        let target = Path::new(&target);
        if target.is_absolute() {
            self.passed.clear();
        }
        for part in parts(target).collect::<Vec<_>>().into_iter().rev() {
            self.pending.push_front(part);
        }
        Ok(())
    }

    fn make(&self, part: &OsString, missing: Missing) -> nix::Result<()> {
        let made = if missing == Missing::MakeFile && self.pending.is_empty() {
            let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
            openat(self.here(), part.as_os_str(), flags, FILE_MODE).map(drop)
        } else {
            mkdirat(self.here(), part.as_os_str(), FOLDER_MODE)
        };
        match made {
            Err(Errno::EEXIST) => Ok(()),
            made => made,
        }
    }

    /// Looks once more at what has just changed.
    fn again(&mut self, part: OsString) -> io::Result<()> {
        self.attempts += 1;
        if self.attempts > ATTEMPTS_MAX {
            return Err(Errno::EAGAIN.into());
        }
        self.pending.push_front(part);
        Ok(())
    }
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(part) => Some(part.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

/// Whether a path given by a user is relative and never goes up.
pub fn is_plain_relative(path: &str) -> bool {
    Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    /// Where a descriptor leads.
    fn name(file: &OwnedFd) -> PathBuf {
        std::fs::read_link(crate::detached_mount::descriptor_path(file)).unwrap()
    }

    #[test]
    fn no_link_leads_out_of_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("run/x")).unwrap();
        std::fs::create_dir_all(root.join("var")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        symlink("/run", root.join("var/run")).unwrap();
        symlink("../../../../etc", root.join("run/out")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink("/proc/self/root/etc", root.join("magic")).unwrap();
        let open = |path: &str, missing| {
            let folder = open_path(&root).unwrap();
            open_in_root(folder.as_fd(), Path::new(path), missing)
        };
        for (path, expected) in [("/var/run/x/new/er", "run/x/new/er"), ("../../a/./b/../c", "a/c"), ("/", "")] {
            let expected = root.join(expected);
            assert_eq!(name(&open(path, Missing::MakeFolder).unwrap()), expected.components().collect::<PathBuf>());
        }
        assert_eq!(name(&open("/var/run/out/passwd", Missing::MakeFile).unwrap()), root.join("etc/passwd"));
        assert!(root.join("etc/passwd").is_file());
        assert_eq!(name(&open("magic", Missing::MakeFolder).unwrap()), root.join("proc/self/root/etc"));
        let refused = |path: &str, missing| open(path, missing).unwrap_err().raw_os_error();
        assert_eq!(refused("/loop/a", Missing::MakeFolder), Some(libc::ELOOP));
        assert_eq!(refused("/none", Missing::Refuse), Some(libc::ENOENT));
        for below in ["/file/a", "/file/../run"] {
            assert_eq!(refused(below, Missing::MakeFolder), Some(libc::ENOTDIR), "{below}");
        }
    }

    #[test]
    fn users_paths_never_go_up() {
        for (path, plain) in [("a/b", true), ("./a", true), ("", true), ("/a", false), ("a/../b", false), ("..", false)]
        {
            assert_eq!(is_plain_relative(path), plain, "{path}");
        }
    }
}
