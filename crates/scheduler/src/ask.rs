//! Questions about what waits, answered from the World itself.
//!
//! Invariant: the lock is never held across an await, by the loop for one cycle at most, by a question while it copies
//! what it was asked for. Reasons change with every cycle: publishing copies of all of them would cost more than the lock.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde::Serialize;

use crate::metrics::Metrics;
use pumice_cluster::Vitals;
use pumice_engine::{GroupView, NodeWhy, QueueWhy, Reasons, World};

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
    /// Its namespace.
    pub namespace: String,
    /// Its Job's name, else its own.
    pub name: String,
    /// Its PodGroup's name.
    pub group: String,
    /// Its queue.
    pub queue: String,
    /// Where it stands in line, as `World::place_in_line` counts. Not told in lists.
    pub line: Option<InLine>,
    /// Why it waits.
    pub reasons: Reasons,
}

/// A place in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct InLine {
    /// How many are before it.
    pub before: u64,
    /// How many there are.
    pub of: u64,
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

    /// Why a Job, or a PodGroup, waits; nothing if it does not. However many wait; blocks for a cycle at most.
    pub fn why(&self, namespace: &str, name: &str) -> Option<Waiting> {
        let world = self.world.read();
        let (group, reasons) = world.waiting(namespace, name)?;
        let line = world.place_in_line(group.namespace, group.name).map(|(before, of)| InLine { before, of });
        Some(Waiting { line, ..waiting(&group, reasons) })
    }

    /// What a queue waits for. O(groups that wait), blocks for a cycle at most.
    pub fn queue_why(&self, name: &str) -> Option<QueueWhy> {
        self.world.read().queue_why(name)
    }

    /// Why a node takes no more. O(pods on it), blocks for a cycle at most.
    pub fn node_why(&self, name: &str) -> Option<NodeWhy> {
        self.world.read().node_why(name)
    }

    /// All that waits, in one namespace or everywhere, by namespace and name. O(groups), blocks for a cycle at most.
    pub fn list(&self, namespace: Option<&str>) -> Vec<Waiting> {
        let world = self.world.read();
        let groups = world.groups().filter(|group| namespace.is_none_or(|namespace| namespace == group.namespace));
        let mut found: Vec<Waiting> =
            groups.filter_map(|group| group.reasons().map(|reasons| waiting(&group, reasons))).collect();
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

fn waiting(group: &GroupView<'_>, reasons: Reasons) -> Waiting {
    Waiting {
        namespace: group.namespace.to_owned(),
        name: group.owner.map_or(group.name, |owner| owner.name.as_str()).to_owned(),
        group: group.name.to_owned(),
        queue: group.queue.to_owned(),
        line: None,
        reasons,
    }
}
