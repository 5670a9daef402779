//! The StatefulSet machine: pods with names, claims and an order.
//!
//! Invariant: a pod's name is its own and its claims stay with it; in order, none is made before those before it serve, and none
//! goes before those after it are gone. What a pod was made of is kept as a ControllerRevision for as long as it is needed.
//! Called by the shell for each StatefulSet that something happened to.

mod claims;
mod members;
mod revisions;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::workload::{OwnedPod, PodEffect, WorkEvent, claim, owner_of, read_selector, refusal, resolve, some_count};
use revisions::Revisions;

/// The label with the revision of a pod.
pub(crate) const REVISION: &str = "controller-revision-hash";

/// What a step looks at.
pub struct StatefulView<'a> {
    pub set: &'a StatefulSet,
    /// The pods that it controls and those of its namespace that nobody controls.
    pub pods: Vec<&'a OwnedPod>,
    /// The ControllerRevisions that it controls.
    pub revisions: Vec<&'a ControllerRevision>,
    /// Claims of its namespace by name.
    pub claims: &'a dyn Fn(&str) -> Option<&'a PersistentVolumeClaim>,
}

/// One change to make.
#[derive(Clone, Debug, PartialEq)]
pub enum StatefulEffect {
    /// Keep a template. If one of its name is there, it is another template's.
    CreateRevision(Box<ControllerRevision>),
    /// A template came back: it is the newest again.
    Renumber {
        /// Name of the ControllerRevision.
        name: String,
        uid: String,
        revision: i64,
    },
    /// Forget a template that no pod has.
    DeleteRevision {
        /// Name of the ControllerRevision.
        name: String,
        uid: String,
    },
    /// Make a claim; one that is there is taken.
    CreateClaim(Box<PersistentVolumeClaim>),
    /// Say with whom a claim goes.
    OwnClaim {
        name: String,
        uid: String,
        /// Who owns it too from now on.
        add: Option<Box<OwnerReference>>,
        /// Uids of those who own it no more.
        remove: Vec<String>,
    },
    Pod(PodEffect),
    WriteStatus(Box<StatefulSetStatus>),
}

/// Changes to make in their order, what to tell, and when to look again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatefulPlan {
    pub effects: Vec<StatefulEffect>,
    pub events: Vec<WorkEvent>,
    /// When the next pod counts as available.
    pub wake_at: Option<Timestamp>,
}

/// A StatefulSet with its pods by place.
struct StepContext<'a> {
    set: &'a StatefulSet,
    spec: &'a StatefulSetSpec,
    /// The pod of each place, from the first.
    places: Vec<Option<&'a OwnedPod>>,
    /// Pods of places that are no more, the last first.
    condemned: Vec<&'a OwnedPod>,
    revisions: Revisions<'a>,
    now: Timestamp,
}

impl<'a> StepContext<'a> {
    fn name(&self) -> &'a str {
        self.set.metadata.name.as_deref().unwrap_or_default()
    }

    fn is_ordered(&self) -> bool {
        self.spec.pod_management_policy.as_deref() != Some("Parallel")
    }

    fn start(&self) -> i32 {
        self.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0).max(0)
    }

    fn updates_itself(&self) -> bool {
        self.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete")
    }

    fn rolling(&self) -> Option<&'a k8s_openapi::api::apps::v1::RollingUpdateStatefulSetStrategy> {
        self.spec.update_strategy.as_ref()?.rolling_update.as_ref()
    }

    /// Places before this one keep what they were made of.
    fn partition(&self) -> usize {
        usize::try_from(self.rolling().and_then(|rolling| rolling.partition).unwrap_or(0)).unwrap_or(0)
    }

    /// How many pods may be missing while they are replaced.
    fn max_unavailable(&self) -> usize {
        let value = self.rolling().and_then(|rolling| rolling.max_unavailable.as_ref());
        let total = i32::try_from(self.places.len()).unwrap_or(i32::MAX);
        usize::try_from(resolve(value, total, true)).unwrap_or(0).max(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or(0)
    }

    fn is_available(&self, pod: &OwnedPod) -> bool {
        pod.is_active() && pod.available_at(self.min_ready_seconds()).is_some_and(|at| at <= self.now)
    }

    fn pods(&self) -> impl Iterator<Item = &'a OwnedPod> + '_ {
        self.places.iter().flatten().chain(&self.condemned).copied()
    }

    fn place_name(&self, place: usize) -> String {
        let ordinal = i64::from(self.start()).saturating_add(i64::try_from(place).unwrap_or(i64::MAX));
        format!("{}-{ordinal}", self.name())
    }
}

