//! `Tables`: all of the world's state, and the few mutations that a cycle may make.
//!
//! Invariant: a node's and a queue's use, and a group's counts, are the sums over the tasks' states at every moment.
//! Called by the actions (inside a cycle) and by the deltas (between cycles).

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use crate::cluster::classes::Classes;
use crate::cluster::devices::Devices;
use crate::cluster::hypernodes::HyperNodes;
use crate::cluster::images::Images;
use crate::cluster::inter_pod::{InterPod, Placed, Rules};
use crate::cluster::nodes::Nodes;
use crate::cluster::objects::Objects;
use crate::cluster::shard::Shard;
use crate::cluster::storage::Storage;
use crate::cluster::table::Table;
use crate::config::Sharding;
use crate::facts::{GroupPhase, PodTemplate, Shared};
use crate::ids::{ClassId, GroupId, NamespaceId, NodeId, QueueId, TaskId, TimeMs};
use crate::resource_dims::Dims;
use crate::run_times::RunTimes;
use crate::world::eviction_records::EvictionRecords;
use crate::world::groups::{Groups, ShapePart};
use crate::world::inqueue_demand::InqueueDemand;
use crate::world::journal::{Journal, Undo};
use crate::world::maintenance_windows::MaintenanceWindows;
use crate::world::namespace_shares::NamespaceShares;
use crate::world::queues::Queues;
use crate::world::reservations::Reservations;
use crate::world::tasks::{TaskRow, TaskState};

/// What an owner will make pods from.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Shared by owners of equal tasks.
    pub(crate) parts: Arc<Vec<ShapePart>>,
    pub(crate) ended: bool,
}

/// Priority classes by name.
#[derive(Debug, Default)]
pub(crate) struct Priorities {
    pub(crate) values: FxHashMap<String, (i32, bool)>,
}

impl Priorities {
    /// The value of the named class, else of the global default, else 0.
    pub(crate) fn resolve(&self, name: &str) -> i32 {
        if let Some((value, _)) = self.values.get(name) {
            return *value;
        }
        self.values.values().filter(|(_, global)| *global).map(|(value, _)| *value).max().unwrap_or(0)
    }
}

/// All that is known of the cluster. Plugins read it; see the methods that are public.
#[derive(Debug)]
pub struct Tables {
    pub(crate) dims: Dims,
    pub(crate) nodes: Nodes,
    pub(crate) classes: Classes,
    pub(crate) inter_pod: InterPod,
    pub(crate) storage: Storage,
    pub(crate) devices: Devices,
    pub(crate) images: Images,
    pub(crate) tasks: Table<TaskId, TaskRow>,
    pub(crate) groups: Groups,
    pub(crate) queues: Queues,
    /// Names of the namespaces that tasks are in.
    pub(crate) namespaces: Table<NamespaceId, Arc<str>>,
    /// Counts changes that may put any group elsewhere in the order.
    pub(crate) orders_version: u64,
    pub(crate) objects: Objects,
    pub(crate) run_times: RunTimes,
    pub(crate) inqueue_demand: InqueueDemand,
    pub(crate) reservations: Reservations,
    pub(crate) eviction_records: EvictionRecords,
    pub(crate) namespace_shares: NamespaceShares,
    /// As of the start of the cycle.
    pub(crate) hyper_nodes: HyperNodes,
    /// As of the start of the cycle.
    pub(crate) shard: Shard,
    /// As of the start of the cycle.
    pub(crate) maintenance_windows: MaintenanceWindows,
    pub(crate) priorities: Priorities,
    /// By the owner's uid.
    pub(crate) shapes: FxHashMap<Arc<str>, Shape>,
    /// Groups by their owner's uid.
    pub(crate) owned: FxHashMap<Arc<str>, SmallVec<[GroupId; 2]>>,
    /// Where groups without a queue go.
    pub(crate) default_queue: Arc<str>,
    /// A namespace has another queue than before: groups that follow it are to be moved.
    pub(crate) queues_to_inherit: bool,
    /// Pods with a promise of room.
    pub(crate) nominated: BTreeSet<TaskId>,
    /// Pods that we are evicting.
    pub(crate) evicting: BTreeSet<TaskId>,
    pub(crate) journal: Journal,
    /// Whether moves are recorded for the plugins.
    pub(crate) follow_moves: bool,
    /// Moves that the plugins have not been told of.
    pub(crate) moves: Vec<Move>,
}

/// A task that changed its state or node inside a cycle, with what was before.
#[derive(Debug, Clone, Copy)]
pub struct Move {
    pub task: TaskId,
    pub(crate) state: TaskState,
    /// The node that it was on.
    pub node: Option<NodeId>,
}

