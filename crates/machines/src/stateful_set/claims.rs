//! Claims of the pods of a StatefulSet: made with them, kept or gone as its retention policy says.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::{StatefulEffect, StepContext};
use crate::workload::{OwnedPod, owner_of};

/// Names and specifications of the claims of each pod.
pub(super) fn templates<'a>(context: &StepContext<'a>) -> impl Iterator<Item = (&'a str, &'a PersistentVolumeClaim)> {
    let all = context.spec.volume_claim_templates.iter().flatten();
    all.filter_map(|claim| Some((claim.metadata.name.as_deref()?, claim)))
}

/// The claim of a pod.
pub(super) fn name(template: &str, pod: &str) -> String {
    format!("{template}-{pod}")
}

/// Makes those of a pod that are not there.
pub(super) fn make<'a>(
    context: &StepContext<'_>,
    pod: &str,
    found: &dyn Fn(&str) -> Option<&'a PersistentVolumeClaim>,
    effects: &mut Vec<StatefulEffect>,
) {
    for (template, claim) in templates(context) {
        let name = name(template, pod);
        if found(&name).is_some() {
            continue;
        }
        let mut labels = claim.metadata.labels.clone().unwrap_or_default();
        labels.extend(context.spec.selector.match_labels.clone().unwrap_or_default());
        effects.push(StatefulEffect::CreateClaim(Box::new(PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: context.set.metadata.namespace.clone(),
                labels: Some(labels).filter(|labels| !labels.is_empty()),
                annotations: claim.metadata.annotations.clone(),
                owner_references: goes_with_set(context).then(|| vec![set_owner(context)]),
                ..ObjectMeta::default()
            },
            spec: claim.spec.clone(),
            status: None,
        })));
    }
}

fn policy(context: &StepContext<'_>, scaled: bool) -> bool {
    let policy = context.spec.persistent_volume_claim_retention_policy.as_ref();
    let word =
        policy.and_then(|policy| if scaled { policy.when_scaled.as_deref() } else { policy.when_deleted.as_deref() });
    word == Some("Delete")
}

fn goes_with_set(context: &StepContext<'_>) -> bool {
    policy(context, false)
}

/// An owner that does not control.
fn set_owner(context: &StepContext<'_>) -> OwnerReference {
    OwnerReference { controller: None, block_owner_deletion: None, ..owner_of::<StatefulSet>(&context.set.metadata) }
}

fn pod_owner(pod: &OwnedPod) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        controller: None,
        block_owner_deletion: None,
    }
}

/// Sees to it that claims go with the set, with their pod, or with nobody. Looks at those of pods that are there.
pub(super) fn keep<'a>(
    context: &StepContext<'_>,
    found: &dyn Fn(&str) -> Option<&'a PersistentVolumeClaim>,
    effects: &mut Vec<StatefulEffect>,
) {
    // Before any pod goes: what its claim goes with must be written by then.
    let at = effects.iter().position(|effect| matches!(effect, StatefulEffect::Pod(_))).unwrap_or(effects.len());
    let mut owning = Vec::new();
    let staying = context.places.iter().flatten().map(|pod| (*pod, false));
    let going = context.condemned.iter().map(|pod| (*pod, true));
    for (pod, is_condemned) in staying.chain(going) {
        for (template, _) in templates(context) {
            let Some(claim) = found(&name(template, &pod.name)) else { continue };
            owning.extend(own(context, claim, pod, is_condemned && policy(context, true)));
        }
    }
    effects.splice(at..at, owning);
}

fn own(
    context: &StepContext<'_>,
    claim: &PersistentVolumeClaim,
    pod: &OwnedPod,
    with_pod: bool,
) -> Option<StatefulEffect> {
    let held: Vec<&OwnerReference> = claim.metadata.owner_references.iter().flatten().collect();
    let set = set_owner(context);
    let wanted = if with_pod { Some(pod_owner(pod)) } else { goes_with_set(context).then(|| set.clone()) };
    let is_wanted = |uid: &str| wanted.as_ref().is_some_and(|wanted| wanted.uid == uid);
    let ours = |owner: &&&OwnerReference| owner.uid == set.uid || (owner.kind == "Pod" && owner.name == pod.name);
    let remove: Vec<String> =
        held.iter().filter(ours).filter(|owner| !is_wanted(&owner.uid)).map(|owner| owner.uid.clone()).collect();
    let add = wanted.clone().filter(|wanted| held.iter().all(|owner| owner.uid != wanted.uid));
    if add.is_none() && remove.is_empty() {
        return None;
    }
    Some(StatefulEffect::OwnClaim {
        name: claim.metadata.name.clone()?,
        uid: claim.metadata.uid.clone()?,
        add: add.map(Box::new),
        remove,
    })
}
