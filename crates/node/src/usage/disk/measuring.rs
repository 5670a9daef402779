//! What pods use of the disk is counted, pod by pod, and how much of the disk is free is looked at.
//!
//! Invariant: measuring only reads, off the async threads, by descriptors and never by a path, in the share of one core's time that
//! [`super::schedule`] gives it. Folders with a project are counted by the kernel, also what has no name any more. A pod with more files than a turn counts is gone through in several, and judged by what was found
//! so far. What is not counted is never guessed, so a pod is judged by no more than it has.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pumice_clock as clock;
use tokio::sync::mpsc;

use super::DiskUse;
use super::pressure::Room;
use super::schedule::{Outcome, Schedule, period};
use super::thresholds::{LOOK_EVERY, RELIEF_FOR, SHRUNK_PART};
use crate::layout;
use crate::pod_index::{IndexedPod, PodIndex};
use crate::project_quota;
use crate::subordinate_ids::{Count, SubordinateIds};
use crate::usage::Usage;
use pumice_linux::tree::size::Size;
use pumice_shim::status::{ContainerStatus, ShimPhase, ShimStatus};

/// Files of one pod that are counted in a turn, some 100 ms; with more, its next turn goes on there.
const FILES_MAX: u32 = 50_000;
/// Pods whose count goes on in their next turn: each takes memory (half a MiB at most) and descriptors (18) until then.
const UNFINISHED_MAX: usize = 32;
/// Findings that wait to be judged.
pub(crate) const FINDINGS_MAX: usize = 64;

/// Which of a pod's folders one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Logs,
    Volume,
    Files,
}

/// A folder to count.
struct Folder {
    part: Part,
    /// The container or the volume that it is of.
    name: String,
    path: PathBuf,
}

impl DiskUse {
    fn set(&mut self, part: Part, name: &str, bytes: u64) {
        match part {
            Part::Logs => self.containers.entry(name.to_owned()).or_default().logs = bytes,
            Part::Files => self.containers.entry(name.to_owned()).or_default().files = bytes,
            Part::Volume => drop(self.volumes.insert(name.to_owned(), bytes)),
        }
    }
}

/// A count under way.
enum Counting {
    Here(Size),
    /// By a process, of a folder in which this one may not read all; and what it has found so far.
    Inside(Count, u64),
}

impl Counting {
    fn of(path: &Path, ids: Option<&SubordinateIds>) -> Option<Counting> {
        match Size::of(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Counting::inside(path, ids?),
            size => size.ok().map(Counting::Here),
        }
    }

    fn inside(path: &Path, ids: &SubordinateIds) -> Option<Counting> {
        let count = ids
            .count(path)
            .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "a folder is not counted"));
        count.ok().map(|count| Counting::Inside(count, 0))
    }

    /// Goes on for at most `entries` more, which are taken from that number; whether all is counted that can be.
    fn go_on(&mut self, entries: &mut u32) -> bool {
        match self {
            Counting::Here(size) => size.go_on(entries),
            Counting::Inside(count, bytes) => match count.go_on(*entries) {
                Ok(counted) => {
                    (*bytes, *entries) = (counted.bytes, counted.entries_left);
                    counted.is_all
                }
                // It was killed, or the folder is gone.
                Err(_) => true,
            },
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Counting::Here(size) => size.bytes(),
            Counting::Inside(_, bytes) => *bytes,
        }
    }

    /// Folders that it may not read.
    fn unreadable(&self) -> u64 {
        match self {
            Counting::Here(size) => size.unreadable(),
            Counting::Inside(..) => 0,
        }
    }
}

/// Where a pod's files are.
#[derive(Clone, Default)]
struct PodFolder {
    dir: PathBuf,
    /// Whether the kernel's count of a folder with a project is taken.
    by_project: bool,
    /// Of pods whose files are of other users than this process's.
    ids: Option<Arc<SubordinateIds>>,
}

