//! The layer's folder, in which files are made by descriptors.
//!
//! Invariant: a path is looked up by the kernel below the layer's folder, which is the root for links and `..` in it; a last name
//! is never followed. What is replaced is moved out of the layer's folder first and removed there. No more than a few descriptors
//! are open, however deep folders lie.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat, futimens, mkdirat, mknodat};
use nix::unistd::{UnlinkatFlags, linkat, mkfifoat, symlinkat, unlinkat};
use pumice_linux::paths::{Missing, open_in_root};
use pumice_linux::tree::is_folder;

use super::attributes::{self, Owners};
use super::entries::Attributes;
use super::error::EntryProblem;
use super::{ROOT, split};
use times::Times;

mod times;

/// A folder that is opened to make files in it.
const FOLDER: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);
/// Rights of folders that no entry is of.
const FOLDER_MODE: u32 = 0o755;
/// What replaced folders are moved to, and hard links are made by, beside the layer's folder.
const REPLACED: &str = "replaced";
const LINK: &CStr = c"link";
/// Says to the kernel's overlay that a folder hides what is below; the second to one without root's help.
const OPAQUE: [&CStr; 2] = [c"trusted.overlay.opaque", c"user.overlay.opaque"];
/// Tries of a look-up that others' renaming elsewhere on the machine disturbs.
const TRIES: u32 = 1000;

/// The files of a layer.
pub(super) struct Tree {
    work_path: PathBuf,
    work: OwnedFd,
    root: OwnedFd,
    owners: Owners,
    times: Times,
    /// The folder of the last entry; until something is replaced that a path could go through.
    last: Option<(Vec<u8>, Rc<OwnedFd>)>,
    replaced: u64,
}

/// A name in an open folder.
struct Position {
    folder: Rc<OwnedFd>,
    name: CString,
}

impl Tree {
    /// Makes the layer's folder in the folder of the work.
    pub(super) fn new(work_path: &Path, owners: Owners) -> io::Result<Tree> {
        let root_path = work_path.join(ROOT);
        fs::create_dir(&root_path)?;
        fs::set_permissions(&root_path, fs::Permissions::from_mode(FOLDER_MODE))?;
        let open = |path: &Path| nix::fcntl::open(path, FOLDER | OFlag::O_NOFOLLOW, Mode::empty());
        Ok(Tree {
            work: open(work_path)?,
            root: open(&root_path)?,
            work_path: work_path.to_owned(),
            owners,
            times: Times::new(work_path)?,
            last: None,
            replaced: 0,
        })
    }

    /// Makes a folder, or gives attributes to one that is there.
    pub(super) fn folder(&mut self, path: &[u8], attributes: &Attributes) -> Result<(), EntryProblem> {
        let folder = if path.is_empty() { Rc::new(self.open(b"")?) } else { self.make_folder(path)? };
        attributes::set_of_folder(folder.as_fd(), attributes, self.owners)?;
        self.times.add(path, attributes.mtime).map_err(EntryProblem::system("writing down its time"))
    }

