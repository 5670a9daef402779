//! One cycle: the configured actions in order over the World's tables, then `close`. Everything a cycle shares.

use rustc_hash::FxHashMap;

use crate::actions::gang_eviction::Kind;
use crate::backlog::Backlog;
use crate::config::{Action, Config};
use crate::finder::Finder;
use crate::ids::{GroupId, NodeId, TaskId, TimeMs};
use crate::outlook::Outlook;
use crate::plan::Plan;
use crate::plugins::usage;
use crate::policy::Policy;
use crate::reasons::{self, Reason, Stage};
use crate::world::journal::Savepoint;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;
use crate::{actions, close};

/// What the actions of a cycle work on.
pub(crate) struct Cycle<'w> {
    pub(crate) tables: &'w mut Tables,
    pub(crate) policy: &'w mut Policy,
    pub(crate) finder: &'w mut Finder,
    pub(crate) backlog: &'w mut Backlog,
    pub(crate) outlook: &'w mut Outlook,
    pub(crate) config: &'w Config,
    pub(crate) now: TimeMs,
    pub(crate) plan: Plan,
    /// Why groups did not get what they wait for.
    pub(crate) failures: FxHashMap<GroupId, Failure>,
}

/// Why one group did not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub(crate) stage: Stage,
    pub(crate) approximate: bool,
    pub(crate) reasons: Vec<Reason>,
}

impl Failure {
    pub(crate) fn at(stage: Stage, reasons: Vec<Reason>) -> Self {
        Self { stage, approximate: false, reasons }
    }

    /// What kind of failure it is: objects are written anew only when this changes.
    pub(crate) fn class(&self) -> String {
        reasons::class_of(self.stage, &self.reasons)
    }

    /// Whether it is of this kind.
    pub(crate) fn is_class(&self, class: &str) -> bool {
        reasons::is_class(class, self.stage, &self.reasons)
    }
}

impl Cycle<'_> {
    pub(crate) fn run(mut self) -> Plan {
        self.tables.refresh_inherited_queues();
        self.tables.refresh_network(self.config.sharding.as_ref(), self.now);
        self.tables.nodes.expire_usage(self.now.plus_ms(-usage::FRESH_MS));
        self.policy.open(self.tables, self.now);
        self.tables.begin();
        self.plan.settled = self.tables.settle_receipts(self.now);
        actions::fences::settle(&mut self);
        actions::half_placed::take_back(&mut self);
        actions::windows::empty(&mut self);
        actions::reserve::settle(&mut self);
        actions::overrun::end(&mut self);
        for action in &self.config.actions {
            match action {
                Action::Enqueue => actions::enqueue::run(&mut self),
                Action::Allocate => actions::allocate::run(&mut self),
                Action::Backfill => actions::backfill::run(&mut self),
                Action::Preempt => actions::preempt::run(&mut self),
                Action::Reclaim => actions::reclaim::run(&mut self),
                Action::GangPreempt => actions::gang_eviction::run(&mut self, Kind::Preempt),
                Action::GangReclaim => actions::gang_eviction::run(&mut self, Kind::Reclaim),
                Action::Shuffle => actions::shuffle::run(&mut self),
            }
        }
        close::run(&mut self);
        self.policy.close(self.tables, self.now);
        self.tables.commit();
        self.plan
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

crate::save::saved! { Failure { stage, approximate, reasons } }
