//! Processes that remove what was queued, a few at a time.
//!
//! Invariant: a removal is the business of one process that has the lowest priority; whether it dies, hangs or finds something
//! that stays, that tree alone is set aside. Dropping a [`Remover`]'s run ends its processes, and the next one goes on.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::agent::leftovers::set_aside::SetAside;
use crate::agent::leftovers::{Folders, Owner};
use crate::launcher::ShimProgram;
use crate::subordinate_ids::SubordinateIds;
use pumice_linux::cgroup::Hierarchy;
use pumice_shim::remove::{EXIT_LEFT, LEFT, REMOVE};
use pumice_shim::user_namespace::INSIDE;

/// Processes at a time.
const PROCESSES_MAX: usize = 2;
/// A process that says nothing for so long hangs; it speaks every second.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long one that was killed may take to end.
const END_WITHIN: Duration = Duration::from_secs(5);
/// Attempts where a process is killed or can't be started, which the machine may be to blame for.
const ATTEMPTS: u32 = 3;
const ATTEMPT_AGAIN: Duration = Duration::from_secs(1);

/// How often who waits for the end of all is told what is left.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// Has queued trees removed.
pub(crate) struct Remover {
    folders: Folders,
    shim: ShimProgram,
    /// The node's control groups, where they share out CPU time.
    groups: Option<NodeGroups>,
    /// Of pods whose files are of other users than this process's.
    ids: Option<Arc<SubordinateIds>>,
    woken: Notify,
}

/// The end of one removal.
struct Removed {
    path: PathBuf,
    /// What stays of it, if anything.
    aside: Option<SetAside>,
}

/// The control groups of this node.
pub(crate) struct NodeGroups {
    pub hierarchy: Hierarchy,
    /// Their path below the hierarchy's roots.
    pub path: PathBuf,
}

impl Remover {
    /// What removes gets its CPU time as shims do, in the groups of a node: not that of who started it, who has far more.
    pub(crate) fn new(
        data_dir: &Path,
        shim: ShimProgram,
        groups: Option<NodeGroups>,
        ids: Option<Arc<SubordinateIds>>,
    ) -> Remover {
        Remover { folders: Folders::of(data_dir), shim, groups, ids, woken: Notify::new() }
    }

    /// Says that something was queued.
    pub(crate) fn wake(&self) {
        self.woken.notify_one();
    }

    /// Removes what is queued, now and later. Never ends by itself.
    pub(crate) async fn run(self: Arc<Remover>, told: impl Fn(&SetAside)) {
        let mut under_way = UnderWay::default();
        loop {
            under_way.fill(&self).await;
            tokio::select! {
                () = self.woken.notified() => {}
                Some(removed) = under_way.next() => if let Some(aside) = removed { told(&aside) },
            }
        }
    }

    /// Removes what is queued, and returns what stays; tells now and then how many trees are left.
    pub(crate) async fn finish(self: Arc<Remover>, mut on_wait: impl FnMut(usize)) -> Vec<SetAside> {
        let (mut under_way, mut stays) = (UnderWay::default(), Vec::new());
        loop {
            under_way.fill(&self).await;
            match timeout(TELL_EVERY, under_way.next()).await {
                Ok(Some(removed)) => stays.extend(removed),
                Ok(None) => return stays,
                Err(_) => on_wait(self.left()),
            }
        }
    }

    /// How many trees are queued that may go.
    fn left(&self) -> usize {
        self.folders.queued().filter(|path| self.folders.noted(path).is_none()).count()
    }

    async fn remove(self: Arc<Remover>, path: PathBuf) -> Removed {
        let mut outcome = self.by_process(&path).await;
        for _ in 1..ATTEMPTS {
            if !matches!(outcome, Err(Failed::Process(_))) {
                break;
            }
            tokio::time::sleep(ATTEMPT_AGAIN).await;
            outcome = self.by_process(&path).await;
        }
        let reason = match outcome {
            Ok(()) => return Removed { path, aside: None },
            Err(Failed::Process(reason) | Failed::Tree(reason)) => reason,
        };
        let noting = tokio::task::spawn_blocking({
            let path = path.clone();
            move || {
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                self.folders.set_aside(&path, &Owner::parse(&name), reason)
            }
        });
        Removed { path, aside: noting.await.ok() }
    }

