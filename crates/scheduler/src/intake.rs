//! Changes of objects into deltas. Pure: remembers only which objects there are, so that a new list removes the rest.
//!
//! Invariant: folding the deltas gives the engine exactly the objects that the watches have told of.

use std::collections::{BTreeSet, HashMap, HashSet};

use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use pumice_api::batch::Job;
use pumice_api::scheduling::{PodGroup, Queue};
use pumice_cluster::Change;
use pumice_engine::Delta;

use crate::translate;

/// A change of one kind.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one at a time, for one turn of the loop")]
pub(crate) enum Input {
    Node(Change<Node>),
    Pod(Change<Pod>),
    Group(Change<PodGroup>),
    Queue(Change<Queue>),
    Job(Change<Job>),
    Priority(Change<PriorityClass>),
}

/// Kinds that must have been listed before anything is decided.
pub(crate) const KINDS: usize = 6;
const GROUPS: usize = 2;

impl Input {
    fn kind(&self) -> usize {
        match self {
            Self::Node(_) => 0,
            Self::Pod(_) => 1,
            Self::Group(_) => GROUPS,
            Self::Queue(_) => 3,
            Self::Job(_) => 4,
            Self::Priority(_) => 5,
        }
    }

    fn is_list(&self) -> bool {
        matches!(
            self,
            Self::Node(Change::Replace(_))
                | Self::Pod(Change::Replace(_))
                | Self::Group(Change::Replace(_))
                | Self::Queue(Change::Replace(_))
                | Self::Job(Change::Replace(_))
                | Self::Priority(Change::Replace(_))
        )
    }
}

pub(crate) struct Intake {
    schedulers: Vec<String>,
    listed: [bool; KINDS],
    seen: [BTreeSet<String>; KINDS],
    /// Pods without a node, by uid.
    unbound: HashMap<String, Unbound>,
    /// Resource names in the `status.allocated` of queues.
    held: HashMap<String, BTreeSet<String>>,
}

/// What a write to a pod without a node must know of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unbound {
    /// The version that was seen: a pod that has changed since is not to be written.
    pub(crate) version: Option<String>,
    /// Conditions that others wrote: they are to survive ours.
    pub(crate) conditions: Vec<PodCondition>,
}

impl Intake {
    pub(crate) fn new(schedulers: Vec<String>) -> Self {
        Self {
            schedulers,
            listed: [false; KINDS],
            seen: Default::default(),
            unbound: HashMap::new(),
            held: HashMap::new(),
        }
    }

    /// Every kind has been listed once.
    pub(crate) fn complete(&self) -> bool {
        self.listed.iter().all(|listed| *listed)
    }

    /// PodGroups there are.
    pub(crate) fn groups(&self) -> usize {
        self.seen[GROUPS].len()
    }

    /// Their uids. O(groups).
    pub(crate) fn group_uids(&self) -> HashSet<&str> {
        self.seen[GROUPS].iter().filter_map(|key| key.rsplit('/').next()).collect()
    }

    /// A pod, while it has no node.
    pub(crate) fn unbound(&self, uid: &str) -> Option<&Unbound> {
        self.unbound.get(uid)
    }

    /// Names of the resources that a queue's status says it holds.
    pub(crate) fn held(&self, queue: &str) -> impl Iterator<Item = &String> {
        self.held.get(queue).into_iter().flatten()
    }

