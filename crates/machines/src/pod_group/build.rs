//! A group's content, and what of it has changed.
//!
//! Invariant: the label [`names::MADE_OF`] is a digest of all that is taken over, so that equal causes make equal groups; the
//! status, and what others add to the group, is theirs.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use pumice_api::names;
use pumice_api::scheduling::{
    NetworkTopologyMode, NetworkTopologySpec, PodGroup, PodGroupPhase, PodGroupSpec, PodGroupStatus,
};
use pumice_units::stable_hash;
use serde_json::{Map, Value, json};

use super::native::Native;
use super::{GroupEffect, GroupView, Newest, Owner, OwnerFacts, Source};
use crate::usage::{self, Usage};

/// Of the spec, what follows its causes.
const FOLLOWED: &[&str] = &["minMember", "minResources", "priorityClassName", "networkTopology", "queue"];

/// The group as it is to be made; nothing as long as it can't be known.
pub(super) fn wanted(view: &GroupView<'_>, newest: &Newest<'_>) -> Option<PodGroup> {
    let template = newest.template;
    let mut annotations = BTreeMap::new();
    let mut spec = PodGroupSpec {
        min_member: 1,
        queue: template.queue.clone(),
        priority_class_name: template.priority_class.clone(),
        network_topology: template.network_topology(),
        ..PodGroupSpec::default()
    };
    match view.source {
        Source::Native(native) => follow(&native?, &mut spec),
        Source::Owner(Owner::There(owner)) => {
            spec.min_member = min_member(owner);
            let taken = owner.annotations.iter().filter(|(key, _)| key.starts_with(names::VOLCANO_PREFIX));
            annotations.extend(taken.map(|(key, value)| (key.clone(), value.clone())));
        }
        Source::Pod | Source::Owner(_) => {}
    }
    annotations.extend(template.annotations.clone());
    let mut least = Usage::new();
    usage::add_times(&mut least, &template.usage, i64::from(spec.min_member));
    spec.min_resources = Some(usage::to_wire(least));
    let mut labels = template.labels.clone();
    labels.insert(names::MADE_OF.to_owned(), digest(&(&spec, &annotations, &labels)));
    Some(PodGroup {
        metadata: ObjectMeta {
            name: Some(view.name.to_owned()),
            namespace: Some(view.namespace.to_owned()),
            owner_references: Some(owners(view, newest)),
            annotations: (!annotations.is_empty()).then_some(annotations),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec,
        status: PodGroupStatus { phase: Some(PodGroupPhase::Pending), ..PodGroupStatus::default() },
    })
}

/// Who takes the group along: the native one; the pods' owners, if one of them is their controller; the pod.
fn owners(view: &GroupView<'_>, newest: &Newest<'_>) -> Vec<OwnerReference> {
    let reference = |version: &str, kind: &str, name: &str, uid: &str| OwnerReference {
        api_version: version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    match view.source {
        Source::Native(native) => {
            let reference = |native: Native<'_>| reference(native.api_version, "PodGroup", view.name, native.uid);
            native.map(reference).into_iter().collect()
        }
        Source::Owner(_) => newest.owners.to_vec(),
        Source::Pod => vec![reference("v1", "Pod", newest.name, newest.uid)],
    }
}

/// What a PodGroup of Kubernetes' own says. Its domain is a tier of that name: HyperNodes found by labels are called so.
fn follow(native: &Native<'_>, spec: &mut PodGroupSpec) {
    spec.min_member = native.min_member();
    if let Some(class) = native.priority_class() {
        class.clone_into(&mut spec.priority_class_name);
    }
    if let Some(queue) = native.queue() {
        queue.clone_into(&mut spec.queue);
    }
    if let Some(key) = native.topology_key() {
        spec.network_topology = Some(NetworkTopologySpec {
            mode: Some(NetworkTopologyMode::Hard),
            highest_tier_name: key.to_owned(),
            ..NetworkTopologySpec::default()
        });
    }
}

/// What can't be read, or is negative, is 1; 0 is 0. No more than the owner wants pods now: a Deployment that is rolled out
/// makes those of its new ReplicaSet one after the other.
fn min_member(owner: &OwnerFacts) -> i32 {
    let text = owner.annotations.get(names::GROUP_MIN_MEMBER);
    let asked = text.and_then(|text| text.parse().ok()).filter(|number| *number >= 0).unwrap_or(1);
    owner.at_once.map_or(asked, |most| asked.min(most.max(1)))
}

/// A patch that makes the group what it would be made today, if it was made of something else.
pub(super) fn difference(group: &PodGroup, wanted: PodGroup) -> Option<GroupEffect> {
    let label = |group: &PodGroup| group.metadata.labels.as_ref().and_then(|all| all.get(names::MADE_OF)).cloned();
    if label(group) == label(&wanted) {
        return None;
    }
    let (have, want) = (followed(&group.spec), followed(&wanted.spec));
    let mut spec = merge_from(&have, &want);
    if wanted.spec.queue.is_empty() {
        // Filled in by the server: it stays where it is.
        spec.remove("queue");
    }
    Some(GroupEffect::Patch(json!({
        "metadata": {"labels": wanted.metadata.labels, "annotations": wanted.metadata.annotations.unwrap_or_default()},
        "spec": spec,
    })))
}

fn followed(spec: &PodGroupSpec) -> Map<String, Value> {
    let Ok(Value::Object(mut all)) = serde_json::to_value(spec) else { return Map::new() };
    all.retain(|key, _| FOLLOWED.contains(&key.as_str()));
    // Not written when it is 0, which a merge would keep as it was.
    all.entry("minMember").or_insert(0.into());
    all
}

/// The merge patch that leads from one to the other.
fn merge_from(have: &Map<String, Value>, want: &Map<String, Value>) -> Map<String, Value> {
    let gone = have.keys().filter(|key| !want.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let mut patch: Map<String, Value> = gone.collect();
    for (key, value) in want {
        match (have.get(key), value) {
            (Some(Value::Object(have)), Value::Object(want)) => {
                let inner = merge_from(have, want);
                if !inner.is_empty() {
                    patch.insert(key.clone(), inner.into());
                }
            }
            (have, _) if have == Some(value) => {}
            _ => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    patch
}

/// A hash of what it says as JSON, in 16 digits: short enough for a label, and the same in every version of this program.
fn digest(content: &impl serde::Serialize) -> String {
    let bytes = serde_json::to_vec(content).unwrap_or_default();
    format!("{:016x}", stable_hash(bytes))
}
