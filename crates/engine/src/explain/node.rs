//! Why a node takes no more, and when it will.
//!
//! Invariant: worked out when asked, from the tables as the last cycle left them. O(pods on the node).

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::dims::{Resources, amount_text};
use crate::ids::{DimId, NodeId, TimeMs};
use crate::reasons::{plural, time_text, tree};
use crate::world::ends::Surety;
use crate::world::tables::Tables;

/// Pods whose ends are told.
const ENDS_MAX: usize = 5;

/// How a node stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeWhy {
    /// The node.
    pub node: String,
    /// What keeps pods away from it: `cordoned`, taints, a shard.
    pub barred: Vec<String>,
    /// What it offers.
    pub allocatable: Resources,
    /// What pods take of it.
    pub used: Resources,
    /// What is kept for groups that have a reservation.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub kept: Resources,
    /// For whom, `namespace/name`, and in how many milliseconds they are expected to start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept_for: Vec<(String, i64)>,
    /// Pods on it.
    pub pods: u32,
    /// Of these, those of which nothing tells when they end.
    pub endless: u32,
    /// The next ends, five at most: pod, and in how many milliseconds.
    pub ends: Vec<(String, i64)>,
}

impl NodeWhy {
    pub(crate) fn of(tables: &Tables, node: NodeId, now: TimeMs) -> Self {
        let row = tables.nodes.row(node);
        let mut barred: Vec<String> = row.unschedulable.then(|| "cordoned".to_owned()).into_iter().collect();
        barred.extend(row.taints.iter().map(|taint| format!("taint {}={}:{:?}", taint.key, taint.value, taint.effect)));
        let is_ours = tables.shard.usable().is_none_or(|usable| usable.contains(&&*row.name));
        barred.extend((!is_ours).then(|| "outside of this scheduler's shard".to_owned()));
        barred.extend(super::windows::of_node(tables, node, now));
        let dims = || (0..tables.dims.len()).map(DimId::from);
        let by_name = |amount: &dyn Fn(DimId) -> i64| {
            let amounts = dims().map(|dim| (tables.dims.name(dim).to_string(), amount(dim)));
            amounts.filter(|(_, amount)| *amount != 0).collect::<Resources>()
        };
        let placed = || row.tasks.iter().filter(|task| tables.task(**task).state.holds_node());
        let mut ends: Vec<(i64, String)> = Vec::new();
        for task in placed() {
            if let Some(end) = tables.end_of(*task, Surety::Expected, now) {
                let pod = tables.task(*task);
                ends.push((end.0.saturating_sub(now.0), format!("{}/{}", pod.namespace, pod.name)));
            }
        }
        let (pods, known) = (placed().count(), ends.len());
        ends.sort();
        ends.truncate(ENDS_MAX);
        let mut kept_for: BTreeMap<String, i64> = BTreeMap::new();
        for reservation in &tables.reservations.all {
            if let Some(prospect) = &reservation.prospect
                && prospect.places.iter().any(|place| place.node == node)
            {
                kept_for.insert(tables.groups.row(reservation.group).key(), prospect.at.0.saturating_sub(now.0).max(0));
            }
        }
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            node: row.name.to_string(),
            barred,
            allocatable: by_name(&|dim| tables.nodes.allocatable(node, dim)),
            used: by_name(&|dim| tables.nodes.used(node, dim)),
            kept: by_name(&|dim| tables.nodes.held(node, dim)),
            kept_for: kept_for.into_iter().collect(),
            pods: count(pods),
            endless: count(pods - known),
            ends: ends.into_iter().map(|(left, pod)| (pod, left)).collect(),
        }
    }
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
            if of(&self.kept) > 0 {
                line.push_str(&format!(", {} of it kept", text(of(&self.kept))));
            }
            lines.push(line);
        }
        for (group, starts) in &self.kept_for {
            lines.push(format!("reserved for {group}, expected to start in {}", time_text(*starts)));
        }
        lines.extend(self.ends.iter().map(|(pod, left)| format!("{pod} is expected to end in {}", time_text(*left))));
        if self.endless > 0 {
            lines.push(format!("of {} nothing tells the end", plural(self.endless, "pod")));
        }
        tree(f, &lines)
    }
}
