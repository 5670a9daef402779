//! The ReplicaSets of a Deployment: whose they are, which is the new one, how they are numbered and made.
//!
//! Invariant: a revision's number only grows; a template that comes back gets the next one.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::{DeploymentEffect, DeploymentPlan, REVISION, StepContext, annotation, replicas_of};
use crate::workload::{WorkEvent, is_same_template, owner_of, read_selector, template_hash};

/// The label that tells pods of one template from those of another.
pub(crate) const TEMPLATE_HASH: &str = "pod-template-hash";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MOST: &str = "deployment.kubernetes.io/max-replicas";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// What kubectl writes for itself.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MOST,
    "deprecated.deployment.rollback.to",
];
/// Longest text of former numbers.
const HISTORY_MAX: usize = 2000;

fn id(set: &ReplicaSet) -> (String, String) {
    (set.metadata.name.clone().unwrap_or_default(), set.metadata.uid.clone().unwrap_or_default())
}

/// Those that are the Deployment's, with what makes them so.
pub(super) fn claim<'a>(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    sets: &[&'a ReplicaSet],
    effects: &mut Vec<DeploymentEffect>,
) -> Vec<&'a ReplicaSet> {
    let selector = read_selector(&spec.selector);
    let mut own = Vec::new();
    for set in sets.iter().copied() {
        let labels = set.metadata.labels.as_ref();
        let fits = selector.matches(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str));
        let mut owners = set.metadata.owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true));
        let (name, uid) = id(set);
        match controller {
            Some(owner) if Some(&owner.uid) != deployment.metadata.uid.as_ref() => {}
            Some(_) if fits => own.push(set),
            Some(_) => effects.push(DeploymentEffect::ReleaseSet { name, uid }),
            None if fits && set.metadata.deletion_timestamp.is_none() => {
                effects.push(DeploymentEffect::AdoptSet { name, uid });
                own.push(set);
            }
            None => {}
        }
    }
    own
}

/// The one of the wanted template, the oldest if several are, and the others.
pub(super) fn sort<'a>(
    spec: &DeploymentSpec,
    mut own: Vec<&'a ReplicaSet>,
) -> (Option<&'a ReplicaSet>, Vec<&'a ReplicaSet>) {
    let made = |set: &ReplicaSet| set.metadata.creation_timestamp.as_ref().map(|time| time.0);
    own.sort_by(|one, other| (made(one), &one.metadata.name).cmp(&(made(other), &other.metadata.name)));
    let is_new = |set: &&ReplicaSet| {
        let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
        template.is_some_and(|template| is_same_template(template, &spec.template, TEMPLATE_HASH))
    };
    let at = own.iter().position(is_new);
    let new = at.map(|at| own.remove(at));
    (new, own)
}

/// Whether two say the same of their pods.
pub(super) fn are_alike(one: &ReplicaSet, other: &ReplicaSet) -> bool {
    let template = |set: &ReplicaSet| set.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
    is_same_template(&template(one), &template(other), TEMPLATE_HASH)
}

fn revision(metadata: &ObjectMeta) -> i64 {
    annotation(metadata, REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// What every ReplicaSet is told of the whole.
fn sizes(context: &StepContext<'_>) -> BTreeMap<String, String> {
    let most = context.replicas().saturating_add(context.bounds().0);
    [(DESIRED, context.replicas()), (MOST, most)].map(|(key, number)| (key.to_owned(), number.to_string())).into()
}

/// Numbers the new revision, and makes its ReplicaSet unless it is paused or waits for the old ones' end.
pub(super) fn number(context: &StepContext<'_>, plan: &mut DeploymentPlan) {
    let newest = context.old.iter().map(|set| revision(&set.metadata)).max().unwrap_or(0).saturating_add(1);
    let Some(new) = context.new else { return };
    let mut annotations = copied(&context.deployment.metadata);
    let held = revision(&new.metadata);
    let number = newest.max(held);
    annotations.insert(REVISION.to_owned(), number.to_string());
    if held > 0 && held < number {
        let before = annotation(&new.metadata, HISTORY).filter(|text| !text.is_empty());
        let history = before.map_or_else(|| held.to_string(), |before| format!("{before},{held}"));
        let cut = history.len().saturating_sub(HISTORY_MAX);
        annotations.insert(HISTORY.to_owned(), history.get(cut..).unwrap_or_default().to_owned());
    }
    let given = new.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, value| given.get(key) != Some(value));
    let seconds = |seconds: Option<i32>| seconds.unwrap_or(0);
    let wanted = seconds(context.spec.min_ready_seconds);
    let min_ready_seconds =
        Some(wanted).filter(|wanted| seconds(new.spec.as_ref().and_then(|spec| spec.min_ready_seconds)) != *wanted);
    if !annotations.is_empty() || min_ready_seconds.is_some() {
        let (name, uid) = id(new);
        plan.effects.push(DeploymentEffect::ChangeSet { name, uid, replicas: None, min_ready_seconds, annotations });
    }
    if revision(&context.deployment.metadata) != number {
        plan.effects.push(DeploymentEffect::Annotate { revision: number.to_string() });
    }
}

/// Annotations that a ReplicaSet takes over: the cause of a change is read off it.
fn copied(metadata: &ObjectMeta) -> BTreeMap<String, String> {
    let mut annotations = metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !NOT_COPIED.contains(&key.as_str()));
    annotations
}

