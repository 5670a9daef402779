//! Removing a tree of any depth and width.
//!
//! It goes down [`DEPTH_MAX`] levels and no further: what lies deeper is renamed to a folder at the top of the tree, and that
//! folder is gone through when the rest is done. Each generation of renamed folders has a folder of its own, so that no
//! entry is looked at twice. Invariant: no recursion; memory and open descriptors are bounded by [`DEPTH_MAX`]; what can't be
//! removed is passed over, and what is beside it goes. Two that remove the same tree at once do each other no harm.

use std::ffi::{CStr, CString};
use std::fmt;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::renameat;
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::{Entry, Folder, errno, is_folder, split};

/// Levels below the top that are open at a time.
const DEPTH_MAX: usize = 24;
/// What folders of renamed folders are called; a number follows.
const DEEP: &str = ".pumice-deep-";
/// Numbers that are tried for one: a tree may hold such names.
const DEEP_TRIES: u32 = 10_000;
/// Readings of a folder that somebody goes on filling.
const READINGS_MAX: u32 = 1000;
/// Attempts to remove an entry that somebody goes on exchanging.
const TRIES: u32 = 16;
/// Last names of a path that are told.
const NAMES_TOLD: usize = 3;
/// Characters of a name that are told.
const CHARACTERS_TOLD: usize = 64;

/// How a removal that did not fail came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Gone,
    /// It was told to stop; some is left.
    Stopped,
}

/// Why something is left.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {}{others}", because(*.errno))]
pub struct RemovalError {
    /// The end of the path of the first thing that could not be removed.
    path: String,
    errno: Errno,
    others: Others,
}

impl RemovalError {
    /// Whether another was at the same tree, so that a later attempt may do.
    pub fn is_of_the_moment(&self) -> bool {
        matches!(self.errno, Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOENT | Errno::EAGAIN)
    }
    /// Whether another user may remove it.
    pub fn is_for_rights(&self) -> bool {
        matches!(self.errno, Errno::EACCES | Errno::EPERM)
    }
}

/// How many more could not be removed.
#[derive(Debug)]
struct Others(u64);

impl fmt::Display for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0 { write!(f, " (and {} more)", self.0) } else { Ok(()) }
    }
}

impl From<RemovalError> for io::Error {
    fn from(error: RemovalError) -> io::Error {
        io::Error::new(io::Error::from(error.errno).kind(), error)
    }
}

/// The kernel's reason, with what lets it go.
fn because(errno: Errno) -> String {
    match errno {
        Errno::EPERM => "not permitted, as where it is immutable (`chattr -R -i -a` lets it go)".to_owned(),
        Errno::EBUSY | Errno::EXDEV => "a file system is mounted there (`umount` lets it go)".to_owned(),
        errno => errno.desc().to_owned(),
    }
}

/// Removes what is at `path`, whose parents are trusted; nothing there is fine. `goes_on` is asked at each entry.
pub fn remove(path: &Path, goes_on: &mut dyn FnMut() -> bool) -> Result<Outcome, RemovalError> {
    let failed = |error| RemovalError { path: path.display().to_string(), errno: errno(error), others: Others(0) };
    let (parent, name) = match split(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Outcome::Gone),
        split => split.map_err(failed)?,
    };
    let mut removal = Removal { goes_on, failures: Failures::default() };
    let outcome = match Removal::take(&parent, &name, None) {
        Ok(Step::Gone) => Ok(Outcome::Gone),
        Ok(Step::Opened(top)) => removal.remove_tree(&parent, &name, top),
        Err(errno) => {
            removal.failures.add(errno, [name.as_c_str()].into_iter());
            Ok(Outcome::Gone)
        }
    };
    let outcome = outcome.map_err(|errno| failed(errno.into()))?;
    match (outcome, removal.failures.first) {
        (Outcome::Gone, Some((path, errno))) => {
            Err(RemovalError { path, errno, others: Others(removal.failures.count - 1) })
        }
        (outcome, _) => Ok(outcome),
    }
}

/// What could not be removed.
#[derive(Default)]
struct Failures {
    first: Option<(String, Errno)>,
    count: u64,
}

