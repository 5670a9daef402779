//! The ray plugin: commands that start a Ray cluster, the ports of its head, and a Service `<job>-head-svc` to reach it.
//!
//! Invariant: only the container named so, of the task named so, gets a command; what else the template says stays, its
//! `args` too. A job without the head task is an error, as its workers would have nobody to join.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use pumice_api::batch::Job;
use pumice_api::names;

use super::flags::{self, Flag, Kind};
use super::{PluginError, PodPlace, has_port_named, hosts, port, task};
use crate::job_object;

pub(super) const FLAGS: &[Flag] = &[
    Flag { name: "head", kind: Kind::Text },
    Flag { name: "headContainer", kind: Kind::Text },
    Flag { name: "worker", kind: Kind::Text },
    Flag { name: "workerContainer", kind: Kind::Text },
    Flag { name: "port", kind: Kind::Int },
    Flag { name: "dashboardPort", kind: Kind::Int },
    Flag { name: "clientPort", kind: Kind::Int },
];

/// Arguments of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Task of the head.
    pub head: String,
    /// Its container that runs Ray.
    pub head_container: String,
    /// Task of the workers.
    pub worker: String,
    /// Their container that runs Ray.
    pub worker_container: String,
    /// Port of the global control store.
    pub port: u16,
    /// Port of the dashboard.
    pub dashboard_port: u16,
    pub client_port: u16,
}

impl Arguments {
    pub(super) fn parse(arguments: &[String]) -> Self {
        let values = flags::parse(arguments, FLAGS);
        Self {
            head: values.text_or("head", "head"),
            head_container: values.text_or("headContainer", "head"),
            worker: values.text_or("worker", "worker"),
            worker_container: values.text_or("workerContainer", "worker"),
            port: values.port_or("port", 6379),
            dashboard_port: values.port_or("dashboardPort", 8265),
            client_port: values.port_or("clientPort", 10001),
        }
    }

    fn ports(&self) -> [(&'static str, u16); 3] {
        [("gcs", self.port), ("dashboard", self.dashboard_port), ("client-server", self.client_port)]
    }
}

/// Name of the head's Service.
pub fn service_name(job: &str) -> String {
    format!("{job}-head-svc")
}

/// The Service of the head.
pub fn service(job: &Job, arguments: &Arguments) -> Service {
    let mut selector: BTreeMap<String, String> = job_object::selector(job);
    selector.insert(names::TASK_SPEC.to_owned(), arguments.head.clone());
    let ports = arguments.ports().map(|(name, number)| ServicePort {
        name: Some(name.to_owned()),
        port: number.into(),
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::String(name.to_owned())),
        ..ServicePort::default()
    });
    let spec = ServiceSpec {
        type_: Some("ClusterIP".to_owned()),
        selector: Some(selector),
        ports: Some(ports.into()),
        ..ServiceSpec::default()
    };
    let metadata = job_object::metadata(job, service_name(job_object::name(job)));
    Service { metadata, spec: Some(spec), ..Service::default() }
}

pub(super) fn check(job: &Job, arguments: &Arguments) -> Result<(), PluginError> {
    match task(job, &arguments.head) {
        Some(_) => Ok(()),
        None => Err(PluginError::NoTask { plugin: "ray", task: arguments.head.clone(), argument: "head" }),
    }
}

pub(super) fn doubt(job: &Job, arguments: &Arguments) -> Option<String> {
    let places = [
        ("headContainer", &arguments.head, &arguments.head_container),
        ("workerContainer", &arguments.worker, &arguments.worker_container),
    ];
    let lacks = |task_name: &str, name: &str| {
        let spec = task(job, task_name)?.template.spec.as_ref();
        let mut containers = spec.into_iter().flat_map(|spec| &spec.containers);
        (!containers.any(|container| container.name == name)).then_some(())
    };
    let (argument, task, name) = places.into_iter().find(|(_, task, name)| lacks(task, name).is_some())?;
    Some(format!(
        "job plugin ray finds no container {name:?} in task {task:?} to start Ray in; name one by --{argument}"
    ))
}

pub(super) fn shape_pod(arguments: &Arguments, place: &PodPlace<'_>, pod: &mut PodSpec) {
    let named = |pod: &mut PodSpec, name: &str, change: &dyn Fn(&mut Container)| {
        pod.containers.iter_mut().filter(|container| container.name == name).for_each(change);
    };
    if place.task.name == arguments.head {
        named(pod, &arguments.head_container, &|container| start_head(arguments, container));
    } else if place.task.name == arguments.worker
        && let Some(head) = task(place.job, &arguments.head)
    {
        let address = hosts::of_pod(place.job, head, 0).address();
        let command = format!("ray start --block --address={address}:{}", arguments.port);
        named(pod, &arguments.worker_container, &|container| container.command = Some(shell(&command)));
    }
}

fn start_head(arguments: &Arguments, container: &mut Container) {
    // By name alone: the Service finds them by name.
    for (name, number) in arguments.ports() {
        if !has_port_named(container, name) {
            container.ports.get_or_insert_default().push(port(name, number));
        }
    }
    let Arguments { port, dashboard_port, client_port, .. } = arguments;
    container.command = Some(shell(&format!(
        "ray start --head --block --dashboard-host=0.0.0.0 --port={port} --dashboard-port={dashboard_port} \
         --ray-client-server-port={client_port}"
    )));
}

