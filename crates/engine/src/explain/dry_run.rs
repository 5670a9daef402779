//! A dry run: a trial that is only for an answer. Everything that it touches is put back as it was, so that asking changes
//! no decision, not even in which order later ones are made.
//!
//! Invariant: after `end_dry_run` the tables are as before `begin_dry_run`; only counts of zero may have come to be where
//! there were none. Unlike a cycle's rollback that includes the logs of changes and the marks of what is to be looked at
//! again, which a replay could not know of. Called by `unblock_probes`.

use crate::cluster::nodes::ChangeLog;
use crate::ids::GroupId;
use crate::world::groups::Marked;
use crate::world::journal::Savepoint;
use crate::world::namespace_shares::Touched;
use crate::world::queues::QueueSums;
use crate::world::reservations::ReservationSnapshot;
use crate::world::tables::Tables;

/// What is put back.
#[derive(Debug)]
pub(crate) struct DryRun {
    savepoint: Savepoint,
    use_log: ChangeLog,
    groups: Marked,
    reservation_snapshot: ReservationSnapshot,
    namespace_shares: Touched,
    /// Sums go back to what they were in length, too.
    sums: Vec<QueueSums>,
    group: GroupId,
    allocated: Vec<i64>,
}

impl Tables {
    /// Whether a trial can tell anything now: not where a cycle has first to take in what pods say of each other.
    pub(crate) fn can_dry_run(&self) -> bool {
        !self.inter_pod.is_stale() && !self.journal.is_open()
    }

    /// Begins a trial of one group.
    pub(crate) fn begin_dry_run(&mut self, group: GroupId) -> DryRun {
        let end = self.nodes.use_log.end();
        let use_log = std::mem::replace(&mut self.nodes.use_log, ChangeLog::beginning_at(end));
        let row = self.groups.row(group);
        let (queue, namespace, allocated) = (row.queue, (row.queue, row.namespace_id), row.allocated.clone());
        let (groups, reservation_snapshot, namespace_shares) =
            (self.groups.marks(), self.reservation_snapshot(), self.namespace_shares.touched(&[namespace]));
        let sums = self.queues.sums(&[queue]);
        self.journal.open();
        DryRun {
            savepoint: self.savepoint(),
            use_log,
            groups,
            reservation_snapshot,
            namespace_shares,
            sums,
            group,
            allocated,
        }
    }

    /// Takes back what the trial has placed, and keeps for others what is kept: it can go on.
    pub(crate) fn reset_dry_run(&mut self, dry_run: &DryRun) {
        self.rollback(dry_run.savepoint);
        self.put_back(&dry_run.reservation_snapshot);
    }

    pub(crate) fn end_dry_run(&mut self, dry_run: DryRun) {
        self.reset_dry_run(&dry_run);
        self.commit();
        self.groups.unmark(dry_run.groups);
        self.namespace_shares.untouch(dry_run.namespace_shares);
        self.queues.set_sums(dry_run.sums);
        self.groups.row_mut(dry_run.group).allocated = dry_run.allocated;
        self.nodes.use_log = dry_run.use_log;
    }
}
