//! How pods began and ended, brought to the disk many at a time.
//!
//! Syncing takes as long for many as for one, and less for one file that is there than for new ones. So nobody syncs the file with a
//! pod's spec, nor, where an agent lives, the one with its last status: each is a line of this file, too. Invariant: the line of a
//! spec is on the disk before its shim starts, and stays until the pod has ended or its own file was synced; that of an end is there
//! before the API server is told, and stays until the API server knows. Where power was lost in between, the next agent writes
//! files again from the lines. The lock on this file says that an agent sees to it; called by starts, and by the loop over pods.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::mem;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pumice_linux::files::{Durability, private_dir, read_bounded, write_atomic};
use pumice_shim::control::{EXITS_FILE, lock_file};
use pumice_shim::spec::{SPEC_FILE, ShimSpec};
use pumice_shim::status::{ShimPhase, ShimStatus};
use serde::{Deserialize, Serialize};

/// Size of the file, which is there from the beginning: so what is synced is its content alone.
const BYTES: u64 = 2 << 20;
/// Largest spec that becomes a line, in bytes. A larger one is synced by itself: the file stays one that is read in a moment.
const SPEC_LINE_BYTES_MAX: usize = 64 << 10;
/// Largest file read: a line may be longer than the file was before it.
const READ_BYTES_MAX: u64 = 64 << 20;

/// A line of the file: what is known of a pod, or of the ids that one has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Line {
    uid: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spec: Option<Box<ShimSpec>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    range: Option<PodRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<ShimStatus>,
}

/// The range of ids that a pod has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodRange {
    pub first: u32,
    pub namespace: String,
}

/// How a pod ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PodExit {
    pub uid: String,
    pub status: ShimStatus,
}

/// What decides what stays in the file when it is shortened.
#[derive(Debug, Default)]
pub(crate) struct Needed {
    /// Pods of whose end the API server does not know.
    pub untold: BTreeSet<String>,
    /// Pods that are over, and those that are gone.
    pub over: BTreeSet<String>,
}

/// The file, locked for this agent.
pub(crate) struct PodJournal {
    pods_dir: PathBuf,
    /// Lines that nobody has written yet.
    waiting: Mutex<BTreeMap<String, Vec<u8>>>,
    content: Mutex<Content>,
}

struct Content {
    path: PathBuf,
    file: File,
    /// Where the next line goes.
    end: u64,
    exits: BTreeMap<String, ShimStatus>,
    /// Pods with a line for their spec.
    specs: BTreeSet<String>,
}

/// What a file says.
#[derive(Default)]
struct Read {
    exits: BTreeMap<String, ShimStatus>,
    specs: BTreeMap<String, ShimSpec>,
    ranges: BTreeMap<String, PodRange>,
    /// Where its last whole line ends.
    end: u64,
}

impl PodJournal {
    /// Takes the file of a node over, and writes again what was lost of pods with the power since `boot_id`. Tells which ranges of
    /// ids were given to whom.
    pub(crate) fn open(
        node_dir: &Path,
        pods_dir: &Path,
        boot_id: &str,
    ) -> io::Result<(PodJournal, BTreeMap<String, PodRange>)> {
        let path = node_dir.join(EXITS_FILE);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        lock_file(&file)?;
        let Read { exits, specs, ranges, end } = read(&path)?;
        // Without a loss of power everything is where it was put.
        for (uid, spec) in specs.iter().filter(|(_, spec)| spec.boot_id != boot_id) {
            restore_spec(&pods_dir.join(uid), spec)?;
        }
        for (uid, status) in &exits {
            restore(&pods_dir.join(uid), status)?;
        }
        if file.metadata()?.len() < BYTES {
            fill(&file, end)?;
        }
        let content = Content { path, file, end, exits, specs: specs.into_keys().collect() };
        let journal =
            PodJournal { pods_dir: pods_dir.to_owned(), waiting: Mutex::default(), content: Mutex::new(content) };
        Ok((journal, ranges))
    }

