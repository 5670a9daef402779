//! The calls of a plan of a Deployment.
//!
//! Invariant: what is written of a ReplicaSet names its uid, so that a namesake is left alone.

use std::collections::BTreeMap;

use futures::FutureExt as _;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use pumice_clock as clock;
use pumice_cluster::{Change, Failure, failure, words, write};
use pumice_machines::deployment::{DeploymentEffect, DeploymentView, collided, is_the_same, step};
use pumice_machines::workload::{PodName, adoption, owner_of, reference_to, release};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::calls::Carrying;
use super::{Input, Key, Workloads};
use crate::cron_jobs::until;
use crate::deletion;
use crate::index::{self, key};
use crate::object_events::ObjectEvents;
use crate::small_loop::{Answer, Plan};

impl Workloads {
    pub(super) fn plan_deployment(&self, place: &index::Key) -> Option<Plan<Input>> {
        let deployment = self.deployments.items.get(place)?;
        let uid = deployment.metadata.uid.as_deref();
        let near = self.replica_sets.of_namespace(&place.0);
        let sets: Vec<&ReplicaSet> =
            near.filter(|set| super::controller(&set.metadata).is_none_or(|own| Some(own) == uid)).collect();
        let pods: BTreeMap<&str, usize> = match super::is_recreated(deployment) {
            true => sets.iter().filter_map(|set| Some((set.metadata.uid.as_deref()?, self.running(set)))).collect(),
            false => BTreeMap::new(),
        };
        let now = clock::now();
        let plan = step(&DeploymentView { deployment, sets, pods }, now);
        let events = ObjectEvents::new(&self.recorder, reference_to::<Deployment>(&deployment.metadata));
        plan.events.into_iter().for_each(|told| events.tell(told));
        let look_again = plan.wake_at.map(|at| Instant::now() + until(at, now));
        if plan.effects.is_empty() {
            return Some(Plan { call: None, look_again });
        }
        let carrying = Carrying { client: self.client.clone(), events, key: Key::Deployment(place.clone()) };
        let call = carry_out(carrying, deployment.clone(), plan.effects).boxed();
        Some(Plan { call: Some(call), look_again })
    }

    /// Pods of a ReplicaSet that have not ended.
    fn running(&self, set: &ReplicaSet) -> usize {
        let pods = self.pods.of(&Key::ReplicaSet(key(&set.metadata)));
        pods.iter().filter(|pod| pod.owner_uid == set.metadata.uid && !pod.has_ended()).count()
    }
}

async fn carry_out(carrying: Carrying, mut deployment: Deployment, effects: Vec<DeploymentEffect>) -> Answer<Input> {
    let mut answer = Answer { observed: Vec::new(), failure: None };
    for effect in effects {
        match one(&carrying, &mut deployment, effect).await {
            Ok(observed) => answer.observed.push(observed),
            Err(error) => {
                return Answer { failure: Some(carrying.failed("carry out a step of a Deployment", &error)), ..answer };
            }
        }
    }
    answer
}

async fn one(carrying: &Carrying, deployment: &mut Deployment, effect: DeploymentEffect) -> Result<Input, kube::Error> {
    let sets = carrying.api::<ReplicaSet>();
    match effect {
        DeploymentEffect::CreateSet(set) => create(carrying, deployment, &set).await,
        DeploymentEffect::ChangeSet { name, uid, replicas, min_ready_seconds, annotations } => {
            let mut patch = json!({"metadata": {"uid": uid, "annotations": annotations}});
            if let Some(replicas) = replicas {
                patch["spec"]["replicas"] = json!(replicas);
            }
            if let Some(seconds) = min_ready_seconds {
                patch["spec"]["minReadySeconds"] = json!(seconds);
            }
            Ok(Change::Applied(write::merge(&sets, &name, &patch).await?).into())
        }
        DeploymentEffect::DeleteSet { name, uid } => {
            Ok(deletion::delete(&sets, Some(&carrying.key().0), &name, uid).await?.into())
        }
        DeploymentEffect::AdoptSet { name, uid } => {
            let owner = owner_of::<Deployment>(&deployment.metadata);
            let set = PodName { name: name.clone(), uid };
            strategic(&sets, &name, adoption(&set, &owner, false)).await
        }
        DeploymentEffect::ReleaseSet { name, uid } => {
            let set = PodName { name: name.clone(), uid };
            strategic(&sets, &name, release(&set, deployment.metadata.uid.as_deref().unwrap_or_default())).await
        }
        DeploymentEffect::Annotate { revision } => {
            let annotations = json!({"deployment.kubernetes.io/revision": revision});
            let patch = json!({"metadata": {"uid": deployment.metadata.uid, "annotations": annotations}});
            let written = write::merge(&carrying.api::<Deployment>(), &carrying.key().1, &patch).await?;
            deployment.metadata = written.metadata.clone();
            Ok(Change::Applied(written).into())
        }
        DeploymentEffect::WriteStatus(status) => {
            let next = Deployment { status: Some(*status), ..deployment.clone() };
            let written = carrying.write_status(&next).await?;
            *deployment = written.clone();
            Ok(Change::Applied(written).into())
        }
    }
}

async fn strategic(sets: &Api<ReplicaSet>, name: &str, patch: Value) -> Result<Input, kube::Error> {
    let set = sets.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    Ok(Change::Applied(set).into())
}

async fn create(carrying: &Carrying, deployment: &mut Deployment, set: &ReplicaSet) -> Result<Input, kube::Error> {
    let sets = carrying.api::<ReplicaSet>();
    let error = match sets.create(&PostParams::default(), set).await {
        Ok(made) => return Ok(Change::Applied(made).into()),
        Err(error) => error,
    };
    let name = set.metadata.name.as_deref().unwrap_or_default();
    if failure(&error) != Failure::AlreadyExists {
        carrying
            .events
            .warn("ReplicaSetCreateError", format!("Failed to create new replica set {name:?}: {}", words(&error)));
        return Err(error);
    }
    let found = sets.get(name).await?;
    if is_the_same(set, &found) {
        return Ok(Change::Applied(found).into());
    }
    let next = Deployment { status: Some(collided(deployment)), ..deployment.clone() };
    let written = carrying.write_status(&next).await?;
    *deployment = written.clone();
    Ok(Change::Applied(written).into())
}
