//! What must hold for evictions and nominations: nobody leaves twice, in vain or without a record, and no more room is
//! promised than there will be.

use rustc_hash::FxHashSet;

use crate::eviction::{maintenance, overrun_backfill};
use crate::ids::{DimId, TaskId};
use crate::plan::{Eviction, Pipelined, Plan};
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// Actions that make room on the very node that the victim, or one of its group that leaves with it, leaves.
const POD_BY_POD: [&str; 2] = ["preempt", "reclaim"];
/// Actions that make room for a gang, wherever its pods go.
const FOR_GANGS: [&str; 2] = ["gangpreempt", "gangreclaim"];
/// Those that nobody else gains from.
const FOR_NOBODY: [&str; 3] = ["shuffle", TAKE_BACK, maintenance::NAME];
const TAKE_BACK: &str = "gangtakeback";

/// Every eviction of the plan.
pub(super) fn check(tables: &Tables, plan: &Plan, found: &mut Vec<String>) {
    let mut seen = FxHashSet::default();
    for eviction in &plan.evictions {
        let name = || format!("eviction of {}/{}", eviction.namespace, eviction.name);
        if !seen.insert(&eviction.uid) {
            found.push(format!("{}: it is evicted twice", name()));
        }
        let Some(task) = tables.tasks.find(&eviction.uid) else {
            found.push(format!("{}: it does not exist", name()));
            continue;
        };
        found.extend(victim(tables, eviction, task).map(|fault| format!("{}: {fault}", name())));
        found.extend(beneficiary(tables, plan, eviction).map(|fault| format!("{}: {fault}", name())));
    }
}

/// What is wrong with the victim or what is said of it.
fn victim(tables: &Tables, eviction: &Eviction, task: TaskId) -> Option<String> {
    let row = tables.task(task);
    let evicting = match row.evicting.as_deref() {
        Some(evicting) if row.state == TaskState::Releasing => evicting,
        _ => return Some(format!("it counts as {:?}", row.state)),
    };
    if !matches!(evicting.was, TaskState::Bound | TaskState::Running) {
        return Some(format!("it held nothing: it was {:?}", evicting.was));
    }
    if !tables.evicting.contains(&task) || evicting.confirmed {
        return Some("its end is not waited for".to_owned());
    }
    // A gang takes back its own, whoever made them.
    if row.of_daemon_set && eviction.action != TAKE_BACK {
        return Some("it is a DaemonSet's".to_owned());
    }
    let Some(group) = row.group else { return Some("it is another scheduler's".to_owned()) };
    let runs = evicting.was == TaskState::Running;
    let place = row.node.map(|node| tables.node_name(node).to_string()).unwrap_or_default();
    let told = (eviction.node.as_str(), eviction.group.as_str(), eviction.running);
    let truth = (place.as_str(), &*tables.groups.row(group).key(), runs);
    if told != truth {
        return Some(format!("its receipt says {told:?} and not {truth:?}"));
    }
    let lost = eviction.lost_core_ms;
    if lost < 0 || (lost > 0 && !runs) || eviction.message.is_empty() {
        return Some(format!("its receipt says that it lost {lost}: {:?}", eviction.message));
    }
    (evicting.beneficiary.as_deref() != eviction.beneficiary.as_deref()).then(|| "its receipt names another".to_owned())
}

/// Whether somebody gets the room, and where.
fn beneficiary(tables: &Tables, plan: &Plan, eviction: &Eviction) -> Option<String> {
    let action = eviction.action.as_str();
    let Some(group) = &eviction.beneficiary else {
        return (!FOR_NOBODY.contains(&action)).then(|| format!("nobody gains from {action}"));
    };
    if action == overrun_backfill::NAME {
        let reserved = tables.groups.table.find(group).is_some_and(|group| tables.reservations.of(group).is_some());
        return (!reserved).then(|| format!("{group} has no reservation"));
    }
    if !POD_BY_POD.contains(&action) && !FOR_GANGS.contains(&action) {
        return Some(format!("{group} gains from {action}"));
    }
    let here = POD_BY_POD.contains(&action);
    let fellow = |other: &&Eviction| {
        other.group == eviction.group && other.action == eviction.action && other.beneficiary == eviction.beneficiary
    };
    let promised = |node: Option<&str>| {
        let mut inqueue_demand = plan.pipelined.iter().filter(|promise| promise.fenced && promise.group == *group);
        inqueue_demand.any(|promise| node.is_none_or(|node| promise.node == node))
    };
    let found = if here {
        promised(Some(&eviction.node))
            || plan.evictions.iter().filter(fellow).any(|fellow| promised(Some(&fellow.node)))
    } else {
        promised(None)
    };
    if !found {
        return Some(format!("{group} is promised no room by it"));
    }
    let known = tables.groups.table.find(group).is_some();
    (!known).then(|| format!("{group} does not exist"))
}

/// Every promise of the plan: kept by a nomination, and on a node that will have the room.
pub(super) fn nominated(tables: &Tables, plan: &Plan, found: &mut Vec<String>) {
    let mut seen = FxHashSet::default();
    for promise in &plan.pipelined {
        let name = || format!("promise to {}/{}", promise.namespace, promise.name);
        if !seen.insert(&promise.uid) {
            found.push(format!("{}: it is made twice", name()));
        }
        let Some(task) = tables.tasks.find(&promise.uid) else {
            found.push(format!("{}: it does not exist", name()));
            continue;
        };
        let row = tables.task(task);
        let Some(node) = row.node.filter(|node| **tables.node_name(*node) == *promise.node) else {
            found.push(format!("{}: it is not for {}", name(), promise.node));
            continue;
        };
        if row.state != TaskState::Pipelined || !tables.nominated.contains(&task) {
            found.push(format!("{}: it counts as {:?}", name(), row.state));
        }
        if row.group.is_none_or(|group| *tables.groups.row(group).key != *promise.group) {
            found.push(format!("{}: it is not of {}", name(), promise.group));
        }
        for (dim, _) in tables.classes.row(row.class).demand.iter() {
            let left = tables.nodes.future_idle(node, dim);
            if left < 0 {
                let resource = tables.dims.name(dim);
                found.push(format!("{}: {} will be over by {} {resource}", name(), promise.node, -left));
            }
        }
    }
    for promise in &plan.pipelined {
        found.extend(over_limit(tables, promise));
    }
}

/// A queue is never promised more than it may hold.
fn over_limit(tables: &Tables, promise: &Pipelined) -> Option<String> {
    let row = tables.task(tables.tasks.find(&promise.uid)?);
    let queue = tables.queues.row(tables.groups.row(row.group?).queue);
    let demand = &tables.classes.row(row.class).demand;
    let over = |(dim, limit): &(DimId, i64)| demand.get(*dim) > 0 && queue.own.promised(*dim) > *limit;
    let (dim, limit) = queue.capability.iter().find(|bound| over(bound))?;
    let (promised, resource) = (queue.own.promised(*dim), tables.dims.name(*dim));
    Some(format!("queue {} is promised {promised} of {limit} {resource}", queue.name))
}
