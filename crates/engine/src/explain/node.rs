//! Why a node takes no more, and when it will.
//!
//! Invariant: worked out when asked, from the tables as the last cycle left them. O(pods on the node), and a
//! bounded number of waiting groups.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use super::holders::job_of;
use crate::facts::{NodeName, ObjectName};
use crate::ids::{DimId, GroupId, NodeId};
use crate::node_plugins::predicates;
use crate::policy::Policy;
use crate::reasons::{plural, time_text, tree};
use crate::resource_dims::{Resources, amount_text};
use crate::search::View;
use crate::share;
use crate::world::end_times::Confidence;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// Pods whose ends are told.
const ENDS_MAX: usize = 5;
/// Jobs that are told of because they hold a part of it, or would fit.
const HOLDERS_TOLD_MAX: usize = 3;
const FITTING_TOLD_MAX: usize = 3;
/// Waiting groups that are tried for that.
const WAITING_LOOKED_AT_MAX: usize = 1_000;

/// How a node stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeWhy {
    pub node: NodeName,
    /// What keeps pods away from it: `cordoned`, taints, a shard.
    pub barred: Vec<String>,
    pub allocatable: Resources,
    /// What pods take of it.
    pub used: Resources,
    /// What is kept for groups that have a reservation.
    #[serde(rename = "kept", skip_serializing_if = "Resources::is_empty")]
    pub reserved: Resources,
    /// For whom, `namespace/name`, and in how many milliseconds they are expected to start.
    #[serde(rename = "keptFor", skip_serializing_if = "Vec::is_empty")]
    pub reserved_for: Vec<(ObjectName, i64)>,
    /// The most that one more pod can have now: what is free and not kept.
    pub hole: Resources,
    /// Who holds the most of it, the largest first; three at most, and what each holds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<(ObjectName, Resources)>,
    /// Waiting jobs of which a pod would fit here now; three at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fits: Vec<ObjectName>,
    pub pods: u32,
    /// Of these, those of which nothing tells when they end.
    pub endless: u32,
    /// The next ends, five at most: pod, and in how many milliseconds.
    pub ends: Vec<(ObjectName, i64)>,
}

impl NodeWhy {
    pub(crate) fn of(View { tables, policy, now, .. }: View<'_>, node: NodeId) -> Self {
        let row = tables.nodes.row(node);
        let mut barred: Vec<String> = Vec::new();
        if row.unschedulable {
            let closed = predicates::closed(row);
            barred.push(if closed.is_empty() { "cordoned" } else { closed }.to_owned());
        }
        barred.extend(row.taints.iter().map(|taint| format!("taint {}={}:{:?}", taint.key, taint.value, taint.effect)));
        let is_ours = tables.shard.usable().is_none_or(|usable| usable.contains(&&*row.name));
        if !is_ours {
            barred.push("outside of this scheduler's shard".to_owned());
        }
        barred.extend(super::maintenance_windows::of_node(tables, node, now));
        let dims = || (0..tables.dims.len()).map(DimId::from);
        let by_name = |amount: &dyn Fn(DimId) -> i64| {
            let amounts = dims().map(|dim| (tables.dims.name(dim).to_string(), amount(dim)));
            amounts.filter(|(_, amount)| *amount != 0).collect::<Resources>()
        };
        let placed = || row.tasks.iter().filter(|task| tables.task(**task).state.holds_node());
        let mut ends: Vec<(i64, ObjectName)> = Vec::new();
        for task in placed() {
            if let Some(end) = tables.end_of(*task, Confidence::Expected, now) {
                let pod = tables.task(*task);
                ends.push((end.0.saturating_sub(now.0), ObjectName::new(&pod.namespace, &pod.name)));
            }
        }
        let (pods, known) = (placed().count(), ends.len());
        ends.sort();
        ends.truncate(ENDS_MAX);
        let mut reserved_for: BTreeMap<ObjectName, i64> = BTreeMap::new();
        for reservation in &tables.reservations.all {
            if let Some(forecast) = &reservation.forecast
                && forecast.places.iter().any(|place| place.node == node)
            {
                reserved_for
                    .insert(tables.groups.row(reservation.group).key(), forecast.at.0.saturating_sub(now.0).max(0));
            }
        }
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            node: (&row.name).into(),
            barred,
            allocatable: by_name(&|dim| tables.nodes.allocatable(node, dim)),
            used: by_name(&|dim| tables.nodes.used(node, dim)),
            reserved: by_name(&|dim| tables.nodes.reserved(node, dim)),
            reserved_for: reserved_for.into_iter().collect(),
            hole: by_name(&|dim| tables.nodes.room(node, dim).max(0)),
            by: holders(tables, node),
            fits: fitting(tables, policy, node),
            pods: count(pods),
            endless: count(pods - known),
            ends: ends.into_iter().map(|(left, pod)| (pod, left)).collect(),
        }
    }
}

