//! How the plugins' answers combine over the tiers: the one place that knows. Mirrors Volcano's session functions.
//! Called by the actions, the finder and `cycle_end`.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use crate::config::{Config, Fairness, Switch, Switches};
use crate::ids::{DimId, GroupId, HyperId, NamespaceId, NodeId, QueueId, TaskId, TimeMs};
use crate::plan::Prebind;
use crate::plugin::score::POINT;
use crate::plugin::{Alike, HyperSearch, Plugin, Preference, Registry, Vote};
use crate::reasons::Reason;
use crate::resource_dims::Demand;
use crate::world::minimum::Missing;
use crate::world::namespace_shares::{Counted, Decay};
use crate::world::tables::Tables;
use crate::world::tasks::Counting;

mod nodes;
mod victims;

pub(crate) use victims::Allowed;

/// The configured plugins, tier after tier.
#[derive(Debug)]
pub(crate) struct Policy {
    plugins: Vec<Slot>,
    preferences: Vec<Preference>,
    follows: bool,
    /// What one point counts in scores.
    unit: i64,
    /// Binds on their way to a node at which it is passed over; 0 means any number.
    max_in_flight: u32,
    pub(crate) fairness: Fairness,
    decay: Option<Decay>,
    /// Of queues that stand alike the one goes first whose next group asks for most.
    pub(crate) large_first: bool,
    /// Queues may take more than their share for now: what nobody else can use, or what a gang lacks that has begun.
    pub(crate) lending: bool,
}

#[derive(Debug)]
struct Slot {
    tier: usize,
    /// The plugin's epoch when it was asked last.
    epoch: u64,
    /// It is not one of a third party.
    ours: bool,
    switches: Switches,
    plugin: Box<dyn Plugin>,
}

/// A queue whose turn is compared with another's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueTurn {
    pub(crate) queue: QueueId,
    /// How much its next group asks for; 0 where that is not looked at.
    pub(crate) size: i64,
}

/// A namespace of a queue, and the first of its groups that wait there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamespaceHead {
    pub(crate) namespace: NamespaceId,
    pub(crate) group: GroupId,
}

impl Policy {
    /// Plugins that the registry does not know, or whose arguments it refuses, are left out: `Config::parse` told.
    pub(crate) fn new(config: &Config, registry: &Registry) -> Self {
        let mut plugins = Vec::new();
        for (tier, configs) in config.tiers.iter().enumerate() {
            for config in configs {
                if let Ok(Some(plugin)) = registry.build(config) {
                    let ours = registry.is_ours(&config.name);
                    plugins.push(Slot { tier, epoch: 0, ours, switches: config.switches, plugin });
                }
            }
        }
        let scoring = plugins.iter().filter(|slot| slot.switches.has(Switch::NodeOrder));
        let fine = scoring.clone().any(|slot| slot.plugin.in_thousandths());
        let preferences = scoring.flat_map(|slot| slot.plugin.preferences()).collect();
        let follows = plugins.iter().any(|slot| slot.plugin.follows_moves());
        let fairness = config.fairness();
        Self {
            plugins,
            preferences,
            follows,
            unit: if fine { POINT } else { 1 },
            max_in_flight: config.max_binding_per_node(),
            fairness,
            decay: if fairness.namespaces { fairness.half_life_ms.map(Decay::new) } else { None },
            large_first: config.large_first,
            lending: false,
        }
    }

    fn with(&self, switch: Switch) -> impl Iterator<Item = &dyn Plugin> {
        self.plugins.iter().filter(move |slot| slot.switches.has(switch)).map(|slot| &*slot.plugin)
    }

    fn all(&self) -> impl Iterator<Item = &dyn Plugin> {
        self.plugins.iter().map(|slot| &*slot.plugin)
    }

    /// What the plugins remember from cycle to cycle.
    pub(crate) fn memory(&self) -> Vec<Vec<u8>> {
        self.plugins.iter().map(|slot| slot.plugin.memory()).collect()
    }

    /// The plugins are to remember this.
    pub(crate) fn remember(&mut self, memory: &[Vec<u8>]) {
        for (slot, memory) in self.plugins.iter_mut().zip(memory) {
            slot.plugin.remember(memory);
            slot.epoch = slot.plugin.epoch();
        }
    }

