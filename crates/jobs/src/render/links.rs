//! Where the links of a working folder lead.
//!
//! Pods on this machine share the folder that they work in, and nothing else of the disk. A results folder that is a link to
//! another disk would be there to read, and what is written through it would be gone with the pod. So each link is followed
//! once, when the job is made, and where it leads is mounted, too.
//!
//! Invariant: a target is found through a descriptor that was opened once, so that it is one place whoever exchanges links
//! meanwhile; folders of the system are never among those that are shared. It looks at [`ENTRIES_MAX`] entries at most.
//! Called by `jobctl` and the Python extension before they render a job.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Entries of the working folder, and of those in it, that are looked at.
const ENTRIES_MAX: usize = 1000;
/// Targets that are shared.
const SHARED_MAX: usize = 16;
/// Levels of folders that are looked into.
const DEPTH_MAX: usize = 3;
/// Folders of the machine that no link shares: a job's programs use them as they are.
const SYSTEM: [&str; 12] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/sys", "/dev", "/run"];
/// Opens a place without reading from it, and leads on where a link does.
const PLACE: i32 = libc::O_PATH | libc::O_CLOEXEC;

/// A link that leads out of the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its path within the folder.
    pub path: PathBuf,
    /// Where it leads, as an absolute path without links.
    pub target: PathBuf,
    /// Whether that is a folder.
    pub is_folder: bool,
}

/// The links of a folder that lead out of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    /// Those whose targets the pods are to share; no target twice, and none within another one.
    pub shared: Vec<Link>,
    /// Those whose targets can be read only: there are too many, or it is the system's.
    pub unshared: Vec<Link>,
}

impl Links {
    /// What to tell of them, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let shared = self.shared.iter().map(|link| {
            format!("{} leads to {}, which the pods share, too", link.path.display(), link.target.display())
        });
        let unshared = self.unshared.first().map(|link| {
            let more = match self.unshared.len() - 1 {
                0 => String::new(),
                more => format!(", and {more} more links lead out of this folder"),
            };
            let (path, target) = (link.path.display(), link.target.display());
            format!(
                "{path} leads to {target}{more}: what the job writes there is gone with its pods; \
                 --volume FOLDER:FOLDER keeps a folder"
            )
        });
        shared.chain(unshared).collect()
    }
}

/// Looks for links in `folder` that lead out of it. What can't be read is left out: the job itself meets it.
pub fn look(folder: &Path) -> Links {
    let Ok(top) = fs::canonicalize(folder) else { return Links::default() };
    let mut found: Vec<Link> = Vec::new();
    let mut looked = 0;
    let mut folders = VecDeque::from([(top.clone(), 0)]);
    'all: while let Some((path, depth)) = folders.pop_front() {
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            looked += 1;
            if looked > ENTRIES_MAX {
                break 'all;
            }
            let Ok(kind) = entry.file_type() else { continue };
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if kind.is_symlink() {
                found.extend(resolve(&top, entry.path()));
            } else if kind.is_dir() && !hidden && depth + 1 < DEPTH_MAX {
                folders.push_back((entry.path(), depth + 1));
            }
        }
    }
    choose(found)
}

/// Where a link leads, if out of `top`, and to something that a job may want to change.
fn resolve(top: &Path, path: PathBuf) -> Option<Link> {
    let opened = OpenOptions::new().read(true).custom_flags(PLACE).open(&path).ok()?;
    let target = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).ok()?;
    let metadata = opened.metadata().ok()?;
    // What runs is not what is written: the interpreters of virtual environments are such links.
    let program = metadata.is_file() && metadata.mode() & 0o111 != 0;
    if target.starts_with(top) || program || !(metadata.is_dir() || metadata.is_file()) {
        return None;
    }
    let path = path.strip_prefix(top).ok()?.to_owned();
    Some(Link { path, target, is_folder: metadata.is_dir() })
}

