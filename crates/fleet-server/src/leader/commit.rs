//! Folding what was written, and writing what follows from it.
//!
//! Invariant: others wait only while what came in a moment ago is folded, and a bounded number of decisions is made and written.

use std::cell::Cell;
use std::collections::BTreeSet;

use pumice_clock as clock;
use pumice_engine::{Delta, NodeFacts};
use pumice_fleet_scheduling::{Constraints, could_hold, queue_delta};
use pumice_ledger::{Entry, Event, NodeRef, Shape, TimeMs};

use super::{Ended, RENEW_EVERY, Term};
use crate::database::{Changed, Database, Seq};
use crate::metrics::LifecycleEvent;

/// Entries that are read and folded at a time.
const TAIL: u32 = 100;
/// Answers whether there is room, in one commit, during which others wait. Beyond them a job is tried again, and says why it waits.
const ANSWERS_MAX: u32 = 100;

/// What was asked about queues and executors since pools were told.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    queues: Vec<Delta>,
    /// Executors of which something is set, or nothing any more.
    set: BTreeSet<String>,
    /// Executors that are said to be gone.
    gone: Vec<String>,
}

impl Term {
    /// Folds what was asked, decides, and writes, as one.
    pub(super) async fn commit(&mut self, log: &Database) -> Result<(), Ended> {
        let head = *log.head().borrow();
        if !self.dirty && head <= self.position {
            return Ok(());
        }
        self.catch_up(log, head).await?;
        let (mut leased, mut told, began) = (BTreeSet::new(), Vec::new(), clock::monotonic());
        let (leased_by, told_by) = (&mut leased, &mut told);
        let committed = log
            .commit(self.epoch, self.position, |tail| {
                self.take_in(&tail, told_by);
                let inbox = std::mem::take(&mut self.inbox);
                let (ledger, lifecycles) = (&mut self.ledger, &mut self.lifecycles);
                let now = TimeMs(clock::now_ms());
                let nodes = self.sessions.all_nodes(ledger, self.began, now);
                let could_hold = could_hold_question(nodes, &self.constraints);
                let decided = ledger.decide_where(now, inbox, self.retries.clone(), &could_hold);
                decided.iter().for_each(|entry| lifecycles.tell(ledger, entry, told_by));
                for event in decided.iter().flat_map(|entry| &entry.events) {
                    if let Event::Leased { run, .. } = event {
                        leased_by.insert(run.job);
                    }
                }
                Changed::of(ledger, decided)
            })
            .await?;
        self.metrics.committed(began.elapsed());
        self.metrics.count_events(told);
        self.position = committed.head;
        self.dirty = self.ledger.has_parts();
        self.sessions.written();
        self.settle(&leased);
        self.tell_pools();
        Ok(())
    }

    /// Folds what was written up to `head`, while others can append. It may take longer than this server leads by itself.
    async fn catch_up(&mut self, log: &Database, head: Seq) -> Result<(), Ended> {
        let mut renewed = clock::monotonic();
        while self.position < head {
            let tail = log.tail(self.position, TAIL).await?;
            let Some((last, _)) = tail.last() else { break };
            let (last, mut told) = (*last, Vec::new());
            self.take_in(&tail, &mut told);
            self.metrics.count_events(told);
            self.position = last;
            if renewed.elapsed() >= RENEW_EVERY {
                log.renew(self.epoch).await?;
                renewed = clock::monotonic();
            }
        }
        Ok(())
    }

    /// Folds what was asked. What it decides of is written with the next commit.
    fn take_in(&mut self, tail: &[(Seq, Entry)], told: &mut Vec<LifecycleEvent>) {
        for (_, entry) in tail {
            self.ledger.fold(entry);
            self.lifecycles.tell(&self.ledger, entry, told);
            for event in &entry.events {
                match event {
                    Event::QueueSet(queue) => self.pending_changes.queues.push(queue_delta(queue)),
                    Event::QueueRemoved => self.pending_changes.queues.push(Delta::QueueRemove(entry.queue.clone())),
                    Event::ExecutorSet { executor, .. } | Event::ExecutorUnset { executor } => {
                        self.pending_changes.set.insert(executor.clone());
                    }
                    Event::ExecutorForgotten { executor } => {
                        let reports = self.sessions.gone(executor, &self.ledger, TimeMs(clock::now_ms()));
                        self.inbox.reports.extend(reports);
                        self.pending_changes.gone.push(executor.clone());
                    }
                    _ => {}
                }
            }
        }
    }

    /// What pools have to know before their next round.
    fn tell_pools(&mut self) {
        let PendingChanges { queues, set, gone } = std::mem::take(&mut self.pending_changes);
        for executor in set {
            for (pool, delta) in self.sessions.nodes(&executor, &self.ledger) {
                self.pool_updates.entry(pool).or_default().push(delta);
            }
        }
        for executor in gone {
            for (pool, delta) in self.sessions.forget(&executor, TimeMs(clock::now_ms())) {
                self.pool_updates.entry(pool).or_default().push(delta);
            }
        }
        self.penalties.take(self.ledger.take_ended(), &self.constraints.short_jobs);
        let changed = self.ledger.take_changed();
        for name in self.pools.keys().chain(&self.busy) {
            self.changed.entry(name.clone()).or_default().extend(&changed);
            self.pool_updates.entry(name.clone()).or_default().extend(queues.iter().cloned());
        }
    }
}

/// Whether a job that failed could be tried again as its policy wants it: with more memory, or on another node. It answers as
/// [`pumice_ledger::CouldHold`]; everything could be held where it is not known which `nodes` there are.
fn could_hold_question<'n>(
    nodes: Option<impl Iterator<Item = (&'n str, &'n NodeFacts)> + Clone>,
    constraints: &Constraints,
) -> impl Fn(&Shape, &[NodeRef]) -> bool {
    let asked = Cell::new(0);
    move |shape, off| {
        if asked.get() >= ANSWERS_MAX {
            return true;
        }
        let Some(nodes) = nodes.clone() else { return true };
        asked.set(asked.get() + 1);
        could_hold(shape, off, &constraints.floating, nodes)
    }
}
