//! The World: everything known of the cluster, and the cycle that decides. Owned by one task of the shell.

use crate::cluster::hypernodes::HyperNodeProblem;
use crate::cluster::table::key_of;
use crate::config::Config;
use crate::cycle_end;
use crate::explain::QueueView;
use crate::explain::{self, NodeWhy, QueueWhy, Why};
use crate::facts::{Delta, GroupPhase, NodeFacts, NodeName, OwnerFacts, PodUid};
use crate::ids::{DimId, GroupId, TimeMs};
use crate::plan::Plan;
use crate::plan_lint;
use crate::plugin::Registry;
use crate::policy::Policy;
use crate::reasons::{Minimum, Reason, Reasons, Stage};
use crate::resource_dims::Resources;
use crate::search::View;
use crate::search::finder::Finder;
use crate::search::pending::PendingIndex;
use crate::search::start_estimate;
use crate::search::start_estimate::{Look, StartEstimates};
use crate::session::Session;
use crate::world::end_times::ExpectedRun;
use crate::world::minimum::missing;
use crate::world::tables::Tables;
use crate::world::tasks;

mod saved_world;

/// Cluster facts in, decisions and reasons out. No I/O, no clock: equal deltas and times give equal plans.
#[derive(Debug)]
pub struct World {
    pub(crate) tables: Tables,
    pub(crate) policy: Policy,
    finder: Finder,
    pending_index: PendingIndex,
    pub(crate) start_estimates: StartEstimates,
    config: Config,
    registry: Registry,
    /// When the last cycle was.
    pub(crate) now: TimeMs,
}

/// A group as `World::groups` shows it.
#[derive(Debug, Clone, Copy)]
pub struct GroupView<'w> {
    id: GroupId,
    world: &'w World,
    pub namespace: &'w str,
    pub name: &'w str,
    pub owner: Option<&'w OwnerFacts>,
    pub queue: &'w str,
    pub phase: GroupPhase,
}

impl GroupView<'_> {
    /// Why it waits, if it does, for lists of many: the nodes are not looked at to tell when it starts.
    pub fn reasons(&self) -> Option<Reasons> {
        self.world.reasons_of(self.id, Look::Sums)
    }
}

impl World {
    /// An empty world with Volcano's plugins.
    pub fn new(config: Config) -> Self {
        Self::with_plugins(config, Registry::default())
    }

    /// An empty world with the plugins of `registry`.
    pub fn with_plugins(config: Config, registry: Registry) -> Self {
        let mut tables = Tables::new(&config.default_queue);
        tables.storage.nodes_meet_claims = config.nodes_meet_claims;
        Self {
            tables,
            policy: Policy::new(&config, &registry),
            finder: Finder::default(),
            pending_index: PendingIndex::default(),
            start_estimates: StartEstimates::default(),
            config,
            registry,
            now: TimeMs::default(),
        }
    }

    /// Takes another configuration from the next cycle on. The default queue and who meets claims stay as they
    /// were at the start.
    pub fn set_config(&mut self, config: Config) {
        self.policy = Policy::new(&config, &self.registry);
        self.finder = Finder::default();
        self.pending_index = PendingIndex::default();
        self.config = config;
    }

    /// Forgets what it keeps to be quick, as a World that is loaded has none of it: what groups are told again may come
    /// from a fresh look instead of an earlier one. The next cycle looks at everything.
    pub fn forget(&mut self) {
        self.finder = Finder::default();
        self.pending_index = PendingIndex::default();
    }

    /// Makes room for so many more pods: where many come together, taking them in moves nothing then.
    pub fn reserve(&mut self, pods: usize) {
        self.tables.tasks.reserve(pods);
        self.tables.groups.table.reserve(pods);
    }

    /// Takes in one change of the cluster. Idempotent; order matters little: what is named before it is seen waits.
    /// False if it changes nothing that a cycle reads (a node's heartbeat, a pod's condition): none is wanted for it.
    pub fn apply(&mut self, delta: &Delta) -> bool {
        self.tables.apply(delta)
    }

    /// Runs the configured actions once. What the plan says already counts in the World.
    pub fn cycle(&mut self, now: TimeMs) -> Plan {
        self.now = now;
        let session = Session {
            tables: &mut self.tables,
            policy: &mut self.policy,
            finder: &mut self.finder,
            pending_index: &mut self.pending_index,
            start_estimates: &mut self.start_estimates,
            config: &self.config,
            now,
            plan: Plan::default(),
            failures: rustc_hash::FxHashMap::default(),
        };
        let plan = session.run();
        debug_assert_eq!(self.lint(&plan), Vec::<String>::new());
        plan
    }

    /// What the API server answered to a bind: it stands, or the pod waits again, with a backoff.
    ///
    /// # Errors
    /// None of its own: `result` carries the bind's.
    pub fn bind_result(&mut self, uid: &PodUid, result: Result<(), &str>, now: TimeMs) {
        self.tables.bind_result(uid, result, now);
    }