impl Failures {
    fn add<'n>(&mut self, errno: Errno, names: impl DoubleEndedIterator<Item = &'n CStr>) {
        self.count += 1;
        if self.first.is_none() {
            let shorten = |name: &CStr| -> String { name.to_string_lossy().chars().take(CHARACTERS_TOLD).collect() };
            let mut last: Vec<String> = names.rev().take(NAMES_TOLD).map(shorten).collect();
            last.reverse();
            self.first = Some((last.join("/"), errno));
        }
    }
}

/// A folder that is being emptied.
struct Level {
    folder: Folder,
    name: CString,
    /// Whether this reading of its entries removed some: another may then find what this one missed.
    progress: bool,
    readings: u32,
    /// Whether something stays in it for certain.
    stuck: bool,
}

impl Level {
    fn new(folder: Folder, name: CString) -> Level {
        Level { folder, name, progress: false, readings: 0, stuck: false }
    }
}

/// What became of an entry.
enum Step {
    Gone,
    /// A folder with something in it.
    Opened(Folder),
}

struct Removal<'s> {
    goes_on: &'s mut dyn FnMut() -> bool,
    failures: Failures,
}

impl Removal<'_> {
    /// Empties the open folder `top` and removes it, which is `name` in `parent`.
    fn remove_tree(&mut self, parent: &Folder, name: &CStr, top: Folder) -> nix::Result<Outcome> {
        let mut deep = Generations { top: &top, number: 0, next: None };
        // The same folder, opened again for reading its entries: new ones are made by way of `top`.
        let reading = Folder::new(top.open_again()?);
        if self.empty(vec![Level::new(reading, name.to_owned())], &mut deep)? == Outcome::Stopped {
            return Ok(Outcome::Stopped);
        }
        while let Some(generation) = deep.next.take() {
            let levels = match Removal::take(&top, &generation, None) {
                Ok(Step::Gone) => continue,
                Ok(Step::Opened(folder)) => vec![Level::new(folder, generation.clone())],
                Err(errno) => {
                    self.failures.add(errno, [name, &generation].into_iter());
                    continue;
                }
            };
            if self.empty(levels, &mut deep)? == Outcome::Stopped {
                return Ok(Outcome::Stopped);
            }
            self.leave(&top, &generation);
        }
        self.leave(parent, name);
        Ok(Outcome::Gone)
    }

    /// Removes an emptied folder. One that still holds something has had its failures counted, or is filled by somebody.
    fn leave(&mut self, parent: &Folder, name: &CStr) {
        match unlinkat(parent.as_fd(), name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(_) if self.failures.count > 0 => {}
            Err(errno) => self.failures.add(errno, [name].into_iter()),
        }
    }

    /// Empties the first of `levels`, which stays.
    fn empty(&mut self, mut levels: Vec<Level>, deep: &mut Generations<'_>) -> nix::Result<Outcome> {
        loop {
            if !(self.goes_on)() {
                return Ok(Outcome::Stopped);
            }
            let is_full = levels.len() >= DEPTH_MAX;
            let is_first = levels.len() == 1;
            let Some(level) = levels.last_mut() else { return Ok(Outcome::Gone) };
            let Some(entry) = level.folder.next_entry().map_err(errno)? else {
                if level.progress && !level.stuck && level.readings < READINGS_MAX {
                    // What was removed may have hidden what follows it, as some file systems list.
                    level.progress = false;
                    level.readings += 1;
                    level.folder.rewind().map_err(errno)?;
                    continue;
                }
                let Some(done) = levels.pop() else { return Ok(Outcome::Gone) };
                if let Some(level) = levels.last_mut() {
                    let removed = unlinkat(level.folder.as_fd(), done.name.as_c_str(), UnlinkatFlags::RemoveDir);
                    level.settle(removed, done.stuck, &mut self.failures, &done.name);
                }
                continue;
            };
            if is_first && deep.is_next(&entry.name) {
                continue;
            }
            let step = match Removal::take(&level.folder, &entry.name, entry.is_folder) {
                Ok(Step::Opened(folder)) if is_full => deep.lift(&level.folder, &entry).map(|()| drop(folder)),
                Ok(Step::Opened(folder)) => {
                    levels.push(Level::new(folder, entry.name));
                    continue;
                }
                Ok(Step::Gone) => Ok(()),
                Err(errno) => Err(errno),
            };
            match step {
                Ok(()) => level.progress = true,
                Err(errno) => {
                    level.stuck = true;
                    let names = levels.iter().map(|level| level.name.as_c_str()).chain([entry.name.as_c_str()]);
                    self.failures.add(errno, names.collect::<Vec<_>>().into_iter());
                }
            }
        }
    }

    /// Removes an entry, or opens it if it is a folder that isn't empty.
    fn take(folder: &Folder, name: &CStr, is_folder: Option<bool>) -> nix::Result<Step> {
        let mut opened_up = false;
        // What the listing said may be true no more.
        let mut as_folder = is_folder == Some(true);
        for _ in 0..TRIES {
            let flag = if as_folder { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
            match unlinkat(folder.as_fd(), name, flag) {
                Ok(()) | Err(Errno::ENOENT) => return Ok(Step::Gone),
                Err(Errno::ENOTEMPTY | Errno::EEXIST) => match folder.open_child(name) {
                    Ok(child) => return Ok(Step::Opened(Folder::new(child))),
                    Err(Errno::ENOENT) => return Ok(Step::Gone),
                    Err(Errno::ELOOP | Errno::ENOTDIR) => as_folder = false,
                    Err(Errno::EACCES) if !opened_up => {
                        opened_up = true;
                        folder.let_into(name)?;
                    }
                    Err(errno) => return Err(errno),
                },
                Err(Errno::ENOTDIR) if as_folder => as_folder = false,
                Err(Errno::EISDIR) if !as_folder => as_folder = true,
                // By the standard, for a folder too.
                Err(Errno::EPERM) if !as_folder && is_folder.is_none() && is_a_folder(folder, name) => as_folder = true,
                Err(Errno::EACCES) if !opened_up => {
                    opened_up = true;
                    folder.let_change()?;
                }
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::EAGAIN)
    }
}

fn is_a_folder(folder: &Folder, name: &CStr) -> bool {
    folder.look(name).is_ok_and(|found| is_folder(&found))
}

impl Level {
    /// Takes in what came of removing a folder in this one that was gone through.
    fn settle(&mut self, removed: nix::Result<()>, stuck: bool, failures: &mut Failures, name: &CStr) {
        match removed {
            Ok(()) | Err(Errno::ENOENT) => self.progress = true,
            // Its failures are counted.
            Err(_) if stuck => self.stuck = true,
            // Something came into it meanwhile: the next reading goes there again, as long as it helps.
            Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => {}
            Err(errno) => {
                self.stuck = true;
                failures.add(errno, [self.name.as_c_str(), name].into_iter());
            }
        }
    }
}

/// The folders of renamed folders, in the top of the tree.
struct Generations<'t> {
    top: &'t Folder,
    /// Number of the next folder that is renamed, and of the next folder for them.
    number: u64,
    /// Where those go that are renamed now.
    next: Option<CString>,
}

