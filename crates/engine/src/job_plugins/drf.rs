//! `drf`: dominant resource fairness among jobs: the one that holds the smallest share of the cluster goes first.
//!
//! A job's share is the largest part it holds of any resource. With `enableHierarchy` queues are ordered, too, by the
//! tree that their annotations `volcano.sh/hierarchy` and `volcano.sh/hierarchy-weights` describe (see `hierarchy`).

use std::cmp::Ordering;

use rustc_hash::FxHashMap;

use crate::cluster::classes::ClassRow;
use crate::config::{PluginConfig, Switch};
use crate::ids::{GroupId, QueueId, TaskId, TimeMs};
use crate::plugin::Plugin;
use crate::resource_dims::Demand;
use crate::share::{self, WHOLE};
use crate::world::tables::{Move, Tables};

mod hierarchy;

use hierarchy::Hierarchy;

const PATH: &str = "volcano.sh/hierarchy";
const WEIGHTS: &str = "volcano.sh/hierarchy-weights";

/// Shares this near to each other count as equal.
const EQUAL: i64 = WHOLE / 1_000_000;

#[derive(Debug)]
pub(crate) struct Drf {
    hierarchical: bool,
    tree: Hierarchy,
}

impl Drf {
    pub(crate) fn new(config: &PluginConfig) -> Self {
        Self { hierarchical: config.switches.has(Switch::Hierarchy), tree: Hierarchy::default() }
    }
}

fn share_of(tables: &Tables, group: GroupId) -> i64 {
    share::dominant(&tables.groups.row(group).allocated, &tables.nodes.total)
}

fn demand(tables: &Tables, task: TaskId) -> &Demand {
    &tables.classes.row(tables.task(task).class).demand
}

/// What the preemptor's job would hold with it.
fn raised(tables: &Tables, preemptor: TaskId) -> Vec<i64> {
    let group = tables.task(preemptor).group;
    let mut held = group.map_or_else(Vec::new, |group| tables.groups.row(group).allocated.clone());
    demand(tables, preemptor).add_to(&mut held, 1);
    held
}

impl Plugin for Drf {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn open(&mut self, tables: &Tables, _now: TimeMs) {
        if self.hierarchical {
            self.tree = tree(tables);
        }
    }

    fn follows_moves(&self) -> bool {
        self.hierarchical
    }

    fn moved(&mut self, tables: &Tables, change: Move) {
        if let Some(group) = tables.task(change.task).group {
            self.tree.set_allocated(group, tables.groups.row(group).allocated.clone());
        }
    }

    fn job_order(&self, tables: &Tables, left: GroupId, right: GroupId) -> Ordering {
        share_of(tables, left).cmp(&share_of(tables, right))
    }

    fn queue_order(&self, _tables: &Tables, left: QueueId, right: QueueId) -> Ordering {
        if self.hierarchical { self.tree.order(left, right) } else { Ordering::Equal }
    }

    /// A branch of the tree has many queues.
    fn reorders_queues(&self) -> bool {
        self.hierarchical
    }

    /// Jobs that hold at least as much without the victim as the preemptor's would with its task.
    fn preemptable(&self, tables: &Tables, preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        let wanted = share::dominant(&raised(tables, preemptor), &tables.nodes.total);
        let mut left: FxHashMap<GroupId, Vec<i64>> = FxHashMap::default();
        let may_leave = |task: &TaskId| {
            let Some(group) = tables.task(*task).group else { return false };
            let held = left.entry(group).or_insert_with(|| tables.groups.row(group).allocated.clone());
            demand(tables, *task).add_to(held, -1);
            wanted <= share::dominant(held, &tables.nodes.total).saturating_add(EQUAL)
        };
        Some(candidates.iter().copied().filter(may_leave).collect())
    }

    /// Queues that would still come after the preemptor's in the hierarchy.
    fn reclaimable(&self, tables: &Tables, preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        if !self.hierarchical {
            return None;
        }
        let group = tables.task(preemptor).group?;
        let queue = tables.groups.row(group).queue;
        let mut tree = self.tree.clone();
        tree.set_allocated(group, raised(tables, preemptor));
        let mut victims = Vec::new();
        for task in candidates {
            let Some(victim) = tables.task(*task).group else { continue };
            let before = tree.allocated(victim).map_or_else(Vec::new, <[i64]>::to_vec);
            let mut held = before.clone();
            demand(tables, *task).add_to(&mut held, -1);
            tree.set_allocated(victim, held);
            if tree.order(queue, tables.groups.row(victim).queue).is_lt() {
                victims.push(*task);
            }
            tree.set_allocated(victim, before);
        }
        Some(victims)
    }

    /// What its answers read of the preemptor: the share its job would hold; in a hierarchy, all of it.
    fn victim_key(&self, tables: &Tables, preemptor: TaskId) -> Option<u64> {
        let wanted = share::dominant(&raised(tables, preemptor), &tables.nodes.total);
        if self.hierarchical { None } else { u64::try_from(wanted).ok() }
    }
}

/// The tree as it stands. O(pods of all jobs).
fn tree(tables: &Tables) -> Hierarchy {
    let mut tree = Hierarchy::new(&tables.nodes.total);
    for (queue, row) in tables.queues.table.iter() {
        let text = |key: &str| row.annotations.get(key).map_or("", String::as_str);
        let path = hierarchy::path(text(PATH), text(WEIGHTS)).unwrap_or_default();
        tree.add_queue(queue, &path);
    }
    for (group, row) in tables.groups.table.iter().filter(|(_, row)| row.exists()) {
        let mut request = Vec::new();
        for task in row.tasks.iter() {
            demand(tables, *task).add_to(&mut request, 1);
        }
        tree.add_job(row.queue, group, request, row.allocated.clone());
    }
    tree.refresh();
    tree
}

#[cfg(test)]
mod tests;
