//! The tensorflow plugin: `TF_CONFIG`, by which a distributed TensorFlow program knows its cluster and its place in it.
//!
//! Invariant: a job of a single pod gets nothing, for it is no cluster. Init containers don't get it.

use k8s_openapi::api::core::v1::PodSpec;
use pumice_api::batch::Job;
use serde_json::json;

use super::flags::{self, Flag, Kind};
use super::{PodPlace, hosts, task, variable};

const TF_CONFIG: &str = "TF_CONFIG";
const DEFAULT_PORT: u16 = 2222;
/// Room for what `TF_CONFIG` says of one pod.
const PLACE_BYTES_MAX: usize = 128;

pub(super) const FLAGS: &[Flag] = &[
    Flag { name: "ps", kind: Kind::Text },
    Flag { name: "worker", kind: Kind::Text },
    Flag { name: "chief", kind: Kind::Text },
    Flag { name: "evaluator", kind: Kind::Text },
    Flag { name: "port", kind: Kind::Int },
];

/// Arguments of the plugin: which task plays which role, and the port of all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Task of the parameter servers.
    pub ps: String,
    /// Task of the workers.
    pub worker: String,
    /// Task of the chief.
    pub chief: String,
    /// Task of the evaluator.
    pub evaluator: String,
    /// Port that the program listens on.
    pub port: u16,
}

impl Arguments {
    pub(super) fn parse(arguments: &[String]) -> Self {
        let values = flags::parse(arguments, FLAGS);
        Self {
            ps: values.text_or("ps", "ps"),
            worker: values.text_or("worker", "worker"),
            chief: values.text_or("chief", "chief"),
            evaluator: values.text_or("evaluator", "evaluator"),
            port: values.port_or("port", DEFAULT_PORT),
        }
    }

    /// Roles and their tasks; where a task has two, the first is its type.
    fn roles(&self) -> [(&'static str, &str); 4] {
        [("chief", &self.chief), ("worker", &self.worker), ("ps", &self.ps), ("evaluator", &self.evaluator)]
    }
}

/// The part of `TF_CONFIG` that all pods of a job share, written once for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    arguments: Arguments,
    /// JSON; `None` if the job is no cluster.
    members: Option<String>,
}

/// Addresses by role. Roles without pods are left out.
#[derive(serde::Serialize)]
struct Members {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ps: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    worker: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    chief: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    evaluator: Vec<String>,
}

impl Cluster {
    pub(super) fn of(job: &Job, arguments: Arguments) -> Self {
        let is_single = matches!(job.spec.tasks.as_slice(), [only] if only.replicas == 1);
        if is_single {
            return Self { arguments, members: None };
        }
        let with_port = |name: &str| {
            let addresses = task(job, name).map(|task| hosts::addresses(job, task)).unwrap_or_default();
            addresses.into_iter().map(|address| format!("{address}:{}", arguments.port)).collect()
        };
        let members = Members {
            ps: with_port(&arguments.ps),
            worker: with_port(&arguments.worker),
            chief: with_port(&arguments.chief),
            evaluator: with_port(&arguments.evaluator),
        };
        let members = serde_json::to_string(&members).expect("lists of text are JSON");
        Self { arguments, members: Some(members) }
    }

    pub(super) fn longest_variable(&self) -> Option<(String, usize)> {
        Some((TF_CONFIG.to_owned(), self.members.as_ref()?.len() + PLACE_BYTES_MAX))
    }
}

