//! Queues: limits, state, and what their groups hold. A queue that only groups name is a placeholder and takes no work.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::table::{Keyed, Table};
use crate::facts::{NodeGroupAffinity, PodFacts, QueueFacts, QueueState};
use crate::ids::{DimId, GroupId, QueueId, TimeMs};
use crate::resource_dims::{CPU, Demand, Dims, MEMORY};
use crate::share::add;
use crate::world::groups::GroupRow;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// What tasks take or want, by dimension.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Of tasks that have room and keep it.
    pub(crate) allocated: Vec<i64>,
    pub(crate) pipelined: Vec<i64>,
    /// Of tasks that are leaving, or whose node does not answer.
    pub(crate) releasing: Vec<i64>,
    pub(crate) pending: Vec<i64>,
}

/// The amount of a dimension; what is not there is 0.
pub(crate) fn amount(amounts: &[i64], dim: DimId) -> i64 {
    amounts.get(dim.index()).copied().unwrap_or(0)
}

/// What a queue holds, noted to be put back after a trial.
#[derive(Debug)]
pub(crate) struct QueueSums {
    queue: QueueId,
    own: Sums,
    /// With those below it.
    tree: Sums,
}

impl Sums {
    /// What is taken or promised: allocated and nominated.
    pub(crate) fn promised(&self, dim: DimId) -> i64 {
        amount(&self.allocated, dim).saturating_add(amount(&self.pipelined, dim))
    }

    /// What pods hold now, those that leave included.
    pub(crate) fn in_use(&self) -> Vec<i64> {
        let mut held = self.allocated.clone();
        add(&mut held, &self.releasing, 1);
        held
    }

    fn charge(&mut self, state: TaskState, demand: &Demand, sign: i64) {
        let sum = match state {
            TaskState::Pending => &mut self.pending,
            TaskState::Pipelined => &mut self.pipelined,
            TaskState::Releasing | TaskState::Unknown => &mut self.releasing,
            TaskState::Succeeded | TaskState::Failed => return,
            _ => &mut self.allocated,
        };
        demand.add_to(sum, sign);
    }

    fn add(&mut self, other: &Self, sign: i64) {
        add(&mut self.allocated, &other.allocated, sign);
        add(&mut self.pipelined, &other.pipelined, sign);
        add(&mut self.releasing, &other.releasing, sign);
        add(&mut self.pending, &other.pending, sign);
    }
}

/// What the engine knows of a queue. Rows of queues that only groups name are not `known`.
#[derive(Debug)]
pub struct QueueRow {
    pub(crate) name: Arc<str>,
    pub(crate) uid: Arc<str>,
    pub(crate) known: bool,
    pub(crate) state: QueueState,
    pub(crate) created: TimeMs,
    pub(crate) weight: i32,
    pub(crate) priority: i32,
    pub(crate) reclaimable: bool,
    /// Hard limits; a dimension that is not named has none.
    pub(crate) capability: Vec<(DimId, i64)>,
    /// How many of its groups, and of those below it, are admitted at a time.
    pub(crate) max_running_jobs: Option<u32>,
    /// What it says it deserves. A cpu or memory of zero is not said; a zero of anything else is.
    pub(crate) deserved: Vec<(DimId, i64)>,
    pub(crate) guarantee: Demand,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) affinity: Option<NodeGroupAffinity>,
    /// As its spec names it.
    pub(crate) parent: Option<Arc<str>>,
    /// Known queues above it, the nearest first. Empty for the root, and where the parents go in a circle.
    pub(crate) ancestors: Vec<QueueId>,
    /// Known queues right below it, in order of their ids.
    pub(crate) children: Vec<QueueId>,
    /// Its parents go in a circle or name a queue that is not there.
    pub(crate) misplaced: bool,
    /// Of its own tasks.
    pub(crate) own: Sums,
    /// Of its own tasks and those of all queues below it.
    pub(crate) tree: Sums,
    /// Groups whose row names this queue.
    pub(crate) groups: u32,
    /// What was written last to `status.allocated`, or seen there.
    pub(crate) emitted: Option<crate::resource_dims::Resources>,
}

impl Keyed for QueueRow {
    fn found_by(&self) -> &str {
        &self.name
    }
}

impl QueueRow {
    /// Whether it admits groups.
    pub(crate) fn is_open(&self) -> bool {
        self.known && self.state == QueueState::Open
    }

