//! What the machines of Kubernetes' own kinds share: pods as their controllers see them, whose they are, and what is to be done.
//!
//! Invariant: a pod is somebody's by the uid of its controlling owner alone; one that nobody controls is taken in by who selects
//! it, one whose labels no longer fit is let go. Used by the machines of ReplicaSets, StatefulSets and Jobs.

mod pods;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector as Selecting, ObjectMeta, OwnerReference};
use pumice_api::names;
use pumice_objects::selector::LabelSelector;
use pumice_units::stable_hash;
use serde_json::{Value, json};

pub use pods::{ContainerEnd, IndexFailures, OwnedPod, PodPhase};
pub(crate) use pods::{INDEX, INDEX_FAILURES, INDEX_IGNORED};

/// The finalizer that holds a Job's pod until it was counted.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Letters of a template's hash: none that could make a word.
const HASH_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const HASH_LEN: usize = 10;

/// One change of a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum PodEffect {
    /// Make it; without a name the server finds one.
    Create(Box<Pod>),
    /// Delete it; the uid guards a namesake.
    Delete(PodName),
    /// Take the tracking finalizer off, then delete it: it does not count.
    Withdraw(PodName),
    /// Take the tracking finalizer off: it was counted.
    Untrack(PodName),
    /// Become its controller; with the tracking finalizer if it is to be counted.
    Adopt(PodName, Box<OwnerReference>, bool),
    /// Control it no more. This is the owner's uid.
    Release(PodName, String),
}

/// Which pod: name and uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodName {
    pub name: String,
    pub uid: String,
}

/// Something to tell people about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkEvent {
    /// Whether it is a warning.
    pub is_warning: bool,
    /// CamelCase word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// What to do about an object whose status is an `S`.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkPlan<S> {
    /// The status to write, before anything else.
    pub status: Option<Box<S>>,
    /// Changes of pods, in any order.
    pub pods: Vec<PodEffect>,
    pub events: Vec<WorkEvent>,
    /// When to look again even if nothing happens.
    pub wake_at: Option<Timestamp>,
}

impl<S> Default for WorkPlan<S> {
    fn default() -> Self {
        Self { status: None, pods: Vec::new(), events: Vec::new(), wake_at: None }
    }
}

impl<S> WorkPlan<S> {
    /// Asks for a look at `at`, or earlier.
    pub(crate) fn look_at(&mut self, at: Option<Timestamp>) {
        self.wake_at = [self.wake_at, at].into_iter().flatten().min();
    }
}

/// The pods of an object, and what makes them so.
pub(crate) struct Claimed<'a> {
    /// Its own, those that it takes in now included.
    pub own: Vec<&'a OwnedPod>,
    pub effects: Vec<PodEffect>,
}

/// Sorts out which of `pods`, those that `owner` controls and those that nobody does, are the owner's. `takes_in` is false for
/// an owner on its way out.
pub(crate) fn claim<'a>(
    pods: &[&'a OwnedPod],
    selector: &LabelSelector,
    owner: &OwnerReference,
    takes_in: bool,
    tracked: bool,
) -> Claimed<'a> {
    let mut claimed = Claimed { own: Vec::new(), effects: Vec::new() };
    for pod in pods {
        let fits = selector.matches(|key| pod.labels.get(key).map(String::as_str));
        match &pod.owner_uid {
            Some(uid) if *uid != owner.uid => {}
            Some(_) if fits || !takes_in => claimed.own.push(pod),
            Some(_) => claimed.effects.push(PodEffect::Release(pod.id(), owner.uid.clone())),
            None if fits && takes_in && !pod.is_leaving && pod.is_active() => {
                claimed.effects.push(PodEffect::Adopt(pod.id(), Box::new(owner.clone()), tracked));
                claimed.own.push(pod);
            }
            None => {}
        }
    }
    claimed
}

/// Reads the selector of a kind. One that can't be read selects nothing.
pub fn read_selector(selector: &Selecting) -> LabelSelector {
    let text = serde_json::to_value(selector).unwrap_or_default();
    LabelSelector::from_json(&text).unwrap_or_else(|_| LabelSelector::nothing())
}

