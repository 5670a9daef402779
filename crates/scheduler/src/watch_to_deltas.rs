//! Changes of objects into deltas. Pure: remembers only which objects there are, so that a new list removes the rest.
//!
//! Invariant: folding the deltas gives the engine exactly the objects that the watches have told of.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;

use jiff::Timestamp;
use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodCondition, PodSpec, ResourceQuota,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::batch::Job;
use pumice_api::names;
use pumice_api::nodeinfo::Numatopology;
use pumice_api::reservation::Reservation;
use pumice_api::scheduling::{PodGroup, PodGroupPhase, Queue};
use pumice_api::shard::NodeShard;
use pumice_api::topology::HyperNode;
use pumice_clock as clock;
use pumice_cluster::Change;
use pumice_engine::{Delta, GroupUid, PodUid};
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::translate;

/// The zone of a node; label.
const ZONE: &str = "topology.kubernetes.io/zone";
/// One variant for each kind that is watched.
macro_rules! kinds {
    ($($kind:ident($object:ty)),+ $(,)?) => {
        /// A change of one kind.
        #[derive(Debug)]
        #[allow(clippy::large_enum_variant, reason = "one at a time, for one turn of the loop")]
        pub enum WatchedChange {
            $(#[doc = "Of this kind."] $kind(Change<$object>),)+
        }

        /// The kinds, as numbers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Kind {
            $($kind,)+
        }

        /// Kinds that must have been listed before anything is decided.
        pub(crate) const KINDS: usize = [$(Kind::$kind,)+].len();

        impl WatchedChange {
            fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind,)+
                }
            }

            fn is_list(&self) -> bool {
                matches!(self, $(Self::$kind(Change::Replace(_)))|+)
            }
        }
    };
}

kinds! {
    Node(Node),
    Pod(Pod),
    Group(PodGroup),
    Queue(Queue),
    Job(Job),
    Priority(PriorityClass),
    HyperNode(HyperNode),
    Numa(Numatopology),
    Shard(NodeShard),
    Reservation(Reservation),
    Budget(PodDisruptionBudget),
    Quota(ResourceQuota),
    Namespace(Namespace),
    VolumeClaim(PersistentVolumeClaim),
    Volume(PersistentVolume),
    StorageClass(StorageClass),
    CsiNode(CSINode),
    DeviceClaim(ResourceClaim),
    DeviceClass(DeviceClass),
    DeviceSlice(ResourceSlice),
}

/// Which nodes and pods are this scheduler's.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ours {
    /// Scheduler names answered to.
    pub(crate) names: Vec<String>,
    /// Labels, as key and value: nodes with any of them; all nodes if there are none.
    pub(crate) nodes: Vec<(String, String)>,
    /// Pods that name this zone in their node selector; all pods if there is none. Its nodes, besides.
    pub(crate) zone: Option<String>,
}

impl Ours {
    fn has_node(&self, node: &Node) -> bool {
        let labels = node.metadata.labels.as_ref();
        let has = |key: &str, value: &str| labels.and_then(|labels| labels.get(key)).is_some_and(|have| have == value);
        let in_zone = self.zone.as_ref().is_none_or(|zone| has(ZONE, zone));
        in_zone && (self.nodes.is_empty() || self.nodes.iter().any(|(key, value)| has(key, value)))
    }

    /// A pod of one of our names that is in another zone.
    fn is_elsewhere(&self, spec: Option<&PodSpec>) -> bool {
        let Some(zone) = &self.zone else { return false };
        let selector = spec.and_then(|spec| spec.node_selector.as_ref());
        selector.and_then(|selector| selector.get(ZONE)) != Some(zone)
    }

    /// A Job whose pods other schedulers place.
    fn is_foreign(&self, job: &Job) -> bool {
        let name = job.spec.scheduler_name.as_str();
        let named = name.is_empty() || self.names.iter().any(|ours| ours == name);
        let mut specs = job.spec.tasks.iter().map(|task| task.template.spec.as_ref());
        !named || specs.any(|spec| self.is_elsewhere(spec))
    }
}

