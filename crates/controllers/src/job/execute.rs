//! Carrying a plan out.
//!
//! Invariant: stages one after another, the calls of a stage at once up to a bound; whatever was answered is handed back,
//! also when the plan stops half way. Every call may be repeated: names are fixed, deletions carry a uid, the status carries
//! the version it was made from.

use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::Request;
use kube::{Api, Client, Resource as _};
use pumice_api::batch::{Job, JobStatus};
use pumice_api::names;
use pumice_api::scheduling::PodGroup;
use pumice_clock as clock;
use pumice_cluster::{Failure, failure, write};
use pumice_machines::job::{Effect, Existing, JobPod, Lesson, Mark, ObjectId};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::ensure;
use crate::index::Key;
use crate::keys::Keys;
use crate::slim::SlimPod;

/// Most calls of one plan at a time.
const CALLS_MAX: usize = 64;

/// A plan on its way.
pub(crate) struct JobPlan {
    pub key: Key,
    /// The job as the plan saw it.
    pub job: Box<Job>,
    pub stages: Vec<Vec<Effect>>,
    pub wake_at: Option<Instant>,
    /// Whether the plan carries out the Command at the head of the line.
    pub wish: bool,
    /// How many evictions the plan has seen.
    pub evicted: usize,
}

/// What came of a plan.
pub(crate) struct Answer {
    pub key: Key,
    pub job: Box<Job>,
    pub observed: Vec<Observed>,
    pub result: Result<(), Trouble>,
    pub wish: bool,
    pub evicted: usize,
}

/// What a call told about the cluster.
pub(crate) enum Observed {
    Job(Box<Job>),
    JobAbsent,
    Pod(Box<SlimPod>),
    PodDeleting {
        pod: Existing,
        now: Timestamp,
    },
    PodAbsent(Existing),
    Group(Box<PodGroup>),
    GroupAbsent(Existing),
    Claim(String),
    Applied(ObjectId, i64),
    Removed(ObjectId),
    /// Not of a call: to be written at its time.
    Lesson(Box<Lesson>),
}

/// Why a plan stopped.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub failure: Failure,
    /// Reason and message of a warning on the job; none when nobody needs to know.
    pub event: Option<(&'static str, String)>,
}

impl Trouble {
    /// Sorts an error; what passes by itself is only logged.
    pub fn new(reason: &'static str, what: &str, error: &kube::Error) -> Self {
        let kind = failure(error);
        let text = write::words(error);
        tracing::debug!(reason, what, error = text, "a call failed");
        let event = match kind {
            Failure::Conflict | Failure::Unavailable => None,
            _ => Some((reason, format!("cannot {what}: {text}"))),
        };
        Self { failure: kind, event }
    }
}

/// The place calls go to.
pub(super) struct Target<'a> {
    pub client: &'a Client,
    pub keys: &'a Keys,
    pub namespace: &'a str,
    pub job: &'a Job,
}

impl Target<'_> {
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    pub fn job_uid(&self) -> Option<&str> {
        self.job.metadata.uid.as_deref()
    }
}

/// Carries a plan out.
pub(crate) async fn carry_out(client: Client, keys: Arc<Keys>, plan: Box<JobPlan>) -> Answer {
    let JobPlan { key, mut job, stages, wish, evicted, .. } = *plan;
    let mut observed = Vec::new();
    let mut result = Ok(());
    for stage in stages {
        let target = Target { client: &client, keys: &keys, namespace: &key.0, job: &job };
        let calls = stream::iter(stage).map(|effect| one(&target, effect)).buffer_unordered(CALLS_MAX);
        let answers: Vec<_> = calls.collect().await;
        for (seen, outcome) in answers {
            if let (Some(Observed::Job(written)), Ok(())) = (&seen, &outcome) {
                // What was written from what the plan saw is what the next stage starts from.
                job = written.clone();
            }
            observed.extend(seen);
            if let Err(trouble) = outcome
                && result.is_ok()
            {
                result = Err(trouble);
            }
        }
        if result.is_err() {
            break;
        }
    }
    Answer { key, job, observed, result, wish, evicted }
}