impl Generations<'_> {
    fn is_next(&self, name: &CStr) -> bool {
        self.next.as_deref() == Some(name)
    }

    /// Renames a folder that lies too deep.
    fn lift(&mut self, from: &Folder, entry: &Entry) -> nix::Result<()> {
        let next = match &self.next {
            Some(next) => next.clone(),
            None => self.make()?,
        };
        let target = match self.top.open_child(&next) {
            // Another that removes the same tree found it empty.
            Err(Errno::ENOENT) => {
                let next = self.make()?;
                self.top.open_child(&next)?
            }
            opened => opened?,
        };
        self.number += 1;
        let name = CString::new(self.number.to_string()).map_err(|_| Errno::EINVAL)?;
        let rename = || renameat(from.as_fd(), entry.name.as_c_str(), &target, name.as_c_str());
        match rename() {
            Err(Errno::ENOENT) => Ok(()),
            Err(Errno::EACCES) => {
                // Its own entry `..` changes.
                from.let_into(&entry.name)?;
                rename()
            }
            renamed => renamed,
        }
    }

    fn make(&mut self) -> nix::Result<CString> {
        for _ in 0..DEEP_TRIES {
            self.number += 1;
            let name = CString::new(format!("{DEEP}{}", self.number)).map_err(|_| Errno::EINVAL)?;
            match mkdirat(self.top.as_fd(), name.as_c_str(), Mode::S_IRWXU) {
                Ok(()) => {
                    self.next = Some(name.clone());
                    return Ok(name);
                }
                Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::EEXIST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::nest;
    use nix::fcntl::{OFlag, openat};
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn remove_all(path: &Path) -> Result<Outcome, RemovalError> {
        remove(path, &mut || true)
    }

    /// A tree in which every sixteenth level has files, folders and links beside the next level.
    fn deep_and_wide(path: &Path, levels: u32, name: &CStr) {
        fs::create_dir(path).unwrap();
        nest(path, levels, name);
        let mut folder = Folder::open(path).unwrap();
        for level in 0..levels {
            if level % 16 == 0 {
                for beside in [c"a", c"b"] {
                    mkdirat(folder.as_fd(), beside, Mode::empty()).unwrap();
                    let inner = Folder::new(folder.open_child(beside).unwrap());
                    openat(inner.as_fd(), c"file", OFlag::O_CREAT, Mode::empty()).unwrap();
                }
                nix::unistd::symlinkat("/", folder.as_fd(), c"link").unwrap();
                nix::unistd::symlinkat(".", folder.as_fd(), c".pumice-deep-1").unwrap();
            }
            folder = Folder::new(folder.open_child(name).unwrap());
        }
    }

    fn open_descriptors() -> usize {
        fs::read_dir("/proc/self/fd").unwrap().count()
    }

    #[test]
    fn a_tree_of_thirty_thousand_levels_goes_with_few_descriptors() {
        // In memory: a disk may take milliseconds for each folder.
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let tree = dir.path().join("tree");
        deep_and_wide(&tree, 30_000, c"d");
        let before = open_descriptors();
        let (mut most, mut steps) = (0, 0_u64);
        let outcome = remove(&tree, &mut || {
            steps += 1;
            if steps % 997 == 0 {
                most = most.max(open_descriptors());
            }
            true
        });
        assert_eq!(outcome.unwrap(), Outcome::Gone);
        // Other tests open some at the same time.
        assert!(most > 0 && most < before + 200, "{most} after {before}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn names_of_any_length_and_entries_of_any_kind_go() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        deep_and_wide(&tree, 100, &CString::new("n".repeat(255)).unwrap());
        nix::unistd::mkfifo(&tree.join("pipe"), Mode::S_IRWXU).unwrap();
        drop(std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap());
        symlink("nowhere", tree.join("broken")).unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "stays").unwrap();
        symlink(&outside, tree.join("out")).unwrap();
        (0..5000).for_each(|i| drop(fs::File::create(tree.join(format!("file{i}"))).unwrap()));
        assert_eq!(remove_all(&tree).unwrap(), Outcome::Gone);
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "stays");
        assert_eq!(remove_all(&tree).unwrap(), Outcome::Gone, "what is not there is gone");
        assert_eq!(remove_all(&tree.join("of/no/parent")).unwrap(), Outcome::Gone);
        symlink(&outside, &tree).unwrap();
        assert_eq!(remove_all(&tree).unwrap(), Outcome::Gone, "a link goes, not what it leads to");
        assert!(outside.exists() && tree.symlink_metadata().is_err());
    }

    #[test]
    fn a_folder_that_becomes_a_link_meanwhile_leads_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        for kept in 0..60 {
            let tree = dir.path().join("tree");
            fs::create_dir_all(outside.join("deep")).unwrap();
            fs::write(outside.join("deep/file"), "stays").unwrap();
            deep_and_wide(&tree, 60, c"d");
            // At each step in turn, a folder on the way is exchanged for a link to elsewhere.
            let mut step = 0;
            let outcome = remove(&tree, &mut || {
                step += 1;
                if step == kept * 3 {
                    for depth in [1, 5, 30] {
                        let on_the_way = tree.join(vec!["d"; depth].join("/"));
                        let _ = fs::rename(&on_the_way, dir.path().join(format!("moved{depth}")));
                        let _ = symlink(&outside, &on_the_way);
                    }
                }
                true
            });
            let _ = outcome;
            assert_eq!(fs::read_to_string(outside.join("deep/file")).unwrap(), "stays", "step {kept}");
            assert_eq!(remove_all(&tree).unwrap(), Outcome::Gone);
            for depth in [1, 5, 30] {
                remove_all(&dir.path().join(format!("moved{depth}"))).unwrap();
            }
        }
    }

    #[test]
    fn it_stops_when_told_to_and_another_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        deep_and_wide(&tree, 200, c"d");
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut left = 50;
            let goes_on = &mut || {
                left -= 1;
                left > 0
            };
            if remove(&tree, goes_on).unwrap() == Outcome::Gone {
                break;
            }
        }
        assert!(attempts > 3, "{attempts}");
        assert!(!tree.exists());
    }

    #[test]
    fn two_that_remove_the_same_do_each_other_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        deep_and_wide(&tree, 2000, c"d");
        let outcomes = std::thread::scope(|scope| {
            let removals = [0, 1].map(|_| scope.spawn(|| remove_all(&tree)));
            removals.map(|removal| removal.join().unwrap())
        });
        // One may find a folder filled by the other again; then it is for a later attempt.
        assert!(outcomes.iter().any(Result::is_ok) || remove_all(&tree).is_ok(), "{outcomes:?}");
        remove_all(&tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn what_is_mounted_stays_and_the_rest_goes() {
        if !nix::unistd::Uid::effective().is_root() {
            eprintln!("skipped: only root mounts");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (tree, outside) = (dir.path().join("tree"), dir.path().join("outside"));
        fs::create_dir_all(tree.join("a/b/mounted")).unwrap();
        fs::write(tree.join("a/beside"), "").unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "stays").unwrap();
        let (from, to, path) = (outside.clone(), tree.join("a/b/mounted"), tree.clone());
        let error = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).unwrap();
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
            // Of the same file system, so that no number of a device tells.
            mount(Some(&from), &to, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
            remove_all(&path).unwrap_err()
        });
        let error = error.join().unwrap();
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "stays");
        assert_eq!(error.to_string(), "a/b/mounted: a file system is mounted there (`umount` lets it go)");
        assert!(tree.join("a/b/mounted").exists() && !tree.join("a/beside").exists());
        assert_eq!(remove_all(&tree).unwrap(), Outcome::Gone, "once it is mounted there no more");
    }

    #[test]
    fn what_is_immutable_stays_and_the_rest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        deep_and_wide(&tree, 60, c"d");
        let kept = [tree.join("kept"), tree.join(vec!["d"; 50].join("/")).join("kept")];
        let set = |flag: &str, path: &Path| {
            std::process::Command::new("chattr").arg(flag).arg(path).status().is_ok_and(|status| status.success())
        };
        for path in &kept {
            fs::write(path, "").unwrap();
            if !set("+i", path) {
                eprintln!("skipped: no file can be made immutable here");
                return;
            }
        }
        let error = remove_all(&tree).unwrap_err().to_string();
        assert!(error.contains("kept: not permitted") && error.ends_with("(and 1 more)"), "{error}");
        let left: Vec<_> = fs::read_dir(&tree).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
        let freed = std::process::Command::new("chattr").args(["-R", "-f", "-i"]).arg(&tree).status().unwrap();
        assert!(freed.success());
        assert_eq!(remove_all(&tree).unwrap(), Outcome::Gone);
    }

    #[test]
    fn folders_that_were_closed_to_everybody_go_without_root_too() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let tree = dir.path().join("tree");
        // Rights are those of a thread; it must make the tree to be its owner.
        let made = std::thread::spawn(move || {
            if nix::unistd::Uid::effective().is_root() {
                nix::unistd::setfsgid(65534.into());
                nix::unistd::setfsuid(65534.into());
            }
            fs::create_dir(&tree).unwrap();
            nest(&tree, 100, c"d");
            let mut folder = Folder::open(&tree).unwrap();
            let mut all = Vec::new();
            for _ in 0..100 {
                let next = Folder::new(folder.open_child(c"d").unwrap());
                openat(next.as_fd(), c"file", OFlag::O_CREAT, Mode::empty()).unwrap();
                all.push(std::mem::replace(&mut folder, next));
            }
            for folder in all.iter().rev() {
                nix::sys::stat::fchmod(folder.as_fd(), Mode::empty()).unwrap();
            }
            drop((all, folder));
            assert!(fs::read_dir(&tree).is_err(), "it is closed");
            remove_all(&tree)
        });
        assert_eq!(made.join().unwrap().unwrap(), Outcome::Gone);
    }
}
