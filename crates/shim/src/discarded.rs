//! What a container wrote where nothing is kept.
//!
//! A container's root is an overlay whose upper layer goes with the container, so a file that was written outside of its
//! volumes is gone, though the program ended well. What lies in that layer at the end is told in the pod's status. Called by
//! process 1 when its program has ended.
//!
//! Invariant: it only reads, looks at [`ENTRIES_MAX`] entries and takes [`TIME_MAX`] at most; what is left then is told as "and
//! more". Nothing is told of what programs keep for themselves: temporary files, caches, logs, hidden files.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::stat::SFlag;
use pumice_clock as clock;
use serde::{Deserialize, Serialize};

use super::rootfs::images::USERS;
use super::spec::ContainerSpec;
use pumice_linux::tree::{Folder, is_folder};

/// Entries of the layer that are looked at.
const ENTRIES_MAX: u32 = 1000;
/// Time that looking may take.
const TIME_MAX: Duration = Duration::from_micros(500);
/// Entries between two looks at the clock.
const ENTRIES_PER_LOOK: u32 = 16;
/// Bytes of a folder's entries that are read at a time.
const LISTING_BYTES: usize = 4 << 10;
/// Files that are named.
const NAMED_MAX: usize = 3;
/// Longest path that is told, in bytes.
const PATH_BYTES_MAX: usize = 256;
/// Folders whose files nobody expects to find again, and file systems of the kernel's.
const OWN_OF_PROGRAMS: [&str; 6] = ["/tmp", "/var", "/run", "/dev", "/proc", "/sys"];
/// Folders in which interpreters keep what they have compiled.
const COMPILED: &str = "__pycache__";

/// Files that are gone with a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discarded {
    /// How many were found.
    pub files: u32,
    /// Whether some entries were not looked at.
    pub partial: bool,
    /// Paths of the first.
    pub first: Vec<String>,
}

impl Discarded {
    /// Adds what another container, or another run of the same, has left.
    pub fn add(&mut self, other: &Discarded) {
        self.files = self.files.saturating_add(other.files);
        self.partial |= other.partial;
        for path in &other.first {
            if self.first.len() < NAMED_MAX && !self.first.contains(path) {
                self.first.push(path.clone());
            }
        }
    }

    /// A sentence about them.
    pub fn sentence(&self) -> String {
        let files = if self.files == 1 { "1 file is" } else { &format!("{} files are", self.files) };
        let named = self.first.join(", ");
        let others = usize::try_from(self.files).unwrap_or(usize::MAX).saturating_sub(self.first.len());
        let more = match (others, self.partial) {
            (0, false) => String::new(),
            (0, true) => ", and perhaps more".to_owned(),
            (others, false) => format!(", and {others} more"),
            (others, true) => format!(", and at least {others} more"),
        };
        format!("{files} gone with the pod, written where nothing is kept: {named}{more}")
    }
}

/// What is in `layer`, the upper layer of a container's root; none where that is nothing to tell of.
pub fn look(layer: OwnedFd, container: &ContainerSpec) -> Option<Discarded> {
    let places = Places::of(container);
    let deadline = clock::monotonic() + TIME_MAX;
    let mut found = Discarded::default();
    let mut looked = 0;
    // Wide before deep, so that what is named is what is easily recognised.
    let mut folders = VecDeque::from([(PathBuf::from("/"), Folder::new(layer))]);
    while let Some((path, mut folder)) = folders.pop_front() {
        while let Ok(Some(entry)) = folder.next_entry() {
            looked += 1;
            if looked > ENTRIES_MAX || looked % ENTRIES_PER_LOOK == 0 && clock::monotonic() >= deadline {
                found.partial = true;
                return unless_empty(found);
            }
            let whole = path.join(OsStr::from_bytes(entry.name.to_bytes()));
            let Ok(status) = folder.look(&entry.name) else { continue };
            if is_folder(&status) {
                if places.may_hold_results(&whole) {
                    let child = folder.open_child(&entry.name).ok();
                    folders.extend(child.map(|child| (whole, Folder::with_buffer(child, LISTING_BYTES))));
                }
            } else if status.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits() && places.is_result(&whole) {
                found.files += 1;
                if found.first.len() < NAMED_MAX {
                    found.first.push(printable(&whole));
                }
            }
        }
    }
    unless_empty(found)
}

/// Which places of a container's root are for results, and which for what programs keep for themselves.
struct Places<'a> {
    /// Where the program began.
    working: &'a Path,
    /// Paths of the platform's: mount points that had to be made are empty files, and the list of users may have got a line.
    mounted: BTreeSet<&'a Path>,
    /// Where the container is told to put temporary files.
    temporary: Option<&'a Path>,
}

