//! `deadline`: of groups of one priority those with a deadline go first, the nearest before others. It orders the work of
//! one namespace; where namespaces share a queue nobody gets ahead of others by it.

use std::cmp::Ordering;

use crate::cluster::classes::ClassRow;
use crate::ids::{GroupId, TimeMs};
use crate::plugin::Plugin;
use crate::world::tables::Tables;

#[derive(Debug)]
pub(crate) struct Deadline;

impl Plugin for Deadline {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn job_order(&self, tables: &Tables, left: GroupId, right: GroupId) -> Ordering {
        let deadline = |group| tables.groups.row(group).deadline.unwrap_or(TimeMs(i64::MAX));
        deadline(left).cmp(&deadline(right))
    }
}