/// A look at a pod's directory, in parts. What goes away meanwhile is left out.
struct Measurement {
    /// Whether the kernel's count of a folder with a project is taken.
    by_project: bool,
    /// Folders to count, the last one first.
    folders: Vec<Folder>,
    /// The count of the last of them.
    size: Option<Counting>,
    ids: Option<Arc<SubordinateIds>>,
    found: DiskUse,
    /// Folders that this process may not read.
    unreadable: u64,
}

impl Measurement {
    fn begin(PodFolder { dir, by_project, ids }: &PodFolder) -> Measurement {
        let each = |part: Part, dir: PathBuf| {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries.filter_map(move |entry| {
                Some(Folder { part, name: entry.file_name().into_string().ok()?, path: entry.path() })
            })
        };
        let files = each(Part::Files, layout::layers_dir(dir));
        let volumes = each(Part::Volume, layout::volumes_dir(dir));
        let folders = files.chain(volumes).chain(each(Part::Logs, dir.join("logs"))).collect();
        Measurement {
            by_project: *by_project,
            folders,
            size: None,
            ids: ids.clone(),
            found: DiskUse::default(),
            unreadable: 0,
        }
    }

    /// Goes on for at most `entries` more; whether all is counted.
    fn go_on(&mut self, mut entries: u32) -> bool {
        while let Some(Folder { part, name, path }) = self.folders.last() {
            if self.by_project
                && let Ok(Some(bytes)) = project_quota::used(path)
            {
                self.found.set(*part, name, bytes);
                self.folders.pop();
                continue;
            }
            // What is no folder, or is gone, takes nothing.
            let counting = self.size.take().or_else(|| Counting::of(path, self.ids.as_deref()));
            let Some(mut counting) = counting else {
                self.folders.pop();
                continue;
            };
            let finished = counting.go_on(&mut entries);
            self.found.set(*part, name, counting.bytes());
            if !finished {
                self.size = Some(counting);
                return false;
            }
            if counting.unreadable() > 0 {
                // Another process may read them, and begins anew.
                self.size = self.ids.as_deref().and_then(|ids| Counting::inside(path, ids));
                if self.size.is_some() {
                    continue;
                }
            }
            self.unreadable = self.unreadable.saturating_add(counting.unreadable());
            self.folders.pop();
        }
        true
    }
}

/// Counts that take more than a round, by their pods' uids. They go on in the next.
#[derive(Default)]
struct Unfinished(BTreeMap<String, Measurement>);

impl Unfinished {
    /// Goes on with a count of the pod at `folder`; whether it is finished. Where as many wait as may, one begins anew each time.
    fn measure(&mut self, uid: &str, folder: &PodFolder, entries: u32) -> Measured {
        let mut measurement = self.0.remove(uid).unwrap_or_else(|| Measurement::begin(folder));
        let finished = measurement.go_on(entries);
        let used = measurement.found.clone();
        if measurement.unreadable > 0 {
            tracing::debug!(uid, folders = measurement.unreadable, "folders that only root may read are not counted");
        }
        if !finished && self.0.len() < UNFINISHED_MAX {
            self.0.insert(uid.to_owned(), measurement);
        }
        Measured { uid: uid.to_owned(), used, finished }
    }
}

/// What a pod uses, by its uid.
pub(crate) struct Measured {
    pub uid: String,
    pub used: DiskUse,
    /// Whether that is all; else it uses at least so much.
    pub finished: bool,
}

/// A pod's count, or a look at the whole disk.
pub(crate) enum DiskFinding {
    Pod(Measured),
    /// How much of the disk is free: while that is little, and for a while after.
    Room(Room),
}

/// Where to look, and who hears of it.
pub(crate) struct Measurer {
    pub pods_dir: PathBuf,
    pub index: PodIndex,
    pub usage: Usage,
    /// Whether pods' folders have projects.
    pub projects: bool,
    /// Of pods whose files are of other users than this process's.
    pub ids: Option<Arc<SubordinateIds>>,
    pub findings: mpsc::Sender<DiskFinding>,
}