/// Which objects of each kind there are, as the watches tell of them.
pub struct WatchedObjects {
    ours: Ours,
    metrics: Metrics,
    listed: [bool; KINDS],
    seen: [BTreeSet<String>; KINDS],
    /// Pods without a node, by uid.
    unbound: HashMap<PodUid, Unbound>,
    /// Resource names in the `status.allocated` of queues.
    allocated: HashMap<String, BTreeSet<String>>,
    /// Jobs that other schedulers place, by uid.
    foreign: HashSet<String>,
    /// Groups whose minimum was not placed yet, by uid: when they were made.
    waiting: HashMap<GroupUid, Timestamp>,
    /// Pods that a node refused, by uid: each counts once.
    refused: HashSet<PodUid>,
}

/// What a write to a pod without a node must know of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unbound {
    /// The version that was seen: a pod that has changed since is not to be written.
    pub(crate) version: Option<String>,
    /// Conditions that others wrote: they are to survive ours.
    pub(crate) conditions: Vec<PodCondition>,
    /// When it was seen first.
    pub(crate) since: Instant,
}

impl WatchedObjects {
    /// Of a scheduler that answers to these names.
    pub fn new(schedulers: Vec<String>) -> Self {
        Self::of(Ours { names: schedulers, ..Ours::default() }, Metrics::default())
    }

    pub(crate) fn of(ours: Ours, metrics: Metrics) -> Self {
        Self {
            ours,
            metrics,
            listed: [false; KINDS],
            seen: Default::default(),
            unbound: HashMap::new(),
            allocated: HashMap::new(),
            foreign: HashSet::new(),
            waiting: HashMap::new(),
            refused: HashSet::new(),
        }
    }

    /// Every kind has been listed once.
    pub(crate) fn complete(&self) -> bool {
        self.listed.iter().all(|listed| *listed)
    }

    /// How many PodGroups have been seen and are still there.
    pub(crate) fn groups(&self) -> usize {
        self.seen[Kind::Group as usize].len()
    }

    /// The uids of all PodGroups. O(groups).
    pub(crate) fn group_uids(&self) -> HashSet<&str> {
        self.seen[Kind::Group as usize].iter().filter_map(|key| key.rsplit('/').next()).collect()
    }

    /// The uid of the PodGroup that has this name now.
    pub(crate) fn group_uid(&self, namespace: &str, name: &str) -> Option<GroupUid> {
        let prefix = format!("{namespace}/{name}/");
        let key = self.seen[Kind::Group as usize].range::<str, _>((Bound::Included(&*prefix), Bound::Unbounded)).next();
        key?.strip_prefix(&prefix).map(GroupUid::from)
    }

    /// Groups whose minimum was not placed yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// A pod, while it has no node.
    pub(crate) fn unbound(&self, uid: &PodUid) -> Option<&Unbound> {
        self.unbound.get(uid)
    }

    /// Names of the resources in the `status.allocated` of a queue.
    pub(crate) fn allocated(&self, queue: &str) -> impl Iterator<Item = &String> {
        self.allocated.get(queue).into_iter().flatten()
    }

