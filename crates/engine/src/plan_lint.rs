//! What must hold for every plan, whatever was configured. Checked after every cycle in tests and in debug builds.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::facts::NodeName;
use crate::ids::{GroupId, QueueId, TaskId};
use crate::plan::Plan;
use crate::policy::Policy;
use crate::queue_limit;
use crate::world::tables::Tables;
use crate::world::tasks::Counting;
use crate::world::tasks::TaskState;

mod evictions;

/// Every violation found; none is the only good answer.
pub(crate) fn violations(tables: &Tables, policy: &Policy, plan: &Plan) -> Vec<String> {
    let mut found = Vec::new();
    let bound = binds(tables, plan, &mut found);
    for (group, tasks) in &bound {
        let row = tables.groups.row(*group);
        if !policy.job_ready(tables, *group, Counting::WithBestEffort) {
            found.push(format!("group {} starts with {} of {}", row.key(), row.counts.ready(), row.min_member));
        }
        limits(tables, policy, *group, tasks, &mut found);
    }
    evictions::check(tables, plan, &mut found);
    evictions::nominated(tables, plan, &mut found);
    found
}

/// Each pod once, as the tables count it, and no node over. Gives the pods that are bound by group.
fn binds(tables: &Tables, plan: &Plan, found: &mut Vec<String>) -> FxHashMap<GroupId, Vec<TaskId>> {
    let mut seen = FxHashSet::default();
    let mut groups: FxHashMap<GroupId, Vec<TaskId>> = FxHashMap::default();
    for bind in &plan.binds {
        if !seen.insert(&bind.uid) {
            found.push(format!("pod {}/{} is bound twice", bind.namespace, bind.name));
        }
        let Some(task) = tables.tasks.find(&bind.uid) else {
            found.push(format!("pod {}/{} does not exist", bind.namespace, bind.name));
            continue;
        };
        let row = tables.task(task);
        let node = row.node.map(|node| NodeName::from(tables.node_name(node)));
        if row.state != TaskState::Binding || node.as_ref() != Some(&bind.node) {
            found.push(format!(
                "pod {}/{} is {:?} on {node:?}, not bound to {}",
                bind.namespace, bind.name, row.state, bind.node
            ));
        }
        if let Some(window) = row.node.and_then(|node| tables.barred_on(task, node)) {
            found.push(format!(
                "pod {}/{} is bound to {}, closed by {}",
                bind.namespace, bind.name, bind.node, window.name
            ));
        }
        if let Some(group) = row.group {
            groups.entry(group).or_default().push(task);
        }
        let demand = &tables.classes.row(row.class).demand;
        for (dim, _) in demand.iter() {
            if let Some(idle) = row.node.map(|node| tables.nodes.idle(node, dim)).filter(|idle| *idle < 0) {
                found.push(format!("node {} is over by {} {}", bind.node, -idle, tables.dims.name(dim)));
            }
        }
    }
    groups
}

/// What is bound keeps within the limit of its queue, and of those above it where queues are a tree.
fn limits(tables: &Tables, policy: &Policy, group: GroupId, tasks: &[TaskId], found: &mut Vec<String>) {
    let row = tables.groups.row(group);
    let mut wanted = Vec::new();
    for task in tasks {
        tables.classes.row(tables.task(*task).class).demand.add_to(&mut wanted, 1);
    }
    let queue = tables.queues.row(row.queue);
    let above: &[QueueId] = if policy.follows_queue_tree() { &queue.ancestors } else { &[] };
    let trees = above.iter().map(|queue| (*queue, &tables.queues.row(*queue).tree));
    for (queue, sums) in std::iter::once((row.queue, &queue.own)).chain(trees) {
        let held = sums.in_use().into_iter().enumerate();
        let before: Vec<i64> = held.map(|(dim, held)| held - wanted.get(dim).copied().unwrap_or(0)).collect();
        if let Some(reason) = queue_limit::exceeded(tables, queue, &wanted, &before) {
            found.push(format!("group {} breaks a limit: {reason}", row.key()));
        }
    }
}