impl Tables {
    pub(crate) fn new(default_queue: &str) -> Self {
        Self {
            dims: Dims::new(),
            nodes: Nodes::new(),
            classes: Classes::default(),
            inter_pod: InterPod::default(),
            storage: Storage::default(),
            devices: Devices::default(),
            images: Images::default(),
            tasks: Table::new(),
            groups: Groups::new(),
            queues: Queues::new(),
            namespaces: Table::new(),
            orders_version: 0,
            objects: Objects::default(),
            run_times: RunTimes::default(),
            inqueue_demand: InqueueDemand::default(),
            reservations: Reservations::default(),
            eviction_records: EvictionRecords::default(),
            namespace_shares: NamespaceShares::default(),
            hyper_nodes: HyperNodes::new(),
            shard: Shard::default(),
            maintenance_windows: MaintenanceWindows::default(),
            priorities: Priorities::default(),
            shapes: FxHashMap::default(),
            owned: FxHashMap::default(),
            default_queue: default_queue.into(),
            queues_to_inherit: false,
            nominated: BTreeSet::new(),
            evicting: BTreeSet::new(),
            journal: Journal::default(),
            follow_moves: false,
            moves: Vec::new(),
        }
    }

    /// Brings the shard, the HyperNodes and the windows up to date: a cycle starts.
    pub(crate) fn refresh_network(&mut self, sharding: Option<&Sharding>, now: TimeMs) {
        self.shard.refresh(sharding, &self.objects.shards, &mut self.nodes);
        self.hyper_nodes.refresh(&self.objects.hyper_nodes, &self.nodes);
        self.maintenance_windows.refresh(&self.objects.windows, &self.nodes, now);
    }

    /// The row of a pod; `task` must be an id that these tables gave out and did not take back.
    pub fn task(&self, task: TaskId) -> &TaskRow {
        self.tasks.row(task.index())
    }

    /// Whether where it may go depends on other pods or what it claims: pods of its class may be told other things.
    pub(crate) fn is_tied(&self, task: TaskId) -> bool {
        let row = self.task(task);
        row.claims.is_some() || self.inter_pod.restricts(row.profile, row.class, Rules { affinity: true, spread: true })
    }

    /// How large a pod is: parts per million of what the cluster offers, in its largest dimension.
    pub(crate) fn size(&self, class: ClassId) -> i64 {
        let demand = self.classes.row(class).demand.iter();
        let share = demand.map(|(dim, amount)| amount.saturating_mul(1_000_000) / self.nodes.total[dim.index()].max(1));
        share.max().unwrap_or(0)
    }

    /// Gives a pending task room on `node`.
    pub(crate) fn assign(&mut self, task: TaskId, node: NodeId) {
        assert_eq!(self.task(task).state, TaskState::Pending, "only a pending task is given room");
        self.move_task(task, TaskState::Allocated, Some(node));
    }

    /// Promises a pending task room on `node` that is not free yet.
    pub(crate) fn pipeline(&mut self, task: TaskId, node: NodeId) {
        assert_eq!(self.task(task).state, TaskState::Pending, "only a pending task is promised room");
        self.move_task(task, TaskState::Pipelined, Some(node));
    }

    /// Counts a task that holds a node as on its way out.
    pub(crate) fn evict(&mut self, task: TaskId) {
        let node = self.task(task).node;
        self.move_task(task, TaskState::Releasing, node);
    }

    /// Moves a task to another state and node, and with it everything that counts it. O(dimensions asked for).
    pub(crate) fn move_task(&mut self, task: TaskId, state: TaskState, node: Option<NodeId>) {
        let row = self.task(task);
        let (old_state, old_node) = (row.state, row.node);
        if (old_state, old_node) == (state, node) {
            return;
        }
        self.journal.note(Undo::Task { task, state: old_state, node: old_node });
        if self.follow_moves {
            self.moves.push(Move { task, state: old_state, node: old_node });
        }
        // On the way from Allocated to Running nothing changes but the counts of states.
        let stays = old_node == node && old_state.is_allocated() && state.is_allocated();
        let count = if stays { Self::count_state } else { Self::count_task };
        count(self, task, -1);
        let row = self.tasks.row_mut(task.index());
        row.state = state;
        row.node = node;
        count(self, task, 1);
        if let Some(group) = self.task(task).group {
            self.groups.refresh(group);
        }
    }