impl<'a> Places<'a> {
    fn of(container: &'a ContainerSpec) -> Places<'a> {
        let mounted = container.mounts.iter().map(|mount| mount.target.as_path());
        Places {
            working: Path::new(&container.cwd),
            mounted: mounted.chain([Path::new(&container.termination_message_path), Path::new(USERS)]).collect(),
            temporary: container.env.iter().rfind(|(name, _)| name == "TMPDIR").map(|(_, value)| Path::new(value)),
        }
    }

    fn may_hold_results(&self, folder: &Path) -> bool {
        self.working.starts_with(folder) || !is_hidden(folder) && self.is_for_results(folder)
    }

    fn is_result(&self, file: &Path) -> bool {
        !is_hidden(file) && !self.mounted.contains(file) && self.is_for_results(file)
    }

    /// Whether nobody but its program wanted what is there. What is beside the working folder may be wanted, also where
    /// that is among temporary files.
    fn is_for_results(&self, path: &Path) -> bool {
        let mut own = OWN_OF_PROGRAMS.iter().map(Path::new).chain(self.temporary);
        !own.any(|folder| path.starts_with(folder)) || self.is_beside(path)
    }

    fn is_beside(&self, path: &Path) -> bool {
        match self.working.parent() {
            Some(parent) if OWN_OF_PROGRAMS.iter().any(|own| parent == Path::new(own)) => path.parent() == Some(parent),
            Some(parent) => parent.parent().is_some() && path.starts_with(parent),
            None => false,
        }
    }
}

/// Whether programs keep it out of sight.
fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b".") || name == COMPILED)
}

fn unless_empty(found: Discarded) -> Option<Discarded> {
    (found.files > 0).then_some(found)
}

/// A path as one line of bounded length.
fn printable(path: &Path) -> String {
    let text: String = path.to_string_lossy().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    match text.len() > PATH_BYTES_MAX {
        true => format!("{}...", &text[..text.floor_char_boundary(PATH_BYTES_MAX)]),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::MountSpec;
    use std::fs;

    fn layer(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        dir
    }

    fn looked(dir: &Path, container: &ContainerSpec) -> Option<Discarded> {
        look(nix::fcntl::open(dir, nix::fcntl::OFlag::O_RDONLY, nix::sys::stat::Mode::empty()).unwrap(), container)
    }

    #[test]
    fn results_are_told_and_what_programs_keep_for_themselves_is_not() {
        let container = ContainerSpec {
            env: vec![("TMPDIR".into(), "/scratch/tmp".into())],
            mounts: vec![MountSpec {
                source: "/x".into(),
                sub_path: None,
                target: "/made/for/a/mount".into(),
                read_only: false,
            }],
            termination_message_path: "/last/words".into(),
            ..ContainerSpec::default()
        };
        let quiet = [
            "tmp/a",
            "var/log/b",
            "root/.cache/c",
            "data/.hidden",
            "data/__pycache__/d.pyc",
            "scratch/tmp/e",
            "made/for/a/mount",
            "last/words",
        ];
        assert_eq!(looked(layer(&quiet).path(), &container), None);
        let mut files = quiet.to_vec();
        files.extend(["data/out/a.txt", "up.txt"]);
        let found = looked(layer(&files).path(), &container).unwrap();
        assert_eq!((found.files, found.partial), (2, false));
        assert_eq!(found.first, ["/up.txt", "/data/out/a.txt"], "wide before deep");
        assert_eq!(
            found.sentence(),
            "2 files are gone with the pod, written where nothing is kept: /up.txt, /data/out/a.txt"
        );
    }

    #[test]
    fn what_is_beside_the_working_folder_is_told_also_among_temporary_files() {
        let beside = |cwd: &str, files: &[&str]| {
            let container = ContainerSpec { cwd: cwd.to_owned(), ..ContainerSpec::default() };
            looked(layer(files).path(), &container).map(|found| found.first).unwrap_or_default()
        };
        let files = ["tmp/up.txt", "tmp/made/by/program", "tmp/trial/up.txt", "tmp/trial/out/x", "tmp/.t/up.txt"];
        assert_eq!(beside("/tmp/trial/work", &files), ["/tmp/trial/up.txt", "/tmp/trial/out/x"]);
        assert_eq!(beside("/tmp/work", &files), ["/tmp/up.txt"]);
        assert_eq!(beside("/tmp/.t/work", &files), ["/tmp/.t/up.txt"]);
        assert_eq!(beside("/home/ann", &files), [""; 0]);
        assert_eq!(beside("/work", &["up.txt"]), ["/up.txt"]);
        assert_eq!(beside("/", &["tmp/a", "b"]), ["/b"]);
    }

    #[test]
    fn looking_ends_where_there_is_too_much() {
        let dir = layer(&[]);
        for number in 0..2 * ENTRIES_MAX {
            fs::write(dir.path().join(format!("file-{number}")), "").unwrap();
        }
        let found = looked(dir.path(), &ContainerSpec::default()).unwrap();
        assert!(found.partial && found.files <= ENTRIES_MAX, "{found:?}");
        assert_eq!(found.first.len(), NAMED_MAX);
        assert!(found.sentence().contains("at least"), "{}", found.sentence());
    }

    #[test]
    fn links_lead_nowhere_and_names_are_one_line() {
        let dir = layer(&["out/bad\nname"]);
        std::os::unix::fs::symlink("/usr", dir.path().join("link")).unwrap();
        let found = looked(dir.path(), &ContainerSpec::default()).unwrap();
        assert_eq!(found.sentence(), "1 file is gone with the pod, written where nothing is kept: /out/bad?name");
    }

    #[test]
    fn of_several_containers_the_first_files_are_named() {
        let some = |files, first: &[&str]| Discarded {
            files,
            partial: false,
            first: first.iter().map(|&path| path.to_owned()).collect(),
        };
        let mut all = some(2, &["/a", "/b"]);
        all.add(&some(3, &["/b", "/c", "/d"]));
        assert_eq!(all, some(5, &["/a", "/b", "/c"]));
        assert!(all.sentence().ends_with("/a, /b, /c, and 2 more"), "{}", all.sentence());
    }
}