    /// Called when a cycle starts, before its first action: settles shares, and lets plugins work out what they go by.
    pub(crate) fn open(&mut self, tables: &mut Tables, now: TimeMs) {
        tables.follow_moves = self.follows;
        tables.moves.clear();
        if self.fairness.namespaces {
            tables.settle_namespace_shares(self.decay.as_ref(), now);
        }
        for slot in &mut self.plugins {
            slot.plugin.open(tables, now);
            let epoch = slot.plugin.epoch();
            if std::mem::replace(&mut slot.epoch, epoch) != epoch {
                tables.nodes.doubt_facts();
            }
        }
    }

    /// A cycle ends: what is held from now on counts from now on.
    pub(crate) fn close(&self, tables: &mut Tables, now: TimeMs) {
        if self.fairness.namespaces {
            tables.settle_namespace_shares(self.decay.as_ref(), now);
        }
    }

    /// Tells those who follow what has moved since they were told last.
    pub(crate) fn settle(&mut self, tables: &mut Tables) {
        if tables.moves.is_empty() {
            return;
        }
        let moves = std::mem::take(&mut tables.moves);
        for slot in self.plugins.iter_mut().filter(|slot| slot.plugin.follows_moves()) {
            for change in &moves {
                slot.plugin.moved(tables, *change);
            }
        }
        // For its memory.
        tables.moves = moves;
        tables.moves.clear();
    }

    /// The first plugin with an opinion decides; then creation time, then uid.
    pub(crate) fn job_order(&self, tables: &Tables, left: GroupId, right: GroupId) -> Ordering {
        let decided = self.with(Switch::JobOrder).map(|plugin| plugin.job_order(tables, left, right));
        first_decided(decided).then_with(|| {
            let (left, right) = (tables.groups.row(left), tables.groups.row(right));
            (left.created, &left.uid, &left.namespace, left.name()).cmp(&(
                right.created,
                &right.uid,
                &right.namespace,
                right.name(),
            ))
        })
    }

    /// The first plugin with an opinion decides, and nothing else: of two victims the later group goes.
    pub(crate) fn job_order_alone(&self, tables: &Tables, left: GroupId, right: GroupId) -> Ordering {
        first_decided(self.with(Switch::JobOrder).map(|plugin| plugin.job_order(tables, left, right)))
    }

    /// Of two queues with the same parent. The first plugin with an opinion decides; then creation time, then uid.
    pub(crate) fn queue_order(&self, tables: &Tables, left: QueueId, right: QueueId) -> Ordering {
        self.turn_order(tables, QueueTurn { queue: left, size: 0 }, QueueTurn { queue: right, size: 0 })
    }

    /// The same where it is known how much the next group of each asks for: the larger goes first where no plugin has an
    /// opinion.
    pub(crate) fn turn_order(&self, tables: &Tables, left: QueueTurn, right: QueueTurn) -> Ordering {
        let decided = self.with(Switch::QueueOrder).map(|plugin| plugin.queue_order(tables, left.queue, right.queue));
        first_decided(decided).then(right.size.cmp(&left.size)).then_with(|| {
            let (left, right) = (tables.queues.row(left.queue), tables.queues.row(right.queue));
            (left.created, &left.uid, &left.name).cmp(&(right.created, &right.uid, &right.name))
        })
    }

    /// Whether a placement in one queue may change the order of others, too.
    pub(crate) fn reorders_queues(&self) -> bool {
        self.with(Switch::QueueOrder).any(|plugin| plugin.reorders_queues())
    }

    /// Whether queues have their turn along the tree of their parents.
    pub(crate) fn follows_queue_tree(&self) -> bool {
        self.with(Switch::QueueOrder).any(|plugin| plugin.follows_queue_tree())
    }

    /// The first plugin with an opinion decides; no switch turns this off.
    pub(crate) fn victim_queue_order(
        &self,
        tables: &Tables,
        left: QueueId,
        right: QueueId,
        preemptor: QueueId,
    ) -> Ordering {
        first_decided(self.all().map(|plugin| plugin.victim_queue_order(tables, left, right, preemptor)))
    }

