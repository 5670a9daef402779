//! `sla`: groups that say how long they may wait go first, the nearest to its time before others, and are admitted when
//! that time is over.
//!
//! In Volcano an overdue gang counts as pipelined: what is placed of it is kept from others in every cycle although it
//! can't start, and preemption evicts for it without end. Here it has no vote on that.

use std::cmp::Ordering;

use pumice_units::GoDuration;

use crate::cluster::classes::ClassRow;
use crate::config::ArgumentError;
use crate::config::{Argument, PluginConfig};
use crate::ids::{GroupId, TimeMs};
use crate::plugin::{Alike, Plugin, Vote};
use crate::reasons::Reason;
use crate::world::minimum::Missing;
use crate::world::tables::Tables;

pub(crate) const ARGUMENTS: &[&str] = &[WAITING_TIME_OF_OLD];

const WAITING_TIME: &str = "volcano.sh/sla-waiting-time";
/// The argument, and the annotation of old.
const WAITING_TIME_OF_OLD: &str = "sla-waiting-time";

#[derive(Debug)]
pub(crate) struct Sla {
    /// Of groups that don't say.
    waiting_ms: Option<i64>,
    now: TimeMs,
}

impl Sla {
    /// # Errors
    /// When the waiting time is no duration above zero.
    pub(crate) fn new(config: &PluginConfig) -> Result<Self, ArgumentError> {
        let refused = || ArgumentError {
            argument: WAITING_TIME_OF_OLD.to_owned(),
            wanted: "must be a duration such as 1h30m".to_owned(),
        };
        let waiting_ms = match config.arguments.get(WAITING_TIME_OF_OLD) {
            None | Some(Argument::Null) => None,
            Some(Argument::Text(text)) if text.is_empty() => None,
            Some(Argument::Text(text)) => Some(waiting_ms(text).ok_or_else(refused)?),
            Some(_) => return Err(refused()),
        };
        Ok(Self { waiting_ms, now: TimeMs::default() })
    }

    /// When the group has waited long enough.
    fn due(&self, tables: &Tables, group: GroupId) -> Option<TimeMs> {
        let row = tables.groups.row(group);
        let text = row.annotations.get(WAITING_TIME).or_else(|| row.annotations.get(WAITING_TIME_OF_OLD));
        let waiting = text.and_then(|text| waiting_ms(text)).or(self.waiting_ms)?;
        Some(row.created.plus_ms(waiting))
    }
}

/// A waiting time above zero.
fn waiting_ms(text: &str) -> Option<i64> {
    const NANOS: i64 = 1_000_000;
    let duration: GoDuration = text.parse().ok()?;
    (duration.as_nanos() > 0).then(|| (duration.as_nanos() / NANOS).max(1))
}

impl Plugin for Sla {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn open(&mut self, _tables: &Tables, now: TimeMs) {
        self.now = now;
    }

    fn job_order(&self, tables: &Tables, left: GroupId, right: GroupId) -> Ordering {
        let key = |group| {
            let due = self.due(tables, group);
            (due.is_none(), due)
        };
        key(left).cmp(&key(right))
    }

    fn job_enqueueable(&self, tables: &Tables, group: GroupId, _missing: &Missing) -> Result<Vote, Reason> {
        let overdue = self.due(tables, group).is_some_and(|due| due <= self.now);
        Ok(if overdue { Vote::Permit } else { Vote::Abstain })
    }

    /// Each has its own time.
    fn admits_alike(&self, tables: &Tables, group: GroupId) -> Alike {
        if self.due(tables, group).is_some() { Alike::Alone } else { Alike::Key(0) }
    }
}

#[cfg(test)]
mod tests;
