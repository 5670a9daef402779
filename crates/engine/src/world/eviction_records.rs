//! Eviction records: who had to leave, for whom, by which rule, and what became of the room.
//!
//! Invariant: an eviction for somebody has one record, which ends once: when that group has started, or can't any more in
//! that room. The last ones are kept, so many; decisions don't read them. Written by the statements of actions, ended at the
//! start of a cycle, read by `explain`.

use std::collections::VecDeque;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::facts::{NodeName, ObjectName, PodFacts, PodUid};
use crate::ids::{TaskId, TimeMs};
use crate::plan::{Ending, FreedRoom};
use crate::reasons::time_text;
use crate::world::tables::Tables;
use crate::world::tasks::{Evicting, TaskState};

/// A pod that could not be told to leave is let alone for so long.
const ALONE_MS: i64 = 10_000;

/// The rule by which backfill leaves that has run longer than nearly all of its kind, as the plan names it.
pub(crate) const OVERRUN: &str = "overrun";
/// Records that are kept.
const KEPT_MAX: usize = 2_048;
/// Of these, told in one answer.
const TOLD_MAX: usize = 5;

/// One eviction, as the World keeps it.
#[derive(Debug)]
pub(crate) struct StoredEviction {
    uid: Arc<str>,
    pod: Arc<str>,
    node: Arc<str>,
    victim: Arc<str>,
    queue: Arc<str>,
    beneficiary: Arc<str>,
    beneficiary_uid: Arc<str>,
    /// Pods of it that counted for its minimum before.
    ready_before: u32,
    action: Arc<str>,
    /// The victim's, and the other's.
    priorities: (i32, i32),
    at: TimeMs,
    ending: Ending,
    ended_at: TimeMs,
}

#[derive(Debug, Default)]
pub(crate) struct EvictionRecords {
    all: VecDeque<StoredEviction>,
    /// Those without an end.
    open: usize,
}

/// An eviction, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EvictionRecord {
    /// The pod that had to leave.
    pub pod: String,
    pub node: NodeName,
    /// Its group, `namespace/name`.
    pub victim: ObjectName,
    /// The group that gets the room, `namespace/name`.
    pub beneficiary: ObjectName,
    /// The action that chose it.
    pub action: String,
    /// By which rule.
    pub rule: String,
    pub at: TimeMs,
    /// How many milliseconds ago.
    pub ago_ms: i64,
    /// What became of the room.
    pub room: Ending,
    /// Asked of the one that gets the room.
    #[serde(skip)]
    pub for_it: bool,
}

impl Tables {
    /// Puts down an eviction for a group.
    pub(crate) fn note_eviction(&mut self, action: &str, task: TaskId, beneficiary: &ObjectName, now: TimeMs) {
        let Some(group) = self.groups.table.find(beneficiary) else { return };
        let (victim, other) = (self.task(task), self.groups.row(group));
        let Some(own) = victim.group.map(|group| self.groups.row(group)) else { return };
        let stored = StoredEviction {
            uid: victim.uid.clone(),
            pod: victim.name.clone(),
            node: victim.node.map_or_else(|| "".into(), |node| self.node_name(node).clone()),
            victim: own.key.clone(),
            queue: self.queues.row(own.queue).name.clone(),
            beneficiary: beneficiary.as_str().into(),
            beneficiary_uid: other.uid.clone(),
            ready_before: other.counts.ready(),
            action: action.into(),
            priorities: (own.priority, other.priority),
            at: now,
            ending: Ending::Open,
            ended_at: now,
        };
        let eviction_records = &mut self.eviction_records;
        if eviction_records.all.len() >= KEPT_MAX
            && let Some(dropped) = eviction_records.all.pop_front()
        {
            eviction_records.open -= usize::from(dropped.ending == Ending::Open);
        }
        eviction_records.all.push_back(stored);
        eviction_records.open += 1;
    }

    /// The API server refused an eviction.
    pub(crate) fn eviction_refused(&mut self, uid: &PodUid) {
        let eviction_records = &mut self.eviction_records;
        let open = |stored: &&mut StoredEviction| stored.ending == Ending::Open && *stored.uid == **uid;
        if let Some(stored) = eviction_records.all.iter_mut().find(open) {
            stored.ending = Ending::Refused;
            eviction_records.open -= 1;
        }
    }

    /// Ends the records of which the end shows, and says which. O(records) while any is open.
    pub(crate) fn settle_eviction_records(&mut self, now: TimeMs) -> Vec<FreedRoom> {
        let Self { eviction_records, groups, reservations, .. } = self;
        if eviction_records.open == 0 {
            return Vec::new();
        }
        let mut settled: Vec<FreedRoom> = Vec::new();
        for stored in eviction_records.all.iter_mut().filter(|stored| stored.ending == Ending::Open) {
            let group = groups.table.find(&stored.beneficiary).map(|group| (group, groups.row(group)));
            stored.ending = match group.filter(|(_, row)| row.uid == stored.beneficiary_uid && !row.ended) {
                None => Ending::Gone,
                Some((group, row)) if row.counts.pipelined() > 0 || reservations.of(group).is_some() => continue,
                Some((_, row)) => {
                    let ready = row.counts.ready();
                    let started = ready > stored.ready_before && ready >= row.min_member.max(1);
                    if started { Ending::Used } else { Ending::NotFreed }
                }
            };
            stored.ended_at = now;
            eviction_records.open -= 1;
            let known =
                settled.iter_mut().find(|one| one.beneficiary == *stored.beneficiary && one.room == stored.ending);
            match known {
                Some(one) => one.evictions += 1,
                None => settled.push(FreedRoom {
                    beneficiary: (&stored.beneficiary).into(),
                    uid: (&*stored.beneficiary_uid).into(),
                    action: stored.action.to_string(),
                    room: stored.ending,
                    evictions: 1,
                }),
            }
        }
        settled
    }

