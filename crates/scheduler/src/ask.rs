//! Questions about what waits, answered from the World itself.
//!
//! Invariant: the lock is never held across an await, by the loop for one cycle at most, by a question while it copies
//! what it was asked for. Reasons change with every cycle: publishing copies of all of them would cost more than the lock.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pumice_cluster::Vitals;
use pumice_engine::{GroupView, NodeName, NodeWhy, QueueWhy, Why, World};

use crate::metrics::Metrics;

/// Groups of one name that are looked at: a Job's, and one that is called like it.
const GROUPS_A_NAME_MAX: usize = 4;

/// The World, owned by the loop, readable by handles.
#[derive(Debug, Clone)]
pub(crate) struct Shared(Arc<RwLock<World>>);

impl Shared {
    pub(crate) fn new(world: World) -> Self {
        Self(Arc::new(RwLock::new(world)))
    }

    /// A panic of the loop ends the scheduler; what was true before it may still be read.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, World> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, World> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A group that waits, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    pub namespace: String,
    /// Its Job's name, else its own.
    pub name: String,
    pub group: String,
    pub queue: String,
    /// Why it waits; in lists without what takes trials to tell.
    pub why: Why,
}

/// Asks the scheduler; cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    world: Shared,
    metrics: Metrics,
}

impl Handle {
    pub(crate) fn new(world: Shared, metrics: Metrics) -> Self {
        Self { world, metrics }
    }

    /// Why a Job, or a PodGroup, waits; nothing if it does not. What `World::why` takes, however many wait; blocks for a cycle
    /// at most, and a cycle as long.
    pub fn why(&self, namespace: &str, name: &str) -> Option<Waiting> {
        // The World is changed for trials, and left as it was.
        let mut world = self.world.write();
        let asked = world.named(namespace, name).take(GROUPS_A_NAME_MAX);
        let asked: Vec<Waiting> = asked.map(|group| waiting(&group, Why::default())).collect();
        asked.into_iter().find_map(|waiting| {
            let why = world.why(namespace, &waiting.group)?;
            Some(Waiting { why, ..waiting })
        })
    }

    /// What a queue waits for. O(groups that wait), blocks for a cycle at most.
    pub fn queue_why(&self, name: &str) -> Option<QueueWhy> {
        self.world.read().queue_why(name)
    }

    /// Why a node takes no more. O(pods on it), blocks for a cycle at most.
    pub fn node_why(&self, name: &NodeName) -> Option<NodeWhy> {
        self.world.read().node_why(name)
    }

    /// All that waits, in one namespace or everywhere, by namespace and name. O(groups), blocks for a cycle at most.
    pub fn list(&self, namespace: Option<&str>) -> Vec<Waiting> {
        let world = self.world.read();
        let groups = world.groups().filter(|group| namespace.is_none_or(|namespace| namespace == group.namespace));
        let mut found: Vec<Waiting> =
            groups.filter_map(|group| group.reasons().map(|reasons| waiting(&group, Why::of(reasons)))).collect();
        drop(world);
        found.sort_by(|left, right| {
            (&left.namespace, &left.name, &left.group).cmp(&(&right.namespace, &right.name, &right.group))
        });
        found
    }
}

impl Vitals for Handle {
    /// O(queues), blocks for a cycle at most.
    fn metrics(&self) -> String {
        let queues = self.world.read().queues();
        self.metrics.render(&queues)
    }
}

fn waiting(group: &GroupView<'_>, why: Why) -> Waiting {
    Waiting {
        namespace: group.namespace.to_owned(),
        name: group.owner.map_or(group.name, |owner| owner.name.as_str()).to_owned(),
        group: group.name.to_owned(),
        queue: group.queue.to_owned(),
        why,
    }
}