type Outcome = (Option<Observed>, Result<(), Trouble>);

async fn one(target: &Target<'_>, effect: Effect) -> Outcome {
    let outcome = match effect {
        Effect::MarkPod { pod, mark } => mark_pod(target, pod, &mark).await,
        Effect::DeletePod(pod) => delete_pod(target, pod).await,
        Effect::CreatePod(pod) => create_pod(target, &pod).await,
        Effect::CreateGroup(group) => create_group(target, &group).await,
        Effect::UpdateGroup { name, patch } => {
            let updated = write::merge(&target.api::<PodGroup>(), &name, &patch).await;
            updated
                .map(|group| Some(Observed::Group(Box::new(group))))
                .map_err(|error| Trouble::new("PodGroupError", &format!("update pod group {name}"), &error))
        }
        Effect::DeleteGroup(group) => delete_group(target, group).await,
        Effect::CreateClaim(claim) => create_claim(target, &claim).await,
        Effect::Ensure { id, generation, object } => {
            Box::pin(ensure::ensure(target, &id, object)).await.map(|()| Some(Observed::Applied(id, generation)))
        }
        Effect::DeleteObject(id) => ensure::remove(target, &id).await.map(|()| Some(Observed::Removed(id))),
        Effect::Annotate { key, value } => return annotate(target, key, value).await,
        Effect::WriteStatus { status, .. } => return write_status(target, &status).await,
        Effect::Learn(lesson) => Ok(Some(Observed::Lesson(lesson))),
        Effect::DeleteJob => delete_job(target).await,
        Effect::Record { .. } => Ok(None),
    };
    match outcome {
        Ok(observed) => (observed, Ok(())),
        Err(trouble) => (None, Err(trouble)),
    }
}

type Done = Result<Option<Observed>, Trouble>;

fn exactly(existing: &Existing) -> DeleteParams {
    let uid = Some(existing.uid.clone()).filter(|uid| !uid.is_empty());
    let preconditions = Some(Preconditions { uid, ..Preconditions::default() });
    DeleteParams { preconditions, ..DeleteParams::default() }
}

async fn mark_pod(target: &Target<'_>, pod: Existing, mark: &Mark) -> Done {
    let patch = json!({"metadata": {"uid": pod.uid, "annotations": {
        names::CONTROLLER_OUT_OF_SYNC: "true", names::RESTART: mark.write(),
    }}});
    match write::merge(&target.api::<SlimPod>(), &pod.name, &patch).await {
        Ok(marked) => Ok(Some(Observed::Pod(Box::new(marked)))),
        Err(error) => unless_gone(target, pod, "mark", &error).await,
    }
}

async fn delete_pod(target: &Target<'_>, pod: Existing) -> Done {
    match target.api::<Pod>().delete(&pod.name, &exactly(&pod)).await {
        Ok(_) => Ok(Some(Observed::PodDeleting { pod, now: clock::now() })),
        Err(error) => unless_gone(target, pod, "delete", &error).await,
    }
}

/// A pod that is not there, or is another one by now, is what was wanted. A conflict may also mean that it is being written.
async fn unless_gone(target: &Target<'_>, pod: Existing, verb: &str, error: &kube::Error) -> Done {
    let gone = match failure(error) {
        Failure::NotFound => true,
        Failure::Conflict => {
            let found = target.api::<Pod>().get_opt(&pod.name).await;
            found.is_ok_and(|found| found.is_none_or(|found| found.metadata.uid.as_deref() != Some(&pod.uid)))
        }
        _ => false,
    };
    if gone {
        return Ok(Some(Observed::PodAbsent(pod)));
    }
    Err(Trouble::new("FailedDelete", &format!("{verb} pod {}", pod.name), error))
}