/// Who hears of it is gone.
struct Closed;

impl Measurer {
    /// Measures until it is dropped.
    pub(crate) async fn run(self) {
        let mut turns = Turns {
            schedule: Schedule::new(clock::monotonic()),
            unfinished: Unfinished::default(),
            places: BTreeMap::new(),
            projects: self.projects,
            ids: self.ids.clone(),
        };
        let (mut tell_until, mut free_when_measured) = (None, None::<u64>);
        loop {
            let look_at = clock::monotonic();
            turns.set_pods(&self.index);
            let pods_dir = self.pods_dir.clone();
            let room = tokio::task::spawn_blocking(move || Room::of(&pods_dir)).await.ok().flatten();
            if let Some(room) = room {
                let short = room.is_short();
                let shrunk = |before: u64| room.free_bytes < before - before / SHRUNK_PART;
                if short && free_when_measured.is_none_or(shrunk) {
                    // Who goes is chosen by what was found just before.
                    free_when_measured = Some(room.free_bytes);
                    turns.schedule.all_now(clock::monotonic());
                    for uid in turns.schedule.due(clock::monotonic()) {
                        if self.measure(&mut turns, uid).await.is_err() {
                            return;
                        }
                    }
                }
                if !short {
                    free_when_measured = None;
                }
                if room.is_nearly_short() {
                    tell_until = Some(look_at + RELIEF_FOR * 2);
                }
                if tell_until.is_some_and(|until| look_at < until)
                    && self.findings.send(DiskFinding::Room(room)).await.is_err()
                {
                    return;
                }
            }
            let next_look = look_at + LOOK_EVERY;
            while let Some((uid, at)) = turns.schedule.next().map(|(uid, at)| (uid.to_owned(), at)) {
                let now = clock::monotonic();
                if at > next_look || now > next_look {
                    break;
                }
                tokio::time::sleep(at.saturating_duration_since(now)).await;
                if self.measure(&mut turns, uid).await.is_err() {
                    return;
                }
            }
            tokio::time::sleep(next_look.saturating_duration_since(clock::monotonic())).await;
        }
    }

    /// One turn of a pod.
    async fn measure(&self, turns: &mut Turns, uid: String) -> Result<(), Closed> {
        let folder = turns.places.get(&uid).cloned().unwrap_or_default();
        let mut unfinished = std::mem::take(&mut turns.unfinished);
        let counted = uid.clone();
        let counting = tokio::task::spawn_blocking(move || {
            let began = clock::monotonic();
            let seen = look(&counted, &folder, &mut unfinished);
            (seen, unfinished, began.elapsed())
        });
        let (seen, unfinished, work) = counting.await.unwrap_or_else(|error| {
            tracing::error!(uid, %error, "what a pod uses of the disk was not measured");
            (Seen::NotRunning, Unfinished::default(), Duration::ZERO)
        });
        turns.unfinished = unfinished;
        let outcome = match &seen {
            Seen::Pod(measured) if measured.finished => Outcome::Counted(work),
            Seen::Pod(_) => Outcome::Begun(work),
            Seen::NotRunning => Outcome::NotRunning,
            Seen::Ended => Outcome::Ended,
        };
        turns.schedule.done(&uid, outcome, clock::monotonic());
        let Seen::Pod(measured) = seen else { return Ok(()) };
        if measured.finished {
            self.usage.set_disk(&measured.uid, &measured.used);
        }
        self.findings.send(DiskFinding::Pod(measured)).await.map_err(|_| Closed)
    }
}

/// Whose turn it is, and counts that go on.
struct Turns {
    schedule: Schedule,
    unfinished: Unfinished,
    /// By the pods' uids.
    places: BTreeMap<String, PodFolder>,
    projects: bool,
    ids: Option<Arc<SubordinateIds>>,
}

