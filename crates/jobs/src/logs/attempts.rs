//! Which runs of a job's pods are meant: those of now, of pods that are gone, or an earlier attempt.
//!
//! Invariant: pure but for [`retained`], which asks the platform for the logs of pods that are gone; a Kubernetes has no such
//! answer. A pod is known by its name: what is made again under it is another attempt.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;

use super::pod::{ContainerRun, LogSource, started_runs};
use crate::job::{JobRef, pod};
use crate::platform::call::{self, CallError, FailureClass};
use crate::platform::connection::Connection;

/// Which attempt of each pod is meant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Attempt {
    /// The latest there is a log of.
    #[default]
    Latest,
    /// The one before.
    Previous,
    /// By its number, from 1.
    Number(u32),
}

/// What nodes retain of a job's pods that are gone.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Retained {
    /// The pods, the oldest first.
    pub pods: Vec<RetainedPod>,
    /// Nodes that did not answer.
    pub silent_nodes: Vec<String>,
}

/// A pod that is gone.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetainedPod {
    pub pod: String,
    pub uid: String,
    /// The node that has its logs.
    pub node: String,
    /// Which attempt it was, from 1, if it said so.
    #[serde(default)]
    pub attempt: Option<u32>,
    pub removed_at: Timestamp,
    /// The runs of its containers.
    #[serde(default)]
    pub runs: Vec<RetainedRun>,
}

/// One run of a container of it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct RetainedRun {
    pub container: String,
    /// Which run of it, from 0.
    pub restart: i32,
}

/// Asks for the logs of a job's pods that are gone; `None` where the platform retains none.
pub async fn retained(connection: &Connection, job: &JobRef) -> Result<Option<Retained>, CallError> {
    if connection.is_fleet() {
        return Ok(None);
    }
    let path = format!("/apis/logs.pumice.sh/v1alpha1/namespaces/{}/jobs/{}", job.namespace, job.name);
    match call::get(connection, &path, &format!("ask for earlier logs of job {}", job.name)).await {
        Ok(found) => Retained::deserialize(&found)
            .map(Some)
            .map_err(|error| CallError::unreadable("ask for earlier logs", connection.url(), error)),
        // A Kubernetes says 403 of a group that it does not have, to who has few rights.
        Err(error) if matches!(error.class(), FailureClass::NotFound | FailureClass::Denied) => Ok(None),
        Err(error) => Err(error),
    }
}

/// All attempts of one pod, the oldest first.
#[derive(Default)]
struct Attempts<'a> {
    gone: Vec<&'a RetainedPod>,
    here: Option<&'a Pod>,
}

/// The runs that are meant, by the names of their pods.
pub(super) fn choose(job: &JobRef, here: &[Pod], retained: &Retained, attempt: Attempt) -> Vec<ContainerRun> {
    let mut by_name: BTreeMap<&str, Attempts<'_>> = BTreeMap::new();
    for pod in here {
        by_name.entry(pod.metadata.name.as_deref().unwrap_or_default()).or_default().here = Some(pod);
    }
    for pod in &retained.pods {
        let known = here.iter().any(|one| one.metadata.uid.as_deref() == Some(&pod.uid));
        if !known {
            by_name.entry(&pod.pod).or_default().gone.push(pod);
        }
    }
    by_name.values().flat_map(|attempts| attempts.choose(job, attempt)).collect()
}

impl Attempts<'_> {
    fn choose(&self, job: &JobRef, attempt: Attempt) -> Vec<ContainerRun> {
        let here = self.here.map(|pod| started_runs(pod, &job.namespace)).unwrap_or_default();
        let gone = |pod: Option<&&RetainedPod>| pod.map(|pod| of_retained(job, pod)).unwrap_or_default();
        match attempt {
            Attempt::Latest if !here.is_empty() => here,
            Attempt::Latest => gone(self.gone.last()),
            Attempt::Previous => {
                // A container that was started again in its pod has an earlier run there.
                let before: Vec<ContainerRun> = here.iter().filter_map(ContainerRun::before).collect();
                match (before.is_empty(), here.is_empty()) {
                    (false, _) => before,
                    (true, false) => gone(self.gone.last()),
                    (true, true) => gone(self.gone.iter().nth_back(1)),
                }
            }
            Attempt::Number(number) => {
                let said = |pod: &&&RetainedPod| pod.attempt == Some(number);
                if self.here.and_then(pod::attempt) == Some(number) {
                    return here;
                }
                gone(self.gone.iter().rev().find(said))
            }
        }
    }
}

fn of_retained(job: &JobRef, pod: &RetainedPod) -> Vec<ContainerRun> {
    let runs = pod.runs.iter().map(|run| ContainerRun {
        namespace: job.namespace.clone(),
        pod: pod.pod.clone(),
        uid: pod.uid.clone(),
        container: run.container.clone(),
        restart: run.restart,
        source: LogSource::Retained { job: job.name.clone(), node: pod.node.clone() },
    });
    runs.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn here(name: &str, uid: &str, attempt: u32, restarts: i32) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": uid, "namespace": "n"},
            "spec": {"containers": [{"name": "c", "env": [{"name": "PUMICE_ATTEMPT", "value": attempt.to_string()}]}]},
            "status": {"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": restarts,
                "state": {"running": {}}}]},
        }))
        .unwrap()
    }

    fn waiting(name: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name, "uid": "w"}, "status": {"phase": "Pending"}})).unwrap()
    }

    fn gone(pods: &[(&str, &str, Option<u32>)]) -> Retained {
        let pods: Vec<Value> = pods
            .iter()
            .map(|(name, uid, attempt)| {
                json!({"pod": name, "uid": uid, "node": "n1", "attempt": attempt, "removedAt": "2026-01-01T00:00:00Z",
                    "runs": [{"container": "c", "restart": 0}]})
            })
            .collect();
        serde_json::from_value(json!({"pods": pods, "silentNodes": []})).unwrap()
    }

    #[test]
    fn the_attempt_that_is_meant_is_found_here_or_among_those_that_are_gone() {
        use Attempt::{Latest, Number, Previous};
        let none = || gone(&[]);
        let two = || gone(&[("j-t-0", "u1", Some(1)), ("j-t-0", "u2", Some(2))]);
        let third = || vec![here("j-t-0", "u3", 3, 0)];
        for (pods, retained, attempt, uids) in [
            (third(), two(), Latest, "u3"),
            (third(), two(), Previous, "u2"),
            (third(), two(), Number(1), "u1"),
            (third(), two(), Number(3), "u3"),
            (third(), two(), Number(4), ""),
            (vec![], two(), Latest, "u2"),
            (vec![], two(), Previous, "u1"),
            (vec![waiting("j-t-0")], two(), Latest, "u2"),
            (third(), none(), Previous, ""),
            (vec![], none(), Latest, ""),
            // A container that was started again in its pod.
            (vec![here("j-t-0", "u3", 1, 2)], none(), Previous, "u3 before"),
            // A pod that is still listed, though its node has set its log aside.
            (third(), gone(&[("j-t-0", "u3", Some(3))]), Previous, ""),
            // Another pod than the one that is there.
            (third(), gone(&[("j-t-1", "u9", None)]), Latest, "u3 u9"),
        ] {
            let job = JobRef { namespace: "n".into(), name: "j".into() };
            let runs = choose(&job, &pods, &retained, attempt);
            let found: Vec<String> =
                runs.iter()
                    .map(|run| {
                        if run.source == LogSource::Previous { format!("{} before", run.uid) } else { run.uid.clone() }
                    })
                    .collect();
            assert_eq!(found.join(" "), uids, "{attempt:?} {retained:?}");
        }
    }
}
