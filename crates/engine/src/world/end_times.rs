//! When what runs will have ended: by its limit, which is kept whatever happens, or as runs of its kind did before.
//!
//! Invariant: an end that is certain follows from a limit that the node enforces, or from a pod's having been told to go.
//! An expected end is never before now. Read by reservations and by expected starts.

use crate::ids::{ClassId, GroupId, TaskId, TimeMs};
use crate::run_times::{Kind, Runs};
use crate::world::minimum::Part;
use crate::world::tables::Tables;
use crate::world::tasks::{TaskRow, TaskState};

/// How long a pod takes to leave that does not say so.
const LEAVING_MS: i64 = 30_000;
/// Of runs of one kind so many in a thousand are expected to be over: what passes a reservation counts with this.
const PASSING_PER_MILLE: usize = 950;
/// What has run so many times longer than any of its kind did is not expected to end at all.
const ENDLESS_TIMES: i64 = 8;

/// How sure an end has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Confidence {
    Certain,
    /// As runs of its kind did before, within what is enforced.
    Expected,
}

/// How long a group's pods will run, as far as runs of their kind tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedRun {
    /// The typical run, in milliseconds, within its limit.
    pub typical_ms: i64,
    /// All but one of twenty like it were over by then.
    pub most_ms: i64,
}

impl Tables {
    /// How long a pod of this class will run at most, for a group that wants to pass a reservation. Nothing is endless.
    pub(crate) fn backfills_for(&self, group: GroupId, class: ClassId, confidence: Confidence) -> Option<i64> {
        let limit = self.classes.row(class).template.time_limit_ms;
        let learned = || self.runs_of(group, class)?.quantile(PASSING_PER_MILLE);
        match confidence {
            Confidence::Certain => limit,
            Confidence::Expected => limit.or_else(learned),
        }
    }

    /// How long a pod of this class runs at most, where somebody else relies on it: by its limit, else as enough runs of its own
    /// kind did. What other jobs of its namespace did says nothing of it.
    pub(crate) fn reliable_run(&self, group: GroupId, class: ClassId) -> Option<i64> {
        let learned = || self.run_times.reliable(&self.run_kind(group, class))?.quantile(PASSING_PER_MILLE);
        self.classes.row(class).template.time_limit_ms.or_else(learned)
    }

    /// How long a pod of this class, which has run for `over_ms`, runs at least, as the shortest of its own kind that ran longer
    /// did; where there is none, as long as it may.
    pub(crate) fn shortest_run(&self, group: GroupId, class: ClassId, over_ms: i64) -> Option<i64> {
        let learned = self.run_times.of_own(&self.run_kind(group, class)).and_then(|runs| runs.shortest(over_ms));
        let limit = self.classes.row(class).template.time_limit_ms;
        [learned, limit].into_iter().flatten().min()
    }

    /// When a pod that holds room ends at the soonest, by the same.
    pub(crate) fn soonest_end_of(&self, task: TaskId, now: TimeMs) -> Option<TimeMs> {
        let row = self.task(task);
        let ran = row.started.map_or(0, |started| now.0.saturating_sub(started.0).max(0));
        let run = self.shortest_run(row.group?, row.class, ran)?;
        Some(now.plus_ms(run.saturating_sub(ran).max(0)))
    }

    /// How long a pod of this class is expected to run.
    pub(crate) fn typical_run(&self, group: GroupId, class: ClassId) -> Option<i64> {
        let limit = self.classes.row(class).template.time_limit_ms;
        let learned = self.runs_of(group, class).and_then(|runs| runs.typical(0));
        [limit, learned].into_iter().flatten().min()
    }

    /// How long a pod of this class is expected to run, and how long it may. Nothing where nothing is known of it.
    pub(crate) fn expected_run(&self, group: GroupId, class: ClassId) -> Option<ExpectedRun> {
        let limit = self.classes.row(class).template.time_limit_ms;
        let learned = self.runs_of(group, class).and_then(|runs| runs.quantile(PASSING_PER_MILLE));
        let most_ms = [limit, learned].into_iter().flatten().min()?;
        Some(ExpectedRun { typical_ms: self.typical_run(group, class)?, most_ms })
    }

