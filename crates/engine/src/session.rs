//! The session of a cycle: everything that its actions share, as Volcano's.
//!
//! Invariant: what moves tasks goes through here, so that the plugins hear of it. Opened by `engine` for a cycle, and for an
//! answer.

use rustc_hash::FxHashMap;

use crate::config::Config;
use crate::ids::{GroupId, NodeId, TaskId, TimeMs};
use crate::plan::Plan;
use crate::policy::Policy;
use crate::reasons::Failure;
use crate::search::View;
use crate::search::finder::Finder;
use crate::search::pending::PendingIndex;
use crate::search::start_estimate::StartEstimates;
use crate::world::journal::Savepoint;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// What the actions of a cycle work on.
pub(crate) struct Session<'w> {
    pub(crate) tables: &'w mut Tables,
    pub(crate) policy: &'w mut Policy,
    pub(crate) finder: &'w mut Finder,
    pub(crate) pending_index: &'w mut PendingIndex,
    pub(crate) start_estimates: &'w mut StartEstimates,
    pub(crate) config: &'w Config,
    pub(crate) now: TimeMs,
    pub(crate) plan: Plan,
    /// Why groups did not get what they wait for.
    pub(crate) failures: FxHashMap<GroupId, Failure>,
}

impl Session<'_> {
    /// What an answer may read.
    pub(crate) fn view(&self) -> View<'_> {
        View { tables: self.tables, policy: self.policy, pending_index: self.pending_index, now: self.now }
    }

    /// Gives a pending task room on `node`.
    pub(crate) fn assign(&mut self, task: TaskId, node: NodeId) {
        self.tables.assign(task, node);
        self.policy.settle(self.tables);
    }

    /// Promises a pending task room on `node` that is being freed.
    pub(crate) fn pipeline(&mut self, task: TaskId, node: NodeId) {
        self.tables.pipeline(task, node);
        self.policy.settle(self.tables);
    }

    /// Counts a task as leaving.
    pub(crate) fn evict(&mut self, task: TaskId) {
        self.tables.evict(task);
        self.policy.settle(self.tables);
    }

    /// Counts a task as gone from its node, for a trial.
    pub(crate) fn vacate(&mut self, task: TaskId) {
        let node = self.tables.task(task).node;
        self.tables.move_task(task, TaskState::Failed, node);
        self.policy.settle(self.tables);
    }

    /// Counts a task that was vacated as being there again.
    pub(crate) fn restore(&mut self, task: TaskId, state: TaskState, node: NodeId) {
        self.tables.move_task(task, state, Some(node));
        self.policy.settle(self.tables);
    }

    /// Takes a promise back: the task waits again.
    pub(crate) fn unpipeline(&mut self, task: TaskId) {
        self.tables.move_task(task, TaskState::Pending, None);
        self.policy.settle(self.tables);
    }

    /// Takes back everything since `savepoint`.
    pub(crate) fn rollback(&mut self, savepoint: Savepoint) {
        self.tables.rollback(savepoint);
        self.policy.settle(self.tables);
    }

    /// A cycle is wanted at `time`.
    pub(crate) fn wake_at(&mut self, time: TimeMs) {
        self.plan.next_wakeup = Some(self.plan.next_wakeup.map_or(time, |earlier| earlier.min(time)));
    }
}
