//! Whose turn it is among jobs of a queue that are of one priority class: the lower priority, then who came first.
//!
//! What the engine calls runs begins with the priority and goes on with the job's id, which begins with its time, and the
//! names of groups follow. So the order of names is the order of turns, and the plugin reads nothing else.

use std::cmp::Ordering;

use pumice_engine::plugin::{Alike, ClassRow, GroupId, Plugin, Tables};

/// Its name in the configuration.
pub const NAME: &str = "turn";

/// Orders jobs of one class in a queue by the names of their groups.
#[derive(Debug)]
pub struct JobOrder {
    /// Whether turns go before what users of the pool hold: not where users are queues.
    pub ranks: bool,
}

impl Plugin for JobOrder {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn admits_alike(&self, _tables: &Tables, _group: GroupId) -> Alike {
        Alike::Key(0)
    }

    fn job_order(&self, tables: &Tables, left: GroupId, right: GroupId) -> Ordering {
        tables.group(left).name().cmp(tables.group(right).name())
    }

    fn ranks(&self) -> bool {
        self.ranks
    }

    fn job_rank(&self, tables: &Tables, left: GroupId, right: GroupId) -> Ordering {
        if self.ranks { self.job_order(tables, left, right) } else { Ordering::Equal }
    }
}
