//! Where the pods of groups lie, by HyperNode, followed through a cycle. A group is looked at when its first pod moves.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::ids::{GroupId, HyperId, TaskId};
use crate::world::tables::Tables;

/// The groups whose pods have moved in this cycle.
#[derive(Debug, Default)]
pub(super) struct DomainsInUse(FxHashMap<GroupId, Places>);

/// The pods of one group that have nodes.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Places {
    tasks: FxHashMap<TaskId, (u32, HyperId)>,
    counts: BTreeMap<(u32, HyperId), u32>,
}

impl DomainsInUse {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn follow(&mut self, tables: &Tables, task: TaskId) {
        let Some(group) = tables.task(task).group else { return };
        if !tables.groups.row(group).wants_domains(&tables.hyper_nodes) {
            return;
        }
        match self.0.entry(group) {
            std::collections::hash_map::Entry::Occupied(mut known) => known.get_mut().update(tables, task),
            std::collections::hash_map::Entry::Vacant(new) => {
                new.insert(Places::of(tables, group));
            }
        }
    }

    pub(super) fn of(&self, tables: &Tables, group: GroupId) -> Places {
        self.0.get(&group).cloned().unwrap_or_else(|| Places::of(tables, group))
    }
}

impl Places {
    fn of(tables: &Tables, group: GroupId) -> Self {
        let mut places = Self::default();
        for task in tables.groups.row(group).tasks.iter() {
            places.update(tables, *task);
        }
        places
    }

    fn update(&mut self, tables: &Tables, task: TaskId) {
        let row = tables.task(task);
        let node = if row.state.is_allocated() { row.node } else { None };
        let now = node.and_then(|node| tables.hyper_nodes.of_node(node).first()).map(|hyper| (row.sub_job, *hyper));
        let before = match now {
            Some(place) => self.tasks.insert(task, place),
            None => self.tasks.remove(&task),
        };
        if before == now {
            return;
        }
        if let Some(place) = before
            && let Some(count) = self.counts.get_mut(&place)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&place);
            }
        }
        if let Some(place) = now {
            *self.counts.entry(place).or_default() += 1;
        }
    }

    /// The lowest HyperNode that holds all of them.
    pub(super) fn common(&self, tables: &Tables) -> Option<HyperId> {
        self.counts.keys().map(|(_, hyper)| *hyper).reduce(|left, right| tables.hyper_nodes.common(left, right))
    }

    /// Pods of one part that lie right in a HyperNode.
    pub(super) fn inside(&self, sub_job: u32, hyper: HyperId) -> u32 {
        self.counts.get(&(sub_job, hyper)).copied().unwrap_or(0)
    }

    /// All pods of one part.
    pub(super) fn tasks_of(&self, tables: &Tables, group: GroupId, sub_job: u32) -> u32 {
        let row = tables.groups.row(group);
        row.sub_jobs.rows().get(sub_job as usize).map_or_else(|| row.counts.all(), |part| part.counts.all())
    }
}