/// The object as the controller of what it makes.
pub fn owner_of<K>(metadata: &ObjectMeta) -> OwnerReference
where
    K: k8s_openapi::Resource,
{
    OwnerReference {
        api_version: K::API_VERSION.to_owned(),
        kind: K::KIND.to_owned(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// An object by kind, name and uid.
pub fn reference_to<K: k8s_openapi::Resource>(metadata: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::API_VERSION.to_owned()),
        kind: Some(K::KIND.to_owned()),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// A pod as a template has it, controlled by `owner`.
pub(crate) fn pod_of(template: &PodTemplateSpec, owner: OwnerReference, namespace: Option<String>) -> Pod {
    let given = template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        namespace,
        labels: given.labels,
        annotations: given.annotations,
        finalizers: given.finalizers,
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: template.spec.clone(), status: None }
}

/// What names that the server completes begin with.
pub(crate) fn name_prefix(name: &str) -> String {
    format!("{name}-")
}

/// Why no pods can be made of a template, if so: pods that carry the label of Volcano's Jobs are theirs.
pub(crate) fn refusal(template: &PodTemplateSpec) -> Option<String> {
    let labels = template.metadata.as_ref()?.labels.as_ref()?;
    if !labels.contains_key(names::JOB_NAME) {
        return None;
    }
    Some(format!("pods with the label {} are those of Volcano's Jobs; take it off the template", names::JOB_NAME))
}

/// A condition of any kind with a type of its own: how it stands and since when it has not changed.
pub(crate) trait Condition: Clone + PartialEq {
    fn kind(&self) -> &str;
    fn status(&self) -> &str;
    fn reason(&self) -> &str;
    fn keep_transition(&mut self, from: &Self);
}

/// Puts a condition in the place of the one of its type; one with the same status keeps its transition, one with the same
/// reason too is left as it is.
pub(crate) fn set_condition<C: Condition>(conditions: &mut Vec<C>, mut next: C) {
    match conditions.iter_mut().find(|one| one.kind() == next.kind()) {
        Some(old) if old.status() == next.status() && old.reason() == next.reason() => {}
        Some(old) => {
            if old.status() == next.status() {
                next.keep_transition(old);
            }
            *old = next;
        }
        None => conditions.push(next),
    }
}

macro_rules! condition {
    ($kind:ty) => {
        impl Condition for $kind {
            fn kind(&self) -> &str {
                &self.type_
            }
            fn status(&self) -> &str {
                &self.status
            }
            fn reason(&self) -> &str {
                self.reason.as_deref().unwrap_or_default()
            }
            fn keep_transition(&mut self, from: &Self) {
                self.last_transition_time.clone_from(&from.last_transition_time);
            }
        }
    };
}

condition!(k8s_openapi::api::apps::v1::DeploymentCondition);
condition!(k8s_openapi::api::apps::v1::ReplicaSetCondition);
condition!(k8s_openapi::api::batch::v1::JobCondition);

/// Nothing for a count of zero, as Go leaves it out.
pub(crate) fn some_count(count: usize) -> Option<i32> {
    Some(i32::try_from(count).unwrap_or(i32::MAX)).filter(|count| *count > 0)
}

/// A number of pods, or a share in percent of `total`, rounded up or down.
pub(crate) fn resolve(
    value: Option<&k8s_openapi::apimachinery::pkg::util::intstr::IntOrString>,
    total: i32,
    up: bool,
) -> i32 {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    match value {
        None => 0,
        Some(IntOrString::Int(number)) => (*number).max(0),
        Some(IntOrString::String(text)) => {
            let percent: i64 = text.strip_suffix('%').and_then(|number| number.parse().ok()).unwrap_or(0).max(0);
            let parts = percent.saturating_mul(i64::from(total.max(0)));
            let share = if up { parts.saturating_add(99) / 100 } else { parts / 100 };
            i32::try_from(share).unwrap_or(i32::MAX)
        }
    }
}

/// A merge patch of owner references and finalizers is a strategic one: lists are merged by uid. These are the bodies.
pub fn adoption(name: &PodName, owner: &OwnerReference, tracked: bool) -> Value {
    let mut metadata = json!({"uid": name.uid, "ownerReferences": [owner]});
    if tracked {
        metadata["finalizers"] = json!([TRACKING]);
    }
    json!({ "metadata": metadata })
}

/// Takes an owner off.
pub fn release(name: &PodName, owner_uid: &str) -> Value {
    json!({"metadata": {"uid": name.uid, "ownerReferences": [{"$patch": "delete", "uid": owner_uid}]}})
}

/// Takes the tracking finalizer off.
pub fn untracking(name: &PodName) -> Value {
    json!({"metadata": {"uid": name.uid, "$deleteFromPrimitiveList/finalizers": [TRACKING]}})
}

/// A template as JSON without the label that tells its revision.
fn bare(template: &PodTemplateSpec, label: &str) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(label);
    }
    template
}

/// Whether two templates say the same, but for this label.
pub(crate) fn is_same_template(one: &PodTemplateSpec, other: &PodTemplateSpec, label: &str) -> bool {
    one.spec == other.spec && bare(one, label) == bare(other, label)
}

/// Ten letters for a template and for how often they were taken by another one.
pub(crate) fn template_hash(template: &PodTemplateSpec, label: &str, collisions: Option<i32>) -> String {
    // Members of JSON objects are in order.
    let text = bare(template, label).to_string();
    let salt = collisions.unwrap_or(0).to_le_bytes();
    let mut hash = stable_hash(text.bytes().chain(salt));
    let letters = (0..HASH_LEN).filter_map(|_| {
        let letter = HASH_LETTERS.get((hash % HASH_LETTERS.len() as u64) as usize).copied();
        hash /= HASH_LETTERS.len() as u64;
        letter
    });
    letters.map(char::from).collect()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod world;