    /// Adds what follows from a change to `deltas`.
    pub fn take(&mut self, input: WatchedChange, deltas: &mut Vec<Delta>) {
        let kind = input.kind() as usize;
        self.listed[kind] |= input.is_list();
        let seen = &mut self.seen[kind];
        match input {
            WatchedChange::Node(change) => {
                let change = self.ours.nodes_only(change);
                let upsert = |node: &Node| Delta::NodeUpsert(translate::node_facts(node));
                fold(seen, change, name, upsert, |name| Delta::NodeRemove(name.into()), deltas);
            }
            WatchedChange::Pod(change) => self.take_pods(change, deltas),
            WatchedChange::Group(change) => self.take_groups(change, deltas),
            WatchedChange::Queue(change) => self.take_queues(change, deltas),
            WatchedChange::Job(change) => self.take_jobs(change, deltas),
            WatchedChange::Priority(change) => fold(seen, change, name, priority, Delta::PriorityClassRemove, deltas),
            WatchedChange::HyperNode(change) => {
                let upsert = |node: &HyperNode| Delta::HyperNodeUpsert(translate::hyper_node_facts(node));
                fold(seen, change, name, upsert, Delta::HyperNodeRemove, deltas);
            }
            WatchedChange::Numa(change) => {
                let upsert = |topology: &Numatopology| Delta::NumaUpsert(translate::numa_facts(topology));
                fold(seen, change, name, upsert, |name| Delta::NumaRemove(name.into()), deltas);
            }
            WatchedChange::Shard(change) => {
                let upsert = |shard: &NodeShard| Delta::ShardUpsert(translate::shard_facts(shard));
                fold(seen, change, name, upsert, Delta::ShardRemove, deltas);
            }
            WatchedChange::Reservation(change) => {
                let upsert = |reservation: &Reservation| Delta::WindowUpsert(translate::window_facts(reservation));
                fold(seen, change, name, upsert, Delta::WindowRemove, deltas);
            }
            WatchedChange::Budget(change) => {
                let upsert = |budget: &PodDisruptionBudget| Delta::BudgetUpsert(translate::budget_facts(budget));
                let remove = |key| {
                    let (namespace, name) = parts(key);
                    Delta::BudgetRemove { namespace, name }
                };
                fold(seen, change, namespaced, upsert, remove, deltas);
            }
            WatchedChange::Quota(change) => {
                let upsert = |quota: &ResourceQuota| Delta::QuotaUpsert(translate::quota_facts(quota));
                let remove = |key| {
                    let (namespace, name) = parts(key);
                    Delta::QuotaRemove { namespace, name }
                };
                fold(seen, change, namespaced, upsert, remove, deltas);
            }
            WatchedChange::Namespace(change) => {
                fold(seen, change, name, translate::namespace, Delta::NamespaceRemove, deltas)
            }
            WatchedChange::VolumeClaim(change) => {
                let upsert =
                    |claim: &PersistentVolumeClaim| Delta::VolumeClaimUpsert(translate::volume_claim_facts(claim));
                let remove = |key| {
                    let (namespace, name) = parts(key);
                    Delta::VolumeClaimRemove { namespace, name }
                };
                fold(seen, change, namespaced, upsert, remove, deltas);
            }
            WatchedChange::Volume(change) => {
                let upsert = |object: &PersistentVolume| Delta::VolumeUpsert(translate::volume_facts(object));
                fold(seen, change, name, upsert, Delta::VolumeRemove, deltas);
            }
            WatchedChange::StorageClass(change) => {
                let upsert = |object: &StorageClass| Delta::StorageClassUpsert(translate::storage_class_facts(object));
                fold(seen, change, name, upsert, Delta::StorageClassRemove, deltas);
            }
            WatchedChange::CsiNode(change) => {
                let upsert = |object: &CSINode| Delta::CsiNodeUpsert(translate::csi_node_facts(object));
                fold(seen, change, name, upsert, |name| Delta::CsiNodeRemove(name.into()), deltas);
            }
            WatchedChange::DeviceClaim(change) => {
                let upsert = |claim: &ResourceClaim| Delta::DeviceClaimUpsert(translate::device_claim_facts(claim));
                let remove = |key| {
                    let (namespace, name) = parts(key);
                    Delta::DeviceClaimRemove { namespace, name }
                };
                fold(seen, change, namespaced, upsert, remove, deltas);
            }
            WatchedChange::DeviceClass(change) => {
                let upsert = |object: &DeviceClass| Delta::DeviceClassUpsert(translate::device_class_facts(object));
                fold(seen, change, name, upsert, Delta::DeviceClassRemove, deltas);
            }
            WatchedChange::DeviceSlice(change) => {
                let upsert = |object: &ResourceSlice| Delta::DeviceSliceUpsert(translate::device_slice_facts(object));
                fold(seen, change, name, upsert, Delta::DeviceSliceRemove, deltas);
            }
        }
    }

