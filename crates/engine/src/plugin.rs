//! The extension points of scheduling, one plugin per file.
//!
//! A plugin overrides the points it cares about; `policy` decides in which order plugins are asked and how their
//! answers combine. Facts are in `Tables`; a plugin keeps its arguments, what it works out in `open`, and what it
//! follows by `moved`. Plugins are pure: no I/O, no clock, no randomness, and equal tables give equal answers.

use std::cmp::Ordering;
use std::fmt::Debug;

use crate::facts::PodTemplate;
use crate::plan::Prebind;
use crate::reasons::{Check, Reason};

pub(crate) mod region;
mod registry;
pub(crate) mod score;
#[cfg(test)]
pub(crate) mod tests;
mod view;

pub use region::{Extremes, Region};
pub use registry::{Factory, Registry};

pub use crate::cluster::classes::ClassRow;
pub use crate::cluster::nodes::NodeRow;
pub use crate::config::ArgumentError;
pub use crate::ids::{ClassId, DimId, GroupId, HyperId, NodeId, QueueId, TaskId, TimeMs};
pub use crate::resource_dims::Demand;
pub use crate::world::groups::GroupRow;
pub use crate::world::minimum::Missing;
pub use crate::world::queues::QueueRow;
pub use crate::world::tables::{Move, Tables};
pub use crate::world::tasks::{Counting, TaskRow, TaskState};

/// A vote of one plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vote {
    /// Yes, and the plugins of later tiers are not asked.
    Permit,
    Abstain,
    /// No, whatever others say.
    Reject,
}

/// Which groups a plugin admits, or refuses, alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Alike {
    /// It does not say. A plugin of a third party is asked about each group then.
    #[default]
    Unsaid,
    /// This group is like no other.
    Alone,
    /// Those of one key are alike, if they are of one queue, namespace and priority and ask for the same.
    Key(u64),
}

/// A score that is scaled to 0..100 over the nodes that can take the pod.
#[derive(Debug, Clone, Copy)]
pub struct Preference {
    /// What the scaled score is multiplied with.
    pub weight: i64,
    pub reverse: bool,
    /// The unscaled value; depends on the node's facts only.
    pub raw: fn(&PodTemplate, &NodeRow) -> i64,
    /// Whether `raw` can be other than 0 for a pod like this on any node.
    pub of_pod: fn(&PodTemplate) -> bool,
    /// Whether it can be so on this node for any pod: few nodes, best.
    pub of_node: fn(&NodeRow) -> bool,
}

/// What the gang actions want victims for.
#[derive(Debug, Clone)]
pub struct GangEviction {
    /// The group that wants room.
    pub preemptor: GroupId,
    /// From other queues (gangreclaim), or within its own (gangpreempt).
    pub reclaim: bool,
    /// All it asks for, by dimension.
    pub need: Vec<i64>,
}

/// A search for the part of the network where a group, or one part of it, is to lie.
#[derive(Debug, Clone, Copy)]
pub struct HyperSearch<'a> {
    pub group: GroupId,
    /// One part of it; absent for the whole, also where it has no parts.
    pub sub_job: Option<u32>,
    pub within: HyperId,
    /// What its pods ask for in all, by dimension.
    pub need: &'a [(DimId, i64)],
    /// Others may be evicted for it.
    pub evict: bool,
}

/// One plugin. Every point has a neutral default.
///
/// Switches of the configuration turn points off; `policy` does not ask a plugin where its switch is off.
pub trait Plugin: Debug + Send + Sync {
    /// A cycle starts: work out what holds for all of it.
    fn open(&mut self, _tables: &Tables, _now: TimeMs) {}

    /// Counts changes of what `check_facts` reads besides facts and arguments, such as the time of day.
    fn epoch(&self) -> u64 {
        0
    }

    /// What it remembers from cycle to cycle beside its arguments, so that a saved World decides as it would have.
    fn memory(&self) -> Vec<u8> {
        Vec::new()
    }

    /// It is to remember what `memory` said; what can't be that is to be forgotten.
    fn remember(&mut self, _memory: &[u8]) {}

    /// Whether it wants `moved`: nothing is recorded where no plugin does.
    fn follows_moves(&self) -> bool {
        false
    }

    /// A task changed its state or node inside the cycle, or that was taken back. `tables` show what is now; a task
    /// may be told of more than once, so compare with what you know of it.
    fn moved(&mut self, _tables: &Tables, _change: Move) {}

