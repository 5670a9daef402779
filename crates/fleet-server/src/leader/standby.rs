//! A ledger that follows what another server decides, so that this one leads at once when that one is gone.
//!
//! Invariant: it folds what is decided and saved, and no more, so it is what [`Log::load`] would give as of its place. Where
//! it can't follow, it is dropped and loaded anew.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pumice_clock as clock;
use pumice_ledger::{Event, Ledger, PriorityClasses, Refusal};

use super::Ended;
use crate::database::{Database, Error, Seq};

/// Entries that are read and folded at a time.
const ENTRIES: u32 = 100;
/// Between two loads that are of no use: each reads everything.
const LOAD_EVERY: Duration = Duration::from_secs(10);

/// A ledger and its place: all that was decided up to there is in it, and nothing else.
pub(super) struct FollowedLedger {
    pub ledger: Ledger,
    pub position: Seq,
}

/// Why a ledger does not get any further.
#[derive(Debug, thiserror::Error)]
enum Astray {
    #[error(transparent)]
    Log(#[from] Error),
    /// Retention removes what is over, also where somebody has not read it.
    #[error("what follows entry {0} of the log was removed")]
    Gone(Seq),
    /// Whoever decided it has another ledger, as a server of another release may.
    #[error("entry {seq} of the log does not fit here")]
    Refused {
        seq: Seq,
        #[source]
        refusal: Refusal,
    },
}

impl FollowedLedger {
    /// Makes a ledger of what the tables have now. O(jobs and runs that have not ended).
    async fn load(log: &Database, classes: PriorityClasses) -> Result<Self, Ended> {
        let loaded = log.load().await?;
        let position = loaded.position;
        // Whoever leads has to take the lead anew meanwhile.
        let ledger = tokio::task::spawn_blocking(move || loaded.restore(classes)).await??;
        Ok(Self { ledger, position })
    }

    /// Folds all that was decided since.
    async fn follow(&mut self, log: &Database) -> Result<(), Astray> {
        loop {
            let decided = log.decided(self.position, ENTRIES).await?;
            if decided.entries.is_empty() && self.position < decided.folded {
                return Err(Astray::Gone(self.position));
            }
            for (seq, entry) in decided.entries {
                if seq.0 != self.position.0 + 1 {
                    return Err(Astray::Gone(self.position));
                }
                let refused = self.ledger.fold(&entry);
                // A request may come to nothing; all that was decided took effect.
                if entry.events.iter().any(Event::is_decision)
                    && let Some(refusal) = refused.into_iter().next()
                {
                    return Err(Astray::Refused { seq, refusal });
                }
                self.position = seq;
            }
            if self.position >= decided.folded {
                self.ledger.set_saved();
                return Ok(());
            }
        }
    }
}

/// What a server that does not lead keeps to be able to.
#[derive(Default)]
pub(super) struct Standby {
    followed: Option<FollowedLedger>,
    loaded: Option<Instant>,
}

impl Standby {
    /// Goes on with whoever leads; begins with a load. O(what was decided since), the first time O(all that has not ended).
    pub(super) async fn follow(mut self, log: Arc<Database>, classes: PriorityClasses) -> Self {
        let followed = match &mut self.followed {
            Some(followed) => followed.follow(&log).await,
            None => {
                if self.loaded.is_none_or(|loaded| loaded.elapsed() >= LOAD_EVERY) {
                    self.loaded = Some(clock::monotonic());
                    self.load(&log, classes).await;
                }
                return self;
            }
        };
        match followed {
            Ok(()) => {}
            Err(Astray::Log(error)) => tracing::debug!(%error, "what was decided can't be read now"),
            Err(error) => {
                tracing::warn!(%error, "this server can't follow the one that leads; it reads everything anew");
                self.followed = None;
            }
        }
        self
    }

    /// Up to where it follows.
    pub(super) fn position(&self) -> Option<Seq> {
        self.followed.as_ref().map(|followed| followed.position)
    }

    async fn load(&mut self, log: &Database, classes: PriorityClasses) {
        match FollowedLedger::load(log, classes).await {
            Ok(followed) => {
                tracing::info!(position = %followed.position, "this server follows the one that leads, and could lead");
                self.followed = Some(followed);
            }
            Err(error) => tracing::warn!(%error, "this server can't read what it would lead; it tries again soon"),
        }
    }

    /// All that is decided, where this server leads now and nobody else decides any more.
    pub(super) async fn lead(self, log: &Database, classes: PriorityClasses) -> Result<FollowedLedger, Ended> {
        if let Some(mut followed) = self.followed {
            match followed.follow(log).await {
                Ok(()) => return Ok(followed),
                Err(error) => tracing::warn!(%error, "this server reads everything anew"),
            }
        }
        FollowedLedger::load(log, classes).await
    }
}

#[cfg(test)]
mod tests;