    /// What the API server answered to an eviction: one that failed leaves the pod as it was.
    ///
    /// # Errors
    /// None of its own: `result` carries the eviction's.
    pub fn evict_result(&mut self, uid: &PodUid, result: Result<(), &str>, now: TimeMs) {
        self.tables.evict_result(uid, result, now);
    }

    /// A gate could not be removed: the pod waits for its queue again.
    pub fn ungate_failed(&mut self, uid: &PodUid) {
        if let Some(task) = self.tables.tasks.find(uid)
            && self.tables.task(task).gate_passed
        {
            self.tables.pass_gate(task, false);
            if let Some(group) = self.tables.task(task).group {
                self.tables.groups.refresh(group);
            }
        }
    }

    /// Whether a PodGroup's status could be written; one that could not is planned again.
    pub fn status_result(&mut self, namespace: &str, name: &str, written: bool) {
        let Some(group) = self.tables.groups.table.find(&key_of(namespace, name)) else { return };
        let row = self.tables.groups.row_mut(group);
        row.writing = false;
        if !written {
            row.emitted = None;
            row.reported_hyper_node = None;
            self.tables.groups.review_again(group);
        }
    }

    /// A pod's condition could not be written: it is planned again with its group's next review.
    pub fn notice_failed(&mut self, uid: &PodUid) {
        let Some(task) = self.tables.tasks.find(uid) else { return };
        let row = self.tables.tasks.row_mut(task.index());
        row.noticed = None;
        if let Some(group) = row.group {
            self.tables.groups.row_mut(group).noticed = None;
        }
    }

    /// A queue's status could not be written: it is planned again with the next cycle.
    pub fn queue_failed(&mut self, name: &str) {
        if let Some(queue) = self.tables.queues.table.find(name) {
            self.tables.queues.row_mut(queue).emitted = None;
        }
    }

    /// Whether a pod waits and no room is promised to it: a nomination of it is void.
    pub fn waits_unpromised(&self, uid: &PodUid) -> bool {
        let task = self.tables.tasks.find(uid);
        task.is_some_and(|task| self.tables.tasks.row(task.index()).state == tasks::TaskState::Pending)
    }

    /// Why a group waits.
    pub fn reasons(&self, namespace: &str, name: &str) -> Option<Reasons> {
        let group = self.tables.groups.table.find(&key_of(namespace, name))?;
        self.reasons_of(group, Look::Nodes)
    }