    fn take_pods(&mut self, change: Change<Pod>, deltas: &mut Vec<Delta>) {
        let Self { ours, metrics, seen, unbound, refused, .. } = self;
        match &change {
            Change::Replace(_) => {
                unbound.clear();
                refused.clear();
            }
            Change::Deleted(pod) => {
                if let Some(uid) = &pod.metadata.uid {
                    unbound.remove(uid.as_str());
                    refused.remove(uid.as_str());
                }
            }
            Change::Applied(pod) => {
                let reason = pod.status.as_ref().and_then(translate::refusal);
                if let (Some(uid), Some(reason)) = (&pod.metadata.uid, reason)
                    && refused.insert(uid.as_str().into())
                {
                    metrics.refused(reason);
                }
            }
        }
        let upsert = |pod: &Pod| {
            keep_unbound(unbound, pod, metrics);
            let mut facts = translate::pod_facts(pod, &ours.names);
            facts.mine &= !ours.is_elsewhere(pod.spec.as_ref());
            Delta::TaskUpsert(Box::new(facts))
        };
        fold(&mut seen[Kind::Pod as usize], change, uid, upsert, |uid| Delta::TaskRemove(uid.into()), deltas);
    }

    fn take_groups(&mut self, change: Change<PodGroup>, deltas: &mut Vec<Delta>) {
        let foreign = &self.foreign;
        let is_foreign = |group: &PodGroup| {
            let mut owners = group.metadata.owner_references.iter().flatten();
            owners.any(|owner| foreign.contains(&owner.uid))
        };
        let change = only(change, |group| !is_foreign(group));
        let waiting = &mut self.waiting;
        match &change {
            Change::Replace(_) => waiting.clear(),
            Change::Deleted(group) => drop(uid(group).and_then(|uid| waiting.remove(uid.as_str()))),
            Change::Applied(_) => {}
        }
        let metrics = &self.metrics;
        let upsert = |group: &PodGroup| {
            keep_waiting(waiting, group, metrics);
            Delta::GroupUpsert(Box::new(translate::group_facts(group)))
        };
        fold(&mut self.seen[Kind::Group as usize], change, group_key, upsert, group_gone, deltas);
    }

    fn take_queues(&mut self, change: Change<Queue>, deltas: &mut Vec<Delta>) {
        let (allocated, seen) = (&mut self.allocated, &mut self.seen[Kind::Queue as usize]);
        let upsert = |queue: &Queue| {
            let names = queue.status.allocated.keys().cloned().collect();
            allocated.insert(name(queue).unwrap_or_default(), names);
            Delta::QueueUpsert(translate::queue_facts(queue))
        };
        let is_applied = matches!(change, Change::Applied(_));
        fold(seen, change, name, upsert, Delta::QueueRemove, deltas);
        if !is_applied {
            self.allocated.retain(|queue, _| seen.contains(queue));
        }
    }

    /// Jobs of other schedulers have no shape here, nor a group.
    fn take_jobs(&mut self, change: Change<Job>, deltas: &mut Vec<Delta>) {
        let (ours, foreign) = (&self.ours, &mut self.foreign);
        match &change {
            Change::Replace(_) => foreign.clear(),
            Change::Deleted(job) => drop(uid(job).map(|uid| foreign.remove(&uid))),
            Change::Applied(_) => {}
        }
        let mut groups = Vec::new();
        let change = only(change, |job| {
            let Some(uid) = uid(job) else { return true };
            if !ours.is_foreign(job) {
                return true;
            }
            let metadata = &job.metadata;
            if let (Some(namespace), Some(name)) = (&metadata.namespace, &metadata.name) {
                groups.push((namespace.clone(), names::pod_group_name(name, &uid)));
            }
            foreign.insert(uid);
            false
        });
        let remove = |owner_uid| Delta::ShapeRemove { owner_uid };
        fold(&mut self.seen[Kind::Job as usize], change, uid, translate::job_shape, remove, deltas);
        // Its PodGroup may have come before it.
        for (namespace, name) in groups {
            if let Some(uid) = self.group_uid(&namespace, &name) {
                self.seen[Kind::Group as usize].remove(&format!("{namespace}/{name}/{uid}"));
                self.waiting.remove(&uid);
                deltas.push(Delta::GroupRemove { namespace, name, uid });
            }
        }
    }
}

