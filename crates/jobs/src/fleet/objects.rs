//! Jobs and pods as a platform would have them, of what a fleet tells. Pure.

use jiff::Timestamp;
use pumice_api::batch::JobPhase;
use pumice_api::names::{JOB_NAME, TASK_INDEX, TASK_SPEC, USER};
use pumice_wire::api::{JobDetails, JobState};
use pumice_wire::job_sets::JobSet;
use serde_json::{Map, Value, json};

use super::job_view::{ContainerEnd, JobCounts, JobSetView, JobView, Stage};
use super::volcano_job::VOLCANO_JOB;
use crate::job::pod::ATTEMPT;
use crate::json::text_at;

/// The Job that a job set was made of; annotation of its first job.
pub const MANIFEST: &str = "pumice.sh/job";
/// The task of jobs that `jobctl` did not make.
const OTHERS_TASK: &str = "job";

/// What does not change of a job set.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    pub queue: String,
    pub name: String,
    /// Its first job.
    pub first: String,
    /// Where its pods are made.
    pub namespace: String,
    pub owner: String,
    pub submitted: Option<Timestamp>,
    /// The Job that it was made of; none where another client submitted it.
    pub manifest: Option<Value>,
    /// It is one job that is all of that.
    pub is_whole: bool,
}

impl Known {
    /// What the first job of a set tells of it.
    pub fn of(first: JobDetails) -> Self {
        let submitted = first.submitted_ts.and_then(|at| Timestamp::try_from(at).ok());
        let spec = first.job_spec.unwrap_or_default();
        let is_whole = spec.annotations.contains_key(VOLCANO_JOB);
        let manifest = spec.annotations.get(MANIFEST).or_else(|| spec.annotations.get(VOLCANO_JOB));
        let manifest = manifest.and_then(|text| serde_json::from_str(text).ok());
        Known {
            queue: first.queue,
            name: first.jobset,
            first: first.job_id,
            namespace: first.namespace,
            owner: spec.owner,
            submitted,
            manifest: manifest.filter(Value::is_object),
            is_whole,
        }
    }
}

/// The first job of a set.
pub fn first_of(set: &JobSet) -> Option<&str> {
    set.states.iter().map(|state| state.first_job_id.as_str()).min()
}

/// How many jobs of a set are where, and when the last one came there.
pub fn counts_of(set: &JobSet) -> (JobCounts, Option<Timestamp>) {
    let (mut counts, mut last) = (JobCounts::default(), None);
    for state in &set.states {
        let at = state.last_transition.and_then(|at| Timestamp::try_from(at).ok());
        last = last.max(at);
        *match JobState::try_from(state.state).unwrap_or(JobState::Unknown) {
            JobState::Running => &mut counts.running,
            JobState::Succeeded => &mut counts.succeeded,
            JobState::Failed | JobState::Rejected | JobState::Preempted => &mut counts.failed,
            JobState::Cancelled => &mut counts.cancelled,
            JobState::Queued | JobState::Leased | JobState::Pending | JobState::Submitted | JobState::Unknown => {
                &mut counts.waiting
            }
        } += state.jobs;
    }
    (counts, last)
}

/// The job that a set is.
pub fn job(known: &Known, counts: &JobCounts, last: Option<Timestamp>, version: &str) -> Value {
    let mut metadata = Map::new();
    let manifest = known.manifest.as_ref();
    if let Some(Value::Object(own)) = manifest.and_then(|manifest| manifest.get("metadata")) {
        metadata.clone_from(own);
    }
    metadata.insert("name".to_owned(), json!(known.name));
    metadata.insert("namespace".to_owned(), json!(known.namespace));
    metadata.insert("uid".to_owned(), json!(known.first));
    metadata.insert("resourceVersion".to_owned(), json!(version));
    metadata.insert("creationTimestamp".to_owned(), json!(known.submitted.map(second)));
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(USER.to_owned(), json!(known.owner));
    }
    let mut spec = match manifest.and_then(|manifest| manifest.get("spec")) {
        Some(Value::Object(spec)) => spec.clone(),
        _ => {
            let task = json!({"name": OTHERS_TASK, "replicas": counts.all(), "template": {"spec": {"containers": []}}});
            Map::from_iter([("minAvailable".to_owned(), json!(counts.all())), ("tasks".to_owned(), json!([task]))])
        }
    };
    spec.insert("queue".to_owned(), json!(known.queue));
    let phase = phase(&spec, counts, known.is_whole);
    let pods = if known.is_whole { pods_of(&spec) } else { 1 };
    // What is over and did not end by itself does not wait: it is gone, or was of a whole job that failed.
    let gone = counts.cancelled * pods + counts.failed * (pods - 1);
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": metadata,
        "status": {
            "state": {"phase": phase, "lastTransitionTime": last.map(second)},
            "minAvailable": spec.get("minAvailable"),
            "pending": counts.waiting * pods, "running": counts.running * pods, "succeeded": counts.succeeded * pods,
            "failed": counts.failed, "terminated": counts.cancelled, "terminating": gone,
        },
        "spec": spec,
    })
}

