//! The Deployment machine: ReplicaSets, one for each template, scaled up and down within bounds.
//!
//! Invariant: while it rolls no more pods are asked for than `replicas` and `maxSurge`, and no pod that serves is taken away
//! below `replicas` less `maxUnavailable`. A ReplicaSet's name follows from its template. Called by the shell for each
//! Deployment that something happened to.

mod rolling;
mod sets;
mod status;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::workload::{WorkEvent, resolve};

/// The annotation with the number of a revision.
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";

/// What a step looks at.
pub struct DeploymentView<'a> {
    pub deployment: &'a Deployment,
    /// The ReplicaSets that it controls and those of its namespace that nobody controls.
    pub sets: Vec<&'a ReplicaSet>,
    /// Pods of each ReplicaSet that have not ended, by its uid.
    pub pods: BTreeMap<&'a str, usize>,
}

/// One change to make.
#[derive(Clone, Debug, PartialEq)]
pub enum DeploymentEffect {
    /// Make a ReplicaSet. If one of its name is there, it is another template's.
    CreateSet(Box<ReplicaSet>),
    /// Change a ReplicaSet: what is said of it.
    ChangeSet {
        name: String,
        uid: String,
        replicas: Option<i32>,
        /// `minReadySeconds`.
        min_ready_seconds: Option<i32>,
        annotations: BTreeMap<String, String>,
    },
    /// Delete a ReplicaSet that has no pods.
    DeleteSet {
        name: String,
        uid: String,
    },
    /// Take a ReplicaSet in that nobody controls.
    AdoptSet {
        name: String,
        uid: String,
    },
    /// Control a ReplicaSet no more.
    ReleaseSet {
        name: String,
        uid: String,
    },
    /// Write the number of the revision on the Deployment.
    Annotate {
        revision: String,
    },
    WriteStatus(Box<DeploymentStatus>),
}

/// Changes to make in their order, what to tell, and when to look again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeploymentPlan {
    pub effects: Vec<DeploymentEffect>,
    pub events: Vec<WorkEvent>,
    /// When the deadline for progress is over, or a new pod counts as available.
    pub wake_at: Option<Timestamp>,
}

/// A Deployment with its ReplicaSets, told apart.
struct StepContext<'a> {
    deployment: &'a Deployment,
    spec: &'a DeploymentSpec,
    /// The one of the template that is wanted.
    new: Option<&'a ReplicaSet>,
    /// All others, the oldest first.
    old: Vec<&'a ReplicaSet>,
    pods: &'a BTreeMap<&'a str, usize>,
    now: Timestamp,
}

impl<'a> StepContext<'a> {
    fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1).max(0)
    }

    fn is_recreated(&self) -> bool {
        self.spec.strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
    }

    fn is_paused(&self) -> bool {
        self.spec.paused == Some(true)
    }

    /// Most pods above what is wanted, and most that may be missing.
    fn bounds(&self) -> (i32, i32) {
        if self.is_recreated() {
            return (0, 0);
        }
        let rolling = self.spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        let surge = resolve(rolling.and_then(|rolling| rolling.max_surge.as_ref()), self.replicas(), true);
        let missing = resolve(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), self.replicas(), false);
        // Shares of few pods may both come to nothing: then one may be missing.
        (surge, if surge == 0 && missing == 0 { 1 } else { missing.min(self.replicas()) })
    }

    fn all(&self) -> impl Iterator<Item = &'a ReplicaSet> + '_ {
        self.old.iter().copied().chain(self.new)
    }

    fn name(&self) -> &'a str {
        self.deployment.metadata.name.as_deref().unwrap_or_default()
    }
}

/// Decides what to do about a Deployment now. `O(sets log sets)`.
pub fn step(view: &DeploymentView<'_>, now: Timestamp) -> DeploymentPlan {
    let mut plan = DeploymentPlan::default();
    let deployment = view.deployment;
    let Some(spec) = &deployment.spec else { return plan };
    if deployment.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let own = sets::claim(deployment, spec, &view.sets, &mut plan.effects);
    let (new, old) = sets::sort(spec, own);
    let context = StepContext { deployment, spec, new, old, pods: &view.pods, now };
    sets::number(&context, &mut plan);
    match sets::is_resized(&context) || context.is_paused() {
        true => rolling::resize(&context, &mut plan),
        false if context.is_recreated() => rolling::recreate(&context, &mut plan),
        false => rolling::roll(&context, &mut plan),
    }
    if context.is_paused() || status::is_complete(&context) {
        sets::forget(&context, &mut plan.effects);
    }
    let (status, wake_at) = status::next(&context, &mut plan.events);
    if deployment.status.as_ref() != Some(&status) {
        plan.effects.push(DeploymentEffect::WriteStatus(Box::new(status)));
    }
    plan.wake_at = wake_at;
    plan
}

/// The status of a Deployment whose next ReplicaSet has a name that another template's has.
pub fn collided(deployment: &Deployment) -> DeploymentStatus {
    let mut status = deployment.status.clone().unwrap_or_default();
    status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
    status
}

/// Whether a ReplicaSet that is in the way is the one that was to be made.
pub fn is_the_same(wanted: &ReplicaSet, found: &ReplicaSet) -> bool {
    let controller = |set: &ReplicaSet| {
        let mut owners = set.metadata.owner_references.iter().flatten();
        owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone())
    };
    controller(wanted) == controller(found) && sets::are_alike(wanted, found)
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Replicas that a ReplicaSet is asked for.
fn replicas_of(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1).max(0)
}

fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

#[cfg(test)]
mod tests;