    /// The first plugin with an opinion decides; then the pods' index (those with one first), creation time, uid.
    pub(crate) fn task_order(&self, tables: &Tables, left: TaskId, right: TaskId) -> Ordering {
        let decided = self.with(Switch::TaskOrder).map(|plugin| plugin.task_order(tables, left, right));
        first_decided(decided).then_with(|| {
            let (left, right) = (tables.task(left), tables.task(right));
            // Volcano skips the index where one of two has none, which is no order: a sort by it may panic.
            (left.index.is_none(), left.index, left.created, &left.uid).cmp(&(
                right.index.is_none(),
                right.index,
                right.created,
                &right.uid,
            ))
        })
    }

    /// All must agree, over all tiers.
    pub(crate) fn job_ready(&self, tables: &Tables, group: GroupId, counting: Counting) -> bool {
        self.with(Switch::JobReady).all(|plugin| plugin.job_ready(tables, group, counting))
    }

    /// A vote; without one, yes.
    pub(crate) fn job_pipelined(&self, tables: &Tables, group: GroupId) -> bool {
        self.vote(Switch::JobPipelined, |plugin| plugin.job_pipelined(tables, group))
    }

    /// Of two parts of a group. The first plugin with an opinion decides; then the number that their label is, then name.
    pub(crate) fn sub_job_order(&self, tables: &Tables, group: GroupId, left: u32, right: u32) -> Ordering {
        let decided = self.with(Switch::SubJobOrder).map(|plugin| plugin.sub_job_order(tables, group, left, right));
        first_decided(decided).then_with(|| {
            let parts = &tables.groups.row(group).sub_jobs;
            let (left, right) = (parts.row(left), parts.row(right));
            (left.index.is_none(), left.index, &left.name).cmp(&(right.index.is_none(), right.index, &right.name))
        })
    }

    /// All must agree, over all tiers. A group without parts is asked as a whole.
    pub(crate) fn sub_job_ready(&self, tables: &Tables, group: GroupId, sub_job: u32, counting: Counting) -> bool {
        if tables.groups.row(group).sub_jobs.is_empty() {
            return self.job_ready(tables, group, counting);
        }
        self.with(Switch::SubJobReady).all(|plugin| plugin.sub_job_ready(tables, group, sub_job, counting))
    }

    /// A vote; without one, yes. A group without parts is asked as a whole.
    pub(crate) fn sub_job_pipelined(&self, tables: &Tables, group: GroupId, sub_job: u32) -> bool {
        if tables.groups.row(group).sub_jobs.is_empty() {
            return self.job_pipelined(tables, group);
        }
        self.vote(Switch::SubJobPipelined, |plugin| plugin.sub_job_pipelined(tables, group, sub_job))
    }

    /// The HyperNodes to try. The first plugin with a say decides alone; without one, the whole of where it may be.
    pub(crate) fn hyper_gradients(&self, tables: &Tables, search: &HyperSearch<'_>) -> Vec<Vec<HyperId>> {
        let mut answers =
            self.with(Switch::HyperNodeGradient).filter_map(|plugin| plugin.hyper_gradients(tables, search));
        answers.next().unwrap_or_else(|| vec![vec![search.within]])
    }

    /// HyperNodes from the best score down, all plugins' added; equal ones by id.
    pub(crate) fn rank_hyper_nodes(
        &self,
        tables: &Tables,
        search: &HyperSearch<'_>,
        hypers: &[HyperId],
    ) -> Vec<(HyperId, i64)> {
        let mut scores = vec![0; hypers.len()];
        for plugin in self.with(Switch::HyperNodeOrder) {
            plugin.score_hyper_nodes(tables, search, hypers, &mut scores);
        }
        let mut ranked: Vec<(HyperId, i64)> = hypers.iter().copied().zip(scores).collect();
        ranked.sort_by_key(|(hyper, score)| (std::cmp::Reverse(*score), *hyper));
        ranked
    }

    /// In the first tier where anyone has a say all must agree; where nobody has, no.
    pub(crate) fn job_starving(&self, tables: &Tables, group: GroupId) -> bool {
        let mut answer: Option<(usize, bool)> = None;
        for slot in self.plugins.iter().filter(|slot| slot.switches.has(Switch::JobStarving)) {
            if answer.is_some_and(|(tier, _)| tier != slot.tier) {
                break;
            }
            if let Some(starving) = slot.plugin.job_starving(tables, group) {
                answer = Some((slot.tier, starving && answer.is_none_or(|(_, before)| before)));
            }
        }
        answer.is_some_and(|(_, starving)| starving)
    }

