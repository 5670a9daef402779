//! Pods that would make room for a group that goes before them, and say that they may not be evicted.
//!
//! Invariant: only pods that preemption would take otherwise: of the group's own queue, of lower priority, on nodes that could
//! take the group's. Bounded by how many pods are looked at; beyond that nothing is told. Called by `why`.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::facts::ObjectName;
use crate::ids::{GroupId, TaskId};
use crate::policy::Policy;
use crate::reasons::plural;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// Pods that are looked at for one answer.
const PODS_LOOKED_AT_MAX: usize = 100_000;
/// Pods that are named.
const NAMED_MAX: usize = 5;

/// Who keeps his place although he would have to leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spared {
    /// Their names, `namespace/name`; five at most.
    pub pods: Vec<ObjectName>,
    /// How many in all.
    pub count: u32,
}

/// Nothing where there are none, or too many pods would have to be looked at. O(nodes and pods on them).
pub(super) fn spared(tables: &Tables, policy: &Policy, group: GroupId) -> Option<Spared> {
    let row = tables.groups.row(group);
    let waits = |task: &&TaskId| tables.task(**task).state == TaskState::Pending;
    let first = tables.task(*row.tasks.iter().find(waits)?);
    let class = tables.classes.row(first.class);
    let nodes = tables.nodes.ids().filter(|node| policy.check_facts(tables, class, *node).is_none());
    let on_nodes = nodes.flat_map(|node| &tables.nodes.row(node).tasks);
    let mut pods: Vec<ObjectName> = Vec::new();
    for (looked_at, task) in on_nodes.enumerate() {
        if looked_at >= PODS_LOOKED_AT_MAX {
            return None;
        }
        let task = tables.task(*task);
        let same_queue = task.group.is_some_and(|of| of != group && tables.groups.row(of).queue == row.queue);
        if same_queue && !task.preemptable && task.priority < first.priority && task.state.is_allocated() {
            pods.push(ObjectName::new(&task.namespace, &task.name));
        }
    }
    pods.sort();
    let count = u32::try_from(pods.len()).unwrap_or(u32::MAX);
    pods.truncate(NAMED_MAX);
    (count > 0).then_some(Spared { pods, count })
}

impl Display for Spared {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let more = if self.pods.len() < self.count as usize { ", ..." } else { "" };
        write!(
            f,
            "{} of lower priority may not be evicted (volcano.sh/preemptable: \"false\"): ",
            plural(self.count, "pod")
        )?;
        write!(f, "{}{more}", self.pods.join(", "))
    }
}
