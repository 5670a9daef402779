//! The calls of a plan about pods.
//!
//! Invariant: the status is written before any pod is let go, so that each is counted once. Pods are made in growing numbers, so
//! that what can't be made is found out by few calls. Every call may be repeated.

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use pumice_cluster::{Change, Failure, failure, words};
use pumice_machines::workload::{PodEffect, PodName, adoption, release, untracking};
use serde_json::Value;

use super::{Input, Key, SeenPod};
use crate::cron_jobs::Kind;
use crate::deletion;
use crate::index;
use crate::object_events::ObjectEvents;
use crate::small_loop::Answer;

/// Calls of one plan at once.
const CALLS_MAX: usize = 32;

/// A plan of one object on its way.
pub(super) struct Carrying {
    pub client: Client,
    pub events: ObjectEvents,
    pub key: Key,
}

/// What a call about a pod brought.
type Outcome = Result<Vec<Input>, kube::Error>;

impl Carrying {
    pub fn key(&self) -> &index::Key {
        let (Key::Deployment(place) | Key::Job(place) | Key::ReplicaSet(place) | Key::StatefulSet(place)) = &self.key;
        place
    }

    pub fn api<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.key().0)
    }

    /// Writes the status, changes pods, and deletes the object itself if it is `over`.
    pub async fn work<K>(self, object: Option<K>, pods: Vec<PodEffect>, over: Option<String>) -> Answer<Input>
    where
        K: Kind,
        Input: From<Change<K>>,
    {
        let mut answer = Answer { observed: Vec::new(), failure: None };
        if let Some(object) = object {
            match self.write_status(&object).await {
                Ok(written) => answer.observed.push(Change::Applied(written).into()),
                Err(error) => return Answer { failure: Some(self.failed("write the status", &error)), ..answer },
            }
        }
        self.pods(pods, &mut answer).await;
        if let Some(uid) = over
            && answer.failure.is_none()
        {
            let (namespace, name) = self.key();
            match deletion::delete(&self.api::<K>(), Some(namespace), name, uid).await {
                Ok(left) => answer.observed.push(left.into()),
                Err(error) => answer.failure = Some(self.failed("delete", &error)),
            }
        }
        answer
    }

    /// Replaces the status of an object, in the version that was decided about.
    pub async fn write_status<K: Kind>(&self, object: &K) -> Result<K, kube::Error> {
        let name = Resource::meta(object).name.clone().unwrap_or_default();
        self.api::<K>().replace_status(&name, &PostParams::default(), object).await
    }

    pub fn failed(&self, what: &str, error: &kube::Error) -> Failure {
        let kind = failure(error);
        if !matches!(kind, Failure::Conflict | Failure::NotFound) {
            tracing::warn!(object = ?self.key, %error, "can't {what}");
        }
        kind
    }

    /// Changes pods: what is there at once, new ones after that.
    pub async fn pods(&self, effects: Vec<PodEffect>, answer: &mut Answer<Input>) {
        let mut new = Vec::new();
        let mut others = Vec::new();
        for effect in effects {
            match effect {
                PodEffect::Create(pod) => new.push(*pod),
                other => others.push(other),
            }
        }
        let calls = stream::iter(others).map(|effect| self.change(effect)).buffer_unordered(CALLS_MAX);
        let outcomes: Vec<Outcome> = calls.collect().await;
        for outcome in outcomes {
            match outcome {
                Ok(observed) => answer.observed.extend(observed),
                Err(error) => answer.failure = answer.failure.or(Some(self.failed("change a pod", &error))),
            }
        }
        if answer.failure.is_none() {
            self.create(new, answer).await;
        }
    }

    async fn change(&self, effect: PodEffect) -> Outcome {
        match effect {
            PodEffect::Create(_) => Ok(Vec::new()),
            PodEffect::Delete(pod) => self.delete(pod).await,
            PodEffect::Withdraw(pod) => {
                let mut observed = self.patch(&pod, untracking(&pod)).await?;
                observed.extend(self.delete(pod).await?);
                Ok(observed)
            }
            PodEffect::Untrack(pod) => self.patch(&pod, untracking(&pod)).await,
            PodEffect::Adopt(pod, owner, tracked) => self.patch(&pod, adoption(&pod, &owner, tracked)).await,
            PodEffect::Release(pod, owner) => self.patch(&pod, release(&pod, &owner)).await,
        }
    }

    fn seen_pods(&self) -> Api<SeenPod> {
        Api::namespaced(self.client.clone(), &self.key().0)
    }

    /// Patches this very pod. One that is gone is none of ours.
    async fn patch(&self, pod: &PodName, patch: Value) -> Outcome {
        match self.seen_pods().patch(&pod.name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(seen) => Ok(vec![Change::Applied(seen).into()]),
            Err(error) if failure(&error) == Failure::NotFound => Ok(vec![self.gone(pod)]),
            Err(error) => Err(error),
        }
    }

    fn gone(&self, pod: &PodName) -> Input {
        let mut gone = SeenPod::default();
        gone.metadata.namespace = Some(self.key().0.clone());
        gone.metadata.name = Some(pod.name.clone());
        gone.metadata.uid = Some(pod.uid.clone());
        Change::Deleted(gone).into()
    }

    async fn delete(&self, pod: PodName) -> Outcome {
        let left = deletion::delete(&self.seen_pods(), Some(&self.key().0), &pod.name, pod.uid).await?;
        self.events.note("SuccessfulDelete", format!("Deleted pod: {}", pod.name));
        Ok(vec![left.into()])
    }

    /// Makes pods: one, then two, then four at a time, for as long as all can be made.
    async fn create(&self, new: Vec<Pod>, answer: &mut Answer<Input>) {
        let mut left = new.into_iter();
        let mut next = 1;
        loop {
            let batch: Vec<Pod> = left.by_ref().take(next).collect();
            if batch.is_empty() {
                return;
            }
            let calls = stream::iter(batch).map(|pod| self.create_one(pod)).buffer_unordered(CALLS_MAX);
            let outcomes: Vec<Outcome> = calls.collect().await;
            for outcome in outcomes {
                match outcome {
                    Ok(observed) => answer.observed.extend(observed),
                    Err(error) => {
                        answer.failure = answer.failure.or(Some(self.failed("make a pod", &error)));
                        if matches!(failure(&error), Failure::Forbidden | Failure::Invalid | Failure::AlreadyExists) {
                            answer.observed.push(Input::Refused(self.key.clone(), Some(words(&error))));
                        }
                    }
                }
            }
            if answer.failure.is_some() {
                return;
            }
            answer.observed.push(Input::Refused(self.key.clone(), None));
            next = next.saturating_mul(2);
        }
    }

    async fn create_one(&self, pod: Pod) -> Outcome {
        match self.api::<Pod>().create(&PostParams::default(), &pod).await {
            Ok(made) => {
                let seen = SeenPod::from(made);
                self.events.note("SuccessfulCreate", format!("Created pod: {}", seen.seen.name));
                Ok(vec![Change::Applied(seen).into()])
            }
            Err(error) => {
                if failure(&error) == Failure::AlreadyExists
                    && let Some(found) = self.found(&pod).await
                {
                    return Ok(vec![found]);
                }
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                self.events.warn("FailedCreate", format!("Error creating pod {name}: {}", words(&error)));
                Err(error)
            }
        }
    }

    /// A pod that is there already, if it is ours: made by us before a crash.
    async fn found(&self, wanted: &Pod) -> Option<Input> {
        let found = self.seen_pods().get(wanted.metadata.name.as_deref()?).await.ok()?;
        let owner = wanted.metadata.owner_references.as_ref()?.first()?;
        if found.seen.owner_uid.as_ref() != Some(&owner.uid) {
            return None;
        }
        Some(Change::Applied(found).into())
    }
}