    /// Whether groups that it has admitted may be placed: one that is closing lets them end.
    pub(crate) fn may_place(&self) -> bool {
        self.known && matches!(self.state, QueueState::Open | QueueState::Closing)
    }
}

/// The queue above all that name no parent.
pub(crate) const ROOT: &str = "root";

#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) table: Table<QueueId, QueueRow>,
    /// Counts changes of what queues are, as opposed to what they hold.
    pub(crate) version: u64,
}

impl Queues {
    pub(crate) fn new() -> Self {
        Self { table: Table::new(), version: 0 }
    }

    pub(crate) fn row(&self, queue: QueueId) -> &QueueRow {
        self.table.row(queue.index())
    }

    pub(crate) fn row_mut(&mut self, queue: QueueId) -> &mut QueueRow {
        self.table.row_mut(queue.index())
    }

    /// The id of `name`, as a placeholder if it is new.
    pub(crate) fn intern(&mut self, name: &str) -> QueueId {
        if let Some(id) = self.table.find(name) {
            return id;
        }
        let row = QueueRow {
            name: name.into(),
            uid: "".into(),
            known: false,
            state: QueueState::Open,
            created: TimeMs::default(),
            weight: 1,
            priority: 0,
            reclaimable: true,
            capability: Vec::new(),
            max_running_jobs: None,
            deserved: Vec::new(),
            guarantee: Demand::default(),
            annotations: BTreeMap::new(),
            affinity: None,
            parent: None,
            ancestors: Vec::new(),
            children: Vec::new(),
            misplaced: false,
            own: Sums::default(),
            tree: Sums::default(),
            groups: 0,
            emitted: None,
        };
        self.table.insert(row)
    }

    pub(crate) fn upsert(&mut self, facts: &QueueFacts, dims: &mut Dims) {
        let id = self.intern(&facts.name);
        self.version += 1;
        let row = self.row_mut(id);
        if !row.known || *row.uid != *facts.uid {
            let held = facts.allocated.iter().filter(|(_, amount)| **amount != 0);
            row.emitted = Some(held.map(|(name, amount)| (name.clone(), *amount)).collect());
        }
        let parent: Option<Arc<str>> = facts.parent.as_deref().filter(|parent| !parent.is_empty()).map(Arc::from);
        let moved = !row.known || row.parent != parent;
        row.known = true;
        row.uid = facts.uid.as_str().into();
        row.state = facts.state;
        row.created = facts.created;
        row.weight = facts.weight;
        row.priority = facts.priority;
        row.reclaimable = facts.reclaimable.unwrap_or(true);
        row.deserved = facts.deserved.iter().map(|(name, amount)| (dims.intern(name), (*amount).max(0))).collect();
        row.deserved.retain(|(dim, amount)| *amount > 0 || (*dim != CPU && *dim != MEMORY));
        row.guarantee = dims.demand(&facts.guarantee);
        row.annotations.clone_from(&facts.annotations);
        row.affinity.clone_from(&facts.affinity);
        row.parent = parent;
        // Volcano reads cpu or memory at or below zero as "no limit"; a zero of any other resource is a limit.
        row.capability = facts.capability.iter().map(|(name, amount)| (dims.intern(name), *amount)).collect();
        row.capability.retain(|(dim, amount)| *amount > 0 || (*dim != CPU && *dim != MEMORY));
        row.max_running_jobs = facts.max_running_jobs;
        if moved {
            self.plant();
        }
    }

    /// Works out the tree anew, and what its inner queues hold. O(queues x depth).
    fn plant(&mut self) {
        let ids: Vec<QueueId> = self.table.iter().map(|(id, _)| id).collect();
        for id in &ids {
            let (ancestors, misplaced) = self.climb(*id);
            let row = self.row_mut(*id);
            row.ancestors = ancestors;
            row.misplaced = misplaced;
            row.children.clear();
            row.tree = row.own.clone();
        }
        for id in &ids {
            let row = self.row(*id);
            let (ancestors, own) = (row.ancestors.clone(), row.own.clone());
            if let (Some(parent), true) = (ancestors.first(), row.known) {
                self.row_mut(*parent).children.push(*id);
            }
            for ancestor in ancestors {
                self.row_mut(ancestor).tree.add(&own, 1);
            }
        }
    }

