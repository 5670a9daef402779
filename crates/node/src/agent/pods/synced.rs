//! The ends of pods reach the disk before the API server is told of them, those of one moment together.
//!
//! Invariant: one sync at a time. What ends meanwhile is the next one's.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pumice_clock as clock;
use tokio::task::{JoinError, JoinSet};

use crate::agent::pods::Pods;
use crate::agent::pods::entry::{End, Entry, Stage};
use crate::pod_journal::{Needed, PodExit, PodJournal};

/// Wait before another attempt after a disk took nothing.
const SYNC_AGAIN: Duration = Duration::from_secs(1);

/// What is to be synced, and what does it.
pub(super) struct SyncedExits {
    /// None where shims do it themselves.
    journal: Option<Arc<PodJournal>>,
    waiting: BTreeSet<String>,
    under_way: JoinSet<Synced>,
}

/// The end of one sync.
pub(super) struct Synced {
    uids: Vec<String>,
    result: std::io::Result<()>,
}

impl SyncedExits {
    pub(super) fn new(journal: Option<Arc<PodJournal>>) -> SyncedExits {
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
        let needed = journal.is_full().then(|| self.needed(&journal));
        let context = Arc::clone(&self.context);
        self.synced_exits.under_way.spawn_blocking(move || {
            let shorten = |needed| journal.shorten(&needed, || context.id_ranges.owners());
            let result = needed.map_or(Ok(()), shorten).and_then(|()| journal.end(exits));
            Synced { uids, result }
        });
    }

    fn needed(&self, journal: &PodJournal) -> Needed {
        let told = |entry: &Entry| {
            let status = entry.written.as_ref();
            matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
        };
        let is_untold = |entry: &&Entry| entry.stage == Stage::Ended(End::ShimReported) && !told(entry);
        let is_over = |uid: &String| self.pods.get(uid).is_none_or(told);
        Needed {
            untold: self.pods.values().filter(is_untold).map(|entry| entry.uid.clone()).collect(),
            over: journal.begun().into_iter().filter(is_over).collect(),
        }
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
