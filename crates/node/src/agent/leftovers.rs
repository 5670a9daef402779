//! What pods and claims leave on this node's disk: removed, whatever its shape.
//!
//! Most trees are small and removed at once, by the thread that is about it. What takes more steps is renamed into a folder of
//! its own, where nobody meets it, and removed by a process ([`remover`]); that folder is the queue, so an interrupted
//! removal is taken up by the next agent. What can't be removed is set aside ([`set_aside`]) until somebody looks after it.
//! Invariant: no tree ends, stops or delays the agent, nor keeps it from starting. A pod's directory goes last, after its
//! processes and groups, so that a removal cut short is found and finished after the next start.

pub(crate) mod remover;
pub(crate) mod set_aside;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use nix::unistd::Uid;
use pumice_cluster::events::{Occurrence, Severity};

use crate::agent::start::NodeContext;
use crate::launcher::{Launcher, ShimProgram};
use crate::layout::{claims_dir, layers_dir};
use crate::logs::retained::RetainedLogs;
use crate::shim_watch::ProcessHandle;
use crate::subordinate_ids::SubordinateIds;
use crate::usage::disk::projects;
use pumice_clock as clock;
use pumice_linux::cgroup::CgroupSpec;
use pumice_linux::files::private_dir;
use pumice_linux::tree::removal::Outcome;
use pumice_shim::control::{self, ShimProcess, Stop};
use pumice_shim::remove::remove_small;
use pumice_shim::spec::ShimSpec;
use remover::Remover;
use set_aside::SetAside;

/// The reason of the event that tells of a tree that can't be removed.
const SET_ASIDE: &str = "LeftoverSetAside";
/// Entries that are removed without a process of their own.
const SMALL_ENTRIES: u32 = 2000;
/// Longest part of a pod's or claim's name in the name of a folder, in bytes.
const NAME_BYTES_MAX: usize = 100;
/// Numbers that are tried where a name is taken.
const NUMBERS_MAX: u32 = 10_000;
/// Between the parts of a folder's name, none of which may have it.
const SEPARATOR: char = '_';
/// Before what tells folders of one owner apart.
const PART: char = '+';
/// How long a shim that was told to stop at once may take, in steps.
const END_STEPS: u32 = 2000;
const END_STEP: Duration = Duration::from_millis(5);

/// Whose a tree was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub kind: OwnerKind,
    pub namespace: String,
    pub name: String,
}

/// What it belonged to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnerKind {
    /// A pod with this uid.
    Pod(String),
    Claim,
}

/// What became of a tree that was to be removed.
#[derive(Debug)]
pub(crate) enum Leftover {
    Nothing,
    /// It waits for a process that removes it.
    Queued,
    /// It can't be removed.
    SetAside(SetAside),
}

/// Removes what pods of a data directory left and was not removed yet; blocks. Returns what can't be removed. For when no
/// platform runs there. While there is something to wait for, `on_wait` is called some ten times a second with how many trees
/// are left.
pub fn finish_removals(data_dir: &Path, shim: &ShimProgram, on_wait: impl FnMut(usize)) -> io::Result<Vec<SetAside>> {
    let data_dir = fs::canonicalize(data_dir)?;
    // Without them, what is theirs is set aside with the kernel's reason.
    let ids = SubordinateIds::of_user(&data_dir, &Launcher::new(shim.clone())).ok().flatten();
    let remover = Arc::new(Remover::new(&data_dir, shim.clone(), None, ids.map(Arc::new)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(remover.finish(on_wait)))
}

impl NodeContext {
    /// Sees to what a removal left.
    pub(crate) fn on_leftover(&self, leftover: &Leftover) {
        match leftover {
            Leftover::Nothing => {}
            Leftover::Queued => self.remover.wake(),
            Leftover::SetAside(aside) => self.tell_of(aside),
        }
    }

    /// Tells of a tree that can't be removed, by an event about the node: what it belonged to is gone.
    pub(crate) fn tell_of(&self, aside: &SetAside) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(self.node_name.clone()),
            // As a kubelet's, whose events are about a node of which it knows no more.
            uid: Some(self.node_name.clone()),
            ..ObjectReference::default()
        };
        self.events.record(Occurrence {
            about,
            severity: Severity::Warning,
            reason: SET_ASIDE.to_owned(),
            message: aside.sentence(),
            at: clock::now(),
        });
    }
}