    /// The group of that name, and those whose owner has it.
    pub fn named(&self, namespace: &str, name: &str) -> impl Iterator<Item = GroupView<'_>> {
        self.tables.groups.named(namespace, name).into_iter().map(|group| self.view(group))
    }

    fn view(&self, group: GroupId) -> GroupView<'_> {
        let row = self.tables.groups.row(group);
        GroupView {
            id: group,
            world: self,
            namespace: &row.namespace,
            name: row.name(),
            owner: row.owner.as_deref(),
            queue: &self.tables.queues.row(row.queue).name,
            phase: row.phase,
        }
    }

    /// Why a group waits, with all that stands against it now, who holds what it lacks, and what would let it start. What
    /// that needs to be tried is taken back: asking changes no decision. Bounded, however large the cluster is.
    pub fn why(&mut self, namespace: &str, name: &str) -> Option<Why> {
        let group = self.tables.groups.table.find(&key_of(namespace, name))?;
        let reasons = self.reasons_of(group, Look::Nodes).or_else(|| self.started(group))?;
        let mut session = Session {
            tables: &mut self.tables,
            policy: &mut self.policy,
            finder: &mut Finder::default(),
            pending_index: &mut PendingIndex::default(),
            start_estimates: &mut self.start_estimates,
            config: &self.config,
            now: self.now,
            plan: Plan::default(),
            failures: rustc_hash::FxHashMap::default(),
        };
        Some(explain::why(&mut session, &self.pending_index, group, reasons))
    }

    /// What is said of a group that does not wait, but has tasks that do, or of which there are eviction records to tell.
    fn started(&self, group: GroupId) -> Option<Reasons> {
        let row = self.tables.groups.row(group);
        let mut reasons = self.tables.tasks_to_come(group);
        reasons.extend(self.tables.inqueue_demand_reason(group, self.now));
        if !row.exists() || row.ended {
            return None;
        }
        if reasons.is_empty() && self.tables.eviction_records_of(&row.key(), self.now).is_empty() {
            return None;
        }
        let queue = self.tables.queues.row(row.queue).name.to_string();
        let minimum = Minimum { min_member: row.min_member, ready: row.counts.ready(), ..Minimum::default() };
        Some(Reasons { stage: Stage::Started, since: self.now, queue, minimum, reasons, ..Reasons::default() })
    }

    fn read(&self) -> View<'_> {
        View { tables: &self.tables, policy: &self.policy, pending_index: &self.pending_index, now: self.now }
    }

    fn reasons_of(&self, group: GroupId, look: Look) -> Option<Reasons> {
        let mut reasons = cycle_end::reasons_of(self.read(), group)?;
        let foreseeable =
            self.tables.reservations.of(group).is_some() || start_estimate::is_foreseeable(&reasons.reasons);
        let guess = if foreseeable { self.start_estimates.guess(self.read(), group, look) } else { None };
        explain::explain(&self.tables, group, self.now, guess, &mut reasons);
        reasons.reasons.extend(explain::closed(&self.tables, &self.policy, group, self.now));
        reasons.reasons.extend(self.tables.groups.row(group).awaits_nodes.then_some(Reason::AwaitsNodes));
        if reasons.stage != Stage::Enqueue {
            reasons.reasons.extend(self.tables.tasks_to_come(group));
        }
        Some(reasons)
    }

    /// How long the pods that a waiting group lacks are expected to run: the longest of them, where they are of several
    /// kinds. Nothing where nothing is known of one. O(its tasks).
    pub fn expected_run(&self, namespace: &str, name: &str) -> Option<ExpectedRun> {
        let group = self.tables.groups.table.find(&key_of(namespace, name))?;
        let parts = missing(&self.tables, group).parts;
        let runs: Option<Vec<ExpectedRun>> =
            parts.iter().map(|part| self.tables.expected_run(group, part.class)).collect();
        runs?.into_iter().max_by_key(|run| (run.typical_ms, run.most_ms))
    }

    /// What a queue waits for, and who in it. O(groups that wait).
    pub fn queue_why(&self, name: &str) -> Option<QueueWhy> {
        let queue = self.tables.queues.table.find(name).filter(|queue| self.tables.queues.row(*queue).known)?;
        Some(QueueWhy::of(self.read(), queue))
    }

    /// Why a node takes no more, and when it will. O(pods on it).
    pub fn node_why(&self, name: &NodeName) -> Option<NodeWhy> {
        let node = self.tables.nodes.table.find(name).filter(|node| self.tables.nodes.row(*node).known)?;
        Some(NodeWhy::of(self.read(), node))
    }

    /// The nodes of this scheduler's shard as of the last cycle, sorted; none where it has no shard.
    pub fn shard_nodes(&self) -> Option<Vec<&str>> {
        self.tables.shard.usable()
    }

    /// Whether a plugin of the configuration goes by the `deserved` that queues name.
    pub fn reads_deserved(&self) -> bool {
        self.policy.reads_deserved()
    }

    /// What of the HyperNodes did not count in the last cycle, and why.
    pub fn hyper_node_problems(&self) -> &[HyperNodeProblem] {
        self.tables.hyper_nodes.problems()
    }

    /// All groups there are, and those that pods wait for, in no order that means anything. O(groups).
    pub fn groups(&self) -> impl Iterator<Item = GroupView<'_>> {
        let all = self.tables.groups.table.iter().filter(|(_, row)| row.exists() || row.reasons.is_some());
        all.map(|(id, _)| self.view(id))
    }

    /// How each queue stands since the last cycle, by name. O(queues).
    pub fn queues(&self) -> Vec<QueueView> {
        let known = self.tables.queues.table.iter().filter(|(_, row)| row.known);
        let mut all: Vec<QueueView> =
            known.map(|(queue, _)| QueueView::of(&self.tables, &self.policy, queue)).collect();
        all.sort_by(|left, right| left.name.cmp(&right.name));
        all
    }

    /// What all nodes offer together.
    pub fn total(&self) -> Resources {
        self.tables.total()
    }

    /// The values that nodes have of a label. O(nodes).
    pub fn label_values(&self, label: &str) -> std::collections::BTreeSet<String> {
        let nodes = self.tables.nodes.ids().map(|node| self.tables.nodes.row(node));
        nodes.filter_map(|row| row.labels.get(label).cloned()).collect()
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.tables.nodes.known as usize
    }

    /// The nodes that are there, as far as a simulation needs them: names, cordons and what they offer. O(nodes).
    pub fn node_facts(&self) -> Vec<NodeFacts> {
        let nodes = &self.tables.nodes;
        let facts = |node| {
            let row = nodes.row(node);
            let offers = |dim: usize| nodes.allocatable(node, DimId::from(dim));
            let amounts: Vec<i64> = (0..self.tables.dims.len()).map(offers).collect();
            NodeFacts {
                name: (&row.name).into(),
                unschedulable: row.unschedulable,
                allocatable: self.tables.dims.resources(&amounts),
                ..NodeFacts::default()
            }
        };
        nodes.ids().map(facts).collect()
    }

    /// What is wrong with a plan that this world has just made; nothing, if the engine keeps its promises.
    pub fn lint(&self, plan: &Plan) -> Vec<String> {
        plan_lint::violations(&self.tables, &self.policy, plan)
    }

    /// A digest of everything that decisions depend on.
    pub fn digest(&self) -> u64 {
        self.tables.digest()
    }
}

#[cfg(test)]
pub(crate) mod tests;