    /// A vote; a rejection comes with its reason.
    ///
    /// # Errors
    /// The reason of the plugin that rejects.
    pub(crate) fn job_enqueueable(&self, tables: &Tables, group: GroupId, missing: &Missing) -> Result<(), Reason> {
        let mut refused = None;
        let admitted = self.vote(Switch::JobEnqueued, |plugin| match plugin.job_enqueueable(tables, group, missing) {
            Ok(vote) => vote,
            Err(reason) => {
                refused = Some(reason);
                Vote::Reject
            }
        });
        match refused {
            Some(reason) if !admitted => Err(reason),
            _ => Ok(()),
        }
    }

    /// What each plugin that is asked has against the group's admission.
    pub(crate) fn enqueue_objections(&self, tables: &Tables, group: GroupId, missing: &Missing) -> Vec<Reason> {
        let asked = self.with(Switch::JobEnqueued);
        asked.filter_map(|plugin| plugin.job_enqueueable(tables, group, missing).err()).collect()
    }

    /// Tells all that the group has been admitted.
    pub(crate) fn job_enqueued(&mut self, tables: &Tables, group: GroupId, missing: &Missing) {
        for slot in self.plugins.iter_mut().filter(|slot| slot.switches.has(Switch::JobEnqueued)) {
            slot.plugin.job_enqueued(tables, group, missing);
        }
    }

    /// A rejection decides at once; a tier with a permit ends the vote; all abstaining is yes.
    fn vote<'a>(&'a self, switch: Switch, mut ask: impl FnMut(&'a dyn Plugin) -> Vote) -> bool {
        let mut permitted_in: Option<usize> = None;
        for slot in self.plugins.iter().filter(|slot| slot.switches.has(switch)) {
            if permitted_in.is_some_and(|tier| tier != slot.tier) {
                return true;
            }
            match ask(&*slot.plugin) {
                Vote::Reject => return false,
                Vote::Permit => permitted_in = Some(slot.tier),
                Vote::Abstain => {}
            }
        }
        true
    }

    /// The first objection counts. No switch turns this off.
    pub(crate) fn job_valid(&self, tables: &Tables, group: GroupId) -> Option<Reason> {
        self.all().find_map(|plugin| plugin.job_valid(tables, group))
    }

    /// Why the queue gets nothing more for now: the first reason that a plugin gives, as one is enough.
    pub(crate) fn overused(&self, tables: &Tables, queue: QueueId) -> Option<Reason> {
        self.with(Switch::Overused)
            .filter_map(|plugin| plugin.overused(tables, queue))
            .find(|reason| self.binds(reason))
    }

    /// The first objection counts: to how much a pod asks for, then to what it claims by name.
    pub(crate) fn allocatable(&self, tables: &Tables, queue: QueueId, task: TaskId) -> Option<Reason> {
        let demand = &tables.classes.row(tables.task(task).class).demand;
        let mut objections =
            self.with(Switch::Allocatable).filter_map(|plugin| plugin.allocatable(tables, queue, demand));
        objections.find(|reason| self.binds(reason)).or_else(|| self.allocatable_task(tables, queue, task))
    }

    /// What each plugin has against so much more in the queue.
    pub(crate) fn objections(&self, tables: &Tables, queue: QueueId, demand: &Demand) -> Vec<Reason> {
        let all = self.with(Switch::Allocatable).filter_map(|plugin| plugin.allocatable(tables, queue, demand));
        all.filter(|reason| self.binds(reason)).collect()
    }

    /// The first objection to what a pod claims by name counts.
    pub(crate) fn allocatable_task(&self, tables: &Tables, queue: QueueId, task: TaskId) -> Option<Reason> {
        self.with(Switch::Allocatable).find_map(|plugin| plugin.allocatable_task(tables, queue, task))
    }

    /// A share is no limit while queues lend.
    fn binds(&self, objection: &Reason) -> bool {
        !self.lending || !objection.is_of_share()
    }