/// The pods of a job that is one for the fleet: where it is, they are counted. Of those of one that failed nobody told.
fn pods_of(spec: &Map<String, Value>) -> u64 {
    let tasks = spec.get("tasks").and_then(Value::as_array).into_iter().flatten();
    tasks.map(|task| task.get("replicas").and_then(Value::as_u64).unwrap_or(0)).fold(0, u64::saturating_add).max(1)
}

/// A job's phase. It has ended when all of it has: a fleet ends none early.
fn phase(spec: &Map<String, Value>, counts: &JobCounts, is_whole: bool) -> &'static str {
    let number = |name: &str| spec.get(name).and_then(Value::as_u64);
    let fewer = if is_whole { None } else { number("minSuccess").or_else(|| number("minAvailable")) };
    let wanted = fewer.unwrap_or_else(|| counts.all());
    match counts {
        _ if counts.active() > 0 && counts.active() == counts.waiting && counts.active() == counts.all() => "Pending",
        _ if counts.active() > 0 => "Running",
        _ if counts.cancelled > 0 => "Terminated",
        _ if counts.succeeded >= wanted => "Completed",
        _ => "Failed",
    }
}

/// The name of a job's pod: with the task and the index where `jobctl` made it, so that it is called as on a platform.
pub fn pod_name(job_set: &str, id: &str, view: &JobView) -> String {
    match (&view.task, view.index) {
        (Some(task), Some(index)) => format!("{job_set}-{task}-{index}"),
        _ => format!("{job_set}-{id}"),
    }
}

/// The pod that a job of a set is.
pub fn pod(job_set: &str, id: &str, view: &JobView) -> Value {
    let attempt = view.attempts.max(1);
    let mut labels = Map::from_iter([(JOB_NAME.to_owned(), json!(job_set))]);
    labels.extend(view.task.iter().map(|task| (TASK_SPEC.to_owned(), json!(task))));
    labels.extend(view.index.iter().map(|index| (TASK_INDEX.to_owned(), json!(index.to_string()))));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(job_set, id, view), "namespace": view.namespace, "uid": format!("{id}-{attempt}"),
            "resourceVersion": view.changed.to_string(), "labels": labels,
            "creationTimestamp": view.submitted.map(second),
        },
        "spec": {
            "nodeName": view.node,
            "containers": [{"name": view.container, "env": [{"name": ATTEMPT, "value": attempt.to_string()}]}],
        },
        "status": pod_status(view),
    })
}

fn pod_status(view: &JobView) -> Value {
    let status = |name: &str, state: Value| json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
    let (started, finished) = (view.started.map(second), view.finished.map(second));
    let ended = |exit_code: i32, reason: &str, message: &str| {
        json!({"terminated": {"exitCode": exit_code, "reason": reason, "message": message,
               "startedAt": started, "finishedAt": finished}})
    };
    match view.stage {
        Stage::Waiting => json!({"phase": "Pending", "message": view.message}),
        Stage::Running => {
            let running = status(&view.container, json!({"running": {"startedAt": started}}));
            json!({"phase": "Running", "containerStatuses": [running]})
        }
        Stage::Succeeded => {
            json!({"phase": "Succeeded", "containerStatuses": [status(&view.container, ended(0, "Completed", ""))]})
        }
        // A pod that somebody ended is gone; who asks for it nevertheless is told so.
        Stage::Cancelled => json!({"phase": "Failed", "reason": "Cancelled", "message": view.message}),
        Stage::Failed => {
            let again = Some(view.attempts).filter(|runs| *runs > 1).map(|runs| format!("it was run {runs} times"));
            let container = |end: &ContainerEnd| {
                let said = match &again {
                    Some(again) if end.message.is_empty() => again,
                    _ => &end.message,
                };
                status(&end.name, ended(end.exit_code, &end.reason, said))
            };
            let containers: Vec<Value> = view.containers.iter().map(container).collect();
            json!({"phase": "Failed", "reason": "", "message": view.message, "containerStatuses": containers})
        }
    }
}