    /// Has the spec of a pod on the disk when it returns, together with those that others bring meanwhile.
    pub(crate) fn begin(&self, uid: &str, spec: &[u8], range: Option<PodRange>) -> io::Result<()> {
        let mut line = format!("{{\"uid\":{}", serde_json::Value::from(uid)).into_bytes();
        if spec.len() <= SPEC_LINE_BYTES_MAX {
            line.extend_from_slice(b",\"spec\":");
            line.extend_from_slice(spec);
        } else {
            sync_spec(&self.pods_dir.join(uid))?;
            if range.is_none() {
                return Ok(());
            }
        }
        if let Some(range) = range {
            line.extend_from_slice(b",\"range\":");
            serde_json::to_writer(&mut line, &range).map_err(io::Error::other)?;
        }
        line.extend_from_slice(b"}\n");
        lock(&self.waiting).insert(uid.to_owned(), line);
        let mut content = lock(&self.content);
        let lines = {
            let mut waiting = lock(&self.waiting);
            if !waiting.contains_key(uid) {
                // Whoever had the file before has written it.
                return Ok(());
            }
            mem::take(&mut *waiting)
        };
        let written = content.append(&lines.values().flatten().copied().collect::<Vec<u8>>());
        match written {
            Ok(()) => content.specs.extend(lines.into_keys()),
            // The others try for themselves.
            Err(_) => lock(&self.waiting).extend(lines.into_iter().filter(|(other, _)| other != uid)),
        }
        written
    }

    /// Has these on the disk when it returns.
    pub(crate) fn end(&self, exits: Vec<PodExit>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for PodExit { uid, status } in &exits {
            push(&mut bytes, &Line { uid: uid.clone(), status: Some(status.clone()), ..Line::default() })?;
        }
        let mut content = lock(&self.content);
        content.append(&bytes)?;
        content.exits.extend(exits.into_iter().map(|exit| (exit.uid, exit.status)));
        Ok(())
    }

    /// Whether there is no room for more without [`Self::shorten`].
    pub(crate) fn is_full(&self) -> bool {
        lock(&self.content).end >= BYTES
    }

    /// Pods whose spec is in the file.
    pub(crate) fn begun(&self) -> BTreeSet<String> {
        lock(&self.content).specs.clone()
    }

    /// Leaves out what is not needed. The specs of pods that are not over are synced where they are. `ranges` is asked when no
    /// pod can begin.
    pub(crate) fn shorten(
        &self,
        needed: &Needed,
        ranges: impl FnOnce() -> BTreeMap<String, PodRange>,
    ) -> io::Result<()> {
        let mut content = lock(&self.content);
        for uid in content.specs.difference(&needed.over) {
            sync_spec(&self.pods_dir.join(uid))?;
        }
        content.replace(&needed.untold, ranges())
    }
}

impl Content {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.end)?;
        self.file.sync_data()?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    fn replace(&mut self, untold: &BTreeSet<String>, ranges: BTreeMap<String, PodRange>) -> io::Result<()> {
        let mut fresh = self.path.clone().into_os_string();
        fresh.push(".tmp");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        // Before it has the name: whoever looks finds one of both locked.
        lock_file(&file)?;
        self.exits.retain(|uid, _| untold.contains(uid));
        let mut bytes = Vec::new();
        for (uid, status) in &self.exits {
            push(&mut bytes, &Line { uid: uid.clone(), status: Some(status.clone()), ..Line::default() })?;
        }
        for (uid, range) in ranges {
            push(&mut bytes, &Line { uid, range: Some(range), ..Line::default() })?;
        }
        file.write_all(&bytes)?;
        fill(&file, bytes.len() as u64)?;
        fs::rename(&fresh, &self.path)?;
        self.path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())?;
        (self.file, self.end) = (file, bytes.len() as u64);
        self.specs.clear();
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn push(bytes: &mut Vec<u8>, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *bytes, line).map_err(io::Error::other)?;
    bytes.push(b'\n');
    Ok(())
}

fn read(path: &Path) -> io::Result<Read> {
    let bytes = read_bounded(path, READ_BYTES_MAX)?;
    let mut read = Read::default();
    for text in bytes.split_inclusive(|byte| *byte == b'\n') {
        // The first that is none is what a loss of power has cut, or the room behind the last.
        let Ok(Line { uid, spec, range, status }) = serde_json::from_slice(text) else { break };
        if !text.ends_with(b"\n") || uid.contains('/') {
            break;
        }
        read.end += text.len() as u64;
        read.exits.extend(status.map(|status| (uid.clone(), status)));
        read.specs.extend(spec.map(|spec| (uid.clone(), *spec)));
        read.ranges.extend(range.map(|range| (uid, range)));
    }
    Ok(read)
}

/// Writes the spec of a pod again that has lost it, so that it is found to have been started.
fn restore_spec(dir: &Path, spec: &ShimSpec) -> io::Result<()> {
    if ShimSpec::read(dir).is_ok() {
        return Ok(());
    }
    private_dir(dir)?;
    let bytes = serde_json::to_vec(spec).map_err(io::Error::other)?;
    write_atomic(&dir.join(SPEC_FILE), &bytes, Durability::Power)
}