impl Turns {
    fn set_pods(&mut self, index: &PodIndex) {
        let pods = index.unended().into_iter().filter_map(|pod| {
            let uid = pod.dir.file_name()?.to_str()?.to_owned();
            Some((uid, pod))
        });
        let pods: BTreeMap<_, _> = pods.collect();
        self.schedule.set_pods(
            pods.iter().map(|(uid, pod)| (uid.as_str(), period(pod.disk, self.projects))),
            clock::monotonic(),
        );
        self.unfinished.0.retain(|uid, _| pods.contains_key(uid));
        let folder = |pod: IndexedPod| PodFolder {
            dir: pod.dir,
            by_project: self.projects && pod.disk.by_project,
            ids: self.ids.clone(),
        };
        self.places = pods.into_iter().map(|(uid, pod)| (uid, folder(pod))).collect();
    }
}

/// What a turn has found.
enum Seen {
    Pod(Measured),
    NotRunning,
    Ended,
}

/// Measures a pod if it runs.
fn look(uid: &str, folder: &PodFolder, unfinished: &mut Unfinished) -> Seen {
    // What has not begun has no status yet.
    let Ok(status) = ShimStatus::read(&folder.dir) else { return Seen::NotRunning };
    if status.phase == ShimPhase::Done {
        unfinished.0.remove(uid);
        return Seen::Ended;
    }
    match status.all().any(ContainerStatus::is_running) {
        true => Seen::Pod(unfinished.measure(uid, folder, FILES_MAX)),
        false => Seen::NotRunning,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MI: u64 = 1 << 20;

    #[test]
    fn files_are_counted_once_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, bytes: usize| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, vec![b'x'; bytes]).unwrap();
            path
        };
        let big = write("volumes/v/deep/big", MI as usize);
        fs::hard_link(&big, dir.path().join("volumes/v/again")).unwrap();
        std::os::unix::fs::symlink(&big, dir.path().join("volumes/v/link")).unwrap();
        write("logs/a/0.log", 2 * MI as usize);
        write("c/a/0/upper/file", 3 * MI as usize);
        let folder = PodFolder { dir: dir.path().to_owned(), by_project: true, ids: None };
        let mut all = Measurement::begin(&folder);
        assert!(all.go_on(u32::MAX));
        let used = all.found;
        let about = |bytes: u64, mebibytes: u64| bytes.abs_diff(mebibytes * MI) < MI / 4;
        assert!(about(used.volumes["v"], 1), "{used:?}");
        assert!(about(used.containers["a"].logs, 2) && about(used.containers["a"].files, 3), "{used:?}");
        assert!(about(used.total(), 6), "{used:?}");
    }

    #[test]
    fn bytes_behind_many_files_are_found_in_later_rounds() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volumes/v");
        fs::create_dir_all(&volume).unwrap();
        (0..500).for_each(|i| drop(fs::File::create(volume.join(i.to_string())).unwrap()));
        fs::create_dir_all(dir.path().join("c/a/0/upper")).unwrap();
        fs::write(dir.path().join("c/a/0/upper/hidden"), vec![b'x'; MI as usize]).unwrap();
        let folder = PodFolder { dir: dir.path().to_owned(), ..PodFolder::default() };
        let (mut unfinished, mut rounds, mut before) = (Unfinished::default(), 0, 0);
        loop {
            rounds += 1;
            let measured = unfinished.measure("u", &folder, 100);
            assert!(measured.used.total() >= before, "what was found so far counts");
            before = measured.used.total();
            assert_eq!(unfinished.0.contains_key("u"), !measured.finished);
            if measured.finished {
                break;
            }
        }
        assert!(rounds >= 5, "{rounds}");
        assert!((MI..2 * MI).contains(&before), "{before}");
        for other in 0..=UNFINISHED_MAX {
            unfinished.measure(&other.to_string(), &folder, 1);
        }
        assert_eq!(unfinished.0.len(), UNFINISHED_MAX);
    }
}
