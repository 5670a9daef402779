//! `priority`: the higher priority goes first, among groups and among the tasks of a group.

use std::cmp::Ordering;

use super::Plugin;
use crate::ids::{GroupId, TaskId};
use crate::world::tables::Tables;

#[derive(Debug)]
pub(crate) struct Priority;

impl Plugin for Priority {
    fn job_order(&self, tables: &Tables, left: GroupId, right: GroupId) -> Ordering {
        tables.groups.row(right).priority.cmp(&tables.groups.row(left).priority)
    }

    fn task_order(&self, tables: &Tables, left: TaskId, right: TaskId) -> Ordering {
        tables.task(right).priority.cmp(&tables.task(left).priority)
    }
}
