//! `task-topology`: which tasks of a job like to share a node, and which don't, by annotations of its PodGroup. Its pods
//! are sorted into buckets that fit each other; a bucket's pods go together, and to where their bucket already is.
//!
//! Buckets are made of what holds at the start of a cycle, for the groups that are asked about, on the first question.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex};

use rustc_hash::FxHashMap;

use crate::cluster::classes::ClassRow;
use crate::config::PluginConfig;
use crate::ids::{GroupId, NodeId, TaskId, TimeMs};
use crate::plugin::Plugin;
use crate::world::tables::Tables;

mod buckets;
mod spec;

use buckets::Buckets;

pub(crate) const ARGUMENTS: &[&str] = &["task-topology.weight"];

const SCORE_MAX: i64 = 100;

#[derive(Debug)]
pub(crate) struct TaskTopology {
    weight: i64,
    /// Worked out when first asked for; nothing for groups that say nothing usable.
    buckets: Mutex<FxHashMap<GroupId, Option<Arc<Buckets>>>>,
}

impl TaskTopology {
    pub(crate) fn new(config: &PluginConfig) -> Self {
        Self { weight: config.int("task-topology.weight", 1), buckets: Mutex::default() }
    }

    fn of(&self, tables: &Tables, group: GroupId) -> Option<Arc<Buckets>> {
        if !spec::is_there(tables.groups.row(group)) {
            return None;
        }
        // A panic elsewhere leaves the map whole: each entry is put in at once.
        let mut known = self.buckets.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.entry(group).or_insert_with(|| Buckets::of(tables, group).map(Arc::new)).clone()
    }
}

impl Plugin for TaskTopology {
    fn open(&mut self, _tables: &Tables, _now: TimeMs) {
        self.buckets.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
    }

    /// Pods in buckets first, those of the larger bucket first, then of the older; in a bucket as the job says.
    fn task_order(&self, tables: &Tables, left: TaskId, right: TaskId) -> Ordering {
        let group = tables.task(left).group;
        let Some(buckets) = group.filter(|group| tables.task(right).group == Some(*group)) else {
            return Ordering::Equal;
        };
        let Some(buckets) = self.of(tables, buckets) else { return Ordering::Equal };
        buckets.order(tables, left, right)
    }

    fn is_specific(&self, tables: &Tables, task: TaskId) -> bool {
        let group = tables.task(task).group;
        self.weight != 0 && group.is_some_and(|group| self.of(tables, group).is_some())
    }

    /// It only scores: where one pod finds no room none like it does.
    fn stands_alone(&self, _tables: &Tables, _task: TaskId) -> bool {
        false
    }

    fn scores_nodes(&self) -> bool {
        false
    }

    /// Pods of the bucket that are on the node or could join there, less those on it that the pod must not be with.
    fn score_task(&self, tables: &Tables, task: TaskId, nodes: &[NodeId], scores: &mut [i64]) {
        let group = tables.task(task).group;
        let Some(buckets) = group.and_then(|group| self.of(tables, group)) else { return };
        let Some(view) = buckets.view(tables, task) else { return };
        for (node, score) in nodes.iter().zip(scores) {
            let part = view.score(tables, *node).saturating_mul(SCORE_MAX) / view.largest;
            *score = score.saturating_add(self.weight.saturating_mul(part));
        }
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
