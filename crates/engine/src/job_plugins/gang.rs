//! `gang`: a group's minimum starts together or not at all, also per task where `minTaskMember` says so.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;

use crate::cluster::classes::ClassRow;
use crate::ids::{GroupId, TaskId};
use crate::plugin::{GangEviction, Plugin, Vote};
use crate::reasons::Reason;
use crate::world::tables::Tables;
use crate::world::tasks::Counting;

#[derive(Debug)]
pub(crate) struct Gang;

impl Plugin for Gang {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    /// Groups that have not started yet go before those that only want more.
    fn job_order(&self, tables: &Tables, left: GroupId, right: GroupId) -> Ordering {
        let ready = |group| self.job_ready(tables, group, Counting::WithBestEffort);
        ready(left).cmp(&ready(right))
    }

    fn job_ready(&self, tables: &Tables, group: GroupId, counting: Counting) -> bool {
        let row = tables.groups.row(group);
        let extra = |best_effort| if counting == Counting::WithBestEffort { best_effort } else { 0 };
        row.counts.ready() + extra(row.pending_best_effort) >= row.min_member
            && (!row.role_minima_apply()
                || row.roles.iter().all(|role| role.counts.ready() + extra(role.pending_best_effort) >= role.min))
            && row.short_policy(counting, false).is_none()
    }

    fn job_pipelined(&self, tables: &Tables, group: GroupId) -> Vote {
        let row = tables.groups.row(group);
        let enough = row.counts.ready() + row.counts.pipelined() + row.pending_best_effort >= row.min_member
            && (!row.role_minima_apply()
                || row
                    .roles
                    .iter()
                    .all(|role| role.counts.ready() + role.counts.pipelined() + role.pending_best_effort >= role.min))
            && row.short_policy(Counting::WithBestEffort, true).is_none();
        if enough { Vote::Permit } else { Vote::Reject }
    }

    fn sub_job_order(&self, tables: &Tables, group: GroupId, left: u32, right: u32) -> Ordering {
        let ready = |part| tables.groups.row(group).part_ready(part, Counting::WithBestEffort, false);
        ready(left).cmp(&ready(right))
    }

    fn sub_job_ready(&self, tables: &Tables, group: GroupId, sub_job: u32, counting: Counting) -> bool {
        tables.groups.row(group).part_ready(sub_job, counting, false)
    }

    fn sub_job_pipelined(&self, tables: &Tables, group: GroupId, sub_job: u32) -> Vote {
        let enough = tables.groups.row(group).part_ready(sub_job, Counting::WithBestEffort, true);
        if enough { Vote::Permit } else { Vote::Reject }
    }

    fn job_starving(&self, tables: &Tables, group: GroupId) -> Option<bool> {
        let row = tables.groups.row(group);
        Some(row.counts.ready() + row.counts.pipelined() < row.min_member)
    }

    /// A group gives away only what it has beyond its minimum.
    fn preemptable(&self, tables: &Tables, _preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        Some(beyond_minimum(tables, candidates))
    }

    fn reclaimable(&self, tables: &Tables, _preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        Some(beyond_minimum(tables, candidates))
    }

    fn keeps(&self, tables: &Tables, victim: TaskId) -> bool {
        beyond_minimum(tables, &[victim]).is_empty()
    }

    fn unified_evictable(&self, _tables: &Tables, _want: &GangEviction, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        Some(candidates.to_vec())
    }

    fn victim_key(&self, _tables: &Tables, _preemptor: TaskId) -> Option<u64> {
        Some(0)
    }

    fn job_valid(&self, tables: &Tables, group: GroupId) -> Option<Reason> {
        let row = tables.groups.row(group);
        if row.role_minima_apply() {
            let short = row.roles.iter().find(|role| role.counts.valid() < role.min);
            if let Some(role) = short
                && row.counts.valid() > 0
            {
                let (role, min, valid) = (role.name.to_string(), role.min, role.counts.valid());
                return Some(Reason::NotEnoughTasksOfRole { role, min, valid });
            }
        }
        if let Some((policy, found)) = row.missing_parts()
            && row.counts.valid() > 0
        {
            let min = policy.min_sub_groups.unwrap_or(0);
            return Some(Reason::NotEnoughParts { policy: policy.name.clone(), min, found });
        }
        let (min, valid) = (row.min_member, row.counts.valid());
        (valid < min).then_some(Reason::NotEnoughTasks { min, valid })
    }
}

/// The candidates, in order, as long as their group keeps its minimum.
fn beyond_minimum(tables: &Tables, candidates: &[TaskId]) -> Vec<TaskId> {
    let mut left: FxHashMap<GroupId, u32> = FxHashMap::default();
    let mut keeps = |task: &&TaskId| {
        let Some(group) = tables.task(**task).group else { return false };
        let row = tables.groups.row(group);
        let occupied = left.entry(group).or_insert_with(|| row.counts.ready());
        let allowed = *occupied > row.min_member;
        *occupied = occupied.saturating_sub(u32::from(allowed));
        allowed
    };
    candidates.iter().filter(|task| keeps(task)).copied().collect()
}