    /// The last records of a group, as the one that had to leave or as the one that others left for; the newest first.
    pub(crate) fn eviction_records_of(&self, group: &ObjectName, now: TimeMs) -> Vec<EvictionRecord> {
        let of_it = self
            .eviction_records
            .all
            .iter()
            .rev()
            .filter(|stored| *group == *stored.victim || *group == *stored.beneficiary);
        of_it.take(TOLD_MAX).map(|stored| stored.for_group(group, now)).collect()
    }
}

impl StoredEviction {
    fn for_group(&self, asked: &ObjectName, now: TimeMs) -> EvictionRecord {
        let (own, other) = self.priorities;
        let rule = if self.action.ends_with("reclaim") {
            format!("queue {} holds more than its share", self.queue)
        } else if *self.action == *OVERRUN {
            "it has run longer than nearly all of its kind".to_owned()
        } else if own < other {
            format!("priority {other} > {own}")
        } else {
            "it comes after that in its queue".to_owned()
        };
        EvictionRecord {
            pod: self.pod.to_string(),
            node: (&self.node).into(),
            victim: (&self.victim).into(),
            beneficiary: (&self.beneficiary).into(),
            action: self.action.to_string(),
            rule,
            at: self.at,
            ago_ms: now.0.saturating_sub(self.at.0).max(0),
            room: self.ending,
            for_it: *asked == *self.beneficiary,
        }
    }
}

impl Display for EvictionRecord {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { pod, node, victim, beneficiary, action, rule, .. } = self;
        let ago = time_text(self.ago_ms);
        if self.for_it {
            write!(f, "pod {pod} of {victim} was evicted from {node} for it {ago} ago by {action} ({rule})")?;
        } else {
            write!(f, "pod {pod} was evicted from {node} {ago} ago for {beneficiary} by {action} ({rule})")?;
        }
        f.write_str(match self.room {
            Ending::Open => ": the room is being freed",
            Ending::Used => ": the room was used",
            Ending::Gone => ": the room was not used, that job is gone",
            Ending::NotFreed => ": the room was not used, it did not become free in time",
            Ending::Refused => ": it stayed, the API server refused",
        })
    }
}

/// Evictions between the decision and the end of the pod: what the cluster still shows is not what counts.
impl Tables {
    /// A new version of a pod that we are evicting: it counts as leaving until it is gone, whatever it shows.
    pub(crate) fn still_evicting(&self, old: Option<TaskId>, facts: &PodFacts, told: TaskState) -> Option<Evicting> {
        let mut evicting = self.task(old?).evicting.as_deref()?.clone();
        match told {
            TaskState::Bound | TaskState::Running => evicting.was = told,
            TaskState::Releasing => evicting.confirmed = true,
            _ => return None,
        }
        evicting.confirmed |= facts.terminating;
        Some(evicting)
    }

    /// The answer to an eviction: a pod that could not be told to leave stays what it was, and the nominations of the group
    /// that was to have its room fall.
    pub(crate) fn evict_result(&mut self, uid: &PodUid, result: Result<(), &str>, now: TimeMs) {
        let (Some(task), Err(_)) = (self.tasks.find(uid), result) else { return };
        let row = self.tasks.row_mut(task.index());
        if row.state != TaskState::Releasing || row.evicting.as_ref().is_none_or(|evicting| evicting.confirmed) {
            return;
        }
        let Some(evicting) = row.evicting.take() else { return };
        self.eviction_refused(uid);
        let row = self.tasks.row_mut(task.index());
        row.spared_until = now.plus_ms(ALONE_MS);
        let node = row.node;
        self.evicting.remove(&task);
        self.move_task(task, evicting.was, node);
        if let Some(group) = evicting.beneficiary.and_then(|key| self.groups.table.find(&key)) {
            let is_nominated = |task: &TaskId| self.task(*task).state == TaskState::Pipelined;
            let nominated: Vec<TaskId> = self.groups.row(group).tasks.iter().copied().filter(is_nominated).collect();
            for nomination in nominated {
                let node = self.task(nomination).node;
                self.move_task(nomination, TaskState::Pending, None);
                if let Some(node) = node {
                    self.nodes.release(node);
                }
            }
        }
    }
}

crate::save::saved! {
    StoredEviction as "Kept" { uid, pod, node, victim, queue, beneficiary, beneficiary_uid, ready_before, action, priorities, at, ending, ended_at };
    EvictionRecords as "Receipts" { all, open };
}