    /// How long all of these parts are expected to run together. Nothing where one of them is not known.
    pub(crate) fn typical_run_of_all(&self, group: GroupId, parts: &[Part]) -> Option<i64> {
        let runs = parts.iter().map(|part| self.typical_run(group, part.class));
        runs.collect::<Option<Vec<i64>>>()?.into_iter().max()
    }

    /// How long all of these parts may run together. Nothing where one of them has no limit.
    pub(crate) fn longest_run_of_all(&self, parts: &[Part]) -> Option<i64> {
        let limits = parts.iter().map(|part| self.classes.row(part.class).template.time_limit_ms);
        limits.collect::<Option<Vec<i64>>>()?.into_iter().max()
    }

    /// When a pod that holds room, or is promised it, will have given it back. Nothing where that is not known.
    pub(crate) fn end_of(&self, task: TaskId, confidence: Confidence, now: TimeMs) -> Option<TimeMs> {
        let row = self.task(task);
        let leaving = row.grace_ms.unwrap_or(LEAVING_MS);
        let ran = row.started.map_or(0, |started| now.0.saturating_sub(started.0).max(0));
        let limit = self.classes.row(row.class).template.time_limit_ms;
        // What is over its limit is being ended.
        let left = limit.map(|limit| if ran < limit { limit - ran } else { leaving });
        if row.state == TaskState::Releasing {
            // Nothing stays longer because it was told to go.
            return Some(now.plus_ms(left.map_or(leaving, |left| left.min(leaving))));
        }
        let expected = match confidence {
            Confidence::Certain => [None, None],
            Confidence::Expected => [self.expected_left(row, ran), self.left_for_windows(task, now)],
        };
        [left].into_iter().chain(expected).flatten().min().map(|left| now.plus_ms(left))
    }

    /// How long until a window has made it leave.
    fn left_for_windows(&self, task: TaskId, now: TimeMs) -> Option<i64> {
        if self.maintenance_windows.all.is_empty() {
            return None;
        }
        let row = self.task(task);
        let node = row.node?;
        let on_node = self.maintenance_windows.all.iter().filter(|window| window.nodes.contains(node.index()));
        let ends = on_node.filter(|window| self.leaves_for(task, window)).map(|window| window.from).min()?;
        Some(ends.0.saturating_sub(now.0).max(0).saturating_add(row.grace_ms.unwrap_or(LEAVING_MS)))
    }

    fn expected_left(&self, row: &TaskRow, ran: i64) -> Option<i64> {
        let runs = self.runs_of(row.group?, row.class)?;
        if let Some(typical) = runs.typical(ran) {
            return Some(typical - ran);
        }
        // It has outlived all of its kind: the longer it has run, the longer it is expected to go on.
        let longest = runs.quantile(1_000)?;
        (ran / ENDLESS_TIMES < longest).then_some((ran / 2).max(1_000))
    }

    fn runs_of(&self, group: GroupId, class: ClassId) -> Option<&Runs> {
        // Where nothing ever ended there is nothing to look up.
        if !self.run_times.knows(self.groups.row(group).namespace_id) {
            return None;
        }
        self.run_times.of(&self.run_kind(group, class))
    }

    /// What runs of the group's pods of this class are remembered under.
    pub(crate) fn run_kind(&self, group: GroupId, class: ClassId) -> Kind {
        let row = self.groups.row(group);
        Kind {
            namespace: row.namespace_id,
            profile: row.run_profile.clone(),
            together: row.declared_min,
            limit_ms: self.classes.row(class).template.time_limit_ms,
        }
    }
}

crate::save::saved_enum!(Confidence as "Surety" { Certain, Expected });