    /// Makes an empty file.
    pub(super) fn file(&mut self, path: &[u8]) -> Result<File, EntryProblem> {
        let at = self.position(path)?;
        self.clear(&at)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&at.folder, at.name.as_c_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR);
        file.map(File::from).map_err(EntryProblem::system("making the file"))
    }

    /// Gives a file that was written its attributes.
    pub(super) fn finish_file(&self, file: &File, attributes: &Attributes) -> Result<(), EntryProblem> {
        attributes::set_of_file(file, attributes, self.owners)
    }

    pub(super) fn symbolic_link(
        &mut self,
        path: &[u8],
        target: &[u8],
        attributes: &Attributes,
    ) -> Result<(), EntryProblem> {
        let at = self.position(path)?;
        self.clear(&at)?;
        symlinkat(target, &at.folder, at.name.as_c_str()).map_err(EntryProblem::system("making the link"))?;
        attributes::set_of_entry(&at.folder, &at.name, attributes, self.owners)
    }

    /// Makes a second name for a file that is there.
    pub(super) fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), EntryProblem> {
        let no_target = || EntryProblem::LinkTarget { target: super::error::printable(target) };
        let (folder, name) = split(target);
        let from = self.open(folder).map_err(|_| no_target())?;
        let name = c_string(name)?;
        let found = look(&from, &name).map_err(|_| no_target())?.ok_or_else(no_target)?;
        if name.is_empty() || is_folder(&found) || is_whiteout(&found) {
            return Err(no_target());
        }
        let at = self.position(path)?;
        linkat(&from, name.as_c_str(), &self.work, LINK, AtFlags::empty())
            .map_err(EntryProblem::system("making the link"))?;
        let made = self.clear_folder(&at).and_then(|()| {
            // A name of the same file stays as it is.
            renameat(&self.work, LINK, &at.folder, at.name.as_c_str()).map_err(EntryProblem::system("making the link"))
        });
        let _ = unlinkat(&self.work, LINK, UnlinkatFlags::NoRemoveDir);
        made
    }

    pub(super) fn fifo(&mut self, path: &[u8], attributes: &Attributes) -> Result<(), EntryProblem> {
        let at = self.position(path)?;
        self.clear(&at)?;
        mkfifoat(&at.folder, at.name.as_c_str(), Mode::S_IRUSR | Mode::S_IWUSR)
            .map_err(EntryProblem::system("making the pipe"))?;
        // By a descriptor that reads nothing and waits for nobody; its name leads to just what was opened.
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fifo = openat(&at.folder, at.name.as_c_str(), flags, Mode::empty());
        let fifo = fifo.map_err(EntryProblem::system("opening the pipe"))?;
        attributes::set_of_entry(&at.folder, &at.name, attributes, self.owners)?;
        let path = pumice_linux::detached_mount::descriptor_path(&fifo);
        fs::set_permissions(path, fs::Permissions::from_mode(attributes.mode))
            .map_err(EntryProblem::system("setting its mode"))
    }

    /// Removes what an earlier entry made.
    pub(super) fn remove(&mut self, path: &[u8]) -> Result<(), EntryProblem> {
        let at = self.position(path)?;
        self.clear(&at)
    }

    /// Hides what layers below have by this name. What this layer has by it stays.
    pub(super) fn hide(&mut self, folder: &[u8], name: &[u8]) -> Result<(), EntryProblem> {
        if matches!(name, b"" | b"." | b"..") {
            return Err(EntryProblem::HidesNothing);
        }
        let at = Position { folder: self.make_parent(folder)?, name: c_string(name)? };
        match look(&at.folder, &at.name).map_err(EntryProblem::system("looking for what it hides"))? {
            Some(found) if is_folder(&found) => set_opaque(&open_child(&at)?),
            Some(_) => Ok(()),
            None => mknodat(&at.folder, at.name.as_c_str(), SFlag::S_IFCHR, Mode::empty(), 0).map_err(
                EntryProblem::system("making the device 0/0 for a removed file (Linux 5.8 lets users make it)"),
            ),
        }
    }

    /// Has a folder hide all that layers below have in it.
    pub(super) fn make_opaque(&mut self, folder: &[u8]) -> Result<(), EntryProblem> {
        let folder = self.make_parent(folder)?;
        set_opaque(&folder)
    }

    /// Sets what could not be set before: the times of folders.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.last = None;
        let Tree { times, root, .. } = self;
        times.for_each(|path, time| {
            // One that was replaced meanwhile has no time any more.
            let Ok(folder) = open_below(root, path) else { return Ok(()) };
            let time = attributes::time(time);
            Ok(futimens(&folder, &time, &time)?)
        })
    }

    /// Where a file by this path is made.
    fn position(&mut self, path: &[u8]) -> Result<Position, EntryProblem> {
        let (folder, name) = split(path);
        Ok(Position { folder: self.make_parent(folder)?, name: c_string(name)? })
    }

    /// Opens the folder that entries are made in, with those before it; makes what is missing.
    fn make_parent(&mut self, path: &[u8]) -> Result<Rc<OwnedFd>, EntryProblem> {
        if let Some((last, folder)) = &self.last
            && last == path
        {
            return Ok(Rc::clone(folder));
        }
        let folder = match open_below(&self.root, path) {
            Ok(folder) => Rc::new(folder),
            Err(Errno::ENOENT | Errno::ENOTDIR) => self.make_parents(path)?,
            Err(errno) => return Err(EntryProblem::on_the_way(path, errno)),
        };
        self.last = Some((path.to_owned(), Rc::clone(&folder)));
        Ok(folder)
    }

    /// Makes folders one after the other. Only a folder that is not there is made: nothing but a mark of a removed one gives way.
    fn make_parents(&mut self, path: &[u8]) -> Result<Rc<OwnedFd>, EntryProblem> {
        let mut folder = Rc::new(self.open(b"")?);
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            let Some(path) = path.get(..end) else { continue };
            folder = match open_below(&self.root, path) {
                Ok(found) => Rc::new(found),
                Err(errno @ (Errno::ENOENT | Errno::ENOTDIR)) => {
                    let at = Position { folder, name: c_string(split(path).1)? };
                    let found = look(&at.folder, &at.name).map_err(EntryProblem::system("looking for its folder"))?;
                    if found.is_some_and(|found| !is_whiteout(&found)) {
                        return Err(EntryProblem::on_the_way(
                            path,
                            if errno == Errno::ENOENT { Errno::ELOOP } else { errno },
                        ));
                    }
                    Rc::new(self.make_folder_at(&at)?)
                }
                Err(errno) => return Err(EntryProblem::on_the_way(path, errno)),
            };
        }
        Ok(folder)
    }

    fn make_folder(&mut self, path: &[u8]) -> Result<Rc<OwnedFd>, EntryProblem> {
        let at = self.position(path)?;
        self.make_folder_at(&at).map(Rc::new)
    }

    /// Makes a folder where none is, in the place of anything else.
    fn make_folder_at(&mut self, at: &Position) -> Result<OwnedFd, EntryProblem> {
        let found = look(&at.folder, &at.name).map_err(EntryProblem::system("looking for the folder"))?;
        if found.as_ref().is_some_and(is_folder) {
            return open_child(at);
        }
        self.clear(at)?;
        mkdirat(&at.folder, at.name.as_c_str(), Mode::from_bits_truncate(FOLDER_MODE))
            .map_err(EntryProblem::system("making the folder"))?;
        let folder = open_child(at)?;
        // Else by the mask of this process.
        nix::sys::stat::fchmod(&folder, Mode::from_bits_truncate(FOLDER_MODE))
            .map_err(EntryProblem::system("setting its mode"))?;
        if found.as_ref().is_some_and(is_whiteout) {
            set_opaque(&folder)?;
        }
        Ok(folder)
    }

    /// Opens a folder that is there.
    fn open(&self, path: &[u8]) -> Result<OwnedFd, EntryProblem> {
        open_below(&self.root, path).map_err(|errno| EntryProblem::on_the_way(path, errno))
    }

    /// Makes room for a new file.
    fn clear(&mut self, at: &Position) -> Result<(), EntryProblem> {
        self.clear_folder(at)?;
        match unlinkat(&at.folder, at.name.as_c_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) => {
                // It may have been a link on a path.
                self.last = None;
                Ok(())
            }
            Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(EntryProblem::system("replacing an earlier entry")(errno)),
        }
    }

    /// The same for a folder; anything else stays.
    fn clear_folder(&mut self, at: &Position) -> Result<(), EntryProblem> {
        let found = look(&at.folder, &at.name).map_err(EntryProblem::system("looking for an earlier entry"))?;
        if !found.as_ref().is_some_and(is_folder) {
            return Ok(());
        }
        self.last = None;
        self.replaced += 1;
        let away = format!("{REPLACED}{}", self.replaced);
        renameat(&at.folder, at.name.as_c_str(), &self.work, away.as_str())
            .map_err(EntryProblem::system("replacing an earlier folder"))?;
        pumice_linux::files::remove(&self.work_path.join(away))
            .map_err(EntryProblem::system("removing an earlier folder"))
    }
}