/// Creates a pod. One of that name that is this job's counts as created; another's has to go first.
async fn create_pod(target: &Target<'_>, pod: &Pod) -> Done {
    let pods = target.api::<Pod>();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let error = match make_pod(target, pod).await {
        Ok(created) => return Ok(Some(Observed::Pod(Box::new(created)))),
        Err(error) => error,
    };
    if failure(&error) != Failure::AlreadyExists {
        return Err(Trouble::new("FailedCreate", &format!("create pod {name}"), &error));
    }
    match pods.get_opt(name).await {
        Ok(Some(found)) if is_ours(target, &found) => Ok(Some(Observed::Pod(Box::new(found.into())))),
        Ok(None) => Err(Trouble { failure: Failure::Conflict, event: None }),
        Ok(Some(found)) => {
            let going = found.metadata.deletion_timestamp.is_some();
            let message = format!(
                "pod {name} exists and belongs to something else, or has lost its labels; delete it and the job goes on"
            );
            let event = (!going).then_some(("FailedCreate", message));
            Err(Trouble { failure: Failure::AlreadyExists, event })
        }
        Err(error) => Err(Trouble::new("FailedCreate", &format!("look at pod {name}"), &error)),
    }
}

async fn make_pod(target: &Target<'_>, pod: &Pod) -> Result<SlimPod, kube::Error> {
    let body = serde_json::to_vec(pod).map_err(kube::Error::SerdeError)?;
    let path = Pod::url_path(&(), Some(target.namespace));
    let request = Request::new(path).create(&PostParams::default(), body).map_err(kube::Error::BuildRequest)?;
    target.client.request(request).await
}

/// Whether a pod is this job's, and still carries what the job's pods are known by.
fn is_ours(target: &Target<'_>, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    ensure::is_controlled(&pod.metadata, target.job_uid())
        && labels.is_some_and(|labels| labels.contains_key(names::JOB_NAME))
        && JobPod::observe(pod).is_some()
}

async fn create_group(target: &Target<'_>, group: &PodGroup) -> Done {
    let groups = target.api::<PodGroup>();
    let name = group.metadata.name.as_deref().unwrap_or_default();
    let result = match groups.create(&PostParams::default(), group).await {
        Err(error) if failure(&error) == Failure::AlreadyExists => groups.get(name).await,
        other => other,
    };
    match result {
        Ok(group) => Ok(Some(Observed::Group(Box::new(group)))),
        Err(error) => Err(Trouble::new("PodGroupError", &format!("create pod group {name}"), &error)),
    }
}

async fn delete_group(target: &Target<'_>, group: Existing) -> Done {
    match target.api::<PodGroup>().delete(&group.name, &exactly(&group)).await {
        Ok(_) => Ok(Some(Observed::GroupAbsent(group))),
        Err(error) if matches!(failure(&error), Failure::NotFound | Failure::Conflict) => {
            Ok(Some(Observed::GroupAbsent(group)))
        }
        Err(error) => Err(Trouble::new("PodGroupError", &format!("delete pod group {}", group.name), &error)),
    }
}

async fn create_claim(target: &Target<'_>, claim: &PersistentVolumeClaim) -> Done {
    let name = claim.metadata.name.clone().unwrap_or_default();
    match target.api::<PersistentVolumeClaim>().create(&PostParams::default(), claim).await {
        Ok(_) => Ok(Some(Observed::Claim(name))),
        Err(error) if failure(&error) == Failure::AlreadyExists => Ok(Some(Observed::Claim(name))),
        Err(error) => Err(Trouble::new("PVCError", &format!("create claim {name}"), &error)),
    }
}

/// Sets or removes an annotation of the job; if the job has changed meanwhile, brings its new state instead.
async fn annotate(target: &Target<'_>, key: &'static str, value: Option<String>) -> Outcome {
    let jobs = target.api::<Job>();
    let metadata = &target.job.metadata;
    let patch = json!({"metadata": {
        "uid": metadata.uid, "resourceVersion": metadata.resource_version, "annotations": {key: value},
    }});
    let name = metadata.name.as_deref().unwrap_or_default();
    match write::merge(&jobs, name, &patch).await {
        Ok(written) => (Some(Observed::Job(Box::new(written))), Ok(())),
        Err(error) => newer(target, "annotate the job", &error).await,
    }
}