    /// The known queues above `queue`, and whether something is wrong with them.
    fn climb(&self, queue: QueueId) -> (Vec<QueueId>, bool) {
        let mut ancestors = Vec::new();
        let mut at = queue;
        loop {
            let row = self.row(at);
            if &*row.name == ROOT {
                return (ancestors, false);
            }
            let above = self.table.find(row.parent.as_deref().unwrap_or(ROOT)).filter(|id| self.row(*id).known);
            match above {
                None => return (ancestors, row.parent.as_deref().is_some_and(|parent| parent != ROOT)),
                Some(above) if above == queue || ancestors.contains(&above) => return (Vec::new(), true),
                Some(above) => ancestors.push(above),
            }
            at = *ancestors.last().expect("pushed just now");
        }
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let Some(id) = self.table.find(name) else { return };
        self.version += 1;
        let row = self.row_mut(id);
        row.known = false;
        row.capability.clear();
        row.max_running_jobs = None;
        row.emitted = None;
        self.plant();
        self.release(id);
    }

    /// Frees a placeholder that nothing names any more.
    pub(crate) fn release(&mut self, queue: QueueId) {
        let row = self.row(queue);
        if !row.known && row.groups == 0 {
            let name = row.name.clone();
            self.table.remove(&name);
        }
    }

    /// What these queues and all above them hold, to be put back after a trial.
    pub(crate) fn sums(&self, queues: &[QueueId]) -> Vec<QueueSums> {
        let line = queues.iter().flat_map(|queue| std::iter::once(queue).chain(&self.row(*queue).ancestors));
        let sums = |queue: &QueueId| {
            let QueueRow { own, tree, .. } = self.row(*queue);
            QueueSums { queue: *queue, own: own.clone(), tree: tree.clone() }
        };
        line.map(sums).collect()
    }

    /// Puts back what `sums` told before a trial.
    pub(crate) fn set_sums(&mut self, sums: Vec<QueueSums>) {
        for QueueSums { queue, own, tree } in sums {
            let row = self.row_mut(queue);
            (row.own, row.tree) = (own, tree);
        }
    }

    /// Adds (`sign` 1) or takes back (-1) a task in its queue and all above it.
    pub(crate) fn charge(&mut self, queue: QueueId, state: TaskState, demand: &Demand, sign: i64) {
        let row = self.table.row_mut(queue.index());
        row.own.charge(state, demand, sign);
        row.tree.charge(state, demand, sign);
        for above in 0..row.ancestors.len() {
            let above = self.row(queue).ancestors[above];
            self.row_mut(above).tree.charge(state, demand, sign);
        }
    }
}

/// The queue of a pod alone is the one that its PodGroup will get from admission: what the pod names, but the queue of its
/// namespace, if that has one, in place of the default queue.
impl Tables {
    /// The queue that a pod without a PodGroup names, where that is not the default one; else its namespace decides.
    pub(crate) fn own_queue<'f>(&self, facts: &'f PodFacts) -> Option<&'f str> {
        facts.queue.as_deref().filter(|queue| !queue.is_empty() && **queue != *self.default_queue)
    }

    /// The queue that is set for pods of a namespace; None where it has none of its own.
    pub(crate) fn queue_of_namespace(&self, namespace: &str) -> Option<Arc<str>> {
        self.objects.namespaces.all.get(namespace)?.queue.clone()
    }

    /// Brings such pods to the queues that their namespaces have now. O(groups) if any has another one than before.
    pub(crate) fn refresh_inherited_queues(&mut self) {
        if !std::mem::take(&mut self.queues_to_inherit) {
            return;
        }
        let inherits = |row: &GroupRow| row.of_one && !row.known && row.inherits_queue;
        let groups = self.groups.table.iter().filter(|(_, row)| inherits(row));
        let groups: Vec<(GroupId, Arc<str>)> = groups.map(|(group, row)| (group, row.namespace.clone())).collect();
        for (group, namespace) in groups {
            let queue = self.queue_of_namespace(&namespace);
            self.set_queue(group, queue.as_deref());
            self.groups.refresh(group);
        }
    }
}

crate::save::saved! {
    Sums { allocated, pipelined, releasing, pending };
    QueueRow { name, uid, known, state, created, weight, priority, reclaimable, capability, max_running_jobs, deserved, guarantee, annotations, affinity, parent, ancestors, children, misplaced, own, tree, groups, emitted };
    Queues { table, version };
}
