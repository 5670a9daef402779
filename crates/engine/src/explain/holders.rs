//! Who holds what a group lacks, and when the first of it is expected back.
//!
//! Invariant: the amounts are the sums over the pods that hold room on nodes that the group could use, or in the queue whose
//! limit binds. Bounded by how many pods are looked at; beyond that nothing is told. Called by `why`.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::facts::ObjectName;
use crate::ids::{ClassId, DimId, GroupId, NodeId, QueueId, TimeMs};
use crate::policy::Policy;
use crate::reasons::{plural, time_text};
use crate::resource_dims::{PODS, amount_text};
use crate::search::View;
use crate::world::end_times::Confidence;
use crate::world::tables::Tables;

/// Pods that are looked at for one answer.
const PODS_LOOKED_AT_MAX: usize = 100_000;
/// Holders that are told of, for each resource.
const HOLDERS_TOLD_MAX: usize = 3;

/// Who holds a resource that is short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceHolders {
    pub resource: String,
    /// What there is of it: on the nodes that could take the pods, or by the queue's limit.
    pub of: i64,
    /// The queue whose limit this is about; absent where it is about nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Those who hold the most, the first of them first.
    pub by: Vec<Holder>,
    /// How many others hold some.
    pub others: u32,
    /// What these hold together.
    pub others_amount: i64,
}

/// One that holds some of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Its Job, else its PodGroup, `namespace/name`.
    pub job: String,
    pub queue: String,
    /// What its pods hold.
    pub amount: i64,
    /// How many pods that is.
    pub pods: u32,
    /// In how many milliseconds the first of these is expected to end, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_in_ms: Option<i64>,
}

/// What is asked for: of which resource, and whose pods count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Of {
    /// Of pods on nodes that could take the class.
    Nodes(ClassId, DimId),
    /// Of pods of a queue and those below it, under so high a limit.
    Queue(QueueId, DimId, i64),
}

#[derive(Debug, Default)]
struct Sum {
    amount: i64,
    pods: u32,
    end: Option<TimeMs>,
}

/// Nothing where too many pods would have to be looked at. O(nodes and pods on them).
pub(super) fn holders_of(View { tables, policy, now, .. }: View<'_>, of: Of) -> Option<ResourceHolders> {
    let nodes: Vec<NodeId> = tables.nodes.ids().filter(|node| counts(tables, policy, of, *node)).collect();
    let pods: usize = nodes.iter().map(|node| tables.nodes.row(*node).tasks.len()).sum();
    if pods > PODS_LOOKED_AT_MAX {
        return None;
    }
    let (Of::Nodes(_, dim) | Of::Queue(_, dim, _)) = of;
    let mut sums: BTreeMap<Option<GroupId>, Sum> = BTreeMap::new();
    for task in nodes.iter().flat_map(|node| &tables.nodes.row(*node).tasks) {
        let row = tables.task(*task);
        let amount = tables.classes.row(row.class).demand.get(dim);
        if amount == 0 || !row.state.holds_node() || !is_of(tables, of, row.group) {
            continue;
        }
        let sum = sums.entry(row.group).or_default();
        sum.amount = sum.amount.saturating_add(amount);
        sum.pods += 1;
        sum.end = [sum.end, tables.end_of(*task, Confidence::Expected, now)].into_iter().flatten().min();
    }
    let mut all: Vec<(Option<GroupId>, Sum)> = sums.into_iter().collect();
    all.sort_by_key(|(group, sum)| (std::cmp::Reverse(sum.amount), *group));
    let rest = all.split_off(all.len().min(HOLDERS_TOLD_MAX));
    let offered = nodes.iter().map(|node| tables.nodes.allocatable(*node, dim)).fold(0, i64::saturating_add);
    let (of, queue) = match of {
        Of::Nodes(..) => (offered, None),
        Of::Queue(queue, _, limit) => (limit, Some(tables.queues.row(queue).name.to_string())),
    };
    Some(ResourceHolders {
        resource: tables.dims.name(dim).to_string(),
        of,
        queue,
        by: all.into_iter().map(|(group, sum)| holder(tables, group, &sum, now)).collect(),
        others: u32::try_from(rest.len()).unwrap_or(u32::MAX),
        others_amount: rest.iter().fold(0, |all, (_, sum)| all.saturating_add(sum.amount)),
    })
}

fn counts(tables: &Tables, policy: &Policy, of: Of, node: NodeId) -> bool {
    match of {
        Of::Nodes(class, _) => policy.check_facts(tables, tables.classes.row(class), node).is_none(),
        Of::Queue(..) => true,
    }
}

fn is_of(tables: &Tables, of: Of, group: Option<GroupId>) -> bool {
    let Of::Queue(queue, ..) = of else { return true };
    let its = group.map(|group| tables.groups.row(group).queue);
    its.is_some_and(|its| its == queue || tables.queues.row(its).ancestors.contains(&queue))
}

fn holder(tables: &Tables, group: Option<GroupId>, sum: &Sum, now: TimeMs) -> Holder {
    let row = group.map(|group| tables.groups.row(group));
    let queue = row.map_or_else(String::new, |row| tables.queues.row(row.queue).name.to_string());
    Holder {
        job: group.map_or_else(|| "pods of other schedulers".to_owned(), |group| job_of(tables, group).into()),
        queue,
        amount: sum.amount,
        pods: sum.pods,
        free_in_ms: sum.end.map(|end| end.0.saturating_sub(now.0).max(0)),
    }
}

/// The name that people know a group by: its Job's, else its own.
pub(super) fn job_of(tables: &Tables, group: GroupId) -> ObjectName {
    let row = tables.groups.row(group);
    match row.owner.as_ref().filter(|owner| owner.kind == "Job") {
        Some(owner) => ObjectName::new(&row.namespace, &owner.name),
        None => row.key(),
    }
}

impl ResourceHolders {
    /// Whether anybody holds any.
    pub(super) fn is_of_use(&self) -> bool {
        self.resource != "pods" && !self.by.is_empty()
    }
}

/// Whether who holds it is worth telling.
pub(super) fn is_told(dim: DimId) -> bool {
    dim != PODS
}

impl Display for ResourceHolders {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = |amount: i64| amount_text(&self.resource, amount);
        write!(f, "{}: held by ", self.resource)?;
        for (place, holder) in self.by.iter().enumerate() {
            f.write_str(if place == 0 { "" } else { ", " })?;
            write!(f, "{} ({} of {}", holder.job, text(holder.amount), text(self.of))?;
            match holder.free_in_ms {
                Some(left) => write!(f, ", first free in {})", time_text(left))?,
                None => f.write_str(")")?,
            }
        }
        if self.others > 0 {
            write!(f, ", and {} ({})", plural(self.others, "other"), text(self.others_amount))?;
        }
        Ok(())
    }
}