/// Where leftovers of one data directory are. A tree stays on its file system when it is moved there.
pub(crate) struct Folders {
    pods: PathBuf,
    claims: PathBuf,
    set_aside: PathBuf,
}

impl Folders {
    pub(crate) fn of(data_dir: &Path) -> Folders {
        let node = data_dir.join("node");
        Folders {
            pods: node.join("removing"),
            // No namespace has such a name.
            claims: claims_dir(data_dir).join(".removing"),
            set_aside: node.join("set-aside"),
        }
    }

    /// Those of the data directory that a pod's directory is in.
    pub(crate) fn around_pod(pod_dir: &Path) -> Folders {
        Folders::of(pod_dir.ancestors().nth(3).unwrap_or(pod_dir))
    }

    /// Removes a tree, or sees to it that it will be. Whose it is is asked only where something is left.
    pub(crate) fn remove(&self, path: &Path, owner: impl FnOnce() -> Owner) -> Leftover {
        let stuck = match remove_small(path, SMALL_ENTRIES) {
            Ok(Outcome::Gone) => return Leftover::Nothing,
            Ok(Outcome::Stopped) => None,
            // The layers of a pod, which go when it ends, may be under way when all of it goes.
            Err(error) if error.is_of_the_moment() => None,
            // It may be another user's of the pod, as whose root a process removes it.
            Err(error) if error.is_for_rights() && !Uid::effective().is_root() => None,
            Err(error) => Some(error.to_string()),
        };
        let owner = owner();
        let reason = match stuck {
            Some(reason) => reason,
            None => match self.queue(path, &owner) {
                Ok(()) => return Leftover::Queued,
                Err(error) => format!("it can't be moved to where it would be removed: {error}"),
            },
        };
        Leftover::SetAside(self.set_aside(path, &owner, reason))
    }

