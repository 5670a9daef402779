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
    /// Every pod. O(pods).
    pub fn task_ids(&self) -> impl Iterator<Item = TaskId> {
        self.tasks.iter().map(|(id, _)| id)
    }

    /// A node.
    pub fn node(&self, node: NodeId) -> &NodeRow {
        self.nodes.row(node)
    }

    /// Every node there is, in order of ids. O(nodes).
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.ids()
    }

    /// A group.
    pub fn group(&self, group: GroupId) -> &GroupRow {
        self.groups.row(group)
    }

    /// Every group there is. O(groups).
    pub fn group_ids(&self) -> impl Iterator<Item = GroupId> {
        self.groups.table.iter().filter(|(_, row)| row.exists()).map(|(id, _)| id)
    }

    /// A queue.
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

    /// What nothing takes.
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
    /// The pod's uid.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its group; absent for pods of other schedulers.
    pub fn group(&self) -> Option<GroupId> {
        self.group
    }

    /// Where it stands.
    pub fn state(&self) -> TaskState {
        self.state
    }

    /// The node that it is on, or is promised.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// Its priority.
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
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its labels.
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

    /// Cordoned.
    pub fn is_unschedulable(&self) -> bool {
        self.unschedulable
    }
}

impl GroupRow {
    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.key.get(self.namespace.len() + 1..).unwrap_or_default()
    }

    /// Its uid.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Its queue.
    pub fn queue(&self) -> QueueId {
        self.queue
    }

    /// Its phase.
    pub fn phase(&self) -> GroupPhase {
        self.phase
    }

    /// Its priority.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// Where in the network its pods must lie together.
    pub fn topology(&self) -> Option<&TopologySpec> {
        self.topology.as_deref()
    }

    /// Its minimum.
    pub fn min_member(&self) -> u32 {
        self.min_member
    }

    /// When it was made.
    pub fn created(&self) -> TimeMs {
        self.created
    }

    /// Its pods.
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
    /// Its name.
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

    /// It takes work.
    pub fn takes_work(&self) -> bool {
        self.is_open()
    }

    /// Its annotations of Volcano's domain.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.annotations
    }
}