/// Folders before files, and of the former no more than can be mounted.
fn choose(mut found: Vec<Link>) -> Links {
    found.sort_by(|one, other| {
        let key = |link: &Link| (!link.is_folder, link.target.clone(), link.path.clone());
        key(one).cmp(&key(other))
    });
    let mut links = Links::default();
    for link in found {
        let system = link.target == Path::new("/") || SYSTEM.iter().any(|folder| link.target.starts_with(folder));
        if system && !link.is_folder || links.shared.iter().any(|known| link.target.starts_with(&known.target)) {
            continue;
        }
        let list = if system || links.shared.len() >= SHARED_MAX { &mut links.unshared } else { &mut links.shared };
        list.push(link);
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    /// `work` with links to what is beside it.
    fn tree() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        for folder in ["work/sub/deeper/deepest", "work/.hidden", "scratch/results/today", "data"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in ["data/a.csv", "data/b.csv", "tool"] {
            fs::write(root.join(file), "x").unwrap();
        }
        fs::set_permissions(root.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
        (dir, root)
    }

    fn told(links: &[Link]) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        links.iter().map(|link| (text(&link.path), text(&link.target))).collect()
    }

    #[test]
    fn links_that_lead_out_are_followed_to_their_end() {
        let (_dir, root) = tree();
        let work = root.join("work");
        let target = |path: &str| root.join(path).to_string_lossy().into_owned();
        for (to, name) in [
            (target("scratch/results"), "out"),
            (target("work/out"), "again"),
            ("../data/a.csv".to_owned(), "a.csv"),
            (target("scratch/results/today"), "sub/today"),
            ("sub".to_owned(), "within"),
            (target("nothing"), "dangling"),
            (target("tool"), "tool"),
            ("/dev/null".to_owned(), "null"),
            ("/etc/hostname".to_owned(), "hostname"),
            (target("data"), ".hidden/data"),
            (target("data"), "sub/deeper/deepest/data"),
            ("loop".to_owned(), "loop"),
        ] {
            symlink(to, work.join(name)).unwrap();
        }
        let links = look(&work);
        let wanted = [("again", "scratch/results"), ("a.csv", "data/a.csv")];
        assert_eq!(told(&links.shared), wanted.map(|(path, to)| (path.to_owned(), target(to))));
        assert_eq!(links.unshared, []);
        assert_eq!((links.shared[0].is_folder, links.shared[1].is_folder), (true, false));
        assert_eq!(
            links.notes()[0],
            format!("again leads to {}, which the pods share, too", target("scratch/results"))
        );
    }

    #[test]
    fn the_system_is_not_shared_and_that_is_said() {
        let (_dir, root) = tree();
        let work = root.join("work");
        symlink("/", work.join("machine")).unwrap();
        symlink("/usr/lib", work.join("lib")).unwrap();
        let links = look(&work);
        assert_eq!(links.shared, []);
        assert_eq!(told(&links.unshared), [("machine", "/"), ("lib", "/usr/lib")].map(|(a, b)| (a.into(), b.into())));
        assert!(links.notes()[0].starts_with("machine leads to /, and 1 more links lead out"), "{:?}", links.notes());
    }

    #[test]
    fn there_may_be_more_than_can_be_shared() {
        let (_dir, root) = tree();
        for number in 0..ENTRIES_MAX + 10 {
            let file = root.join(format!("data/{number}.csv"));
            fs::write(&file, "").unwrap();
            symlink(&file, root.join(format!("work/{number}"))).unwrap();
        }
        symlink(root.join("scratch"), root.join("work/a")).unwrap();
        let links = look(&root.join("work"));
        assert_eq!(links.shared.len(), SHARED_MAX);
        assert!(links.shared.len() + links.unshared.len() <= ENTRIES_MAX);
        assert_eq!(links.notes().len(), SHARED_MAX + 1);
    }

    #[test]
    fn a_folder_that_is_not_there_has_none() {
        assert_eq!(look(Path::new("/nowhere/at/all")), Links::default());
    }
}