/// Opens a folder below the root, as a process would whose root it is.
fn open_below(root: &OwnedFd, path: &[u8]) -> nix::Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let within = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS | ResolveFlag::RESOLVE_NO_XDEV;
    for _ in 0..TRIES {
        match openat2(root, path, OpenHow::new().flags(FOLDER).resolve(within)) {
            // Somebody renames or mounts something, anywhere.
            Err(Errno::EAGAIN) => {}
            // Kernels before 5.6, and sandboxes that know no such call.
            Err(Errno::ENOSYS | Errno::EPERM) => return open_step_by_step(root, path),
            opened => return opened,
        }
    }
    Err(Errno::EAGAIN)
}

fn open_step_by_step(root: &OwnedFd, path: &[u8]) -> nix::Result<OwnedFd> {
    let path = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path);
    let found = open_in_root(root.as_fd(), Path::new(path), Missing::Refuse).map_err(pumice_linux::tree::errno)?;
    openat(&found, c".", FOLDER, Mode::empty())
}

fn open_child(at: &Position) -> Result<OwnedFd, EntryProblem> {
    openat(&at.folder, at.name.as_c_str(), FOLDER | OFlag::O_NOFOLLOW, Mode::empty())
        .map_err(EntryProblem::system("opening the folder"))
}

/// What is by this name; a link is not followed.
fn look(folder: &OwnedFd, name: &CStr) -> nix::Result<Option<FileStat>> {
    match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => Ok(None),
        found => found.map(Some),
    }
}

fn is_whiteout(found: &FileStat) -> bool {
    found.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFCHR.bits() && found.st_rdev == 0
}

/// For whichever overlay the layer is mounted in.
fn set_opaque(folder: &OwnedFd) -> Result<(), EntryProblem> {
    let set = OPAQUE.map(|name| attributes::set_attribute(folder, name, b"y"));
    match set {
        [Err(_), Err(errno)] => {
            Err(EntryProblem::Attribute { name: "user.overlay.opaque".to_owned(), source: errno.into() })
        }
        _ => Ok(()),
    }
}

fn c_string(name: &[u8]) -> Result<CString, EntryProblem> {
    CString::new(name).map_err(|_| EntryProblem::Nul("name"))
}