    /// Adds what follows from a change to `deltas`.
    pub(crate) fn take(&mut self, input: Input, deltas: &mut Vec<Delta>) {
        let kind = input.kind();
        self.listed[kind] |= input.is_list();
        let seen = &mut self.seen[kind];
        match input {
            Input::Node(change) => {
                let key = |node: &Node| node.metadata.name.clone();
                fold(
                    seen,
                    change,
                    key,
                    |node| Delta::NodeUpsert(translate::node_facts(node)),
                    Delta::NodeRemove,
                    deltas,
                );
            }
            Input::Pod(change) => {
                let key = |pod: &Pod| pod.metadata.uid.clone();
                let unbound = &mut self.unbound;
                match &change {
                    Change::Replace(_) => unbound.clear(),
                    Change::Deleted(pod) => drop(key(pod).and_then(|uid| unbound.remove(&uid))),
                    Change::Applied(_) => {}
                }
                let upsert = |pod: &Pod| {
                    keep_unbound(unbound, pod);
                    Delta::TaskUpsert(Box::new(translate::pod_facts(pod, &self.schedulers)))
                };
                fold(seen, change, key, upsert, Delta::TaskRemove, deltas);
            }
            Input::Group(change) => {
                fold(
                    seen,
                    change,
                    group_key,
                    |group| Delta::GroupUpsert(Box::new(translate::group_facts(group))),
                    group_gone,
                    deltas,
                );
            }
            Input::Queue(change) => {
                let key = |queue: &Queue| queue.metadata.name.clone();
                let held = &mut self.held;
                let upsert = |queue: &Queue| {
                    let names = queue.status.allocated.keys().cloned().collect();
                    held.insert(key(queue).unwrap_or_default(), names);
                    Delta::QueueUpsert(translate::queue_facts(queue))
                };
                fold(seen, change, key, upsert, Delta::QueueRemove, deltas);
                self.held.retain(|queue, _| seen.contains(queue));
            }
            Input::Job(change) => {
                let key = |job: &Job| job.metadata.uid.clone();
                fold(seen, change, key, translate::job_shape, |owner_uid| Delta::ShapeRemove { owner_uid }, deltas);
            }
            Input::Priority(change) => {
                let key = |class: &PriorityClass| class.metadata.name.clone();
                fold(seen, change, key, priority, Delta::PriorityClassRemove, deltas);
            }
        }
    }
}

/// One change of a kind: `key` names an object, and is all that its removal needs.
fn fold<K>(
    seen: &mut BTreeSet<String>,
    change: Change<K>,
    key: impl Fn(&K) -> Option<String>,
    mut upsert: impl FnMut(&K) -> Delta,
    remove: impl Fn(String) -> Delta,
    deltas: &mut Vec<Delta>,
) {
    match change {
        Change::Replace(all) => {
            let there: BTreeSet<String> = all.iter().filter_map(&key).collect();
            deltas.extend(seen.difference(&there).cloned().map(&remove));
            deltas.extend(all.iter().filter(|object| key(object).is_some()).map(upsert));
            *seen = there;
        }
        Change::Applied(object) => {
            if let Some(key) = key(&object) {
                seen.insert(key);
                deltas.push(upsert(&object));
            }
        }
        Change::Deleted(object) => {
            if let Some(key) = key(&object) {
                seen.remove(&key);
                deltas.push(remove(key));
            }
        }
    }
}

/// `namespace/name/uid`: none of the three has a slash.
fn group_key(group: &PodGroup) -> Option<String> {
    let metadata = &group.metadata;
    let (namespace, name) = (metadata.namespace.as_ref()?, metadata.name.as_ref()?);
    Some(format!("{namespace}/{name}/{}", metadata.uid.as_deref().unwrap_or_default()))
}

fn group_gone(key: String) -> Delta {
    let mut parts = key.splitn(3, '/').map(str::to_owned);
    let mut part = || parts.next().unwrap_or_default();
    Delta::GroupRemove { namespace: part(), name: part(), uid: part() }
}

fn priority(class: &PriorityClass) -> Delta {
    Delta::PriorityClassUpsert {
        name: class.metadata.name.clone().unwrap_or_default(),
        value: class.value.unwrap_or(0),
        global_default: class.global_default.unwrap_or(false),
    }
}

fn keep_unbound(kept: &mut HashMap<String, Unbound>, pod: &Pod) {
    let Some(uid) = &pod.metadata.uid else { return };
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    if node.is_some_and(|node| !node.is_empty()) {
        kept.remove(uid);
        return;
    }
    let all = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let conditions = all.filter(|condition| condition.type_ != "PodScheduled").cloned().collect();
    kept.insert(uid.clone(), Unbound { version: pod.metadata.resource_version.clone(), conditions });
}

#[cfg(test)]
mod tests;
