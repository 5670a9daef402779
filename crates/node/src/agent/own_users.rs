//! Users and groups that pods have for themselves: which ids of the machine they are, and what this machine can do with them.
//!
//! Invariant: no two pods have an id in common, and none has one of a pod of which a file may be left. A range is written down before
//! its pod starts, and is given again only when nothing of that pod is on the disk any more, whoever runs in between. Called when the
//! agent starts, and for each pod that is to have users of its own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::agent::leftovers::Folders;
use crate::launcher::Launcher;
use crate::layout::{node_dir, pods_dir};
use crate::pod_journal::PodRange;
use crate::subordinate_ids::POD_IDS;
use pumice_linux::detached_mount::{Attributes, DetachedMount};
use pumice_linux::files;
use pumice_shim::control::EXITS_FILE;
use pumice_shim::own_users::map;
use pumice_shim::spec::{IdRange, Users};

/// Ids that pods are given: after those that systemd gives to containers, before those that it has for files of others. Below 2^31, which
/// some programs take for negative.
const SPAN: Range<u32> = 0x7000_0000..0x7ffe_0000;
/// Where the machine says which ids its users may have for containers.
const OF_USERS: [&str; 2] = ["/etc/subuid", "/etc/subgid"];

/// Why a pod has no users of its own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OwnUsersError {
    #[error("all {count} ranges of ids for pods are in use, or files of their pods are left")]
    NoneFree { count: usize },
    #[error(
        "it can't be written down which ids the pod has; make room on the disk of the data directory, or look after the error that \
         the platform's log says of node/{EXITS_FILE}, and start the platform again"
    )]
    NotWritten,
}

/// The ranges of ids of this machine that pods have.
pub(crate) struct IdRanges {
    pods_dir: PathBuf,
    leftovers: Folders,
    /// First ids of all.
    firsts: Vec<u32>,
    given: Mutex<Given>,
}

#[derive(Default)]
struct Given {
    /// The pod that each range was given to last, by the first id.
    pods: BTreeMap<u32, String>,
    /// The range of each of these pods.
    ranges: BTreeMap<String, PodRange>,
    /// Where the next is looked for, so that one that was given back rests for long.
    next: usize,
}

impl PodRange {
    /// The users whose ids these are.
    pub(crate) fn users(&self) -> Users {
        users(self.first)
    }
}

impl IdRanges {
    /// `given` is what was given before. `node_hash` tells nodes of one machine apart, which begin at different places.
    pub(crate) fn new(data_dir: &Path, node_hash: u64, given: BTreeMap<String, PodRange>) -> IdRanges {
        let taken: Vec<Range<u64>> =
            OF_USERS.iter().flat_map(|path| ranges_of(&fs::read_to_string(path).unwrap_or_default())).collect();
        Self::among(data_dir, node_hash, free(SPAN, &taken), given)
    }

    fn among(data_dir: &Path, node_hash: u64, firsts: Vec<u32>, given: BTreeMap<String, PodRange>) -> IdRanges {
        let count = u64::try_from(firsts.len()).unwrap_or(u64::MAX).max(1);
        let next = usize::try_from(node_hash % count).unwrap_or(0);
        let ranges = IdRanges {
            pods_dir: pods_dir(&node_dir(data_dir)),
            leftovers: Folders::of(data_dir),
            firsts,
            given: Mutex::default(),
        };
        let mut found = Given { next, ..Given::default() };
        for (pod, range) in given {
            // Of two the one of which something is left has it still.
            let before = found.pods.get(&range.first);
            if before.is_none_or(|before| !ranges.has_files_of(before)) {
                found.enter(pod, range);
            }
        }
        IdRanges { given: Mutex::new(found), ..ranges }
    }