/// Writes the status; if the job has changed meanwhile, brings its new state instead.
async fn write_status(target: &Target<'_>, status: &JobStatus) -> Outcome {
    let jobs = target.api::<Job>();
    let job = target.job;
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let patch = status_patch(&job.status, status, job.metadata.resource_version.as_deref());
    let error = match write::merge_status(&jobs, name, &patch).await {
        Ok(written) => return (Some(Observed::Job(Box::new(written))), Ok(())),
        Err(error) => error,
    };
    newer(target, "write the job's status", &error).await
}

/// What to say of a write to the job that failed.
async fn newer(target: &Target<'_>, what: &str, error: &kube::Error) -> Outcome {
    let name = target.job.metadata.name.as_deref().unwrap_or_default();
    let newer = match failure(error) {
        Failure::Conflict => target.api::<Job>().get_opt(name).await.ok().flatten(),
        _ => None,
    };
    let trouble = Trouble::new("JobStatusError", what, error);
    // A job that is gone needs no status.
    let event = if trouble.failure == Failure::NotFound { None } else { trouble.event };
    (newer.map(|job| Observed::Job(Box::new(job))), Err(Trouble { event, ..trouble }))
}

async fn delete_job(target: &Target<'_>) -> Done {
    let name = target.job.metadata.name.clone().unwrap_or_default();
    let uid = target.job_uid().unwrap_or_default().to_owned();
    let existing = Existing { name, uid };
    let parameters = DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..exactly(&existing) };
    match target.api::<Job>().delete(&existing.name, &parameters).await {
        Ok(answer) => Ok(Some(answer.left().map_or(Observed::JobAbsent, |job| Observed::Job(Box::new(job))))),
        Err(error) if matches!(failure(&error), Failure::NotFound | Failure::Conflict) => Ok(Some(Observed::JobAbsent)),
        Err(error) => Err(Trouble::new("FailedDelete", "delete the job after its time to live", &error)),
    }
}

/// The merge patch that turns `old` into `new`: fields that are zero now are removed by null. The API server refuses it if the job
/// has changed since `resource_version`.
fn status_patch(old: &JobStatus, new: &JobStatus, resource_version: Option<&str>) -> Value {
    let object = |status: &JobStatus| serde_json::to_value(status).unwrap_or_default();
    let status = difference(&object(old), &object(new)).unwrap_or_else(|| json!({}));
    match resource_version {
        Some(version) => json!({"metadata": {"resourceVersion": version}, "status": status}),
        None => json!({"status": status}),
    }
}

fn difference(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return Some(new.clone()) };
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let mut patch: Map<String, Value> = gone.collect();
    for (key, value) in new {
        let changed = match old.get(key) {
            Some(before) => difference(before, value),
            None => Some(value.clone()),
        };
        patch.extend(changed.map(|value| (key.clone(), value)));
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_zero_is_removed() {
        let status = |value: Value| serde_json::from_value::<JobStatus>(value).unwrap();
        let old = status(json!({"running": 2, "pending": 1, "taskStatusCount": {"a": {"phase": {"Running": 2}}},
            "state": {"phase": "Running"}, "conditions": [{"status": "Pending"}]}));
        let new = status(json!({"succeeded": 2, "pending": 1, "taskStatusCount": {"a": {"phase": {"Succeeded": 2}}},
            "state": {"phase": "Completed"}, "conditions": [{"status": "Pending"}, {"status": "Completed"}]}));
        assert_eq!(
            status_patch(&old, &new, Some("7")),
            json!({"metadata": {"resourceVersion": "7"}, "status": {
                "running": null, "succeeded": 2, "state": {"phase": "Completed"},
                "taskStatusCount": {"a": {"phase": {"Running": null, "Succeeded": 2}}},
                "conditions": [{"status": "Pending"}, {"status": "Completed"}],
            }})
        );
        assert_eq!(status_patch(&old, &old, None), json!({"status": {}}));
    }
}