impl Ours {
    fn nodes_only(&self, change: Change<Node>) -> Change<Node> {
        only(change, |node| self.has_node(node))
    }
}

/// What of a change is ours: an object that is not counts as gone.
fn only<K>(change: Change<K>, mut is_ours: impl FnMut(&K) -> bool) -> Change<K> {
    match change {
        Change::Replace(all) => Change::Replace(all.into_iter().filter(is_ours).collect()),
        Change::Applied(object) if !is_ours(&object) => Change::Deleted(object),
        change => change,
    }
}

fn name<K: Metadata<Ty = ObjectMeta>>(object: &K) -> Option<String> {
    object.metadata().name.clone()
}

fn uid<K: Metadata<Ty = ObjectMeta>>(object: &K) -> Option<String> {
    object.metadata().uid.clone()
}

/// `namespace/name`.
fn namespaced<K: Metadata<Ty = ObjectMeta>>(object: &K) -> Option<String> {
    let metadata = object.metadata();
    Some(format!("{}/{}", metadata.namespace.as_ref()?, metadata.name.as_ref()?))
}

fn parts(key: String) -> (String, String) {
    key.split_once('/').map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).unwrap_or_default()
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
                // What was never ours is not gone either.
                if seen.remove(&key) {
                    deltas.push(remove(key));
                }
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
    Delta::GroupRemove { namespace: part(), name: part(), uid: part().into() }
}

fn priority(class: &PriorityClass) -> Delta {
    Delta::PriorityClassUpsert {
        name: class.metadata.name.clone().unwrap_or_default(),
        value: class.value.unwrap_or(0),
        global_default: class.global_default.unwrap_or(false),
    }
}

fn keep_unbound(kept: &mut HashMap<PodUid, Unbound>, pod: &Pod, metrics: &Metrics) {
    let Some(uid) = &pod.metadata.uid else { return };
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    if node.is_some_and(|node| !node.is_empty()) {
        if let Some(pod) = kept.remove(uid.as_str()) {
            metrics.task_waited(pod.since.elapsed());
        }
        return;
    }
    let all = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let conditions = all.filter(|condition| condition.type_ != "PodScheduled").cloned().collect();
    let version = pod.metadata.resource_version.clone();
    match kept.get_mut(uid.as_str()) {
        Some(seen) => (seen.version, seen.conditions) = (version, conditions),
        None => drop(kept.insert(uid.as_str().into(), Unbound { version, conditions, since: Instant::now() })),
    }
}

/// Groups that wait, and how long one has waited that waits no longer.
fn keep_waiting(waiting: &mut HashMap<GroupUid, Timestamp>, group: &PodGroup, metrics: &Metrics) {
    let (Some(uid), Some(created)) = (&group.metadata.uid, &group.metadata.creation_timestamp) else { return };
    match group.status.phase {
        None | Some(PodGroupPhase::Pending | PodGroupPhase::Inqueue) => {
            waiting.insert(uid.as_str().into(), created.0);
        }
        Some(PodGroupPhase::Running) => {
            if let Some(created) = waiting.remove(uid.as_str()) {
                let waited = clock::now().duration_since(created);
                metrics.group_waited(waited.try_into().unwrap_or_default());
            }
        }
        Some(_) => drop(waiting.remove(uid.as_str())),
    }
}

#[cfg(test)]
mod tests;
