//! What a queue waits for, and who in it.
//!
//! Invariant: worked out when asked, from the tables as the last cycle left them. O(groups that wait in it).

use std::cmp::Ordering;
use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::backlog::Backlog;
use crate::close;
use crate::dims::{Resources, amount_text};
use crate::ids::{GroupId, QueueId, TimeMs};
use crate::policy::Policy;
use crate::reasons::{plural, time_text, tree};
use crate::world::queue_view::QueueView;
use crate::world::tables::Tables;

/// Groups that are told of.
const TOLD_MAX: usize = 10;

/// Why a queue's work waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueWhy {
    /// The queue.
    pub queue: String,
    /// What its pods have, with those of queues below it.
    pub allocated: Resources,
    /// What it deserves, where a plugin divides the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deserved: Option<Resources>,
    /// Its limit, where one was set.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub capability: Resources,
    /// Why it gets nothing more for now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_up: Option<String>,
    /// Groups of its own that wait.
    pub waiting: u32,
    /// Of these, those that were not admitted yet.
    pub unadmitted: u32,
    /// For whom room is reserved, `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_for: Option<String>,
    /// In how many milliseconds that one is expected to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts_in_ms: Option<i64>,
    /// The first in its order, ten at most, and what each waits for.
    pub first: Vec<(String, String)>,
}

impl QueueWhy {
    pub(crate) fn of(tables: &Tables, policy: &Policy, backlog: &Backlog, queue: QueueId, now: TimeMs) -> Self {
        let view = QueueView::of(tables, policy, queue);
        let row = tables.queues.row(queue);
        let mut waiting: Vec<GroupId> = Vec::new();
        waiting.extend(tables.groups.waiting.iter().filter(|group| tables.groups.row(**group).queue == queue));
        let order = |left: &GroupId, right: &GroupId| -> Ordering { policy.job_order(tables, *left, *right) };
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let all = count(waiting.len());
        let unadmitted = count(waiting.iter().filter(|group| tables.groups.unadmitted.contains(group)).count());
        if waiting.len() > TOLD_MAX {
            waiting.select_nth_unstable_by(TOLD_MAX, order);
            waiting.truncate(TOLD_MAX);
        }
        waiting.sort_by(order);
        let told = |group: &GroupId| {
            let reasons = close::reasons_of(tables, policy, backlog, *group);
            let summary = reasons.map_or_else(|| "was not looked at yet".to_owned(), |reasons| reasons.summary());
            (tables.groups.row(*group).key(), summary)
        };
        let closed = (!row.is_open()).then(|| format!("queue {} is {:?} and takes no new work", row.name, row.state));
        let reservation = tables.reservations.in_queue(queue);
        let starts = reservation.and_then(|one| one.prospect.as_ref()).map(|prospect| prospect.at);
        Self {
            queue: view.name,
            allocated: view.allocated,
            deserved: view.deserved,
            capability: view.capability,
            held_up: closed.or_else(|| policy.overused(tables, queue).map(|reason| reason.to_string())),
            waiting: all,
            unadmitted,
            reserved_for: reservation.map(|one| tables.groups.row(one.group).key()),
            starts_in_ms: starts.map(|at| at.0.saturating_sub(now.0).max(0)),
            first: waiting.iter().map(told).collect(),
        }
    }
}

impl Display for QueueWhy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.waiting {
            0 => write!(f, "nothing waits in queue {}", self.queue)?,
            1 => write!(f, "1 group waits in queue {}", self.queue)?,
            waiting => write!(f, "{waiting} groups wait in queue {}", self.queue)?,
        }
        let mut lines: Vec<String> = self.held_up.iter().cloned().collect();
        if self.unadmitted > 0 {
            lines.push(format!("not admitted yet: {}", plural(self.unadmitted, "group")));
        }
        for (name, amount) in &self.allocated {
            let of = |amounts: &Resources| amounts.get(name).map(|amount| amount_text(name, *amount));
            let mut line = format!("{name}: {} in use", amount_text(name, *amount));
            line.extend(self.deserved.as_ref().and_then(of).map(|amount| format!(", deserves {amount}")));
            line.extend(of(&self.capability).map(|amount| format!(", limit {amount}")));
            lines.push(line);
        }
        if let Some(group) = &self.reserved_for {
            let starts = self.starts_in_ms.map(time_text);
            let starts = starts.map_or_else(
                || "it can't be told when it starts".to_owned(),
                |time| format!("expected to start in {time}"),
            );
            lines.push(format!("room is reserved for {group}: {starts}"));
        }
        lines.extend(self.first.iter().map(|(group, summary)| format!("{group}: {summary}")));
        let left = (self.waiting as usize).saturating_sub(self.first.len());
        if left > 0 {
            lines.push(format!("and {left} more"));
        }
        tree(f, &lines)
    }
}