    /// What a queue deserves by the first plugin that divides the cluster.
    pub(crate) fn deserved(&self, tables: &Tables, queue: QueueId) -> Option<Vec<i64>> {
        self.plugins.iter().find_map(|slot| slot.plugin.deserved(tables, queue))
    }

    /// Whether a plugin goes by the `deserved` that queues name.
    pub(crate) fn reads_deserved(&self) -> bool {
        self.plugins.iter().any(|slot| slot.plugin.reads_deserved())
    }

    /// What a queue may hold at most, by the first plugin that says so.
    pub(crate) fn real_capability(&self, tables: &Tables, queue: QueueId) -> Option<Vec<(DimId, i64)>> {
        self.plugins.iter().find_map(|slot| slot.plugin.real_capability(tables, queue))
    }

    /// Whether the queue may take room from others for such a demand: every plugin that decides it has to agree.
    pub(crate) fn preemptive(&self, tables: &Tables, queue: QueueId, demand: &Demand) -> bool {
        self.with(Switch::Preemptive).all(|plugin| plugin.preemptive(tables, queue, demand))
    }

    /// All that must be written before the pod is bound.
    pub(crate) fn prebind(&self, tables: &Tables, task: TaskId, node: NodeId) -> Vec<Prebind> {
        self.with(Switch::Predicate).flat_map(|plugin| plugin.prebind(tables, task, node)).collect()
    }

    /// All that plugins tell the pod with its bind; the first of a key counts.
    pub(crate) fn bind_annotations(&self, tables: &Tables, task: TaskId, node: NodeId) -> BTreeMap<String, String> {
        let mut annotations = BTreeMap::new();
        for (key, value) in self.all().flat_map(|plugin| plugin.bind_annotations(tables, task, node)) {
            annotations.entry(key).or_insert(value);
        }
        annotations
    }

    /// Whether the namespaces of the queue share it among themselves. In strict order they don't.
    pub(crate) fn shares_among_namespaces(&self, tables: &Tables, queue: QueueId) -> bool {
        self.fairness.namespaces && !self.is_strict(tables, queue)
    }

    /// Whether nothing of the queue is placed behind the first that does not fit.
    pub(crate) fn is_strict(&self, tables: &Tables, queue: QueueId) -> bool {
        self.fairness.is_strict(&tables.queues.row(queue).annotations)
    }

    /// Which of two namespaces of a queue goes first: the one whose first group outranks the other's, then the one that
    /// holds less, then the one whose first group goes first.
    pub(crate) fn namespace_order(
        &self,
        tables: &Tables,
        queue: QueueId,
        left: NamespaceHead,
        right: NamespaceHead,
        counted: Counted,
    ) -> Ordering {
        first_decided(self.with(Switch::JobOrder).map(|plugin| plugin.job_rank(tables, left.group, right.group)))
            .then_with(|| tables.compare_namespaces(queue, left.namespace, right.namespace, counted))
            .then_with(|| self.job_order(tables, left.group, right.group))
    }

    /// Which groups are admitted, or refused, alike, so that one of them answers for all: what tells the group apart from others that ask for the same in the same place; nothing if it is like no other.
    pub(crate) fn admits_alike(&self, tables: &Tables, group: GroupId) -> Option<u64> {
        let mut hasher = FxHasher::default();
        for slot in &self.plugins {
            match slot.plugin.admits_alike(tables, group) {
                Alike::Key(key) => key.hash(&mut hasher),
                Alike::Unsaid if slot.ours => {}
                Alike::Unsaid | Alike::Alone => return None,
            }
        }
        Some(hasher.finish())
    }

    /// Whether the order of groups begins with what goes before the order of namespaces, so that whose turn it is does
    /// not depend on who else has one.
    pub(crate) fn ranks_representative(&self) -> bool {
        let ranking = self.with(Switch::JobOrder).enumerate().filter(|(_, plugin)| plugin.ranks());
        !self.fairness.namespaces || ranking.last().is_none_or(|(place, _)| place == 0)
    }

    /// Whether a queue may be owed more where it was not owed less.
    pub(crate) fn preemptive_in_part(&self) -> bool {
        self.with(Switch::Preemptive).any(|plugin| plugin.preemptive_in_part())
    }
}

fn first_decided(mut answers: impl Iterator<Item = Ordering>) -> Ordering {
    answers.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests;