    /// The ids of a pod: those that it has, or a range that nobody has.
    pub(crate) fn give(&self, namespace: &str, pod: &str) -> Result<PodRange, OwnUsersError> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(range) = given.ranges.get(pod) {
            return Ok(range.clone());
        }
        let count = self.firsts.len();
        let start = given.next;
        let found = (0..count).map(|step| (start + step) % count).find(|index| {
            let before = given.pods.get(&self.firsts[*index]);
            before.is_none_or(|pod| !self.has_files_of(pod))
        });
        let index = found.ok_or(OwnUsersError::NoneFree { count })?;
        let range = PodRange { first: self.firsts[index], namespace: namespace.to_owned() };
        given.enter(pod.to_owned(), range.clone());
        given.next = (index + 1) % count;
        Ok(range)
    }

    /// Which pod has which range, or had it last.
    pub(crate) fn owners(&self) -> BTreeMap<String, PodRange> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).ranges.clone()
    }

    fn has_files_of(&self, pod: &str) -> bool {
        self.pods_dir.join(pod).exists() || self.leftovers.has_some_of_pod(pod)
    }
}

impl Given {
    fn enter(&mut self, pod: String, range: PodRange) {
        if let Some(before) = self.pods.insert(range.first, pod.clone()) {
            self.ranges.remove(&before);
        }
        self.ranges.insert(pod, range);
    }
}

fn users(first: u32) -> Users {
    let range = IdRange { inside: 0, outside: first, count: POD_IDS };
    Users { uids: vec![range], gids: vec![range] }
}

/// First ids of the ranges in `span` of which no id is taken.
fn free(span: Range<u32>, taken: &[Range<u64>]) -> Vec<u32> {
    let step = usize::try_from(POD_IDS).unwrap_or(usize::MAX);
    let is_free = |first: &u32| {
        let own = u64::from(*first)..u64::from(*first) + u64::from(POD_IDS);
        !taken.iter().any(|taken| taken.start < own.end && own.start < taken.end)
    };
    span.step_by(step).filter(is_free).collect()
}

/// What a file such as `/etc/subuid` gives to users, in lines `USER:FIRST:COUNT`.
fn ranges_of(text: &str) -> Vec<Range<u64>> {
    let ranges = text.lines().filter_map(|line| {
        let mut numbers = line.split(':').skip(1).map(|number| number.trim().parse::<u64>().ok());
        let (first, count) = (numbers.next()??, numbers.next()??);
        Some(first..first.saturating_add(count))
    });
    ranges.collect()
}

/// What shows files with other owners than they have on the disk, to find out where that is possible.
#[derive(Debug)]
pub(crate) struct OwnerProbe {
    users: File,
}

impl OwnerProbe {
    /// Tries all that pods with users of their own need. `node_dir` is where they write.
    pub(crate) fn detect(node_dir: &Path, shim: &Launcher) -> Result<OwnerProbe, String> {
        let users = shim.user_namespace(node_dir, name_ids).map_err(|error| format!("no user namespaces: {error}"))?;
        let probe = OwnerProbe { users };
        let places = [("/", Path::new("/")), ("the data directory", node_dir)];
        for (name, path) in places {
            probe.try_view(path).map_err(|error| format!("{name} can't be an idmapped mount: {error}"))?;
        }
        let memory = DetachedMount::new(c"tmpfs", &[], Attributes::NO_DEVICES);
        let memory = memory.and_then(|memory| memory.map_owners(probe.users.as_fd(), Attributes::NONE));
        memory.map_err(|errno| format!("memory can't be an idmapped mount: {errno}"))?;
        let dir = node_dir.join("probe").join("users");
        let overlay = thread::scope(|scope| {
            let trying = scope.spawn(|| try_overlay(&dir, probe.users.as_fd()));
            trying.join().unwrap_or_else(|_| Err(io::Error::other("the probe failed")))
        });
        let _ = files::remove(&dir);
        overlay.map_err(|error| format!("no overlay over idmapped mounts: {error}"))?;
        Ok(probe)
    }

