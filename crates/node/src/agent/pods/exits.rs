//! The ends of pods reach the disk before the API server is told of them, those of one moment together.
//!
//! Invariant: one sync at a time. What ends meanwhile is the next one's.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pumice_clock as clock;
use tokio::task::{JoinError, JoinSet};

use crate::agent::pods::Pods;
use crate::agent::pods::entry::{End, Entry, Stage};
use crate::exit_journal::{ExitJournal, PodExit};

/// Wait before another attempt after a disk took nothing.
const SYNC_AGAIN: Duration = Duration::from_secs(1);

/// What is to be synced, and what does it.
pub(super) struct SyncedExits {
    /// None where shims do it themselves.
    journal: Option<Arc<Mutex<ExitJournal>>>,
    waiting: BTreeSet<String>,
    under_way: JoinSet<Synced>,
}

/// The end of one sync.
pub(super) struct Synced {
    uids: Vec<String>,
    result: std::io::Result<()>,
}

impl SyncedExits {
    /// For the pods in a folder; takes over what an agent before this one has left.
    pub(super) fn open(pods_dir: &Path) -> SyncedExits {
        let opened = ExitJournal::open(pods_dir.parent().unwrap_or(pods_dir), pods_dir);
        let journal = opened.inspect_err(|error| {
            tracing::warn!(%error, "the ends of pods are synced one by one");
        });
        let journal = journal.ok().map(|journal| Arc::new(Mutex::new(journal)));
        SyncedExits { journal, waiting: BTreeSet::new(), under_way: JoinSet::new() }
    }

    /// The next sync that ends. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Result<Synced, JoinError>> {
        self.under_way.join_next().await
    }

    /// Whether the end of a pod may be told; if not, it will be synced.
    pub(super) fn may_tell(&mut self, entry: &Entry) -> bool {
        if self.journal.is_none() || entry.exit_synced || entry.stage != Stage::Ended(End::ShimReported) {
            return true;
        }
        self.waiting.insert(entry.uid.clone());
        false
    }
}

impl Pods {
    /// Syncs what waits for it.
    pub(super) fn sync_exits(&mut self) {
        let Some(journal) = &self.synced_exits.journal else { return };
        if self.synced_exits.waiting.is_empty() || !self.synced_exits.under_way.is_empty() {
            return;
        }
        let journal = Arc::clone(journal);
        let uids: Vec<String> = std::mem::take(&mut self.synced_exits.waiting).into_iter().collect();
        let exit = |uid: &String| Some(PodExit { uid: uid.clone(), status: self.pods.get(uid)?.shim.clone()? });
        let exits = uids.iter().filter_map(exit).collect();
        let is_full = journal.lock().unwrap_or_else(PoisonError::into_inner).is_full();
        let needed = is_full.then(|| self.untold_exits());
        self.synced_exits.under_way.spawn_blocking(move || {
            let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
            let shortened = needed.map_or(Ok(()), |needed| journal.shorten(&needed));
            let result = shortened.and_then(|()| journal.append(exits));
            drop(journal);
            Synced { uids, result }
        });
    }

    /// Pods of whose end the API server does not know.
    fn untold_exits(&self) -> BTreeSet<String> {
        let untold = |entry: &&Entry| {
            let told = entry.written.as_ref().and_then(|status| status.phase.as_deref());
            entry.stage == Stage::Ended(End::ShimReported) && !matches!(told, Some("Succeeded" | "Failed"))
        };
        self.pods.values().filter(untold).map(|entry| entry.uid.clone()).collect()
    }

    pub(super) fn on_exits_synced(&mut self, done: Result<Synced, JoinError>) {
        let Synced { uids, result } = match done {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(error = %error, "a sync of the ends of pods failed");
                return;
            }
        };
        if let Err(error) = &result {
            tracing::warn!(%error, "the ends of pods can't be synced, will try again");
        }
        for uid in uids {
            let Some(entry) = self.pods.get_mut(&uid) else { continue };
            match result {
                Ok(()) => {
                    entry.exit_synced = true;
                    self.marked.insert(uid);
                }
                Err(_) => self.timers.at(&uid, (clock::monotonic() + SYNC_AGAIN).into()),
            }
        }
    }
}