/// Makes the ReplicaSet of the wanted template with so many replicas.
pub(super) fn make(context: &StepContext<'_>, replicas: i32, plan: &mut DeploymentPlan) {
    let spec = context.spec;
    let collisions = context.deployment.status.as_ref().and_then(|status| status.collision_count);
    let hash = template_hash(&spec.template, TEMPLATE_HASH, collisions);
    let mut template = spec.template.clone();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(TEMPLATE_HASH.to_owned(), hash.clone());
    let mut selector: LabelSelector = spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(TEMPLATE_HASH.to_owned(), hash.clone());
    let newest = context.old.iter().map(|set| revision(&set.metadata)).max().unwrap_or(0).saturating_add(1);
    let mut annotations = copied(&context.deployment.metadata);
    annotations.insert(REVISION.to_owned(), newest.to_string());
    annotations.extend(sizes(context));
    let name = format!("{}-{hash}", context.name());
    let set = ReplicaSet {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: context.deployment.metadata.namespace.clone(),
            labels: template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()),
            annotations: Some(annotations),
            owner_references: Some(vec![owner_of::<Deployment>(&context.deployment.metadata)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    };
    plan.effects.push(DeploymentEffect::CreateSet(Box::new(set)));
    let message = format!("Scaled up replica set {name} from 0 to {replicas}");
    plan.events.push(WorkEvent { is_warning: false, reason: "ScalingReplicaSet", message });
}

/// Asks a ReplicaSet for another number of pods.
pub(super) fn scale(context: &StepContext<'_>, set: &ReplicaSet, replicas: i32, plan: &mut DeploymentPlan) {
    let (name, uid) = id(set);
    let mut annotations = sizes(context);
    annotations.retain(|key, value| annotation(&set.metadata, key) != Some(value.as_str()));
    let before = replicas_of(set);
    if before == replicas && annotations.is_empty() {
        return;
    }
    if before != replicas {
        let way = if replicas > before { "up" } else { "down" };
        let message = format!("Scaled {way} replica set {name} from {before} to {replicas}");
        plan.events.push(WorkEvent { is_warning: false, reason: "ScalingReplicaSet", message });
    }
    let replicas = Some(replicas).filter(|replicas| *replicas != before);
    plan.effects.push(DeploymentEffect::ChangeSet { name, uid, replicas, min_ready_seconds: None, annotations });
}

/// Whether the Deployment wants another number of pods than its ReplicaSets were told.
pub(super) fn is_resized(context: &StepContext<'_>) -> bool {
    let told = |set: &ReplicaSet| annotation(&set.metadata, DESIRED).and_then(|text| text.parse::<i32>().ok());
    context.all().filter(|set| replicas_of(set) > 0).any(|set| told(set).is_some_and(|told| told != context.replicas()))
}

/// Deletes ReplicaSets without pods beyond those that are kept to go back to.
pub(super) fn forget(context: &StepContext<'_>, effects: &mut Vec<DeploymentEffect>) {
    let Some(kept) = context.spec.revision_history_limit else { return };
    let mut idle: Vec<&ReplicaSet> =
        context.old.iter().copied().filter(|set| set.metadata.deletion_timestamp.is_none()).collect();
    idle.sort_by_key(|set| revision(&set.metadata));
    let surplus = idle.len().saturating_sub(usize::try_from(kept).unwrap_or(0));
    let is_idle = |set: &&ReplicaSet| {
        let status = set.status.clone().unwrap_or_default();
        replicas_of(set) == 0 && status.replicas == 0 && status.observed_generation >= set.metadata.generation
    };
    effects.extend(idle.into_iter().take(surplus).filter(is_idle).map(|set| {
        let (name, uid) = id(set);
        DeploymentEffect::DeleteSet { name, uid }
    }));
}
