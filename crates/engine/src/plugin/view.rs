//! What a plugin outside this crate may read of the tables: rows by id, and ids of all there is.
//!
//! Invariant: nothing here changes anything. Amounts come by name, in milli-cores and whole units.

use std::collections::BTreeMap;

use crate::cluster::nodes::NodeRow;
use crate::facts::{GroupPhase, PodTemplate, TopologySpec};
use crate::ids::{DimId, GroupId, HyperId, NodeId, QueueId, TaskId, TimeMs};
use crate::resource_dims::Resources;
use crate::world::groups::GroupRow;
use crate::world::queues::QueueRow;
use crate::world::tables::Tables;
use crate::world::tasks::{TaskRow, TaskState};

impl Tables {
    /// The ids of all pods, those of other schedulers included. O(pods).
    pub fn task_ids(&self) -> impl Iterator<Item = TaskId> {
        self.tasks.iter().map(|(id, _)| id)
    }

    /// The row of a node; `node` must be an id that these tables gave out and did not take back.
    pub fn node(&self, node: NodeId) -> &NodeRow {
        self.nodes.row(node)
    }

    /// Every node there is, in order of ids. O(nodes).
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.ids()
    }

    /// The row of a group; `group` must be an id that these tables gave out and did not take back.
    pub fn group(&self, group: GroupId) -> &GroupRow {
        self.groups.row(group)
    }

    /// Every group there is. O(groups).
    pub fn group_ids(&self) -> impl Iterator<Item = GroupId> {
        self.groups.table.iter().filter(|(_, row)| row.exists()).map(|(id, _)| id)
    }

    /// The row of a queue; `queue` must be an id that these tables gave out and did not take back.
    pub fn queue(&self, queue: QueueId) -> &QueueRow {
        self.queues.row(queue)
    }

    /// Every queue there is. O(queues).
    pub fn queue_ids(&self) -> impl Iterator<Item = QueueId> {
        self.queues.table.iter().filter(|(_, row)| row.known).map(|(id, _)| id)
    }

    /// What a pod asks for, with one of `pods`.
    pub fn requests(&self, task: TaskId) -> Resources {
        self.demanded(self.classes.row(self.task(task).class).demand.iter())
    }

    /// What placing a pod reads of its spec.
    pub fn template(&self, task: TaskId) -> &PodTemplate {
        &self.classes.row(self.task(task).class).template
    }

    /// What a node offers.
    pub fn allocatable(&self, node: NodeId) -> Resources {
        self.by_name(|dim| self.nodes.allocatable(node, dim))
    }

    /// What pods take of it, those that leave included.
    pub fn used(&self, node: NodeId) -> Resources {
        self.by_name(|dim| self.nodes.used(node, dim))
    }

    /// What of the use is on its way out.
    pub fn releasing(&self, node: NodeId) -> Resources {
        self.by_name(|dim| self.nodes.releasing(node, dim))
    }

    /// What a node offers and no pod takes; what pods on their way out still hold is not idle.
    pub fn idle(&self, node: NodeId) -> Resources {
        self.by_name(|dim| self.nodes.idle(node, dim))
    }

    /// What a group's pods have, nominated room included.
    pub fn group_allocated(&self, group: GroupId) -> Resources {
        self.dims.resources(&self.group(group).allocated)
    }

    /// What a group asks for before it has pods, where it says so.
    pub fn min_resources(&self, group: GroupId) -> Option<Resources> {
        self.group(group).min_resources.as_ref().map(|demand| self.demanded(demand.iter()))
    }

    /// What the pods of a queue and of all queues below it have.
    pub fn queue_allocated(&self, queue: QueueId) -> Resources {
        self.dims.resources(&self.queue(queue).tree.allocated)
    }

    /// The HyperNode above all others, which holds every node.
    pub fn hyper_root(&self) -> HyperId {
        self.hyper_nodes.root()
    }

    /// The HyperNodes of the tier of that name, in order of ids. O(HyperNodes).
    pub fn hyper_nodes_of(&self, tier_name: &str) -> Vec<HyperId> {
        self.hyper_nodes.ids().filter(|hyper| *self.hyper_nodes.row(*hyper).tier_name == *tier_name).collect()
    }

    /// Whether a node is in a HyperNode.
    pub fn is_in(&self, node: NodeId, hyper: HyperId) -> bool {
        self.hyper_nodes.row(hyper).nodes.contains(node.index())
    }

    /// The nodes on which pods of a group have room and keep it; one for each pod.
    pub fn nodes_held_by(&self, group: GroupId) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes_of(group, None)
    }

    /// What all nodes offer together.
    pub fn total(&self) -> Resources {
        self.dims.resources(&self.nodes.total)
    }

    fn by_name(&self, amount: impl Fn(DimId) -> i64) -> Resources {
        let all = (0..self.dims.len()).map(|index| amount(DimId::from(index))).collect::<Vec<_>>();
        self.dims.resources(&all)
    }

    fn demanded(&self, parts: impl Iterator<Item = (DimId, i64)>) -> Resources {
        parts.map(|(dim, amount)| (self.dims.name(dim).to_string(), amount)).collect()
    }
}

