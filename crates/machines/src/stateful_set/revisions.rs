//! The templates that a StatefulSet has had, as ControllerRevisions.
//!
//! Invariant: the newest has the highest number; what is in use is never forgotten. Their data is a patch that clients apply to
//! go back.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::json;

use super::{REVISION, StatefulEffect, StepContext};
use crate::workload::{is_same_template, owner_of, template_hash};

const HASH: &str = "controller.kubernetes.io/hash";
const KEPT: i32 = 10;

/// The revisions of a StatefulSet.
pub(super) struct Revisions<'a> {
    /// All, the oldest first.
    all: Vec<&'a ControllerRevision>,
    /// Name of the one that pods had before.
    pub current: String,
    /// Name of the one that pods are to have.
    pub update: String,
}

/// The template that a revision keeps.
pub(super) fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.get("spec")?.get("template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

fn name(revision: &ControllerRevision) -> &str {
    revision.metadata.name.as_deref().unwrap_or_default()
}

/// What there is; else what has to be done first so that the wanted template has a revision, and is the newest.
pub(super) fn find<'a>(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    given: &[&'a ControllerRevision],
) -> Result<Revisions<'a>, Box<StatefulEffect>> {
    let mut all = given.to_vec();
    all.sort_by(|one, other| (one.revision, name(one)).cmp(&(other.revision, name(other))));
    let newest = all.last().map_or(0, |last| last.revision);
    let is_wanted = |one: &&&ControllerRevision| {
        template(one).is_some_and(|template| is_same_template(&template, &spec.template, REVISION))
    };
    let Some(update) = all.iter().rev().find(is_wanted) else {
        return Err(Box::new(StatefulEffect::CreateRevision(Box::new(make(set, spec, newest.saturating_add(1))))));
    };
    if update.revision < newest {
        return Err(Box::new(StatefulEffect::Renumber {
            name: name(update).to_owned(),
            uid: update.metadata.uid.clone().unwrap_or_default(),
            revision: newest.saturating_add(1),
        }));
    }
    let update = name(update).to_owned();
    let told = set.status.as_ref().and_then(|status| status.current_revision.clone());
    let current = told.filter(|told| all.iter().any(|one| name(one) == told)).unwrap_or_else(|| update.clone());
    Ok(Revisions { all, current, update })
}

fn make(set: &StatefulSet, spec: &StatefulSetSpec, revision: i64) -> ControllerRevision {
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let hash = template_hash(&spec.template, REVISION, collisions);
    let mut data = json!({ "spec": { "template": spec.template } });
    if let Some(template) = data.pointer_mut("/spec/template").and_then(serde_json::Value::as_object_mut) {
        template.insert("$patch".to_owned(), json!("replace"));
    }
    let mut labels = spec.selector.match_labels.clone().unwrap_or_default();
    labels.insert(HASH.to_owned(), hash.clone());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", set.metadata.name.as_deref().unwrap_or_default())),
            namespace: set.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: set.metadata.annotations.clone().map(|mut all| {
                all.remove("kubectl.kubernetes.io/last-applied-configuration");
                all
            }),
            owner_references: Some(vec![owner_of::<StatefulSet>(&set.metadata)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision,
    }
}

impl Revisions<'_> {
    /// The template of this name; the wanted one for a name that nobody knows.
    pub fn template(&self, revision: &str, wanted: &PodTemplateSpec) -> PodTemplateSpec {
        let found = self.all.iter().find(|one| name(one) == revision);
        found.and_then(|one| template(one)).unwrap_or_else(|| wanted.clone())
    }

    /// The oldest that nobody has, beyond those that are kept.
    pub fn surplus(&self, context: &StepContext<'_>) -> Vec<StatefulEffect> {
        let kept = context.spec.revision_history_limit.unwrap_or(KEPT);
        let mut used: BTreeSet<&str> =
            context.pods().filter_map(|pod| pod.labels.get(REVISION).map(String::as_str)).collect();
        used.extend([self.current.as_str(), self.update.as_str()]);
        let idle: Vec<&&ControllerRevision> = self.all.iter().filter(|one| !used.contains(name(one))).collect();
        let surplus = idle.len().saturating_sub(usize::try_from(kept).unwrap_or(0));
        let delete = |one: &&ControllerRevision| StatefulEffect::DeleteRevision {
            name: name(one).to_owned(),
            uid: one.metadata.uid.clone().unwrap_or_default(),
        };
        idle.into_iter().take(surplus).map(delete).collect()
    }
}