pub(super) fn shape_pod(cluster: &Cluster, place: &PodPlace<'_>, pod: &mut PodSpec) {
    let Some(members) = &cluster.members else { return };
    let task_name = place.task.name.as_str();
    let role = cluster.arguments.roles().into_iter().find(|(_, name)| *name == task_name);
    let kind = json!(role.map_or(task_name, |(role, _)| role));
    let config = format!("{{\"cluster\":{members},\"task\":{{\"type\":{kind},\"index\":{}}}}}", place.index);
    for container in &mut pod.containers {
        container.env.get_or_insert_default().push(variable(TF_CONFIG, config.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::tests::{env, job, shaped};

    const JOB: &str = r#"{"tasks": [
        {"name": "ps", "replicas": 2}, {"name": "worker", "replicas": 2}, {"name": "boss", "replicas": 1},
        {"name": "other", "replicas": 1}, {"name": "evaluator", "replicas": 0}]}"#;

    #[test]
    fn each_pod_knows_the_cluster_and_its_place() {
        let cluster =
            r#"{"cluster":{"ps":["j-ps-0.j:2222","j-ps-1.j:2222"],"worker":["j-worker-0.j:2222","j-worker-1.j:2222"]"#;
        let cases: &[(&[&str], &str, i32, &str)] = &[
            (&[], "ps", 1, r#"},"task":{"type":"ps","index":1}}"#),
            (&[], "worker", 0, r#"},"task":{"type":"worker","index":0}}"#),
            (&[], "other", 0, r#"},"task":{"type":"other","index":0}}"#),
            (&["--chief=boss"], "boss", 0, r#","chief":["j-boss-0.j:2222"]},"task":{"type":"chief","index":0}}"#),
            (
                &["-chief", "boss", "--evaluator", "other"],
                "other",
                0,
                r#","chief":["j-boss-0.j:2222"],"evaluator":["j-other-0.j:2222"]},"task":{"type":"evaluator","index":0}}"#,
            ),
        ];
        for (arguments, task, index, rest) in cases {
            let (_, pod) = shaped(&job(JOB), "tensorflow", arguments, task, *index);
            assert_eq!(env(&pod.containers[0]), [("TF_CONFIG", format!("{cluster}{rest}").as_str())], "{arguments:?}");
            assert_eq!(env(&pod.containers[1]).len(), 1, "the second container, too");
            assert_eq!(env(&pod.init_containers.unwrap()[0]), []);
        }
    }

    #[test]
    fn ports_and_tasks_follow_the_arguments() {
        let (_, pod) = shaped(&job(JOB), "tensorflow", &["--ps=other", "--worker=boss", "--port=9"], "boss", 0);
        let config =
            r#"{"cluster":{"ps":["j-other-0.j:9"],"worker":["j-boss-0.j:9"]},"task":{"type":"worker","index":0}}"#;
        assert_eq!(env(&pod.containers[0]), [("TF_CONFIG", config)]);
        for bad in ["0", "65536", "-1", "x"] {
            let (_, pod) = shaped(&job(JOB), "tensorflow", &[&format!("--port={bad}")], "ps", 0);
            assert!(env(&pod.containers[0])[0].1.contains("j-ps-0.j:2222"), "{bad}");
        }
    }

    #[test]
    fn hostname_and_subdomain_of_the_template_are_used() {
        let job = job(
            r#"{"tasks": [{"name": "worker", "replicas": 3, "template": {"spec": {"hostname": "h", "subdomain": "d",
            "containers": [{"name": "c"}]}}}]}"#,
        );
        let (_, pod) = shaped(&job, "tensorflow", &[], "worker", 2);
        let config = r#"{"cluster":{"worker":["h.d:2222"]},"task":{"type":"worker","index":2}}"#;
        assert_eq!(env(&pod.containers[0]), [("TF_CONFIG", config)]);
    }

    #[test]
    fn a_single_pod_is_no_cluster() {
        for (tasks, alone) in [
            (r#"[{"name": "worker", "replicas": 1}]"#, true),
            (r#"[{"name": "worker", "replicas": 2}]"#, false),
            (r#"[{"name": "worker", "replicas": 1}, {"name": "ps", "replicas": 1}]"#, false),
        ] {
            let job = job(&format!(r#"{{"tasks": {tasks}}}"#));
            let (_, pod) = shaped(&job, "tensorflow", &[], "worker", 0);
            assert_eq!(env(&pod.containers[0]).is_empty(), alone, "{tasks}");
        }
    }
}