/// What lists and watches leave out: pods of jobs that were cancelled.
pub fn is_there(view: &JobView) -> bool {
    view.stage != Stage::Cancelled
}

/// The list object of a kind.
pub fn list(kind: &str, version: &str, items: Vec<Value>) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": version}, "items": items})
}

/// The job that a story is of.
pub fn job_of_view(known: &Known, view: &JobSetView) -> Value {
    let mut job = job(known, &view.counts(), view.at, &view.read.to_string());
    if let (Some(view), true) = (view.first_end(), JobPhase::from(text_at(&job, "/status/state/phase")).is_finished()) {
        job["status"]["state"]["message"] = json!(view.message);
    }
    job
}

/// The pod that a name stands for.
pub fn pod_named<'s>(job_set: &str, view: &'s JobSetView, name: &str) -> Option<(&'s String, &'s JobView)> {
    view.jobs.iter().find(|(id, view)| pod_name(job_set, id, view) == name)
}

/// A job's queue, as it was asked for.
pub fn queue_of(job: &Value) -> &str {
    text_at(job, "/spec/queue")
}

fn second(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use pumice_api::batch::Job;
    use pumice_wire::job_sets::JobsInState;

    use super::*;
    use crate::job::pod::PodDocument;
    use crate::job::{Counts, JobEnd, end_of, pod_failures};

    fn known(manifest: Option<Value>) -> Known {
        Known {
            queue: "research".to_owned(),
            name: "sweep".to_owned(),
            first: "01a".to_owned(),
            namespace: "default".to_owned(),
            owner: "ada".to_owned(),
            submitted: Some(Timestamp::UNIX_EPOCH),
            manifest,
            is_whole: false,
        }
    }

    #[test]
    fn a_job_that_has_ended_says_why_by_its_events() {
        let view = |stage: Stage, message: &str| JobView { stage, message: message.to_owned(), ..JobView::default() };
        for (jobs, message) in [
            (vec![view(Stage::Succeeded, ""), view(Stage::Cancelled, "cancelled by ada")], Some("cancelled by ada")),
            (
                vec![view(Stage::Failed, ""), view(Stage::Failed, "preempted: for others")],
                Some("preempted: for others"),
            ),
            (vec![view(Stage::Succeeded, "")], None),
            // It goes on: a failure of one is no reason of the whole.
            (vec![view(Stage::Failed, "it failed"), view(Stage::Running, "")], None),
        ] {
            let jobs = jobs.into_iter().enumerate().map(|(at, view)| (at.to_string(), view)).collect();
            let job = job_of_view(&known(None), &JobSetView { jobs, ..JobSetView::default() });
            assert_eq!(job["status"]["state"]["message"].as_str(), message, "{job}");
            let typed: Job = serde_json::from_value(job).unwrap();
            assert_eq!(crate::explain::job_end::because(&typed).as_deref(), message);
        }
    }

    #[test]
    fn a_whole_job_ends_as_the_one_job_that_it_is() {
        let manifest = json!({"metadata": {}, "spec": {"minAvailable": 2, "tasks": [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 2}]}});
        let known = Known { is_whole: true, ..known(Some(manifest)) };
        for (counts, end, pods) in [
            (JobCounts { waiting: 1, ..JobCounts::default() }, None, (0, 0)),
            (JobCounts { running: 1, ..JobCounts::default() }, None, (3, 0)),
            (JobCounts { succeeded: 1, ..JobCounts::default() }, Some(JobEnd::Completed), (0, 3)),
            (JobCounts { failed: 1, ..JobCounts::default() }, Some(JobEnd::Failed), (0, 0)),
            (JobCounts { cancelled: 1, ..JobCounts::default() }, Some(JobEnd::Terminated), (0, 0)),
        ] {
            let typed: Job = serde_json::from_value(job(&known, &counts, None, "7")).unwrap();
            let seen = Counts::of(&typed);
            assert_eq!((end_of(&typed), (seen.running, seen.succeeded)), (end, pods), "{counts:?}");
            assert_eq!((seen.total, seen.waiting), (3, 3 * counts.waiting), "{counts:?}");
        }
    }

    #[test]
    fn a_set_is_a_job_whose_end_follows_from_its_own_rules() {
        let manifest = |more: Value| {
            let mut spec = json!({"minAvailable": 1, "tasks": [{"name": "main", "replicas": 4}]});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Some(json!({"metadata": {"labels": {"a": "b"}}, "spec": spec}))
        };
        let counts = |waiting, running, succeeded, failed, cancelled| JobCounts {
            waiting,
            running,
            succeeded,
            failed,
            cancelled,
        };
        for (manifest, counts, end) in [
            (None, counts(4, 0, 0, 0, 0), None),
            (None, counts(0, 0, 4, 0, 0), Some(JobEnd::Completed)),
            (None, counts(0, 0, 3, 1, 0), Some(JobEnd::Failed)),
            (manifest(json!({"minSuccess": 3})), counts(0, 0, 3, 1, 0), Some(JobEnd::Completed)),
            (manifest(json!({"minSuccess": 4})), counts(0, 0, 3, 1, 0), Some(JobEnd::Failed)),
            (manifest(json!({"minSuccess": 1})), counts(0, 1, 3, 0, 0), None),
            (manifest(json!({})), counts(0, 0, 3, 0, 1), Some(JobEnd::Terminated)),
            // None of those that were cancelled waits.
            (manifest(json!({})), counts(0, 0, 0, 0, 4), Some(JobEnd::Terminated)),
            (manifest(json!({})), counts(1, 1, 0, 0, 2), None),
            (None, counts(0, 0, 0, 0, 4), Some(JobEnd::Terminated)),
        ] {
            let object = job(&known(manifest), &counts, None, "7");
            let typed: Job = serde_json::from_value(object).unwrap();
            assert_eq!(end_of(&typed), end, "{counts:?}");
            let counts = Counts::of(&typed);
            assert_eq!((counts.total, counts.succeeded, counts.running), (4, counts.succeeded, counts.running));
            assert_eq!((counts.failed, counts.waiting), (counts.failed, counts.waiting), "{counts:?}");
            assert_eq!(typed.spec.queue, "research");
        }
    }

    #[test]
    fn states_are_counted_where_people_look_for_them() {
        let state = |state: JobState, jobs, first: &str| JobsInState {
            state: state.into(),
            jobs,
            first_job_id: first.to_owned(),
            last_transition: None,
        };
        let states =
            vec![state(JobState::Leased, 2, "c"), state(JobState::Queued, 1, "b"), state(JobState::Preempted, 5, "a")];
        let set = JobSet { states, ..JobSet::default() };
        assert_eq!(counts_of(&set).0, JobCounts { waiting: 3, failed: 5, ..JobCounts::default() });
        assert_eq!(first_of(&set), Some("a"));
    }

    #[test]
    fn pods_read_like_those_of_a_platform() {
        let view = JobView {
            task: Some("main".to_owned()),
            index: Some(3),
            container: "main".to_owned(),
            stage: Stage::Failed,
            attempts: 2,
            finished: Some(Timestamp::UNIX_EPOCH),
            containers: vec![ContainerEnd {
                name: "main".to_owned(),
                exit_code: 137,
                reason: "OOMKilled".to_owned(),
                message: String::new(),
            }],
            ..JobView::default()
        };
        let pod: Pod = serde_json::from_value(pod("sweep", "01b", &view)).unwrap();
        assert_eq!(
            pod_failures(std::slice::from_ref(&pod))[0].sentence(),
            "pod sweep-main-3 was killed for memory (it was run 2 times)"
        );
        let brief = PodDocument::of(&pod);
        assert_eq!((brief.index, brief.attempt, brief.oom, brief.task.as_str()), (Some(3), Some(2), true, "main"));
        let rejected = JobView { containers: Vec::new(), message: "no image".to_owned(), ..view };
        let pod: Pod = serde_json::from_value(super::pod("sweep", "01b", &rejected)).unwrap();
        assert!(pod_failures(std::slice::from_ref(&pod))[0].sentence().ends_with("no image"));
    }
}
