//! A queue's place in the tree: its parent, its depth, and sums along the tree.
//!
//! `queues` holds every queue with the judged one as it would be. Walks are bounded by the number of queues, so a cycle that
//! got in by other ways ends them.

use std::collections::BTreeMap;

use pumice_api::names::ROOT_QUEUE;
use pumice_api::scheduling::{Queue, QueueSpec};
use pumice_objects::field::FieldError;
use pumice_units::Quantity;

use super::amounts::{self, Amounts, read};
use crate::view::{children, name_of, parent_of};
use crate::{Findings, Rules};

/// Judges a new parent. Called when a queue is made or moved.
pub(super) fn validate_parent(queue: &Queue, queues: &[Queue], rules: &Rules, findings: &mut Findings) {
    let Some(parent) = parent_of(queue).filter(|parent| *parent != ROOT_QUEUE) else { return };
    let mut refuse = |detail: String| findings.refuse(FieldError::invalid("spec.parent", parent, detail).to_string());
    if parent == name_of(queue) {
        return refuse("cannot use itself as parent".into());
    }
    let Some(above) = find(queues, parent) else {
        return refuse(format!("failed to get parent queue: queue.scheduling.volcano.sh \"{parent}\" not found"));
    };
    let ancestors = ancestors(queues, queue);
    if ancestors.iter().any(|ancestor| name_of(ancestor) == name_of(queue)) {
        return refuse(format!("queue {} would be its own ancestor", name_of(queue)));
    }
    let max = rules.queue_depth_max;
    if 1 + ancestors.len() > max {
        return refuse(format!("queue depth {} exceeds the maximum allowed depth of {max}", 1 + ancestors.len()));
    }
    let is_first_child = children(queues, parent).all(|child| name_of(child) == name_of(queue));
    if is_first_child && holds_pods(above) {
        refuse(format!(
            "queue {parent} cannot be the parent queue of queue {} because it has allocated Pods",
            name_of(queue)
        ));
    }
}

/// Judges sums and limits along the tree. Called when a queue is made, moved, or its amounts change.
pub(super) fn validate_sums(queue: &Queue, queues: &[Queue], findings: &mut Findings) {
    if name_of(queue) == ROOT_QUEUE {
        return;
    }
    if let Some(parent) =
        parent_of(queue).filter(|parent| *parent != ROOT_QUEUE).and_then(|parent| find(queues, parent))
    {
        below_ancestors(queue, &ancestors(queues, queue), findings);
        children_fit(parent, queues, findings);
    }
    if children(queues, name_of(queue)).next().is_some() {
        above_descendants(queue, queues, findings);
        children_fit(queue, queues, findings);
    }
}

/// Whether a queue's status counts pods.
pub(super) fn holds_pods(queue: &Queue) -> bool {
    let pods = queue.status.allocated.get("pods").and_then(|pods| pods.0.parse::<Quantity>().ok());
    pods.is_some_and(|pods| pods > Quantity::ZERO)
}

fn find<'a>(queues: &'a [Queue], name: &str) -> Option<&'a Queue> {
    queues.iter().find(|queue| name_of(queue) == name)
}

/// From the parent up, without `root`.
fn ancestors<'a>(queues: &'a [Queue], queue: &Queue) -> Vec<&'a Queue> {
    let mut found: Vec<&Queue> = Vec::new();
    let mut next = parent_of(queue);
    while let Some(ancestor) = next.filter(|name| *name != ROOT_QUEUE).and_then(|name| find(queues, name)) {
        if found.len() == queues.len() {
            break;
        }
        found.push(ancestor);
        next = parent_of(ancestor);
    }
    found
}

/// Each limit is at most that of the nearest ancestor which has one.
fn below_ancestors(queue: &Queue, ancestors: &[&Queue], findings: &mut Findings) {
    for (name, own) in read(&queue.spec.capability) {
        let limit =
            ancestors.iter().find_map(|ancestor| Some((ancestor, *read(&ancestor.spec.capability).get(&name)?)));
        if let Some((ancestor, limit)) = limit.filter(|(_, limit)| own > *limit) {
            let detail = format!("exceeds its ancestor's capability: queue {} has {limit}", name_of(ancestor));
            findings
                .refuse(FieldError::invalid(format!("spec.capability[{name}]"), own.to_string(), detail).to_string());
        }
    }
}

/// Each limit is at least the largest below.
fn above_descendants(queue: &Queue, queues: &[Queue], findings: &mut Findings) {
    let mut largest = Amounts::new();
    let mut open: Vec<&Queue> = children(queues, name_of(queue)).collect();
    let mut visited = 0;
    while let Some(below) = open.pop() {
        visited += 1;
        if visited > queues.len() {
            break;
        }
        for (name, amount) in read(&below.spec.capability) {
            largest.entry(name).and_modify(|most| *most = (*most).max(amount)).or_insert(amount);
        }
        open.extend(children(queues, name_of(below)));
    }
    for (name, own) in read(&queue.spec.capability) {
        if let Some(most) = largest.get(&name).filter(|most| own < **most) {
            let detail = format!("is smaller than its descendants' max capability {most}");
            findings
                .refuse(FieldError::invalid(format!("spec.capability[{name}]"), own.to_string(), detail).to_string());
        }
    }
}

/// The children's guarantees and deserved amounts add up to at most the parent's; what it names in neither is 0.
fn children_fit(parent: &Queue, queues: &[Queue], findings: &mut Findings) {
    let guarantee = |spec: &QueueSpec| read(&spec.guarantee.resource);
    sum_fits("guarantee", guarantee, parent, queues, findings);
    sum_fits("deserved", amounts::deserved, parent, queues, findings);
}

fn sum_fits(
    kind: &str,
    amounts: impl Fn(&QueueSpec) -> Amounts,
    parent: &Queue,
    queues: &[Queue],
    findings: &mut Findings,
) {
    let mut sums: BTreeMap<String, Option<Quantity>> = BTreeMap::new();
    for child in children(queues, name_of(parent)) {
        for (name, amount) in amounts(&child.spec) {
            let sum = sums.entry(name).or_insert(Some(Quantity::ZERO));
            *sum = sum.and_then(|sum| sum.checked_add(amount));
        }
    }
    let own = amounts(&parent.spec);
    for (name, sum) in sums {
        let limit = own.get(&name).copied().unwrap_or(Quantity::ZERO);
        if sum.is_none_or(|sum| sum > limit) {
            let sum = sum.map_or_else(|| "more than a quantity holds".to_owned(), |sum| sum.to_string());
            let parent = name_of(parent);
            findings.refuse(format!(
                "sum of children's {kind} ({name}: {sum}) exceeds parent's {kind} limit ({limit}) of queue {parent}"
            ));
        }
    }
}
