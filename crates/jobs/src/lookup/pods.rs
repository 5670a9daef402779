//! A job's pods on a platform: listed, followed, and named by their index.
//!
//! Invariant: pods are read page by page and kept in the short form of [`PodDocument`], so that many cost little; where whole
//! pods are needed, the server picks them. Called by `logs`, `explain` and the Python extension.

use futures::stream::{BoxStream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use pumice_api::batch::Job;
use pumice_api::names;
use serde_json::Value;

use crate::error::Error;
use crate::job::pod::PodDocument;
use crate::job::{JobError, JobRef};
use crate::platform::call::{self, CallError, Pages};
use crate::platform::connection::Connection;
use crate::platform::watch::{self, Collection, Update};

/// Pods whose lost files are told.
const DISCARDED_SHOWN_MAX: usize = 3;

/// Which of a job's pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only those of this task.
    pub task: Option<String>,
    /// Only this index.
    pub index: Option<u32>,
    /// Only those that failed.
    pub failed: bool,
}

impl Selection {
    /// The pods as a collection, picked by the server.
    fn collection(&self, job: &JobRef) -> Collection {
        let mut pods = pods_of(job);
        if let Some(task) = &self.task {
            pods.labels.push_str(&format!(",{}={task}", names::TASK_SPEC));
        }
        if let Some(index) = self.index {
            pods.labels.push_str(&format!(",{}={index}", names::TASK_INDEX));
        }
        if self.failed {
            pods.fields = "status.phase=Failed".to_owned();
        }
        pods
    }
}

/// A job's pods now, by task and index.
pub async fn fetch(connection: &Connection, job: &JobRef, selection: &Selection) -> Result<Vec<PodDocument>, Error> {
    let pods = selection.collection(job);
    let doing = format!("list the pods of job {}", job.name);
    let mut pages = Pages::new(connection, &pods.path, &pods.query(), &doing);
    let mut found = Vec::new();
    while let Some(mut page) = pages.next().await? {
        let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) else { continue };
        for item in items {
            let pod: Pod = serde_json::from_value(item)
                .map_err(|error| CallError::unreadable("read a pod", connection.url(), error))?;
            found.push(PodDocument::of(&pod));
        }
    }
    found.sort_by(|a: &PodDocument, b| (&a.task, a.index, &a.name).cmp(&(&b.task, b.index, &b.name)));
    Ok(found)
}

/// Sentences about the files that are gone with a job's pods; of the first pods that have any.
pub async fn discarded_files(connection: &Connection, job: &JobRef) -> Result<Vec<String>, Error> {
    let pods = fetch(connection, job, &Selection::default()).await?;
    let affected: Vec<&PodDocument> = pods.iter().filter(|pod| !pod.discarded.is_empty()).collect();
    let one = |pod: &&PodDocument| format!("pod {}: {}", pod.name, pod.discarded);
    let mut sentences: Vec<String> = affected.iter().take(DISCARDED_SHOWN_MAX).map(one).collect();
    if affected.len() > DISCARDED_SHOWN_MAX {
        sentences.push(format!("files of {} more pods are gone, too", affected.len() - DISCARDED_SHOWN_MAX));
    }
    Ok(sentences)
}

/// Follows a job's pods: what there is, then every change. The stream ends only with an error.
pub fn follow(
    connection: Connection,
    job: &JobRef,
    selection: &Selection,
) -> BoxStream<'static, Result<Update<PodDocument>, CallError>> {
    let pods = watch::follow::<Pod>(connection, selection.collection(job));
    pods.map(|update| update.map(|update| update.map(|pod| PodDocument::of(&pod)))).boxed()
}

/// The name of the pod of an index. A job with one task needs no task named.
pub fn name_of(job: &Job, task: Option<&str>, index: u32) -> Result<String, Error> {
    let name = job.metadata.name.clone().unwrap_or_default();
    let missing = |pod: String| JobError::NoPod { job: name.clone(), pod };
    let task = match (task, job.spec.tasks.as_slice()) {
        (Some(task), tasks) => tasks
            .iter()
            .find(|one| one.name == task)
            .ok_or_else(|| missing(format!("of task {task}: its tasks are {}", tasks_of(job))))?,
        (None, [task]) => task,
        (None, _) => return Err(JobError::WhichTask { job: name, tasks: tasks_of(job) }.into()),
    };
    let of_task = i32::try_from(index).ok().filter(|index| *index < task.replicas);
    let index = of_task.ok_or_else(|| missing(format!("{index}: task {} has {}", task.name, task.replicas)))?;
    Ok(names::pod_name(&name, &task.name, index))
}

/// The names of a job's tasks, for a message.
fn tasks_of(job: &Job) -> String {
    job.spec.tasks.iter().map(|task| task.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// A job's pods as a collection.
pub fn pods_of(job: &JobRef) -> Collection {
    Collection {
        path: format!("/api/v1/namespaces/{}/pods", job.namespace),
        labels: format!("{}={}", names::JOB_NAME, job.name),
        fields: String::new(),
    }
}

/// A job's pods now.
pub async fn pods(connection: &Connection, job: &JobRef) -> Result<Vec<Pod>, CallError> {
    look(connection, job, &pods_of(job)).await
}

/// Those of a job's pods that failed; the server picks them, because a job may have 300,000 that didn't.
pub async fn failed_pods(connection: &Connection, job: &JobRef) -> Result<Vec<Pod>, CallError> {
    let failed = Collection { fields: "status.phase=Failed".to_owned(), ..pods_of(job) };
    look(connection, job, &failed).await
}

async fn look(connection: &Connection, job: &JobRef, pods: &Collection) -> Result<Vec<Pod>, CallError> {
    let doing = format!("list the pods of job {}", job.name);
    let (items, _) = call::list(connection, &pods.path, &pods.query(), &doing).await?;
    items
        .into_iter()
        .map(|item| {
            serde_json::from_value(item).map_err(|error| CallError::unreadable("read a pod", connection.url(), error))
        })
        .collect()
}