fn shell(command: &str) -> Vec<String> {
    ["sh", "-c", command].map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::tests::{job, ports, shaped};

    const JOB: &str = r#"{"tasks": [
        {"name": "head", "replicas": 1, "template": {"spec": {"containers": [
            {"name": "head", "command": ["mine"], "args": ["kept"], "ports": [{"name": "gcs", "containerPort": 1}]}, {"name": "log"}]}}},
        {"name": "worker", "replicas": 2, "template": {"spec": {"containers": [{"name": "worker"}, {"name": "log"}]}}},
        {"name": "other", "replicas": 1, "template": {"spec": {"containers": [{"name": "head"}, {"name": "worker"}]}}}]}"#;

    type Expected<'a> = (&'a str, &'a str, Vec<(&'a str, i32)>);

    #[test]
    fn head_and_workers_start_ray() {
        let head = "ray start --head --block --dashboard-host=0.0.0.0 --port=6379 --dashboard-port=8265 --ray-client-server-port=10001";
        let own =
            "ray start --head --block --dashboard-host=0.0.0.0 --port=1 --dashboard-port=2 --ray-client-server-port=3";
        let given: &[&str] = &[
            "--head=other",
            "--headContainer",
            "worker",
            "--worker=head",
            "--workerContainer=log",
            "--port=1",
            "--dashboardPort",
            "2",
            "--clientPort=3",
        ];
        let cases: [(&[&str], &str, Option<Expected<'_>>); 5] = [
            (&[], "head", Some(("head", head, vec![("gcs", 1), ("dashboard", 8265), ("client-server", 10001)]))),
            (&[], "worker", Some(("worker", "ray start --block --address=j-head-0.j:6379", vec![]))),
            (&[], "other", None),
            (given, "other", Some(("worker", own, vec![("gcs", 1), ("dashboard", 2), ("client-server", 3)]))),
            (given, "head", Some(("log", "ray start --block --address=j-other-0.j:1", vec![]))),
        ];
        for (arguments, task, expected) in cases {
            let before = job(JOB).spec.tasks.into_iter().find(|spec| spec.name == task).unwrap();
            let before = before.template.spec.unwrap().containers;
            let (_, pod) = shaped(&job(JOB), "ray", arguments, task, 0);
            for (container, before) in pod.containers.iter().zip(&before) {
                match expected.as_ref().filter(|(name, ..)| *name == container.name) {
                    None => assert_eq!(container, before, "{arguments:?} {task}"),
                    Some((_, command, open)) => {
                        let words = ["sh", "-c", command].map(str::to_owned);
                        assert_eq!(container.command.as_deref(), Some(words.as_slice()), "{arguments:?} {task}");
                        assert_eq!(container.args, before.args);
                        assert_eq!(ports(container), *open, "{arguments:?} {task}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_head_has_a_service() {
        let service = service(&job(JOB), &Arguments::parse(&["--head=other".to_owned(), "--port=5".to_owned()]));
        assert_eq!(service.metadata.name.as_deref(), Some("j-head-svc"));
        let spec = service.spec.unwrap();
        let ports = spec.ports.unwrap();
        let seen: Vec<_> =
            ports.iter().map(|port| (port.name.as_deref(), port.port, port.target_port.clone())).collect();
        let expected = [("gcs", 5), ("dashboard", 8265), ("client-server", 10001)];
        assert_eq!(seen, expected.map(|(name, port)| (Some(name), port, Some(IntOrString::String(name.to_owned())))));
        let labels =
            [("volcano.sh/job-name", "j"), ("volcano.sh/job-namespace", "ns"), ("volcano.sh/task-spec", "other")];
        assert_eq!(spec.selector, Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()));
        assert_eq!(spec.cluster_ip, None);
    }

    #[test]
    fn a_missing_head_is_an_error_and_a_missing_container_is_told() {
        let with = |arguments: &str| {
            let mut job = job(JOB);
            job.spec.plugins = serde_json::from_str(&format!(r#"{{"ray": [{arguments}]}}"#)).unwrap();
            job
        };
        let error = crate::plugins::of_job(&with(r#""--head=nobody""#)).unwrap_err();
        assert_eq!(error.to_string(), r#"job plugin ray needs a task "nobody"; add it, or name another with --head"#);
        for (arguments, doubt) in [
            ("", None),
            (r#""--worker=nobody""#, None),
            (r#""--headContainer=x""#, Some(r#"no container "x" in task "head""#)),
            (r#""--workerContainer=y""#, Some(r#"no container "y" in task "worker""#)),
        ] {
            let job = with(arguments);
            let doubts = crate::plugins::of_job(&job).unwrap()[0].doubts(&job);
            assert_eq!(doubts.len(), usize::from(doubt.is_some()), "{arguments}");
            assert!(doubt.is_none_or(|doubt| doubts[0].contains(doubt)), "{doubts:?}");
        }
    }
}