    /// Adds or takes away all that a task counts for, as its row stands.
    pub(crate) fn count_task(&mut self, task: TaskId, sign: i32) {
        let row = self.tasks.row(task.index());
        let in_queue = row.state_in_queue();
        let (state, node, class, group) = (row.state, row.node, row.class, row.group);
        let holds = state.holds_node() && node.is_some();
        let profile = row.profile;
        if let Some(node) = node {
            self.nodes.list_task(node, task, sign);
            self.inter_pod.count(profile, class, node, state.presence().times(sign));
            if state.presence().future + state.presence().present > 0 {
                self.count_claims(task, node, sign);
            }
            if holds {
                self.charge_node(class, node, i64::from(sign));
            }
            self.nodes.widen(self.dims.len());
            let demand = &self.classes.row(class).demand;
            match state {
                TaskState::Releasing => self.nodes.charge_releasing(node, demand, i64::from(sign)),
                TaskState::Pipelined => self.nodes.charge_pipelined(node, demand, i64::from(sign)),
                _ => {}
            }
        }
        if state == TaskState::Pipelined {
            if sign > 0 {
                self.nominated.insert(task)
            } else {
                self.nominated.remove(&task)
            };
        }
        let Some(group) = group else { return };
        self.count_state(task, sign);
        let row = self.groups.row_mut(group);
        let demand = &self.classes.row(class).demand;
        if state.is_allocated() || state == TaskState::Pipelined {
            demand.add_to(&mut row.allocated, i64::from(sign));
            self.namespace_shares.charge(row.queue, row.namespace_id, demand, i64::from(sign));
        }
        self.queues.charge(row.queue, in_queue, demand, i64::from(sign));
        let queue = row.queue;
        self.charge_devices(task, queue, sign);
    }

    /// Counts the devices that a task claims against a queue, if it has a place or is promised one.
    pub(crate) fn charge_devices(&mut self, task: TaskId, queue: QueueId, sign: i32) {
        let row = self.tasks.row(task.index());
        let state = row.state_in_queue();
        let Some(claims) = row.claims.as_deref() else { return };
        if state.is_allocated() || state == TaskState::Pipelined {
            self.devices.charge(queue, &row.namespace, &claims.devices, sign);
        }
    }

    /// Adds or takes away a task in the counts of its group.
    fn count_state(&mut self, task: TaskId, sign: i32) {
        let row = self.tasks.row(task.index());
        let (state, best_effort, role, sub_job) = (row.state, row.best_effort, row.role, row.sub_job);
        let (group, node) = (row.group, row.node);
        if let (TaskState::Binding, Some(node)) = (state, node) {
            self.count_in_flight(task, node, sign);
        }
        let Some(group) = group else { return };
        let row = self.groups.row_mut(group);
        row.counts.add(state, sign);
        row.sub_jobs.count(sub_job, state, best_effort, sign);
        let pending_best_effort = state == TaskState::Pending && best_effort;
        let add = |cell: &mut u32| *cell = cell.checked_add_signed(sign).expect("counts follow the tasks' states");
        let role = &mut row.roles[role as usize];
        role.counts.add(state, sign);
        if pending_best_effort {
            add(&mut role.pending_best_effort);
            add(&mut row.pending_best_effort);
        }
        if state == TaskState::Releasing && node.is_some() {
            add(&mut row.releasing_placed);
        }
        if row.planned > 0 {
            row.settle_minimum();
        }
    }

    /// Counts what a task with a place has claimed by name.
    fn count_claims(&mut self, task: TaskId, node: NodeId, sign: i32) {
        let row = self.tasks.row(task.index());
        let Some(claims) = row.claims.as_deref() else { return };
        let node = self.nodes.row(node);
        self.storage.count(&row.namespace, &claims.volumes, node, sign);
        self.devices.count(&row.namespace, &claims.devices, node, sign);
    }

    /// The class of `template`, with one more reference.
    pub(crate) fn acquire_class(&mut self, template: &Shared<PodTemplate>) -> ClassId {
        let (class, new) = self.classes.acquire(template, &mut self.dims);
        if new {
            self.inter_pod.add_class(class, template, &self.nodes);
            self.images.count_users(&template.images, 1);
        }
        class
    }

    /// One reference less to a class.
    pub(crate) fn release_class(&mut self, class: ClassId) {
        let template = self.classes.row(class).template.clone();
        if self.classes.release(class) {
            self.images.count_users(&template.images, -1);
            self.inter_pod.remove_class(class);
        }
    }

