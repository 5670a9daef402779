//! How long what is over is kept, and its removal, a little at a time beside everything else.
//!
//! Invariant: nothing is removed that has a job which has not ended, a run that holds room, or an entry that is newer. What
//! the database refuses is tried again later; deciding goes on meanwhile.

use std::time::Duration;

use pumice_clock as clock;
use pumice_ledger::TimeMs;
use serde::Deserialize;

use super::{Ended, Term};
use crate::database::{ClientIdKey, Database, Error, Seq, SetName};

/// Rows of one transaction: others wait for it some milliseconds.
const ROWS: u32 = 1_000;
/// Transactions in one go.
const STEPS: usize = 4;
/// Between two looks at everything, and after a failure.
const REST_MS: i64 = 60_000;
/// A specification that is used again says so a day later at the latest.
const SPEC_MS: i64 = 2 * 24 * HOUR_MS;
const HOUR_MS: i64 = 3_600_000;
/// How often there is a look whether something is to be done.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long what is over is kept. Nothing is removed where it is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// A job set after its last event, milliseconds.
    pub job_sets_ms: i64,
    /// A client id after its job was submitted, milliseconds. One of a job that has not ended is kept anyway.
    pub client_ids_ms: i64,
}

impl Retention {
    /// Nothing is ever removed.
    pub const FOR_EVER: Self = Self { job_sets_ms: 0, client_ids_ms: 0 };
}

/// Retention as it is written, in hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Hours {
    /// See [`Retention::job_sets_ms`].
    pub job_sets_hours: u32,
    /// See [`Retention::client_ids_ms`].
    pub client_ids_hours: u32,
}

impl Default for Hours {
    /// Two weeks, as Armada keeps events.
    fn default() -> Self {
        Self { job_sets_hours: 336, client_ids_hours: 336 }
    }
}

impl From<Hours> for Retention {
    fn from(hours: Hours) -> Self {
        let ms = |hours: u32| i64::from(hours) * HOUR_MS;
        Self { job_sets_ms: ms(hours.job_sets_hours), client_ids_ms: ms(hours.client_ids_hours) }
    }
}

/// What is looked at next.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// The log after a place, and sets that were found.
    Sets { after: Option<Seq>, found: Vec<SetName> },
    /// Client ids after one.
    Clients(ClientIdKey),
    /// Specifications of which nobody has a job.
    Specs,
    /// Parts of the log of which nothing is left.
    Parts,
}

impl Stage {
    fn first() -> Self {
        Self::Sets { after: Some(Seq(0)), found: Vec::new() }
    }
}

/// Where the removal stands.
#[derive(Debug)]
pub(super) struct Keeper {
    retention: Retention,
    stage: Stage,
    /// Not before.
    next: TimeMs,
}

impl Keeper {
    pub(super) fn new(retention: Retention) -> Self {
        Self { retention, stage: Stage::first(), next: TimeMs(0) }
    }
}

impl Term {
    /// Removes a little of what is over, if there is something.
    pub(super) async fn keep(&mut self, log: &Database) -> Result<(), Ended> {
        let now = TimeMs(clock::now_ms());
        if self.keeper.retention == Retention::FOR_EVER || now < self.keeper.next {
            return Ok(());
        }
        for _ in 0..STEPS {
            match self.keep_step(log, now).await {
                Ok(true) => {}
                Ok(false) => {
                    self.keeper.stage = Stage::first();
                    self.keeper.next = TimeMs(now.0 + REST_MS);
                    break;
                }
                Err(Error::Deposed) => return Err(Error::Deposed.into()),
                Err(error) => {
                    tracing::warn!(%error, "what is over could not be removed; it is tried again in a minute");
                    self.keeper.next = TimeMs(now.0 + REST_MS);
                    break;
                }
            }
        }
        Ok(())
    }

    /// One step; false at the end of all.
    async fn keep_step(&mut self, log: &Database, now: TimeMs) -> Result<bool, Error> {
        let Retention { job_sets_ms, client_ids_ms } = self.keeper.retention;
        let before = |kept_ms: i64| TimeMs(now.0.saturating_sub(kept_ms));
        match &mut self.keeper.stage {
            Stage::Sets { after, found } => {
                if job_sets_ms == 0 {
                    self.keeper.stage = Stage::Clients(ClientIdKey::default());
                } else if let Some(set) = found.last() {
                    // Between this look and the lock nothing is folded, and what is appended is newer.
                    if self.ledger.has_set(&set.queue, &set.job_set) {
                        found.pop();
                        return Ok(true);
                    }
                    let pruned = log.prune(self.epoch, set, before(job_sets_ms), ROWS).await?;
                    if pruned.done {
                        found.pop();
                    }
                    self.metrics.removed("jobs", pruned.jobs);
                    self.metrics.removed("log", pruned.entries);
                } else if let Some(place) = *after {
                    let stale = log.stale(place, before(job_sets_ms), ROWS).await?;
                    (*after, *found) = (stale.next, stale.sets);
                } else {
                    self.keeper.stage = Stage::Clients(ClientIdKey::default());
                }
            }
            Stage::Clients(after) => {
                if client_ids_ms == 0 {
                    self.keeper.stage = Stage::Specs;
                    return Ok(true);
                }
                let ledger = &self.ledger;
                let keeps = |job| ledger.job(job).is_some();
                let forgotten = log.forget(self.epoch, after, before(client_ids_ms), ROWS, keeps).await?;
                self.metrics.removed("dedup", forgotten.removed);
                self.keeper.stage = forgotten.next.map_or(Stage::Specs, Stage::Clients);
            }
            Stage::Specs => {
                if job_sets_ms == 0 {
                    return Ok(false);
                }
                let removed = log.sweep(self.epoch, before(job_sets_ms.max(SPEC_MS)), ROWS).await?;
                self.metrics.removed("specs", removed);
                if removed < ROWS as usize {
                    self.keeper.stage = Stage::Parts;
                }
            }
            Stage::Parts => return log.retire(self.epoch).await,
        }
        Ok(true)
    }
}
