//! The calls for one group.
//!
//! Invariant: pods are told of a group only when it is there; each call may be repeated. Of a pod or a group only the very one
//! that was decided about is written.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client};
use pumice_api::names;
use pumice_api::scheduling::PodGroup;
use pumice_clock as clock;
use pumice_cluster::events::{Occurrence, Severity};
use pumice_cluster::{Change, EventRecorder, Failure, failure, words, write};
use pumice_machines::pod_group::{GroupEffect, Origin};
use serde_json::json;

use super::{Input, group_input, owners};
use crate::index::Key;
use crate::small_loop::Answer;

/// Pods of one group told at once.
const TELLING_MAX: usize = 16;

/// The newest pod of the group, and whose it is.
pub(super) struct About {
    pub pod: ObjectMeta,
    pub origin: Origin,
}

/// Effects of one group on their way.
pub(super) struct Carrying {
    pub client: Client,
    pub recorder: EventRecorder,
    pub key: Key,
    pub about: Option<About>,
}

impl Carrying {
    pub async fn carry_out(self, effects: Vec<GroupEffect>) -> Answer<Input> {
        let mut answer = Answer { observed: Vec::new(), failure: None };
        let mut untold = Vec::new();
        for effect in effects {
            let result = match effect {
                GroupEffect::Tell { pod, uid } => {
                    untold.push((pod, uid));
                    continue;
                }
                GroupEffect::ReadOwner => self.read_owner().await,
                GroupEffect::Create(group) => self.create(&group).await,
                GroupEffect::Patch(patch) => {
                    write::merge(&self.groups(), &self.key.1, &patch).await.map(|group| vec![applied(group)])
                }
                GroupEffect::Delete { uid } => self.delete(uid).await,
            };
            match result {
                Ok(observed) => answer.observed.extend(observed),
                Err(error) => {
                    tracing::warn!(namespace = self.key.0, group = self.key.1, %error, "can't write a PodGroup");
                    return Answer { failure: Some(failure(&error)), ..answer };
                }
            }
        }
        let carrying = &self;
        let told =
            futures::stream::iter(untold).map(|(pod, uid)| carrying.tell(pod, uid)).buffer_unordered(TELLING_MAX);
        let told: Vec<_> = told.collect().await;
        for told in told {
            match told {
                Ok(uid) => answer.observed.push(Input::Annotated(uid)),
                Err(error) => answer.failure = answer.failure.or(Some(failure(&error))),
            }
        }
        answer
    }

    fn groups(&self) -> Api<PodGroup> {
        Api::namespaced(self.client.clone(), &self.key.0)
    }

    async fn read_owner(&self) -> Result<Vec<Input>, kube::Error> {
        let Some(About { origin: Origin::Owned(owner), .. }) = &self.about else { return Ok(Vec::new()) };
        let facts = owners::read(&self.client, &self.key.0, owner).await?;
        Ok(vec![Input::Read(owner.uid.clone(), facts)])
    }

    async fn create(&self, group: &PodGroup) -> Result<Vec<Input>, kube::Error> {
        match self.groups().create(&PostParams::default(), group).await {
            Ok(group) => Ok(vec![applied(group)]),
            // Made by somebody else, or by us before a crash.
            Err(error) if failure(&error) == Failure::AlreadyExists => {
                let found = self.groups().get(&self.key.1).await?;
                Ok(vec![applied(found)])
            }
            Err(error) => {
                if matches!(failure(&error), Failure::Forbidden | Failure::Invalid) {
                    self.warn(format!("can't create its PodGroup {}: {}", self.key.1, words(&error)));
                }
                Err(error)
            }
        }
    }

    async fn delete(&self, uid: String) -> Result<Vec<Input>, kube::Error> {
        let mut gone = PodGroup::default();
        gone.metadata.namespace = Some(self.key.0.clone());
        gone.metadata.name = Some(self.key.1.clone());
        gone.metadata.uid = Some(uid.clone());
        let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match self.groups().delete(&self.key.1, &params).await {
            Ok(left) => Ok(vec![left.left().map_or_else(|| group_input(Change::Deleted(gone)), applied)]),
            Err(error) if matches!(failure(&error), Failure::NotFound | Failure::Conflict) => {
                Ok(vec![group_input(Change::Deleted(gone))])
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the group's name on a pod. One that is gone counts as told: the watch will say so.
    async fn tell(&self, pod: String, uid: String) -> Result<String, kube::Error> {
        let patch = json!({"metadata": {"uid": uid, "annotations": {names::GROUP_NAME: self.key.1}}});
        match write::merge_unread::<Pod>(&self.client, &self.key.0, &pod, None, &patch).await {
            Err(error) if !matches!(failure(&error), Failure::NotFound | Failure::Conflict) => {
                tracing::warn!(namespace = self.key.0, pod, %error, "can't write a pod's group on it");
                Err(error)
            }
            _ => Ok(uid),
        }
    }

    fn warn(&self, message: String) {
        let Some(About { pod, .. }) = &self.about else { return };
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            ..ObjectReference::default()
        };
        let (severity, reason) = (Severity::Warning, "FailedCreatePodGroup".to_owned());
        self.recorder.record(Occurrence { about, severity, reason, message, at: clock::now() });
    }
}

fn applied(group: PodGroup) -> Input {
    group_input(Change::Applied(group))
}
