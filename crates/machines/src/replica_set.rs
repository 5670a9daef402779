//! The ReplicaSet machine: as many pods as are wanted.
//!
//! Invariant: no more pods are made than are lacking, and no more deleted than are too many; those that serve least go first.
//! Called by the shell for each ReplicaSet that something happened to.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::workload::{
    OwnedPod, PodEffect, WorkEvent, WorkPlan, claim, name_prefix, owner_of, pod_of, read_selector, refusal,
    set_condition, some_count,
};

/// Most pods that one plan makes or deletes.
pub(crate) const BURST_MAX: usize = 500;
const FAILURE: &str = "ReplicaFailure";

/// What a step looks at.
pub struct SetView<'a> {
    pub set: &'a ReplicaSet,
    /// The pods that it controls and those of its namespace that nobody controls.
    pub pods: Vec<&'a OwnedPod>,
    /// Why the last pod could not be made, if that was so.
    pub refused: Option<&'a str>,
}

/// Decides what to do about a ReplicaSet now. `O(pods log pods)`.
pub fn step(view: &SetView<'_>, now: Timestamp) -> WorkPlan<ReplicaSetStatus> {
    let mut plan = WorkPlan::default();
    let set = view.set;
    let Some(spec) = &set.spec else { return plan };
    let stays = set.metadata.deletion_timestamp.is_none();
    let owner = owner_of::<ReplicaSet>(&set.metadata);
    let claimed = claim(&view.pods, &read_selector(&spec.selector), &owner, stays, false);
    plan.pods = claimed.effects;
    let active: Vec<&OwnedPod> = claimed.own.iter().filter(|pod| pod.is_active()).copied().collect();
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    let template = spec.template.clone().unwrap_or_default();
    let refusal = refusal(&template);
    if stays && active.len() > wanted {
        plan.pods.extend(surplus(&active, active.len() - wanted).into_iter().map(|pod| PodEffect::Delete(pod.id())));
    } else if stays && active.len() < wanted {
        match &refusal {
            Some(message) => {
                plan.events.push(WorkEvent { is_warning: true, reason: "FailedCreate", message: message.clone() })
            }
            None => {
                let mut pod = pod_of(&template, owner, set.metadata.namespace.clone());
                pod.metadata.generate_name = Some(name_prefix(set.metadata.name.as_deref().unwrap_or_default()));
                let lacking = (wanted - active.len()).min(BURST_MAX);
                plan.pods.extend(std::iter::repeat_n(PodEffect::Create(Box::new(pod)), lacking));
            }
        }
    }
    let refused = if active.len() == wanted { None } else { view.refused.or(refusal.as_deref()) };
    let status = status(set, &claimed.own, refused, now);
    if set.status.as_ref() != Some(&status) {
        plan.status = Some(Box::new(status));
    }
    plan.look_at(next_available(&active, spec.min_ready_seconds.unwrap_or(0), now));
    plan
}

/// The pods that go first.
pub(crate) fn surplus<'a>(active: &[&'a OwnedPod], count: usize) -> Vec<&'a OwnedPod> {
    let mut on_node: BTreeMap<&str, usize> = BTreeMap::new();
    for node in active.iter().filter_map(|pod| pod.node.as_deref()) {
        *on_node.entry(node).or_default() += 1;
    }
    let mut order = active.to_vec();
    order.sort_by_cached_key(|pod| {
        pod.rank(pod.node.as_deref().and_then(|node| on_node.get(node).copied()).unwrap_or(0))
    });
    order.truncate(count.min(BURST_MAX));
    order
}

/// When the next pod has been ready for long enough.
pub(crate) fn next_available(pods: &[&OwnedPod], min_ready_seconds: i32, now: Timestamp) -> Option<Timestamp> {
    pods.iter().filter_map(|pod| pod.available_at(min_ready_seconds)).filter(|at| *at > now).min()
}

fn status(set: &ReplicaSet, own: &[&OwnedPod], refused: Option<&str>, now: Timestamp) -> ReplicaSetStatus {
    let before = set.status.clone().unwrap_or_default();
    let spec = set.spec.as_ref();
    let seconds = spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
    let active = || own.iter().filter(|pod| pod.is_active());
    let template = spec.and_then(|spec| spec.template.as_ref()?.metadata.as_ref()?.labels.clone()).unwrap_or_default();
    let is_labelled = |pod: &OwnedPod| template.iter().all(|(key, value)| pod.labels.get(key) == Some(value));
    let available = |pod: &&&OwnedPod| pod.available_at(seconds).is_some_and(|at| at <= now);
    ReplicaSetStatus {
        replicas: some_count(active().count()).unwrap_or(0),
        fully_labeled_replicas: some_count(active().filter(|pod| is_labelled(pod)).count()),
        ready_replicas: some_count(active().filter(|pod| pod.is_ready()).count()),
        available_replicas: some_count(active().filter(available).count()),
        terminating_replicas: some_count(own.iter().filter(|pod| pod.is_leaving && !pod.has_ended()).count()),
        observed_generation: set.metadata.generation,
        conditions: conditions(before.conditions, refused, now),
    }
}

fn conditions(
    before: Option<Vec<ReplicaSetCondition>>,
    refused: Option<&str>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = before.unwrap_or_default();
    match refused {
        Some(message) => set_condition(
            &mut conditions,
            ReplicaSetCondition {
                type_: FAILURE.to_owned(),
                status: "True".to_owned(),
                reason: Some("FailedCreate".to_owned()),
                message: Some(message.to_owned()),
                last_transition_time: Some(whole_second(now)),
            },
        ),
        None => conditions.retain(|condition| condition.type_ != FAILURE),
    }
    Some(conditions).filter(|conditions| !conditions.is_empty())
}

/// A time as it comes back from the server.
pub(crate) fn whole_second(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

#[cfg(test)]
mod tests;