    fn queue(&self, path: &Path, owner: &Owner) -> io::Result<()> {
        let folder = if owner.kind == OwnerKind::Claim { &self.claims } else { &self.pods };
        private_dir(folder)?;
        for name in owner.folder_names() {
            match fs::rename(path, folder.join(name)) {
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                renamed => return renamed,
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Whether something of the pod with this uid waits to be removed, or can't be.
    pub(crate) fn has_some_of_pod(&self, uid: &str) -> bool {
        let folders = [&self.pods, &self.set_aside].map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
        let is_of = |name: &str| Owner::parse(name).kind == OwnerKind::Pod(uid.to_owned());
        folders.into_iter().flatten().any(|entry| is_of(&entry.file_name().to_string_lossy()))
    }

    /// What waits to be removed by a process.
    fn queued(&self) -> impl Iterator<Item = PathBuf> {
        let folders = [&self.pods, &self.claims].map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
        folders.into_iter().flatten().map(|entry| entry.path())
    }
}

impl Owner {
    pub(crate) fn pod(namespace: &str, name: &str, uid: &str) -> Owner {
        Owner { kind: OwnerKind::Pod(uid.to_owned()), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(crate) fn claim(namespace: &str, name: &str) -> Owner {
        Owner { kind: OwnerKind::Claim, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// The pod whose directory this is, by what its shim was told.
    pub(crate) fn of_pod_dir(dir: &Path) -> Owner {
        let uid = dir.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        match ShimSpec::read(dir) {
            Ok(spec) => Owner::pod(&spec.namespace, &spec.name, &uid),
            Err(_) => Owner::pod("", "", &uid),
        }
    }

    /// The owner of a folder in the queue.
    fn parse(folder: &str) -> Owner {
        let folder = folder.split_once(PART).map_or(folder, |(name, _)| name);
        let mut parts = folder.split(SEPARATOR);
        let kind = parts.next();
        let (namespace, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        match (kind, parts.next()) {
            (Some("claim"), _) => Owner::claim(namespace, name),
            (_, uid) => Owner::pod(namespace, name, uid.unwrap_or(folder)),
        }
    }

    /// Names for folders of its own, the nicest first.
    fn folder_names(&self) -> impl Iterator<Item = String> {
        let mut name = self.name.as_str();
        if let Some((end, _)) = name.char_indices().find(|(at, character)| at + character.len_utf8() > NAME_BYTES_MAX) {
            name = &name[..end];
        }
        let first = match &self.kind {
            OwnerKind::Pod(uid) => format!("pod{SEPARATOR}{}{SEPARATOR}{name}{SEPARATOR}{uid}", self.namespace),
            OwnerKind::Claim => format!("claim{SEPARATOR}{}{SEPARATOR}{name}", self.namespace),
        };
        let numbered = (2..NUMBERS_MAX).map({
            let first = first.clone();
            move |number| format!("{first}{PART}{number}")
        });
        std::iter::once(first).chain(numbered)
    }
}

/// Ends the shim of `dir` and all its processes; blocks until they are gone or can't be killed.
fn end_shim(dir: &Path, group: Option<&CgroupSpec>) {
    for step in 0..END_STEPS {
        if !control::is_alive(dir) {
            break;
        }
        if step == 0
            && let Err(error) = control::request_stop(dir, Stop { grace_seconds: 0 })
        {
            tracing::warn!(dir = %dir.display(), error = %error, "can't ask a shim to stop");
        }
        // A shim that does not answer is killed; the kernel kills its containers with it.
        if step == END_STEPS / 2
            && let Ok(process) = ShimProcess::read(dir)
        {
            let _ = ProcessHandle::kill(process);
        }
        thread::sleep(END_STEP);
    }
    if let Some(group) = group {
        group.remove();
    }
}

/// Removes everything of a pod but its logs; blocks until its processes are gone.
pub(crate) fn remove_pod(dir: &Path, owner: Owner, group: Option<&CgroupSpec>, logs: &RetainedLogs) -> Leftover {
    end_shim(dir, group);
    logs.take(dir);
    projects::release(dir);
    Folders::around_pod(dir).remove(dir, || owner)
}

/// Removes the throw-away layers of a pod that has ended; logs and volumes stay.
pub(crate) fn trim_pod(dir: &Path) -> Leftover {
    projects::release(dir);
    Folders::around_pod(dir).remove(&layers_dir(dir), || Owner::of_pod_dir(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_folder_tells_whose_it_was() {
        for owner in [Owner::pod("ns", "p", "u-1"), Owner::claim("ns", "data.v1"), Owner::pod("", "", "u-2")] {
            let names: Vec<String> = owner.folder_names().take(3).collect();
            assert!(names.iter().all(|name| Owner::parse(name) == owner), "{names:?}");
            assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
        }
        let long = Owner::pod(&"n".repeat(63), &"p".repeat(253), "0123456789abcdef0123456789abcdef0123");
        assert!(long.folder_names().last().unwrap().len() < 255);
        assert_eq!(Owner::parse("whatever"), Owner::pod("", "", "whatever"));
    }

    #[test]
    fn small_trees_go_at_once_and_others_are_queued_under_names_of_their_own() {
        let data = tempfile::tempdir().unwrap();
        let folders = Folders::of(data.path());
        let pod = data.path().join("node/pods/u");
        fs::create_dir_all(pod.join("c/a")).unwrap();
        let owner = Owner::of_pod_dir(&pod);
        assert_eq!(owner, Owner::pod("", "", "u"));
        assert!(matches!(folders.remove(&pod.join("c"), || unreachable!("nothing is left")), Leftover::Nothing));
        for queued in 1..=2 {
            let layers = pod.join("c");
            fs::create_dir_all(&layers).unwrap();
            (0..SMALL_ENTRIES + 100).for_each(|i| drop(fs::File::create(layers.join(i.to_string())).unwrap()));
            assert!(matches!(Folders::around_pod(&pod).remove(&layers, || owner.clone()), Leftover::Queued));
            assert!(!layers.exists());
            assert_eq!(folders.queued().count(), queued);
        }
    }
}
