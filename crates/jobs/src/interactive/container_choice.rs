//! Which running container of a job a user means.
//!
//! Invariant: [`choose`] and [`container_of`] are pure; without a choice the first running pod by task and index is meant, and its
//! container as Kubernetes' own clients take it.

use k8s_openapi::api::core::v1::Pod;

use super::InteractiveError;
use crate::error::Error;
use crate::job::pod::PodDocument;
use crate::job::{JobError, JobRef, end_of};
use crate::lookup;
use crate::lookup::pods::{self, Selection};
use crate::platform::call::{self, CallError};
use crate::platform::connection::Connection;

/// The annotation by which a pod names the container that people mean.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// What was said of the pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerChoice {
    pub task: Option<String>,
    /// Its index in the task.
    pub index: Option<u32>,
    /// Its whole name.
    pub pod: Option<String>,
    pub container: Option<String>,
}

impl ContainerChoice {
    /// What was asked for, for people.
    fn words(&self) -> String {
        let task = self.task.iter().map(|task| format!("of task {task}"));
        let index = self.index.iter().map(|index| format!("of index {index}"));
        task.chain(index).collect::<Vec<_>>().join(" ")
    }
}

/// The container that a command or a forwarded port goes to. It ran when it was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningContainer {
    /// The job it belongs to.
    pub job: JobRef,
    pub pod: String,
    pub container: String,
    /// How many pods were as good.
    pub others: usize,
}

/// Finds a running container of a job that is as `wanted` says; the error says what there is instead.
pub async fn find(connection: &Connection, job: &JobRef, wanted: &ContainerChoice) -> Result<RunningContainer, Error> {
    let selection = Selection { task: wanted.task.clone(), index: wanted.index, ..Selection::default() };
    let documents = pods::fetch(connection, job, &selection).await?;
    let (pod, others) = match choose(&documents, wanted.pod.as_deref()) {
        Choice::One { pod, others } => (pod.to_owned(), others),
        Choice::Ended { pod, phase } => {
            let (pod, phase) = (pod.to_owned(), phase.to_owned());
            return Err(InteractiveError::PodNotRunning { job: job.clone(), pod, phase }.into());
        }
        Choice::None => match &wanted.pod {
            // Whether there is such a job is the better answer.
            Some(pod) => {
                lookup::get(connection, job).await?;
                return Err(JobError::NoPod { job: job.name.clone(), pod: pod.clone() }.into());
            }
            None => return Err(not_running(connection, job, wanted).await?.into()),
        },
    };
    let path = format!("/api/v1/namespaces/{}/pods/{}", job.namespace, call::query_value(&pod));
    let object = call::get(connection, &path, &format!("read pod {pod}")).await?;
    let object: Pod =
        serde_json::from_value(object).map_err(|error| CallError::unreadable("read a pod", connection.url(), error))?;
    let container = container_of(&object, wanted.container.as_deref()).map_err(|containers| {
        let container = wanted.container.clone().unwrap_or_default();
        InteractiveError::NoContainer { job: job.clone(), pod: pod.clone(), container, containers }
    })?;
    Ok(RunningContainer { job: job.clone(), pod, container, others })
}

async fn not_running(
    connection: &Connection,
    job: &JobRef,
    wanted: &ContainerChoice,
) -> Result<InteractiveError, Error> {
    let typed = lookup::typed(connection, &lookup::get(connection, job).await?)?;
    let phase = typed.status.state.phase.as_ref().map_or_else(|| "New".to_owned(), ToString::to_string);
    Ok(InteractiveError::NotRunning {
        job: job.clone(),
        of: wanted.words(),
        state: phase,
        ended: end_of(&typed).is_some(),
    })
}

/// What there is to choose.
#[derive(Debug, PartialEq, Eq)]
enum Choice<'p> {
    /// This pod; so many others run too.
    One {
        pod: &'p str,
        others: usize,
    },
    /// The pod that was named is there and does not run.
    Ended {
        pod: &'p str,
        /// What it does instead.
        phase: &'p str,
    },
    None,
}

/// The first running pod of those given in order, or the named one.
fn choose<'p>(pods: &'p [PodDocument], named: Option<&str>) -> Choice<'p> {
    if let Some(name) = named {
        return match pods.iter().find(|pod| pod.name == name) {
            Some(pod) if pod.phase == "Running" => Choice::One { pod: &pod.name, others: 0 },
            Some(pod) => Choice::Ended { pod: &pod.name, phase: &pod.phase },
            None => Choice::None,
        };
    }
    let mut running = pods.iter().filter(|pod| pod.phase == "Running");
    match running.next() {
        Some(pod) => Choice::One { pod: &pod.name, others: running.count() },
        None => Choice::None,
    }
}

/// The container by name, else the pod's own default, else its first; the error is the names of all.
fn container_of(pod: &Pod, named: Option<&str>) -> Result<String, String> {
    let names: Vec<&str> = pod.spec.iter().flat_map(|spec| &spec.containers).map(|one| one.name.as_str()).collect();
    let default = pod.metadata.annotations.as_ref().and_then(|all| all.get(DEFAULT_CONTAINER)).map(String::as_str);
    let wanted = match named {
        Some(name) => names.iter().find(|known| **known == name),
        None => names.iter().find(|known| Some(**known) == default).or(names.first()),
    };
    wanted.map(|name| (*name).to_owned()).ok_or_else(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn brief(name: &str, phase: &str) -> PodDocument {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": name}, "status": {"phase": phase}})).unwrap();
        PodDocument::of(&pod)
    }

    #[test]
    fn the_first_running_pod_or_the_named_one() {
        let pods = [("a-0", "Succeeded"), ("a-1", "Running"), ("a-2", "Pending"), ("a-3", "Running")];
        let pods = pods.map(|(name, phase)| brief(name, phase));
        for (named, wanted) in [
            (None, Choice::One { pod: "a-1", others: 1 }),
            (Some("a-3"), Choice::One { pod: "a-3", others: 0 }),
            (Some("a-0"), Choice::Ended { pod: "a-0", phase: "Succeeded" }),
            (Some("a-9"), Choice::None),
        ] {
            assert_eq!(choose(&pods, named), wanted, "{named:?}");
        }
        assert_eq!(choose(&pods[..1], None), Choice::None);
    }

    #[test]
    fn the_container_is_the_named_the_default_or_the_first() {
        let pod = |default: Option<&str>| -> Pod {
            let annotations = default.map(|name| json!({DEFAULT_CONTAINER: name})).unwrap_or(json!({}));
            let containers = json!([{"name": "main"}, {"name": "side"}]);
            serde_json::from_value(
                json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}}),
            )
            .unwrap()
        };
        for (default, named, wanted) in [
            (None, None, Ok("main")),
            (Some("side"), None, Ok("side")),
            (Some("gone"), None, Ok("main")),
            (Some("side"), Some("main"), Ok("main")),
            (None, Some("other"), Err("main, side")),
        ] {
            let wanted = wanted.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(container_of(&pod(default), named), wanted, "{default:?} {named:?}");
        }
        assert_eq!(container_of(&Pod::default(), None), Err(String::new()));
    }
}