    /// Which group goes first. Between two groups that hold nothing the answer may depend on their facts only.
    fn job_order(&self, _tables: &Tables, _left: GroupId, _right: GroupId) -> Ordering {
        Ordering::Equal
    }

    /// Whether `job_rank` says anything.
    fn ranks(&self) -> bool {
        false
    }

    /// The part of `job_order` that goes before what namespaces deserve of a queue.
    fn job_rank(&self, _tables: &Tables, _left: GroupId, _right: GroupId) -> Ordering {
        Ordering::Equal
    }

    /// Whether queues have their turn along the tree of their parents; otherwise all stand side by side.
    fn follows_queue_tree(&self) -> bool {
        false
    }

    /// Which of two queues of the same parent goes first.
    fn queue_order(&self, _tables: &Tables, _left: QueueId, _right: QueueId) -> Ordering {
        Ordering::Equal
    }

    /// Whether a placement in one queue may change the order of others, too.
    fn reorders_queues(&self) -> bool {
        false
    }

    /// Whose tasks go first as victims for `preemptor`'s queue.
    fn victim_queue_order(&self, _tables: &Tables, _left: QueueId, _right: QueueId, _preemptor: QueueId) -> Ordering {
        Ordering::Equal
    }

    /// Which task of a group goes first.
    fn task_order(&self, _tables: &Tables, _left: TaskId, _right: TaskId) -> Ordering {
        Ordering::Equal
    }

    /// A check that depends on the node's facts and the class only; asked again when they change.
    fn check_facts(&self, _tables: &Tables, _class: &ClassRow, _node: NodeId) -> Option<Check> {
        None
    }

    /// A check that depends on what runs on this node, too; asked again when that changes.
    fn check_use(&self, _tables: &Tables, _class: &ClassRow, _node: NodeId) -> Option<Check> {
        None
    }

    /// `check_use` as if all that is on its way out were gone: asked where room is made for a task.
    fn check_use_later(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> Option<Check> {
        self.check_use(tables, class, node)
    }

    /// Whether it has more to say about this very task than its class tells: only then are `check_task` and
    /// `score_task` asked, and the search costs a scan of the nodes.
    fn is_specific(&self, _tables: &Tables, _task: TaskId) -> bool {
        false
    }

    /// Whether what it says about this very task says nothing of other tasks of the same class in the same queue. Where
    /// it does one failure stands for all of them. Asked only of tasks about which it has more to say.
    fn stands_alone(&self, tables: &Tables, task: TaskId) -> bool {
        self.is_specific(tables, task)
    }

    /// A check that may depend on anything: the task's queue or group, other nodes.
    fn check_task(&self, _tables: &Tables, _task: TaskId, _node: NodeId) -> Option<Check> {
        None
    }

    /// The same for room that is promised: as if all that is on its way out were gone.
    fn check_task_later(&self, tables: &Tables, task: TaskId, node: NodeId) -> Option<Check> {
        self.check_task(tables, task, node)
    }

    /// Keeps the nodes that pass `check_task`; for plugins that can do so with less work than one by one.
    fn keep_for_task(&self, tables: &Tables, task: TaskId, nodes: &mut Vec<NodeId>) {
        nodes.retain(|node| self.check_task(tables, task, *node).is_none());
    }

    /// Whether the pod may be made to leave, whoever gains from it.
    fn may_leave(&self, _tables: &Tables, _task: TaskId) -> bool {
        true
    }

    /// What a failed `check_task` is about, for reasons. Empty if there is nothing to add.
    fn detail_of_task(&self, _tables: &Tables, _check: Check, _task: TaskId, _node: NodeId) -> String {
        String::new()
    }

    /// Adds to the scores of all candidates; `scores` lie beside `nodes`.
    fn score_task(&self, _tables: &Tables, _task: TaskId, _nodes: &[NodeId], _scores: &mut [i64]) {}

    /// Whether `score` and `score_task` answer in thousandths of a point: points are what Kubernetes' scores of 0 to 100
    /// are made of.
    fn in_thousandths(&self) -> bool {
        false
    }

    /// Whether `check_use` can say anything to this class; where it can't the search need not ask for every node.
    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        true
    }

    /// Whether it scores nodes by class at all; where it does not the search need not ask for every node.
    fn scores_nodes(&self) -> bool {
        true
    }

    /// Adds `score` for many nodes; `scores` lie beside `nodes`. To be overridden only to be quicker.
    fn score_nodes(&self, tables: &Tables, class: &ClassRow, nodes: &[NodeId], scores: &mut [i64]) {
        for (node, score) in nodes.iter().zip(scores) {
            *score = score.saturating_add(self.score(tables, class, *node));
        }
    }

