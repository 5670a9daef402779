//! `priority`: the higher priority goes first, among groups and among the tasks of a group.

use std::cmp::Ordering;

use crate::cluster::classes::ClassRow;
use crate::ids::{GroupId, TaskId};
use crate::plugin::{GangEviction, Plugin};
use crate::world::tables::Tables;

#[derive(Debug)]
pub(crate) struct Priority;

impl Plugin for Priority {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn job_order(&self, tables: &Tables, left: GroupId, right: GroupId) -> Ordering {
        tables.groups.row(right).priority.cmp(&tables.groups.row(left).priority)
    }

    fn ranks(&self) -> bool {
        true
    }

    fn job_rank(&self, tables: &Tables, left: GroupId, right: GroupId) -> Ordering {
        self.job_order(tables, left, right)
    }

    /// Wants every pod of the group to run.
    fn job_starving(&self, tables: &Tables, group: GroupId) -> Option<bool> {
        let row = tables.groups.row(group);
        Some(row.counts.ready() + row.counts.pipelined() < row.counts.all())
    }

    /// Only what is of lower priority leaves: groups among each other, and tasks within one.
    fn preemptable(&self, tables: &Tables, preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        let asking = tables.task(preemptor);
        let priority = |group: Option<GroupId>| group.map_or(i32::MAX, |group| tables.groups.row(group).priority);
        let lower = |task: &&TaskId| {
            let row = tables.task(**task);
            if row.group == asking.group {
                row.priority < asking.priority
            } else {
                priority(row.group) < priority(asking.group)
            }
        };
        Some(candidates.iter().filter(lower).copied().collect())
    }

    fn preempts_only_lower(&self) -> bool {
        true
    }

    fn unified_evictable(&self, tables: &Tables, want: &GangEviction, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        let priority = tables.groups.row(want.preemptor).priority;
        let lower = |task: &&TaskId| {
            tables.task(**task).group.is_some_and(|group| tables.groups.row(group).priority < priority)
        };
        Some(candidates.iter().filter(|task| want.reclaim || lower(task)).copied().collect())
    }

    fn victim_key(&self, tables: &Tables, preemptor: TaskId) -> Option<u64> {
        let row = tables.task(preemptor);
        let priority = row.group.map_or(0, |group| tables.groups.row(group).priority);
        Some((u64::from(priority.cast_unsigned()) << 32) | u64::from(row.priority.cast_unsigned()))
    }

    /// By the highest priority of their pods.
    fn sub_job_order(&self, tables: &Tables, group: GroupId, left: u32, right: u32) -> Ordering {
        let tasks = || tables.groups.row(group).tasks.iter().map(|task| tables.task(*task));
        let highest = |part: u32| tasks().filter(|task| task.sub_job == part).map(|task| task.priority.max(0)).max();
        highest(right).cmp(&highest(left))
    }

    fn task_order(&self, tables: &Tables, left: TaskId, right: TaskId) -> Ordering {
        tables.task(right).priority.cmp(&tables.task(left).priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::tests::victim_bench::Bench;

    /// A group `low` (10) and one `high` (100), each with a running and a waiting pod.
    fn bench() -> (Bench, [TaskId; 4]) {
        let mut bench = Bench::new();
        bench.class("low", 10);
        bench.class("high", 100);
        for name in ["low", "high"] {
            bench.group(name, 1, |group| group.priority_class = name.to_owned());
        }
        let tasks = [
            bench.running("low", 0, |pod| pod.template.priority = 5),
            bench.pending("low", 1, |pod| pod.template.priority = 9),
            bench.running("high", 0, |pod| pod.template.priority = 5),
            bench.pending("high", 1, |pod| pod.template.priority = 5),
        ];
        (bench, tasks)
    }

    #[test]
    fn only_what_is_lower_leaves() {
        let (bench, [low, low_waits, high, high_waits]) = bench();
        let tables = &bench.tables;
        let victims = |preemptor| Priority.preemptable(tables, preemptor, &[low, high]).unwrap();
        assert_eq!(victims(high_waits), [low], "its own pod has the same task priority");
        assert_eq!(victims(low_waits), [low], "its own pod has a lower task priority, the other group a higher one");
    }

    #[test]
    fn gangs_take_from_lower_ones_and_reclaim_from_all() {
        let (bench, [low, _, high, _]) = bench();
        let group = |name: &str| bench.tables.groups.table.find(&format!("ns/{name}")).unwrap();
        for (preemptor, reclaim, expected) in
            [("high", false, vec![low]), ("low", false, vec![]), ("low", true, vec![low, high])]
        {
            let want = GangEviction { preemptor: group(preemptor), reclaim, need: Vec::new() };
            assert_eq!(Priority.unified_evictable(&bench.tables, &want, &[low, high]), Some(expected));
        }
    }

    #[test]
    fn a_group_with_a_waiting_pod_starves() {
        let (mut bench, _) = bench();
        let low = bench.tables.groups.table.find("ns/low").unwrap();
        assert_eq!(Priority.job_starving(&bench.tables, low), Some(true));
        bench.running("low", 1, |_| {});
        assert_eq!(Priority.job_starving(&bench.tables, low), Some(false));
    }
}