/// Decides what to do about a StatefulSet now. `O(pods log pods + replicas)`.
pub fn step(view: &StatefulView<'_>, now: Timestamp) -> StatefulPlan {
    let mut plan = StatefulPlan::default();
    let set = view.set;
    let Some(spec) = &set.spec else { return plan };
    if set.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let owner = owner_of::<StatefulSet>(&set.metadata);
    let revisions = match revisions::find(set, spec, &view.revisions) {
        Ok(revisions) => revisions,
        Err(effect) => {
            plan.effects.push(*effect);
            return plan;
        }
    };
    let claimed = claim(&view.pods, &read_selector(&spec.selector), &owner, true, false);
    let name = set.metadata.name.as_deref().unwrap_or_default();
    // A pod that is nobody's is taken in only if it has the name of one of ours.
    let is_ours = |pod: &str| ordinal(name, pod).is_some();
    plan.effects.extend(
        claimed
            .effects
            .into_iter()
            .filter(|effect| match effect {
                PodEffect::Adopt(pod, ..) => is_ours(&pod.name),
                _ => true,
            })
            .map(StatefulEffect::Pod),
    );
    let own: Vec<&OwnedPod> = claimed.own.into_iter().filter(|pod| is_ours(&pod.name)).collect();
    let (places, condemned) = seat(name, spec, &own);
    let context = StepContext { set, spec, places, condemned, revisions, now };
    let status = next_status(&context);
    if set.status.as_ref() != Some(&status) {
        plan.effects.push(StatefulEffect::WriteStatus(Box::new(status)));
    }
    match refusal(&spec.template) {
        Some(message) => plan.events.push(WorkEvent { is_warning: true, reason: "FailedCreate", message }),
        None => members::manage(&context, view.claims, &mut plan),
    }
    claims::keep(&context, view.claims, &mut plan.effects);
    plan.effects.extend(context.revisions.surplus(&context));
    plan
}

/// Which place a name is of.
fn ordinal(set: &str, pod: &str) -> Option<i64> {
    let number = pod.strip_prefix(set)?.strip_prefix('-')?;
    let ordinal: i64 = number.parse().ok()?;
    (ordinal >= 0 && ordinal.to_string() == number).then_some(ordinal)
}

/// Pods by place; the others are condemned.
fn seat<'a>(
    name: &str,
    spec: &StatefulSetSpec,
    own: &[&'a OwnedPod],
) -> (Vec<Option<&'a OwnedPod>>, Vec<&'a OwnedPod>) {
    let start = i64::from(spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0).max(0));
    let count = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    let by_ordinal: BTreeMap<i64, &OwnedPod> =
        own.iter().filter_map(|pod| Some((ordinal(name, &pod.name)?, *pod))).collect();
    let end = start.saturating_add(i64::try_from(count).unwrap_or(i64::MAX));
    let places = (start..end).map(|ordinal| by_ordinal.get(&ordinal).copied()).collect();
    let condemned = by_ordinal.iter().rev().filter(|(ordinal, _)| !(start..end).contains(*ordinal));
    (places, condemned.map(|(_, pod)| *pod).collect())
}

/// The status of a StatefulSet whose next revision has a name that another template's has.
pub fn collided(set: &StatefulSet) -> StatefulSetStatus {
    let mut status = set.status.clone().unwrap_or_default();
    status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
    status
}

/// Whether a revision that is in the way is the one that was to be made.
pub fn is_the_same(wanted: &ControllerRevision, found: &ControllerRevision) -> bool {
    let owner =
        |one: &ControllerRevision| one.metadata.owner_references.as_ref()?.first().map(|owner| owner.uid.clone());
    owner(wanted) == owner(found) && revisions::template(wanted) == revisions::template(found)
}

/// The next status. When every pod is of the wanted template and ready, that is the current one.
fn next_status(context: &StepContext<'_>) -> StatefulSetStatus {
    let before = context.set.status.clone().unwrap_or_default();
    let count = |wanted: &dyn Fn(&OwnedPod) -> bool| some_count(context.pods().filter(|pod| wanted(pod)).count());
    let is_of = |pod: &OwnedPod, revision: &str| {
        !pod.is_leaving && pod.labels.get(REVISION).is_some_and(|label| label == revision)
    };
    let replicas = count(&|_| true).unwrap_or(0);
    let ready = count(&|pod| pod.is_ready() && !pod.has_ended());
    let updated = count(&|pod| is_of(pod, &context.revisions.update));
    let is_done = context.updates_itself() && updated.unwrap_or(0) == replicas && ready.unwrap_or(0) == replicas;
    let current = if is_done { &context.revisions.update } else { &context.revisions.current };
    StatefulSetStatus {
        observed_generation: context.set.metadata.generation,
        replicas,
        ready_replicas: ready,
        available_replicas: Some(count(&|pod| context.is_available(pod)).unwrap_or(0)),
        current_replicas: count(&|pod| is_of(pod, current)),
        updated_replicas: updated,
        current_revision: Some(current.clone()),
        update_revision: Some(context.revisions.update.clone()),
        collision_count: before.collision_count.or(Some(0)),
        conditions: before.conditions,
    }
}

#[cfg(test)]
mod tests;
