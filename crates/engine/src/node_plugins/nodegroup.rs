//! `nodegroup`: which groups of nodes (label `volcano.sh/nodegroup-name`) a queue's pods may use, which they like
//! better, and how much of a group a queue may hold.
//!
//! All of it depends on the queue, so that every task is asked on its own.

use crate::cluster::classes::ClassRow;
use crate::config::PluginConfig;
use crate::facts::NodeGroupAffinity;
use crate::ids::{GroupId, NodeId, QueueId, TaskId, TimeMs};
use crate::reasons::Check;
use crate::resource_dims::Demand;
use crate::world::tables::{Move, Tables};

use crate::plugin::Plugin;
use crate::plugin::score::POINT;

mod limits;

pub(crate) const ARGUMENTS: &[&str] = &["strict", "enablePreferredOrder", "enableHierarchy"];
/// The label of nodes that names their group.
const LABEL: &str = "volcano.sh/nodegroup-name";

const REQUIRED: i64 = 100 * POINT;
const PREFERRED: i64 = 50 * POINT;
const AVOIDED: i64 = -POINT;

#[derive(Debug)]
pub(crate) struct NodeGroup {
    strict: bool,
    ordered: bool,
    hierarchy: bool,
    /// What counts for each queue, its own or its ancestor's, by the queue's index.
    rules: Vec<Option<NodeGroupAffinity>>,
    limits: limits::Limits,
}

impl NodeGroup {
    pub(crate) fn new(config: &PluginConfig) -> Self {
        Self {
            strict: config.bool("strict", true),
            ordered: config.bool("enablePreferredOrder", false),
            hierarchy: config.bool("enableHierarchy", false),
            rules: Vec::new(),
            limits: limits::Limits::default(),
        }
    }

    fn rules(&self, queue: QueueId) -> Option<&NodeGroupAffinity> {
        self.rules.get(queue.index())?.as_ref()
    }

    fn allows(&self, queue: QueueId, group: Option<&str>) -> bool {
        let Some(group) = group else { return !self.strict && self.rules(queue).is_none() };
        self.rules(queue).is_some_and(|rules| allows(rules, group))
    }

    fn queue_of(tables: &Tables, task: TaskId) -> Option<QueueId> {
        let group: GroupId = tables.task(task).group?;
        Some(tables.groups.row(group).queue)
    }

    /// A queue's own affinity, or with hierarchy that of the nearest queue above that has one.
    fn inherited(&self, tables: &Tables, queue: QueueId) -> Option<NodeGroupAffinity> {
        let row = tables.queues.row(queue);
        if row.affinity.is_some() || !self.hierarchy {
            return row.affinity.clone();
        }
        row.ancestors.iter().find_map(|queue| tables.queues.row(*queue).affinity.clone())
    }
}

/// Lists are looked at in this order, and the last one that names the group decides: a group that is both forbidden
/// and only unwanted is allowed.
fn allows(rules: &NodeGroupAffinity, group: &str) -> bool {
    let named = |list: &[String]| list.iter().any(|name| name == group);
    let wanted = named(&rules.required) || named(&rules.preferred);
    (wanted && !named(&rules.anti_required)) || named(&rules.anti_preferred)
}

fn score(rules: &NodeGroupAffinity, group: &str, ordered: bool) -> i64 {
    let at = |list: &[String]| list.iter().position(|name| name == group);
    if at(&rules.anti_preferred).is_some() {
        return AVOIDED;
    }
    let required = at(&rules.required).map_or(0, |_| REQUIRED);
    let preferred = at(&rules.preferred).map_or(0, |at| {
        let (count, at) = (rules.preferred.len() as i64, at as i64);
        if ordered { PREFERRED * (count - at) / count } else { PREFERRED }
    });
    required + preferred
}

impl Plugin for NodeGroup {
    fn in_thousandths(&self) -> bool {
        true
    }

    fn open(&mut self, tables: &Tables, _now: TimeMs) {
        let queues: Vec<QueueId> = tables.queues.table.iter().map(|(id, _)| id).collect();
        self.rules.clear();
        self.rules.resize(tables.queues.table.span(), None);
        for queue in queues {
            self.rules[queue.index()] = self.inherited(tables, queue);
        }
        self.limits.open(tables);
    }

    fn follows_moves(&self) -> bool {
        true
    }

    fn moved(&mut self, tables: &Tables, _change: Move) {
        self.limits.repair(tables);
    }

    fn is_specific(&self, _tables: &Tables, _task: TaskId) -> bool {
        true
    }

    fn stands_alone(&self, _tables: &Tables, _task: TaskId) -> bool {
        false
    }

    fn check_task(&self, tables: &Tables, task: TaskId, node: NodeId) -> Option<Check> {
        let queue = Self::queue_of(tables, task)?;
        let group = group_of(tables, node);
        if !self.allows(queue, group) {
            return Some(Check::NodeGroup);
        }
        let demand: &Demand = &tables.classes.row(tables.task(task).class).demand;
        (!self.limits.allow(queue, group, demand)).then_some(Check::NodeGroupLimit)
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn scores_nodes(&self) -> bool {
        false
    }

    fn score_task(&self, tables: &Tables, task: TaskId, nodes: &[NodeId], scores: &mut [i64]) {
        let Some(rules) = Self::queue_of(tables, task).and_then(|queue| self.rules(queue)) else { return };
        for (node, total) in nodes.iter().zip(scores) {
            if let Some(group) = group_of(tables, *node) {
                *total = total.saturating_add(score(rules, group, self.ordered));
            }
        }
    }
}

fn group_of(tables: &Tables, node: NodeId) -> Option<&str> {
    tables.nodes.row(node).labels.get(LABEL).map(String::as_str)
}

#[cfg(test)]
mod tests;