    /// Makes what is counted by pods' labels whole again, after a new kind of label came to matter.
    pub(crate) fn refresh_inter_pod(&mut self) {
        if !self.inter_pod.is_stale() {
            return;
        }
        let tasks = self.tasks.iter_mut().map(|row| Placed {
            namespace: &row.namespace,
            labels: &row.labels,
            profile: &mut row.profile,
            presence: row.node.map(|node| (node, row.state.presence())),
        });
        self.inter_pod.refresh(tasks, &self.nodes);
    }

    /// Members of a gang don't count: they come together or not at all.
    fn count_in_flight(&mut self, task: TaskId, node: NodeId, sign: i32) {
        let row = self.tasks.row_mut(task.index());
        let counts = match row.group {
            Some(group) if sign > 0 => self.groups.row(group).min_member <= 1,
            _ => row.in_flight,
        };
        row.in_flight = counts && sign > 0;
        if counts {
            self.nodes.count_in_flight(node, sign);
        }
    }

    pub(crate) fn charge_node(&mut self, class: ClassId, node: NodeId, sign: i64) {
        let row = self.classes.row(class);
        self.nodes.widen(self.dims.len());
        self.nodes.charge(node, &row.demand, row.scored, &row.template.host_ports, sign);
    }

    /// The queue of a pending task takes it, or it does not after all. Not taken back by a rollback: it is decided.
    pub(crate) fn pass_gate(&mut self, task: TaskId, passed: bool) {
        self.count_task(task, -1);
        self.tasks.row_mut(task.index()).gate_passed = passed;
        self.count_task(task, 1);
    }

    /// Holds room for a pod that does not exist yet; a rollback gives it back.
    pub(crate) fn hold(&mut self, class: ClassId, node: NodeId) {
        assert!(self.journal.is_open(), "room is held inside a cycle only");
        self.journal.note(Undo::Hold { class, node });
        self.charge_node(class, node, 1);
    }

    pub(crate) fn set_phase(&mut self, group: GroupId, phase: GroupPhase) {
        let old = self.groups.row(group).phase;
        if old == phase {
            return;
        }
        self.journal.note(Undo::Phase { group, phase: old });
        self.groups.row_mut(group).phase = phase;
        self.groups.refresh(group);
    }

    /// A digest of all state that deciding reads; caches, logs and reasons are not part of it.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = FxHasher::default();
        for (id, node) in self.nodes.table.iter() {
            (id, &node.name, node.known, node.tasks.len(), node.unschedulable).hash(&mut hasher);
            node.ports.hash(&mut hasher);
            for dim in (0..self.dims.len()).map(crate::ids::DimId::from) {
                (self.nodes.allocatable(id, dim), self.nodes.used(id, dim)).hash(&mut hasher);
                self.nodes.future_idle(id, dim).hash(&mut hasher);
            }
            (self.nodes.scored(id, 0), self.nodes.scored(id, 1)).hash(&mut hasher);
        }
        for (id, task) in self.tasks.iter() {
            (id, &task.uid, task.group, task.state, task.node, task.class).hash(&mut hasher);
        }
        for (id, group) in self.groups.table.iter() {
            (id, group.phase, group.counts, group.pending_best_effort, group.releasing_placed).hash(&mut hasher);
            group.sum_until.hash(&mut hasher);
            self.dims.resources(&group.allocated).hash(&mut hasher);
            for part in group.sub_jobs.rows() {
                (&part.name, part.counts, part.pending_best_effort).hash(&mut hasher);
            }
            for role in &group.roles {
                (&role.name, role.min, role.counts, role.pending_best_effort).hash(&mut hasher);
            }
        }
        for (id, queue) in self.queues.table.iter() {
            for sum in [&queue.own.allocated, &queue.own.releasing, &queue.own.pending, &queue.tree.allocated] {
                (id, &queue.name, self.dims.resources(sum)).hash(&mut hasher);
            }
        }
        self.groups.waiting.hash(&mut hasher);
        self.namespace_shares.memory().hash(&mut hasher);
        hasher.finish()
    }
}

crate::save::saved! {
    Shape { parts, ended };
    Priorities { values };
    Tables { dims, nodes, classes, inter_pod as "couplings", storage, devices, images, tasks, groups, queues, namespaces, orders_version, objects, run_times as "runs", inqueue_demand as "promises", reservations, eviction_records as "receipts", namespace_shares as "tenants", shard, maintenance_windows as "windows", priorities, shapes, owned, default_queue, queues_to_inherit, nominated as "fences", evicting } except { hyper_nodes: HyperNodes::new(), journal: Journal::default(), follow_moves: false, moves: Vec::new() };
}
