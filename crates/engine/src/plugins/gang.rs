//! `gang`: a group's minimum starts together or not at all, also per task where `minTaskMember` says so.

use std::cmp::Ordering;

use super::{Counting, Plugin};
use crate::ids::GroupId;
use crate::reasons::Reason;
use crate::world::tables::Tables;

#[derive(Debug)]
pub(crate) struct Gang;

impl Plugin for Gang {
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
    }

    fn job_valid(&self, tables: &Tables, group: GroupId) -> Option<Reason> {
        let row = tables.groups.row(group);
        if row.role_minima_apply() {
            let short = row.roles.iter().find(|role| role.counts.valid() < role.min);
            if let Some(role) = short.filter(|_| row.counts.valid() > 0) {
                let (role, min, valid) = (role.name.to_string(), role.min, role.counts.valid());
                return Some(Reason::NotEnoughTasksOfRole { role, min, valid });
            }
        }
        let (min, valid) = (row.min_member, row.counts.valid());
        (valid < min).then_some(Reason::NotEnoughTasks { min, valid })
    }
}