    /// Whether files below `path`, and what is mounted within it, can be shown with other owners.
    pub(crate) fn try_view(&self, path: &Path) -> io::Result<()> {
        // Of a whole machine nothing but its root's own files has to be.
        let view = if path == Path::new("/") { DetachedMount::alone(path) } else { DetachedMount::of_path(path) };
        Ok(view?.map_owners(self.users.as_fd(), Attributes::NONE)?)
    }
}

/// Gives the first ids of [`SPAN`] to the user namespace of a process.
fn name_ids(pid: u32) -> io::Result<()> {
    let Users { uids, gids } = users(SPAN.start);
    [("uid_map", uids), ("gid_map", gids)]
        .into_iter()
        .try_for_each(|(name, ranges)| fs::write(format!("/proc/{pid}/{name}"), map(&ranges)))
}

/// In a thread of its own, whose mounts are gone with it.
fn try_overlay(dir: &Path, users: BorrowedFd<'_>) -> io::Result<()> {
    const NONE: Option<&str> = None;
    let [lower, upper, work, root] = ["lower", "upper", "work", "root"].map(|name| dir.join(name));
    [&lower, &upper, &work, &root].into_iter().try_for_each(fs::create_dir_all)?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    let shown = DetachedMount::alone(Path::new("/"))?;
    shown.map_owners(users, Attributes::NONE)?;
    shown.attach(File::open(&lower)?.as_fd())?;
    let options = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    Ok(mount(Some("overlay"), &root, Some("overlay"), MsFlags::empty(), Some(options.as_str()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_a_pods_until_nothing_of_it_is_left() {
        let data = tempfile::tempdir().unwrap();
        let open = |hash, given| IdRanges::among(data.path(), hash, vec![0, 65_536], given);
        let first = |ranges: &IdRanges, pod| ranges.give("ns", pod).map(|range| range.first);
        let ranges = open(0, BTreeMap::new());
        let node = data.path().join("node");
        fs::create_dir_all(node.join("pods/a")).unwrap();
        assert_eq!(first(&ranges, "a").unwrap(), 0);
        assert_eq!(first(&ranges, "a").unwrap(), 0, "a start that is repeated");
        // Another agent on the same directory.
        let ranges = open(0, ranges.owners());
        assert_eq!(first(&ranges, "a").unwrap(), 0);
        fs::create_dir_all(node.join("pods/b")).unwrap();
        assert_eq!(first(&ranges, "b").unwrap(), 65_536);
        for left in ["removing/pod_one_name_a", "removing/pod_one_name_a+2", "set-aside/pod_one_name_a"] {
            let _ = fs::remove_dir(node.join("pods/a"));
            fs::create_dir_all(node.join(left)).unwrap();
            assert!(matches!(ranges.give("two", "c"), Err(OwnUsersError::NoneFree { count: 2 })), "{left}");
            fs::remove_dir(node.join(left)).unwrap();
        }
        let ranges = open(1, ranges.owners());
        assert_eq!(first(&ranges, "c").unwrap(), 0, "nothing of it is left");
        assert_eq!(ranges.owners().into_keys().collect::<Vec<_>>(), ["b", "c"]);
        // The lines of both may be there after a loss of power.
        let range = |first| PodRange { first, namespace: "ns".into() };
        let both = BTreeMap::from([("b".to_owned(), range(65_536)), ("x".to_owned(), range(65_536))]);
        assert_eq!(open(0, both).owners().into_keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn what_the_machine_gives_to_its_users_no_pod_has() {
        let text = "ann:100000:65536\nodd\nbob:1879048190:3\nc:x:1\n1000:1879179264:65536\n";
        let taken = ranges_of(text);
        assert_eq!(taken.len(), 3);
        let firsts = free(SPAN, &taken);
        assert_eq!(firsts[..2], [0x7001_0000, 0x7003_0000]);
        assert_eq!(free(SPAN, &[]).len(), 4094);
        assert_eq!(free(SPAN, &[]).last(), Some(&0x7ffd_0000));
    }
}