impl TaskRow {
    /// The pod's uid, which tells it from later pods of the same name.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The namespace of the pod, and of its group.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The pod's name; a later pod of its namespace may have the same.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its group; absent for pods of other schedulers.
    pub fn group(&self) -> Option<GroupId> {
        self.group
    }

    /// How far the pod has come between being placed and being gone.
    pub fn state(&self) -> TaskState {
        self.state
    }

    /// The node that it is on, or is promised.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// The pod's priority: higher goes first.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// When it was made.
    pub fn created(&self) -> TimeMs {
        self.created
    }

    /// It may be a victim.
    pub fn is_preemptable(&self) -> bool {
        self.preemptable
    }

    /// It asks for nothing but room for a pod.
    pub fn is_best_effort(&self) -> bool {
        self.best_effort
    }

    /// An annotation of Volcano's domain.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

impl NodeRow {
    /// The node's name, by which pods are bound to it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The labels of the node, which selectors and affinities of pods are matched with.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// Its annotations of Volcano's domain.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.annotations
    }

    /// The pods on it or promised to it, in no order that means anything.
    pub fn tasks(&self) -> &[TaskId] {
        &self.tasks
    }

    /// True for a cordoned node (`spec.unschedulable`).
    pub fn is_unschedulable(&self) -> bool {
        self.unschedulable
    }
}

impl GroupRow {
    /// The namespace of the PodGroup, and of all its pods.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The PodGroup's name; for a group of one that which a PodGroup of its pod would have.
    pub fn name(&self) -> &str {
        self.key.get(self.namespace.len() + 1..).unwrap_or_default()
    }

    /// The PodGroup's uid; empty while only pods name the group.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The queue that the group is in: the default queue where it names none.
    pub fn queue(&self) -> QueueId {
        self.queue
    }

    /// The phase that the group has in this cycle, which its PodGroup may not show yet.
    pub fn phase(&self) -> GroupPhase {
        self.phase
    }

    /// The group's priority: higher goes first.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// Where in the network its pods must lie together.
    pub fn topology(&self) -> Option<&TopologySpec> {
        self.topology.as_deref()
    }

    /// How many pods must start together now: `minMember` less those that can't be there yet.
    pub fn min_member(&self) -> u32 {
        self.min_member
    }

    /// When it was made.
    pub fn created(&self) -> TimeMs {
        self.created
    }

    /// The group's pods in order of their ids, those that have ended included until they are deleted.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.tasks.iter().copied()
    }

    /// How many of its pods have that state.
    pub fn count(&self, state: TaskState) -> u32 {
        self.counts.get(state)
    }

    /// Its annotations of Volcano's domain.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.annotations
    }
}

impl QueueRow {
    /// The queue's name, unique in the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its weight among its siblings.
    pub fn weight(&self) -> i32 {
        self.weight
    }

    /// Its priority among its siblings.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// True for a queue that is there and open.
    pub fn takes_work(&self) -> bool {
        self.is_open()
    }

    /// Its annotations of Volcano's domain.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.annotations
    }
}
