//! The ends of pods, brought to the disk many at a time.
//!
//! Syncing takes as long for many as for one. So a shim leaves it to the agent, if one lives, to bring the last status of its pod to
//! the disk: it is in a file of that pod, and a line of this one. Invariant: the line is on the disk before the API server is told
//! how a pod ended, and it stays until the API server knows. Where power was lost in between, the next agent writes the
//! pod's file again from the line. The lock on this file says that an agent sees to it; called by the loop over pods.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use pumice_linux::files::{Durability, read_bounded};
use pumice_shim::control::{EXITS_FILE, lock_file};
use pumice_shim::status::{ShimPhase, ShimStatus};
use serde::{Deserialize, Serialize};

/// Size of the file, which is there from the beginning: so what is synced is its content alone.
const BYTES: u64 = 256 << 10;
/// Largest file read: a line may be longer than the file was before it.
const READ_BYTES_MAX: u64 = 16 << 20;

/// How a pod ended: a line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PodExit {
    pub uid: String,
    pub status: ShimStatus,
}

/// The file, locked for this agent.
pub(crate) struct ExitJournal {
    path: PathBuf,
    file: File,
    /// Where the next line goes.
    end: u64,
    exits: BTreeMap<String, ShimStatus>,
}

impl ExitJournal {
    /// Takes the file of a node over, and writes the statuses of pods again that were lost with the power.
    pub(crate) fn open(node_dir: &Path, pods_dir: &Path) -> io::Result<ExitJournal> {
        let path = node_dir.join(EXITS_FILE);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        lock_file(&file)?;
        let (exits, end) = read(&path)?;
        for (uid, status) in &exits {
            restore(&pods_dir.join(uid), status)?;
        }
        if file.metadata()?.len() < BYTES {
            fill(&file, end)?;
        }
        Ok(ExitJournal { path, file, end, exits })
    }

    /// Whether there is no room for more without [`Self::shorten`].
    pub(crate) fn is_full(&self) -> bool {
        self.end >= BYTES
    }

    /// Has these on the disk when it returns.
    pub(crate) fn append(&mut self, exits: Vec<PodExit>) -> io::Result<()> {
        let bytes = lines(exits.iter())?;
        self.file.write_all_at(&bytes, self.end)?;
        self.file.sync_data()?;
        self.end += bytes.len() as u64;
        self.exits.extend(exits.into_iter().map(|exit| (exit.uid, exit.status)));
        Ok(())
    }

    /// Leaves those of other pods than these out.
    pub(crate) fn shorten(&mut self, needed: &BTreeSet<String>) -> io::Result<()> {
        let mut fresh = self.path.clone().into_os_string();
        fresh.push(".tmp");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        // Before it has the name: whoever looks finds one of both locked.
        lock_file(&file)?;
        self.exits.retain(|uid, _| needed.contains(uid));
        let left = self.exits.iter().map(|(uid, status)| PodExit { uid: uid.clone(), status: status.clone() });
        let bytes = lines(left.collect::<Vec<_>>().iter())?;
        file.write_all(&bytes)?;
        fill(&file, bytes.len() as u64)?;
        fs::rename(&fresh, &self.path)?;
        self.path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())?;
        (self.file, self.end) = (file, bytes.len() as u64);
        Ok(())
    }
}

/// What is in the file, and where its last whole line ends.
fn read(path: &Path) -> io::Result<(BTreeMap<String, ShimStatus>, u64)> {
    let bytes = read_bounded(path, READ_BYTES_MAX)?;
    let (mut exits, mut end) = (BTreeMap::new(), 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        // The first that is none is what a loss of power has cut, or the room behind the last.
        let Ok(PodExit { uid, status }) = serde_json::from_slice(line) else { break };
        if !line.ends_with(b"\n") || uid.contains('/') {
            break;
        }
        end += line.len() as u64;
        exits.insert(uid, status);
    }
    Ok((exits, end))
}

/// Writes the status of a pod again that has lost it.
fn restore(dir: &Path, status: &ShimStatus) -> io::Result<()> {
    let is_there = ShimStatus::read(dir).is_ok_and(|found| found.phase == ShimPhase::Done);
    if is_there || !dir.is_dir() { Ok(()) } else { status.clone().write(dir, Durability::Power) }
}

fn lines<'e>(exits: impl Iterator<Item = &'e PodExit>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for exit in exits {
        serde_json::to_writer(&mut bytes, exit).map_err(io::Error::other)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
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

    use super::*;

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

    // INV-49
    #[test]
    fn an_end_that_was_lost_with_the_power_is_written_again() {
        let (node, pods) = node(&["lost", "running", "there"]);
        let mut journal = ExitJournal::open(node.path(), &pods).unwrap();
        journal.append(vec![exit("lost"), exit("there")]).unwrap();
        journal.append(vec![exit("running"), exit("removed")]).unwrap();
        drop(journal);
        // What the disk may hold afterwards.
        ShimStatus::new([].into_iter(), ["running"].into_iter(), Timestamp::UNIX_EPOCH)
            .write(&pods.join("running"), Durability::Process)
            .unwrap();
        ended("its own").write(&pods.join("there"), Durability::Process).unwrap();
        drop(ExitJournal::open(node.path(), &pods).unwrap());
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
        let mut journal = ExitJournal::open(node.path(), &pods).unwrap();
        journal.append(vec![exit("a")]).unwrap();
        let whole = journal.end;
        journal.append(vec![exit("b")]).unwrap();
        journal.file.write_all_at(&[0; 8], journal.end - 8).unwrap();
        drop(journal);
        let mut journal = ExitJournal::open(node.path(), &pods).unwrap();
        assert_eq!(journal.end, whole);
        journal.append(vec![exit("c")]).unwrap();
        drop(journal);
        let found = read(&node.path().join(EXITS_FILE)).unwrap().0;
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn a_full_file_is_shortened_to_what_is_needed() {
        let (node, pods) = node(&[]);
        let mut journal = ExitJournal::open(node.path(), &pods).unwrap();
        let mut count = 0;
        while !journal.is_full() {
            journal.append((0..500).map(|number| exit(&format!("pod-{}", count + number))).collect()).unwrap();
            count += 500;
        }
        journal.shorten(&["pod-7".to_owned(), "pod-unknown".to_owned()].into()).unwrap();
        journal.append(vec![exit("later")]).unwrap();
        assert!(!journal.is_full());
        let found = read(&node.path().join(EXITS_FILE)).unwrap().0;
        assert_eq!(found.keys().collect::<Vec<_>>(), ["later", "pod-7"]);
    }

    #[test]
    fn shims_sync_themselves_when_no_agent_does() {
        let (node, pods) = node(&["a"]);
        let dir = pods.join("a");
        assert!(!agent_syncs(&dir));
        let mut journal = ExitJournal::open(node.path(), &pods).unwrap();
        assert!(agent_syncs(&dir));
        journal.shorten(&BTreeSet::new()).unwrap();
        assert!(agent_syncs(&dir), "whatever becomes of the file");
        assert!(ExitJournal::open(node.path(), &pods).is_err(), "one agent at a time");
        drop(journal);
        assert!(!agent_syncs(&dir));
    }
}