/// Syncs the spec of a pod, if it has one.
fn sync_spec(dir: &Path) -> io::Result<()> {
    match File::open(dir.join(SPEC_FILE)) {
        Ok(file) => file.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => Err(error),
    }?;
    [Some(dir), dir.parent()].into_iter().flatten().try_for_each(|folder| File::open(folder)?.sync_all())
}

/// Writes the status of a pod again that has lost it.
fn restore(dir: &Path, status: &ShimStatus) -> io::Result<()> {
    let is_there = ShimStatus::read(dir).is_ok_and(|found| found.phase == ShimPhase::Done);
    if is_there || !dir.is_dir() { Ok(()) } else { status.clone().write(dir, Durability::Power) }
}

/// Makes the file as large as it is to be, with nothing behind `end`, and syncs it.
fn fill(file: &File, end: u64) -> io::Result<()> {
    let room = usize::try_from(BYTES.saturating_sub(end)).unwrap_or_default();
    file.write_all_at(&vec![0; room], end)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use pumice_shim::control::agent_syncs;
    use pumice_shim::spec::Network;

    use super::*;
    use crate::networks::pod_network::tests::spec as pod_spec;

    fn ended(name: &str) -> ShimStatus {
        let mut status = ShimStatus::new([].into_iter(), [name].into_iter(), Timestamp::UNIX_EPOCH);
        status.phase = ShimPhase::Done;
        status
    }

    fn exit(uid: &str) -> PodExit {
        PodExit { uid: uid.to_owned(), status: ended(uid) }
    }

    /// A node's folder, the one of its pods, and one for each of these pods.
    fn node(pods: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let node = tempfile::tempdir().unwrap();
        let folder = node.path().join("pods");
        pods.iter().for_each(|pod| fs::create_dir_all(folder.join(pod)).unwrap());
        (node, folder)
    }

    fn open(node: &Path, pods: &Path) -> io::Result<PodJournal> {
        PodJournal::open(node, pods, "this boot").map(|(journal, _)| journal)
    }

    fn spec(name: &str, boot_id: &str) -> (ShimSpec, Vec<u8>) {
        let spec = ShimSpec { boot_id: boot_id.into(), name: name.into(), ..pod_spec(Network::Host) };
        let bytes = serde_json::to_vec(&spec).unwrap();
        (spec, bytes)
    }

    #[test]
    fn a_large_spec_is_no_line() {
        let (node, pods) = node(&["large"]);
        let journal = open(node.path(), &pods).unwrap();
        let large = vec![b' '; SPEC_LINE_BYTES_MAX + 1];
        fs::write(pods.join("large").join(SPEC_FILE), &large).unwrap();
        journal.begin("large", &large, None).unwrap();
        assert_eq!(lock(&journal.content).end, 0);
        let range = PodRange { first: 65_536, namespace: "ns".into() };
        journal.begin("large", &large, Some(range.clone())).unwrap();
        drop(journal);
        let (_, ranges) = PodJournal::open(node.path(), &pods, "this boot").unwrap();
        assert_eq!(ranges, [("large".to_owned(), range)].into());
    }

    // INV-48
    #[test]
    fn a_pod_that_began_before_the_power_was_lost_is_found_again() {
        let (node, pods) = node(&["torn", "whole"]);
        let journal = open(node.path(), &pods).unwrap();
        let range = PodRange { first: 65_536, namespace: "ns".into() };
        let begin = |uid: &str, boot: &str, range| journal.begin(uid, &spec(uid, boot).1, range).unwrap();
        begin("lost", "boot before", Some(range.clone()));
        begin("torn", "boot before", None);
        begin("whole", "boot before", None);
        begin("removed", "this boot", None);
        drop(journal);
        fs::write(pods.join("torn").join(SPEC_FILE), [0; 100]).unwrap();
        fs::write(pods.join("whole").join(SPEC_FILE), spec("its own", "boot before").1).unwrap();
        let (journal, ranges) = PodJournal::open(node.path(), &pods, "this boot").unwrap();
        let name = |pod: &str| ShimSpec::read(&pods.join(pod)).map(|spec| spec.name).ok();
        assert_eq!(
            ["lost", "torn", "whole", "removed"].map(name),
            [Some("lost".to_owned()), Some("torn".to_owned()), Some("its own".to_owned()), None]
        );
        assert_eq!(ranges, BTreeMap::from([("lost".to_owned(), range)]));
        // What is needed is synced; ranges stay until another pod has them.
        let over = ["removed".to_owned(), "torn".to_owned()].into();
        journal.shorten(&Needed { over, ..Needed::default() }, || ranges.clone()).unwrap();
        assert_eq!(journal.begun(), BTreeSet::new());
        let Read { specs, ranges: kept, .. } = read(&node.path().join(EXITS_FILE)).unwrap();
        assert_eq!((specs.len(), kept), (0, ranges));
    }

    #[test]
    fn many_that_begin_at_once_are_all_there() {
        let (node, pods) = node(&[]);
        let journal = open(node.path(), &pods).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let journal = &journal;
                scope.spawn(move || {
                    for number in 0..20 {
                        let uid = format!("{thread}-{number}");
                        journal.begin(&uid, &spec(&uid, "this boot").1, None).unwrap();
                        let found = read(&lock(&journal.content).path).unwrap().specs;
                        assert_eq!(found.get(&uid).map(|spec| spec.name.as_str()), Some(uid.as_str()));
                    }
                });
            }
        });
        assert_eq!(journal.begun().len(), 160);
    }

    // INV-49
    #[test]
    fn an_end_that_was_lost_with_the_power_is_written_again() {
        let (node, pods) = node(&["lost", "running", "there"]);
        let journal = open(node.path(), &pods).unwrap();
        journal.end(vec![exit("lost"), exit("there")]).unwrap();
        journal.end(vec![exit("running"), exit("removed")]).unwrap();
        drop(journal);
        // What the disk may hold afterwards.
        ShimStatus::new([].into_iter(), ["running"].into_iter(), Timestamp::UNIX_EPOCH)
            .write(&pods.join("running"), Durability::Process)
            .unwrap();
        ended("its own").write(&pods.join("there"), Durability::Process).unwrap();
        drop(open(node.path(), &pods).unwrap());
        let name = |pod: &str| ShimStatus::read(&pods.join(pod)).map(|status| status.containers[0].name.clone()).ok();
        assert_eq!(
            ["lost", "running", "there", "removed"].map(name),
            [Some("lost".to_owned()), Some("running".to_owned()), Some("its own".to_owned()), None]
        );
        assert_eq!(ShimStatus::read(&pods.join("running")).unwrap().phase, ShimPhase::Done);
    }

    #[test]
    fn a_line_that_was_cut_ends_the_file() {
        let (node, pods) = node(&["a", "b", "c"]);
        let journal = open(node.path(), &pods).unwrap();
        journal.end(vec![exit("a")]).unwrap();
        let whole = lock(&journal.content).end;
        journal.end(vec![exit("b")]).unwrap();
        let content = lock(&journal.content);
        content.file.write_all_at(&[0; 8], content.end - 8).unwrap();
        drop(content);
        drop(journal);
        let journal = open(node.path(), &pods).unwrap();
        assert_eq!(lock(&journal.content).end, whole);
        journal.end(vec![exit("c")]).unwrap();
        drop(journal);
        let found = read(&node.path().join(EXITS_FILE)).unwrap().exits;
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn a_full_file_is_shortened_to_what_is_needed() {
        let (node, pods) = node(&[]);
        let journal = open(node.path(), &pods).unwrap();
        let mut count = 0;
        while !journal.is_full() {
            journal.end((0..500).map(|number| exit(&format!("pod-{}", count + number))).collect()).unwrap();
            count += 500;
        }
        let untold = ["pod-7".to_owned(), "pod-unknown".to_owned()].into();
        journal.shorten(&Needed { untold, ..Needed::default() }, BTreeMap::new).unwrap();
        journal.end(vec![exit("later")]).unwrap();
        assert!(!journal.is_full());
        let found = read(&node.path().join(EXITS_FILE)).unwrap().exits;
        assert_eq!(found.keys().collect::<Vec<_>>(), ["later", "pod-7"]);
    }

    #[test]
    fn shims_sync_themselves_when_no_agent_does() {
        let (node, pods) = node(&["a"]);
        let dir = pods.join("a");
        assert!(!agent_syncs(&dir));
        let journal = open(node.path(), &pods).unwrap();
        assert!(agent_syncs(&dir));
        journal.shorten(&Needed::default(), BTreeMap::new).unwrap();
        assert!(agent_syncs(&dir), "whatever becomes of the file");
        assert!(open(node.path(), &pods).is_err(), "one agent at a time");
        drop(journal);
        assert!(!agent_syncs(&dir));
    }
}