    /// Adds the most that `score` can be for any node of each region; `bounds` lie beside `regions`. False where that
    /// can't be told, for the regions at hand or at all: then every node has to be looked at. Without regions it is
    /// asked whether it could. No score may be negative where bounds are told.
    fn bound_scores(&self, _tables: &Tables, _class: &ClassRow, _regions: &[Region<'_>], _bounds: &mut [i64]) -> bool {
        false
    }

    /// The part of a node's score that depends on the class, the node's facts and its use.
    fn score(&self, _tables: &Tables, _class: &ClassRow, _node: NodeId) -> i64 {
        0
    }

    /// Scores that are scaled over the candidates.
    fn preferences(&self) -> Vec<Preference> {
        Vec::new()
    }

    /// What a failed check of this plugin is about, for reasons: a taint, a port. Empty if there is nothing to add.
    fn detail(&self, _tables: &Tables, _check: Check, _class: &ClassRow, _node: NodeId) -> String {
        String::new()
    }

    /// All the checks of this plugin that the node fails, each with what it is about, for an answer that somebody asked
    /// for: to be overridden where `check_facts`, `check_use` and `check_task` stop at the first of several.
    fn failed(&self, tables: &Tables, class: &ClassRow, task: Option<TaskId>, node: NodeId) -> Vec<(Check, String)> {
        let of_class = [self.check_facts(tables, class, node), self.check_use(tables, class, node)];
        let mut failed: Vec<(Check, String)> =
            of_class.into_iter().flatten().map(|check| (check, self.detail(tables, check, class, node))).collect();
        if let Some(task) = task.filter(|task| self.is_specific(tables, *task)) {
            let of_task = self.check_task(tables, task, node);
            failed.extend(of_task.map(|check| (check, self.detail_of_task(tables, check, task, node))));
        }
        failed
    }

    /// Has the group pods enough to be tried at all? The objection, if not.
    fn job_valid(&self, _tables: &Tables, _group: GroupId) -> Option<Reason> {
        None
    }

    /// May what is placed of the group start?
    fn job_ready(&self, _tables: &Tables, _group: GroupId, _counting: Counting) -> bool {
        true
    }

    /// Would what is placed and what is promised be enough to start?
    fn job_pipelined(&self, _tables: &Tables, _group: GroupId) -> Vote {
        Vote::Abstain
    }

    /// Which of two parts of a group goes first.
    fn sub_job_order(&self, _tables: &Tables, _group: GroupId, _left: u32, _right: u32) -> Ordering {
        Ordering::Equal
    }

    /// May what is placed of this part of the group start?
    fn sub_job_ready(&self, _tables: &Tables, _group: GroupId, _sub_job: u32, _counting: Counting) -> bool {
        true
    }

    /// Would what is placed and what is promised of this part be enough to start?
    fn sub_job_pipelined(&self, _tables: &Tables, _group: GroupId, _sub_job: u32) -> Vote {
        Vote::Abstain
    }

    /// The HyperNodes to try: all of the first list, then all of the second, and so on. The first plugin with a say
    /// decides alone.
    fn hyper_gradients(&self, _tables: &Tables, _search: &HyperSearch<'_>) -> Option<Vec<Vec<HyperId>>> {
        None
    }

    /// Adds to the scores of HyperNodes; `scores` lie beside `hypers`.
    fn score_hyper_nodes(&self, _: &Tables, _: &HyperSearch<'_>, _hypers: &[HyperId], _scores: &mut [i64]) {}

    /// Does the group lack pods so that it may make victims? `None` where the plugin has no say.
    fn job_starving(&self, _tables: &Tables, _group: GroupId) -> Option<bool> {
        None
    }

    /// May the group be admitted, asking for `missing`?
    ///
    /// # Errors
    /// The reason why it must not.
    fn job_enqueueable(&self, _tables: &Tables, _group: GroupId, _missing: &Missing) -> Result<Vote, Reason> {
        Ok(Vote::Abstain)
    }

    /// Which groups `job_enqueueable` answers for alike: where it refuses one, and from then on nothing happens but that
    /// others are admitted, it is to refuse all that are like it. A refused group stands for those behind it then.
    fn admits_alike(&self, _tables: &Tables, _group: GroupId) -> Alike {
        Alike::Unsaid
    }

    /// The group has been admitted.
    fn job_enqueued(&mut self, _tables: &Tables, _group: GroupId, _missing: &Missing) {}

    /// Has the queue all that it may take, so that none of its groups is tried? The reason, if so.
    fn overused(&self, _tables: &Tables, _queue: QueueId) -> Option<Reason> {
        None
    }

    /// May the queue take this much more? The objection, if not.
    fn allocatable(&self, _tables: &Tables, _queue: QueueId, _demand: &Demand) -> Option<Reason> {
        None
    }

    /// May the queue take this very task, apart from how much it asks for? The objection, if not.
    fn allocatable_task(&self, _tables: &Tables, _queue: QueueId, _task: TaskId) -> Option<Reason> {
        None
    }

    /// What a queue deserves, by dimension, where the plugin divides the cluster: for metrics, not for decisions.
    fn deserved(&self, _tables: &Tables, _queue: QueueId) -> Option<Vec<i64>> {
        None
    }

    /// Whether it goes by the `deserved` that queues name.
    fn reads_deserved(&self) -> bool {
        false
    }

    /// What a queue may hold at most, by its limit and by what others are guaranteed: for metrics, not for decisions.
    fn real_capability(&self, _tables: &Tables, _queue: QueueId) -> Option<Vec<(DimId, i64)>> {
        None
    }

    /// May the queue take this much from other queues?
    fn preemptive(&self, _tables: &Tables, _queue: QueueId, _demand: &Demand) -> bool {
        true
    }

    /// Whether `preemptive` may say yes to more where it said no to less, as where one resource of many is enough.
    fn preemptive_in_part(&self) -> bool {
        false
    }

    /// Which candidates may leave for a task of the same queue. `None` abstains; an empty list is a veto.
    fn preemptable(&self, _tables: &Tables, _preemptor: TaskId, _candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        None
    }

    /// Whether `preemptable` always has an opinion, and gives nobody but what is of lower priority: by the priority of their
    /// groups, and within the preemptor's own group by that of the tasks. `false` is always right; `true` saves looking
    /// at all others.
    fn preempts_only_lower(&self) -> bool {
        false
    }

    /// Which candidates may leave for a task of another queue. `None` abstains; an empty list is a veto. Whether it
    /// abstains depends neither on the preemptor nor on the candidates.
    fn reclaimable(&self, _tables: &Tables, _preemptor: TaskId, _candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        None
    }

    /// Whether `reclaimable` gives this task to nobody, whoever asks, as things stand, and that stays so whatever else leaves or
    /// is promised room. `false` is always right; `true` saves asking again for each preemptor.
    fn keeps(&self, _tables: &Tables, _victim: TaskId) -> bool {
        false
    }

    /// Whether `keeps` is true of all that the queue holds. `false` is always right; `true` saves asking for each.
    fn keeps_all_of(&self, _tables: &Tables, _queue: QueueId) -> bool {
        false
    }

    /// Which candidates may leave for a gang. `None` abstains; an empty list is a veto.
    fn unified_evictable(&self, _tables: &Tables, _want: &GangEviction, _candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        None
    }

    /// All that its answers about victims read of the preemptor, as a number: preemptors alike in it get the same
    /// answers, so that one search serves them all. `None` if no two are alike. A plugin that reads anything of the
    /// preemptor must say so here; that a task makes no victim of its own group and queue, or only such, is known.
    fn victim_key(&self, _tables: &Tables, _preemptor: TaskId) -> Option<u64> {
        Some(0)
    }

    /// What the queue is entitled to, by dimension, so that reclaim never goes in circles. A dimension that is not named
    /// is not divided; where none is named, the queue lives on what others leave. `None` has no say.
    fn shares(&self, tables: &Tables, queue: QueueId) -> Option<Vec<(DimId, i64)>> {
        let amounts = self.deserved(tables, queue)?;
        Some(amounts.iter().enumerate().map(|(dim, amount)| (DimId::from(dim), *amount)).collect())
    }

    /// Running tasks that should move (action shuffle).
    fn victim_tasks(&self, _tables: &Tables) -> Vec<TaskId> {
        Vec::new()
    }

    /// What must be written before the pod is bound, in order.
    fn prebind(&self, _tables: &Tables, _task: TaskId, _node: NodeId) -> Vec<Prebind> {
        Vec::new()
    }

    /// What the pod is told with its bind.
    fn bind_annotations(&self, _tables: &Tables, _task: TaskId, _node: NodeId) -> Vec<(String, String)> {
        Vec::new()
    }
}
