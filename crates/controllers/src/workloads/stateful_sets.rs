//! The calls of a plan of a StatefulSet.
//!
//! Invariant: a pod's claims are there before it is made, and say with whom they go before it goes.

use futures::FutureExt as _;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams, PostParams};
use pumice_clock as clock;
use pumice_cluster::{Change, Failure, failure, words, write};
use pumice_machines::stateful_set::{StatefulEffect, StatefulView, collided, is_the_same, step};
use pumice_machines::workload::reference_to;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::calls::Carrying;
use super::{Input, Key, Workloads};
use crate::cron_jobs::until;
use crate::deletion;
use crate::index;
use crate::object_events::ObjectEvents;
use crate::small_loop::{Answer, Plan};

impl Workloads {
    pub(super) fn plan_stateful_set(&self, place: &index::Key) -> Option<Plan<Input>> {
        let set = self.stateful_sets.items.get(place)?;
        let key = Key::StatefulSet(place.clone());
        let uid = set.metadata.uid.as_deref();
        let near = self.revisions.of_namespace(&place.0);
        let revisions = near.filter(|revision| super::controller(&revision.metadata) == uid).collect();
        let claims = |name: &str| self.claims.items.get(&(place.0.clone(), name.to_owned()));
        let now = clock::now();
        let plan = step(&StatefulView { set, pods: self.pods.of(&key), revisions, claims: &claims }, now);
        let events = ObjectEvents::new(&self.recorder, reference_to::<StatefulSet>(&set.metadata));
        plan.events.into_iter().for_each(|told| events.tell(told));
        let look_again = plan.wake_at.map(|at| Instant::now() + until(at, now));
        if plan.effects.is_empty() {
            return Some(Plan { call: None, look_again });
        }
        let carrying = Carrying { client: self.client.clone(), events, key };
        Some(Plan { call: Some(carry_out(carrying, set.clone(), plan.effects).boxed()), look_again })
    }
}

async fn carry_out(carrying: Carrying, mut set: StatefulSet, effects: Vec<StatefulEffect>) -> Answer<Input> {
    let mut answer = Answer { observed: Vec::new(), failure: None };
    let mut pods = Vec::new();
    for effect in effects {
        let effect = match effect {
            StatefulEffect::Pod(pod) => {
                pods.push(pod);
                continue;
            }
            other => other,
        };
        match one(&carrying, &mut set, effect).await {
            Ok(observed) => answer.observed.extend(observed),
            Err(error) => {
                return Answer {
                    failure: Some(carrying.failed("carry out a step of a StatefulSet", &error)),
                    ..answer
                };
            }
        }
    }
    carrying.pods(pods, &mut answer).await;
    answer
}

async fn one(carrying: &Carrying, set: &mut StatefulSet, effect: StatefulEffect) -> Result<Option<Input>, kube::Error> {
    let revisions = carrying.api::<ControllerRevision>();
    let observed = match effect {
        StatefulEffect::CreateRevision(revision) => create_revision(carrying, set, &revision).await?,
        StatefulEffect::Renumber { name, uid, revision } => {
            let patch = json!({"metadata": {"uid": uid}, "revision": revision});
            Change::Applied(write::merge(&revisions, &name, &patch).await?).into()
        }
        StatefulEffect::DeleteRevision { name, uid } => {
            deletion::delete(&revisions, Some(&carrying.key().0), &name, uid).await?.into()
        }
        StatefulEffect::CreateClaim(claim) => create_claim(carrying, &claim).await?,
        StatefulEffect::OwnClaim { name, uid, add, remove } => {
            let mut owners: Vec<Value> = add.iter().map(|owner| json!(owner)).collect();
            owners.extend(remove.iter().map(|uid| json!({"$patch": "delete", "uid": uid})));
            let patch = json!({"metadata": {"uid": uid, "ownerReferences": owners}});
            let claims = carrying.api::<PersistentVolumeClaim>();
            Change::Applied(claims.patch(&name, &PatchParams::default(), &Patch::Strategic(patch)).await?).into()
        }
        StatefulEffect::WriteStatus(status) => {
            let next = StatefulSet { status: Some(*status), ..set.clone() };
            let written = carrying.write_status(&next).await?;
            *set = written.clone();
            Change::Applied(written).into()
        }
        StatefulEffect::Pod(_) => return Ok(None),
    };
    Ok(Some(observed))
}

async fn create_revision(
    carrying: &Carrying,
    set: &mut StatefulSet,
    revision: &ControllerRevision,
) -> Result<Input, kube::Error> {
    let revisions = carrying.api::<ControllerRevision>();
    let error = match revisions.create(&PostParams::default(), revision).await {
        Ok(made) => return Ok(Change::Applied(made).into()),
        Err(error) => error,
    };
    if failure(&error) != Failure::AlreadyExists {
        return Err(error);
    }
    let found = revisions.get(revision.metadata.name.as_deref().unwrap_or_default()).await?;
    if is_the_same(revision, &found) {
        return Ok(Change::Applied(found).into());
    }
    let next = StatefulSet { status: Some(collided(set)), ..set.clone() };
    let written = carrying.write_status(&next).await?;
    *set = written.clone();
    Ok(Change::Applied(written).into())
}

async fn create_claim(carrying: &Carrying, claim: &PersistentVolumeClaim) -> Result<Input, kube::Error> {
    let claims = carrying.api::<PersistentVolumeClaim>();
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    match claims.create(&PostParams::default(), claim).await {
        Ok(made) => {
            carrying.events.note("SuccessfulCreate", format!("Created claim: {name}"));
            Ok(Change::Applied(made).into())
        }
        Err(error) if failure(&error) == Failure::AlreadyExists => Ok(Change::Applied(claims.get(name).await?).into()),
        Err(error) => {
            carrying.events.warn("FailedCreate", format!("Error creating claim {name}: {}", words(&error)));
            Err(error)
        }
    }
}
