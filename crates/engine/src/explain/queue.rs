//! What a queue waits for, and who in it.
//!
//! Invariant: worked out when asked, from the tables as the last cycle left them. O(groups that wait in it).

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use super::holders::{Of, ResourceHolders, holders_of};
use super::node::text_of;
use crate::cycle_end;
use crate::explain::queue_view::QueueView;
use crate::facts::{NodeName, ObjectName};
use crate::ids::{GroupId, NodeId, QueueId};
use crate::reasons::{plural, time_text, tree};
use crate::resource_dims::{Resources, amount_text};
use crate::search::View;
use crate::share;
use crate::world::tables::Tables;

/// Groups that are told of.
const TOLD_MAX: usize = 10;

/// Why a queue's work waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueWhy {
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
    /// Who holds the most of each resource that it has a limit of, or deserves.
    #[serde(rename = "held", skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<ResourceHolders>,
    /// The node with the most room for one pod, and that room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hole: Option<(NodeName, Resources)>,
    /// For whom room is reserved, `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_for: Option<ObjectName>,
    /// In how many milliseconds that one is expected to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts_in_ms: Option<i64>,
    /// The first in its order, ten at most, and what each waits for.
    pub first: Vec<(ObjectName, String)>,
}

impl QueueWhy {
    pub(crate) fn of(view: View<'_>, queue: QueueId) -> Self {
        let View { tables, policy, now, .. } = view;
        let queue_view = QueueView::of(tables, policy, queue);
        let row = tables.queues.row(queue);
        let mut waiting: Vec<GroupId> = Vec::new();
        // What is only being bound does not wait.
        let waits = |group: &&GroupId| {
            let row = tables.groups.row(**group);
            row.queue == queue && (row.pending() > 0 || !row.is_coming())
        };
        waiting.extend(tables.groups.waiting.iter().filter(waits));
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
            let reasons = cycle_end::reasons_of(view, *group);
            let summary = reasons.map_or_else(|| "was not looked at yet".to_owned(), |reasons| reasons.summary());
            (tables.groups.row(*group).key(), summary)
        };
        let closed = (!row.is_open()).then(|| format!("queue {} is {:?} and takes no new work", row.name, row.state));
        let bounds = queue_view.deserved.iter().chain([&queue_view.capability]).flat_map(|amounts| amounts.iter());
        // The limit, where there is one, is what is said.
        let bounds: BTreeMap<&String, i64> = bounds.map(|(name, amount)| (name, *amount)).collect();
        let of = bounds.iter().filter_map(|(name, bound)| Some(Of::Queue(queue, tables.dims.lookup(name)?, *bound)));
        let holders = of.filter_map(|of| holders_of(view, of)).filter(ResourceHolders::is_of_use).collect();
        let reservation = tables.reservations.in_queue(queue);
        let starts = reservation.and_then(|one| one.forecast.as_ref()).map(|forecast| forecast.at);
        Self {
            queue: queue_view.name,
            allocated: queue_view.allocated,
            deserved: queue_view.deserved,
            capability: queue_view.capability,
            held_up: closed.or_else(|| policy.overused(tables, queue).map(|reason| reason.to_string())),
            waiting: all,
            unadmitted,
            holders,
            hole: hole(tables),
            reserved_for: reservation.map(|one| tables.groups.row(one.group).key()),
            starts_in_ms: starts.map(|at| at.0.saturating_sub(now.0).max(0)),
            first: waiting.iter().map(told).collect(),
        }
    }
}

/// The node that is free to the largest part of what nodes offer. O(nodes).
fn hole(tables: &Tables) -> Option<(NodeName, Resources)> {
    let room =
        |node| -> Vec<i64> { (0..tables.dims.len()).map(|dim| tables.nodes.room(node, dim.into()).max(0)).collect() };
    let usable = tables.nodes.ids().filter(|node| !tables.nodes.row(*node).unschedulable);
    let size = |node: &NodeId| (share::dominant(&room(*node), &tables.nodes.total), Reverse(*node));
    let largest = usable.max_by_key(size)?;
    Some((tables.node_name(largest).into(), tables.dims.resources(&room(largest))))
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
        lines.extend(self.holders.iter().map(ToString::to_string));
        if let Some((node, room)) = self.hole.as_ref()
            && self.waiting > 0
        {
            lines.push(format!("the most room for one pod is on {node}: {}", text_of(room)));
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