    async fn by_process(&self, path: &Path) -> Result<(), Failed> {
        let process = |error: io::Error| Failed::Process(format!("the process that removes it: {error}"));
        let mut child = self.spawn(path).map_err(process)?;
        let mut left = None;
        if let Some(output) = child.stdout.take() {
            let mut lines = BufReader::new(output).lines();
            loop {
                match timeout(SILENCE_MAX, lines.next_line()).await {
                    Ok(Ok(Some(line))) => left = line.strip_prefix(LEFT).map(str::to_owned).or(left),
                    Ok(Ok(None) | Err(_)) => break,
                    Err(_) => {
                        end(&mut child).await;
                        return Err(Failed::Tree("the process that removed it made no progress".to_owned()));
                    }
                }
            }
        }
        let status = match timeout(END_WITHIN, child.wait()).await {
            Ok(status) => status.map_err(process)?,
            Err(_) => {
                end(&mut child).await;
                return Err(Failed::Tree("the process that removed it did not end".to_owned()));
            }
        };
        match (left, status.code()) {
            (_, Some(0)) => Ok(()),
            (Some(reason), Some(code)) if code == i32::from(EXIT_LEFT) => Err(Failed::Tree(reason)),
            _ => Err(Failed::Process(format!("the process that removed it ended with {status}"))),
        }
    }

    fn spawn(&self, path: &Path) -> io::Result<Child> {
        let mut command = Command::new(&self.shim.program);
        command.args(&self.shim.args).env_clear();
        let stdin = match &self.ids {
            Some(ids) => {
                command.arg(INSIDE);
                ids.namespace()?.into()
            }
            None => Stdio::null(),
        };
        command.arg(REMOVE).arg(path).stdin(stdin).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
        let child = command.spawn()?;
        if let (Some(groups), Some(pid)) = (&self.groups, child.id()) {
            // It may have ended. Else it is where its parent is.
            let _ = groups.hierarchy.add_to_shims(&groups.path, pid);
        }
        Ok(child)
    }
}

/// Why a tree is still there.
enum Failed {
    /// The process is to blame, perhaps.
    Process(String),
    Tree(String),
}

/// Kills a process that hangs. One that even that doesn't end is left alone.
async fn end(child: &mut Child) {
    let _ = child.start_kill();
    if timeout(END_WITHIN, child.wait()).await.is_err() {
        tracing::warn!(pid = child.id(), "a process that removes what a pod left can't be killed");
    }
}

/// Removals that have begun, at most [`PROCESSES_MAX`].
#[derive(Default)]
struct UnderWay {
    removals: JoinSet<Removed>,
    /// Trees that are not to be begun: somebody is at them, or they stay.
    passed_over: BTreeSet<PathBuf>,
}

impl UnderWay {
    /// Begins as many as there may be.
    async fn fill(&mut self, remover: &Arc<Remover>) {
        while self.removals.len() < PROCESSES_MAX {
            let (looking, passed_over) = (Arc::clone(remover), self.passed_over.clone());
            let found = tokio::task::spawn_blocking(move || {
                let mut queued = looking.folders.queued();
                queued.find(|path| !passed_over.contains(path) && looking.folders.noted(path).is_none())
            });
            let Ok(Some(path)) = found.await else { return };
            self.passed_over.insert(path.clone());
            self.removals.spawn(Arc::clone(remover).remove(path));
        }
    }

    /// The next end: nothing when none is under way, else what stays of it.
    async fn next(&mut self) -> Option<Option<SetAside>> {
        let Ok(Removed { path, aside }) = self.removals.join_next().await? else { return Some(None) };
        // What is still there was moved away or noted; either failed if it stays here.
        if aside.as_ref().is_none_or(|aside| aside.path != path) {
            self.passed_over.remove(&path);
        }
        Some(aside)
    }
}
