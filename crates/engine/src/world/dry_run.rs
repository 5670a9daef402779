//! A trial that is only for an answer: everything that it touches is put back as it was, so that asking changes no
//! decision, not even in which order later ones are made.
//!
//! Invariant: after `erase` the tables are as before `sketch`; only counts of zero may have come to be where there were none.
//! Unlike a cycle's rollback that includes the logs of changes and the marks of what is to be looked at again, which a
//! replay could not know of. Called by `explain`.

use crate::cluster::nodes::ChangeLog;
use crate::ids::{GroupId, QueueId};
use crate::world::groups::marks::Marked;
use crate::world::journal::Savepoint;
use crate::world::namespace_shares::Touched;
use crate::world::queues::Sums;
use crate::world::reservations::snapshot::Kept;
use crate::world::tables::Tables;

/// What is put back.
#[derive(Debug)]
pub(crate) struct Sketch {
    savepoint: Savepoint,
    use_log: ChangeLog,
    groups: Marked,
    kept: Kept,
    tenants: Touched,
    /// Sums go back to what they were in length, too.
    sums: Vec<(QueueId, Sums, Sums)>,
    group: GroupId,
    allocated: Vec<i64>,
}

impl Tables {
    /// Whether a trial can tell anything now: not where a cycle has first to take in what pods say of each other.
    pub(crate) fn can_sketch(&self) -> bool {
        !self.couplings.is_stale() && !self.journal.is_open()
    }

    /// Begins a trial of one group.
    pub(crate) fn sketch(&mut self, group: GroupId) -> Sketch {
        let end = self.nodes.use_log.end();
        let use_log = std::mem::replace(&mut self.nodes.use_log, ChangeLog::beginning_at(end));
        let row = self.groups.row(group);
        let (queue, tenant, allocated) = (row.queue, (row.queue, row.namespace_id), row.allocated.clone());
        let (groups, kept, tenants) = (self.groups.marks(), self.kept(), self.tenants.touched(&[tenant]));
        let sums = self.queues.sums(&[queue]);
        self.journal.open();
        Sketch { savepoint: self.savepoint(), use_log, groups, kept, tenants, sums, group, allocated }
    }

    /// Takes back what the trial has placed, and keeps for others what is kept: it can go on.
    pub(crate) fn wipe(&mut self, sketch: &Sketch) {
        self.rollback(sketch.savepoint);
        self.put_back(&sketch.kept);
    }

    /// Ends the trial.
    pub(crate) fn erase(&mut self, sketch: Sketch) {
        self.wipe(&sketch);
        self.commit();
        self.groups.unmark(sketch.groups);
        self.tenants.untouch(sketch.tenants);
        self.queues.set_sums(sketch.sums);
        self.groups.row_mut(sketch.group).allocated = sketch.allocated;
        self.nodes.use_log = sketch.use_log;
    }
}
