//! The mpi plugin: `MPI_HOST`, the workers' addresses, for the master, and a port on every container.
//!
//! Invariant: without a worker task no pod gets `MPI_HOST`. Plugins svc and ssh, which admission adds, do the rest.

use k8s_openapi::api::core::v1::PodSpec;
use pumice_api::batch::Job;

use super::flags::{self, Flag, Kind};
use super::{PodPlace, add_env, containers, hosts, open_port, task, variable};

const MPI_HOST: &str = "MPI_HOST";
const PORT_NAME: &str = "mpijob-port";
const DEFAULT_PORT: u16 = 22;

pub(super) const FLAGS: &[Flag] = &[
    Flag { name: "master", kind: Kind::Text },
    Flag { name: "worker", kind: Kind::Text },
    Flag { name: "port", kind: Kind::Int },
];

/// Arguments of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Task that starts the program.
    pub master: String,
    /// Task whose pods it runs on.
    pub worker: String,
    pub port: u16,
}

impl Arguments {
    pub(super) fn parse(arguments: &[String]) -> Self {
        let values = flags::parse(arguments, FLAGS);
        Self {
            master: values.text_or("master", "master"),
            worker: values.text_or("worker", "worker"),
            port: values.port_or("port", DEFAULT_PORT),
        }
    }
}

/// What all pods of a job share, written once for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    arguments: Arguments,
    /// Their addresses; `None` if there is no such task.
    addresses: Option<String>,
}

impl Workers {
    pub(super) fn of(job: &Job, arguments: Arguments) -> Self {
        let addresses = task(job, &arguments.worker).map(|task| hosts::addresses(job, task).join(","));
        Self { arguments, addresses }
    }

    pub(super) fn longest_variable(&self) -> Option<(String, usize)> {
        Some((MPI_HOST.to_owned(), self.addresses.as_ref()?.len()))
    }
}

/// Whether a job asks for the plugin and has no task to be the master.
pub fn lacks_master(job: &Job) -> bool {
    let arguments = job.spec.plugins.get("mpi");
    arguments.is_some_and(|arguments| task(job, &Arguments::parse(arguments).master).is_none())
}

pub(super) fn doubt(job: &Job, workers: &Workers) -> Option<String> {
    let roles = [("master", &workers.arguments.master), ("worker", &workers.arguments.worker)];
    let (role, name) = roles.into_iter().find(|(_, name)| task(job, name).is_none())?;
    Some(format!(
        "job plugin mpi finds no task {name:?} to be the {role}, so nobody gets {MPI_HOST}; name one by --{role}"
    ))
}

pub(super) fn shape_pod(workers: &Workers, place: &PodPlace<'_>, pod: &mut PodSpec) {
    for container in containers(pod) {
        open_port(container, PORT_NAME, workers.arguments.port);
    }
    if let Some(addresses) = &workers.addresses
        && place.task.name == workers.arguments.master
    {
        add_env(pod, &[variable(MPI_HOST, addresses.as_str())]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::tests::{env, job, ports, shaped};

    const JOB: &str = r#"{"tasks": [{"name": "master", "replicas": 1}, {"name": "worker", "replicas": 2}, {"name": "x", "replicas": 1}]}"#;

    #[test]
    fn the_master_knows_the_workers_and_all_open_a_port() {
        let cases: &[(&[&str], &str, Option<&str>, i32)] = &[
            (&[], "master", Some("j-worker-0.j,j-worker-1.j"), 22),
            (&[], "worker", None, 22),
            (&[], "x", None, 22),
            (&["--master", "x", "--worker=master", "--port=2022"], "x", Some("j-master-0.j"), 2022),
            (&["--worker=nobody"], "master", None, 22),
        ];
        for (arguments, task, hosts, port) in cases {
            let (_, pod) = shaped(&job(JOB), "mpi", arguments, task, 0);
            for container in pod.containers.iter().chain(pod.init_containers.iter().flatten()) {
                let expected: Vec<_> = hosts.iter().map(|hosts| ("MPI_HOST", *hosts)).collect();
                assert_eq!(env(container), expected, "{arguments:?} {task}");
                assert_eq!(ports(container), [("mpijob-port", *port)], "{arguments:?} {task}");
            }
        }
    }

    #[test]
    fn ports_that_are_open_or_named_alike_stay() {
        for (given, expected) in [
            (r#"{"containerPort": 22}"#, vec![("", 22)]),
            (r#"{"containerPort": 22, "protocol": "UDP"}"#, vec![("", 22), ("mpijob-port", 22)]),
            (r#"{"containerPort": 9, "name": "mpijob-port"}"#, vec![("mpijob-port", 9)]),
            (r#"{"containerPort": 9}"#, vec![("", 9), ("mpijob-port", 22)]),
        ] {
            let job = job(&format!(
                r#"{{"tasks": [{{"name": "master", "replicas": 1,
                "template": {{"spec": {{"containers": [{{"name": "c", "ports": [{given}]}}]}}}}}}]}}"#
            ));
            let (_, pod) = shaped(&job, "mpi", &[], "master", 0);
            assert_eq!(ports(&pod.containers[0]), expected, "{given}");
        }
    }

    #[test]
    fn a_missing_role_is_told() {
        for (arguments, lacks, word) in [
            (r#"["--master=m"]"#, true, Some("the master")),
            (r#"["--master", "m"]"#, true, Some("the master")),
            (r#"["--worker=w"]"#, false, Some("the worker")),
            (r#"["--master", "x"]"#, false, None),
            (r#"["--unknown", "--master=m"]"#, false, None),
        ] {
            let tasks = r#"[{"name": "master"}, {"name": "worker"}, {"name": "x"}]"#;
            let job = job(&format!(r#"{{"plugins": {{"mpi": {arguments}}}, "tasks": {tasks}}}"#));
            assert_eq!(lacks_master(&job), lacks, "{arguments}");
            let plugin = crate::plugins::of_job(&job).unwrap().remove(0);
            let doubts: Vec<String> =
                plugin.doubts(&job).into_iter().filter(|doubt| doubt.contains("finds no")).collect();
            assert_eq!(doubts.len(), usize::from(word.is_some()), "{arguments}");
            assert!(word.is_none_or(|word| doubts[0].contains(word)), "{doubts:?}");
        }
    }
}
