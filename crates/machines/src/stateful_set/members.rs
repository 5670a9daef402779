//! Pods in their places: made, replaced and ended in order.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, Volume};

use super::{REVISION, StatefulEffect, StatefulPlan, StepContext, claims};
use crate::workload::{OwnedPod, PodEffect, owner_of, pod_of};

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

type Claims<'c, 'a> = &'c dyn Fn(&str) -> Option<&'a PersistentVolumeClaim>;

/// Brings pods to their places, takes away those of no place, then replaces what is of another template.
pub(super) fn manage(context: &StepContext<'_>, claims: Claims<'_, '_>, plan: &mut StatefulPlan) {
    if fill(context, claims, plan) && condemn(context, plan) && context.updates_itself() {
        update(context, plan);
    }
}

fn delete(plan: &mut StatefulPlan, pod: &OwnedPod) {
    plan.effects.push(StatefulEffect::Pod(PodEffect::Delete(pod.id())));
}

/// Says whether the next may be done.
fn fill(context: &StepContext<'_>, claims: Claims<'_, '_>, plan: &mut StatefulPlan) -> bool {
    let ordered = context.is_ordered();
    for (place, held) in context.places.iter().enumerate() {
        let is_settled = match held {
            None => {
                create(context, place, claims, plan);
                false
            }
            Some(pod) if pod.is_leaving => false,
            Some(pod) if pod.has_ended() => {
                delete(plan, pod);
                false
            }
            Some(pod) => {
                let at = pod.available_at(context.min_ready_seconds()).filter(|at| *at > context.now);
                plan.wake_at = [plan.wake_at, at].into_iter().flatten().min();
                context.is_available(pod)
            }
        };
        if ordered && !is_settled {
            return false;
        }
    }
    true
}

fn condemn(context: &StepContext<'_>, plan: &mut StatefulPlan) -> bool {
    for pod in &context.condemned {
        if !pod.is_leaving {
            delete(plan, pod);
        }
        if context.is_ordered() {
            return false;
        }
    }
    true
}

/// Replaces pods of another template from the last place down, with no more missing than may be.
fn update(context: &StepContext<'_>, plan: &mut StatefulPlan) {
    let missing = context.places.iter().filter(|held| held.is_none_or(|pod| !context.is_available(pod))).count();
    let mut room = context.max_unavailable().saturating_sub(missing);
    for pod in context.places.iter().skip(context.partition()).rev().flatten() {
        let is_new = pod.labels.get(REVISION) == Some(&context.revisions.update);
        if is_new || pod.is_leaving || pod.has_ended() {
            continue;
        }
        // One that serves nobody is missing already.
        if context.is_available(pod) {
            if room == 0 {
                return;
            }
            room -= 1;
        }
        delete(plan, pod);
    }
}

fn create(context: &StepContext<'_>, place: usize, claims: Claims<'_, '_>, plan: &mut StatefulPlan) {
    let name = context.place_name(place);
    claims::make(context, &name, claims, &mut plan.effects);
    let keeps = context.updates_itself() && place < context.partition();
    let revision = if keeps { &context.revisions.current } else { &context.revisions.update };
    plan.effects.push(StatefulEffect::Pod(PodEffect::Create(Box::new(pod(context, name, revision, place)))));
}

fn pod(context: &StepContext<'_>, name: String, revision: &str, place: usize) -> Pod {
    let template = context.revisions.template(revision, &context.spec.template);
    let owner = owner_of::<StatefulSet>(&context.set.metadata);
    let mut pod = pod_of(&template, owner, context.set.metadata.namespace.clone());
    let ordinal = i64::from(context.start()).saturating_add(i64::try_from(place).unwrap_or(i64::MAX));
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.to_owned(), name.clone());
    labels.insert(POD_INDEX.to_owned(), ordinal.to_string());
    labels.insert(REVISION.to_owned(), revision.to_owned());
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(name.clone());
        spec.subdomain = context.spec.service_name.clone().filter(|service| !service.is_empty());
        let named: Vec<Volume> = claims::templates(context)
            .map(|(template, _)| Volume {
                name: template.to_owned(),
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                    claim_name: claims::name(template, &name),
                    read_only: None,
                }),
                ..Volume::default()
            })
            .collect();
        let volumes = spec.volumes.get_or_insert_default();
        volumes.retain(|volume| named.iter().all(|one| one.name != volume.name));
        volumes.extend(named);
        if volumes.is_empty() {
            spec.volumes = None;
        }
    }
    pod.metadata.name = Some(name);
    pod
}