/// Those whose pods take the largest part of the node.
fn holders(tables: &Tables, node: NodeId) -> Vec<(ObjectName, Resources)> {
    let row = tables.nodes.row(node);
    let mut held: BTreeMap<GroupId, Vec<i64>> = BTreeMap::new();
    for task in row.tasks.iter().map(|task| tables.task(*task)).filter(|task| task.state.holds_node()) {
        if let Some(group) = task.group {
            tables.classes.row(task.class).demand.add_to(held.entry(group).or_default(), 1);
        }
    }
    let offered: Vec<i64> = (0..tables.dims.len()).map(|dim| tables.nodes.allocatable(node, dim.into())).collect();
    let mut held: Vec<(GroupId, Vec<i64>)> = held.into_iter().collect();
    held.sort_by_key(|(group, amounts)| (Reverse(share::dominant(amounts, &offered)), *group));
    held.truncate(HOLDERS_TOLD_MAX);
    held.into_iter().map(|(group, amounts)| (job_of(tables, group), tables.dims.resources(&amounts))).collect()
}

/// Waiting groups, of those that are looked at, of which the first pod could go there by what its class tells.
fn fitting(tables: &Tables, policy: &Policy, node: NodeId) -> Vec<ObjectName> {
    let fits = |group: &&GroupId| {
        let tasks = tables.groups.row(**group).tasks.iter().map(|task| tables.task(*task));
        let first = tasks.into_iter().find(|task| task.state == TaskState::Pending && !task.gated);
        first.is_some_and(|task| {
            let class = tables.classes.row(task.class);
            tables.nodes.fits(node, &class.demand)
                && policy.check_facts(tables, class, node).is_none()
                && policy.use_allows(tables, class, node)
        })
    };
    let waiting = tables.groups.waiting.iter().take(WAITING_LOOKED_AT_MAX);
    waiting.filter(fits).take(FITTING_TOLD_MAX).map(|group| job_of(tables, *group)).collect()
}

pub(super) fn text_of(amounts: &Resources) -> String {
    let told = amounts.iter().filter(|(name, _)| *name != "pods");
    told.map(|(name, amount)| format!("{} {name}", amount_text(name, *amount))).collect::<Vec<_>>().join(", ")
}

impl Display for NodeWhy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "node {} runs {}", self.node, plural(self.pods, "pod"))?;
        let mut lines: Vec<String> = Vec::new();
        if !self.barred.is_empty() {
            lines.push(format!("keeps pods away: {}", self.barred.join(", ")));
        }
        for (name, offered) in &self.allocatable {
            let of = |amounts: &Resources| amounts.get(name).copied().unwrap_or(0);
            let text = |amount: i64| amount_text(name, amount);
            let free = offered.saturating_sub(of(&self.used));
            let mut line = format!("{name}: {} of {} free", text(free), text(*offered));
            if of(&self.reserved) > 0 {
                line.push_str(&format!(", {} of it kept", text(of(&self.reserved))));
            }
            lines.push(line);
        }
        lines.extend(self.by.iter().map(|(job, amounts)| format!("held by {job}: {}", text_of(amounts))));
        if !self.hole.is_empty() && self.barred.is_empty() {
            lines.push(format!("one more pod can have at most {}", text_of(&self.hole)));
        }
        if !self.fits.is_empty() {
            lines.push(format!("a pod would fit of {}", self.fits.join(", ")));
        }
        for (group, starts) in &self.reserved_for {
            lines.push(format!("reserved for {group}, expected to start in {}", time_text(*starts)));
        }
        lines.extend(self.ends.iter().map(|(pod, left)| format!("{pod} is expected to end in {}", time_text(*left))));
        if self.endless > 0 {
            lines.push(format!("of {} nothing tells the end", plural(self.endless, "pod")));
        }
        tree(f, &lines)
    }
}
