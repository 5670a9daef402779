//! The pytorch plugin: `MASTER_ADDR`, `MASTER_PORT`, `WORLD_SIZE` and `RANK`, by which PyTorch's processes meet.
//!
//! Invariant: ranks are distinct and below the world's size: masters first, then workers, each by index. A job without the
//! master task gets nothing.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use pumice_api::batch::{Job, TaskSpec};

use super::flags::{self, Flag, Kind};
use super::{PodPlace, hosts, open_port, task, variable};

/// The environment variable of a process's place in the world.
pub(super) const RANK: &str = "RANK";
const PORT_NAME: &str = "pytorchjob-port";
const DEFAULT_PORT: u16 = 23456;
const WAIT: &str = "wait-for-master";
const DEFAULT_WAIT_SECONDS: i64 = 300;
const DEFAULT_WAIT_IMAGE: &str = "busybox:1.36.1";

pub(super) const FLAGS: &[Flag] = &[
    Flag { name: "master", kind: Kind::Text },
    Flag { name: "worker", kind: Kind::Text },
    Flag { name: "port", kind: Kind::Int },
    Flag { name: "wait-master-enabled", kind: Kind::Bool },
    Flag { name: "wait-master-timeout", kind: Kind::Int },
    Flag { name: "wait-master-image", kind: Kind::Text },
];

/// Arguments of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Task of the masters; its first pod is the one all meet at.
    pub master: String,
    /// Task of the workers.
    pub worker: String,
    /// Port that the first master listens on.
    pub port: u16,
    /// How workers wait for the first master before they start; `None` = they don't.
    pub wait: Option<Wait>,
}

/// How workers wait for the first master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Seconds after which they give up.
    pub timeout_s: i64,
    /// Image with `sh` and `nc`.
    pub image: String,
}

impl Arguments {
    pub(super) fn parse(arguments: &[String]) -> Self {
        let values = flags::parse(arguments, FLAGS);
        let timeout_s = values.text("wait-master-timeout").and_then(|text| text.parse().ok());
        let wait = || Wait {
            timeout_s: timeout_s.filter(|seconds| *seconds > 0).unwrap_or(DEFAULT_WAIT_SECONDS),
            image: values
                .text("wait-master-image")
                .filter(|text| !text.is_empty())
                .unwrap_or(DEFAULT_WAIT_IMAGE)
                .into(),
        };
        Self {
            master: values.text_or("master", "master"),
            worker: values.text_or("worker", "worker"),
            port: values.port_or("port", DEFAULT_PORT),
            wait: values.bool_or("wait-master-enabled", false).then(wait),
        }
    }

    fn rank(&self, masters: &TaskSpec, place: &PodPlace<'_>) -> Option<i32> {
        let task = &place.task.name;
        if *task == self.master {
            Some(place.index)
        } else if *task == self.worker {
            Some(masters.replicas.max(0).saturating_add(place.index))
        } else {
            None
        }
    }
}

pub(super) fn doubt(job: &Job, arguments: &Arguments) -> Option<String> {
    let name = &arguments.master;
    let text =
        format!("job plugin pytorch finds no task {name:?} to be the master, and does nothing; name one by --master");
    task(job, name).is_none().then_some(text)
}

pub(super) fn shape_pod(arguments: &Arguments, place: &PodPlace<'_>, pod: &mut PodSpec) {
    let Some(masters) = task(place.job, &arguments.master) else { return };
    let workers = task(place.job, &arguments.worker).filter(|task| task.name != masters.name);
    let address = hosts::of_pod(place.job, masters, 0).address();
    let world = workers.map_or(0, |task| task.replicas.max(0)).saturating_add(masters.replicas.max(0));
    let mut variables = vec![
        variable("MASTER_ADDR", address.as_str()),
        variable("MASTER_PORT", arguments.port.to_string()),
        variable("WORLD_SIZE", world.to_string()),
    ];
    variables.extend(arguments.rank(masters, place).map(|rank| variable(RANK, rank.to_string())));
    for container in &mut pod.containers {
        open_port(container, PORT_NAME, arguments.port);
        container.env.get_or_insert_default().extend_from_slice(&variables);
    }
    let waits = workers.is_some_and(|task| task.name == place.task.name);
    if let Some(wait) = &arguments.wait
        && waits
    {
        let init = pod.init_containers.get_or_insert_default();
        if !init.iter().any(|container| container.name == WAIT) {
            init.push(wait_for(wait, &address, arguments.port));
        }
    }
}

fn wait_for(wait: &Wait, address: &str, port: u16) -> Container {
    let timeout_s = wait.timeout_s;
    let script = format!(
        "end=$(( $(date +%s) + {timeout_s} ))\n\
         until nc -z -w 2 {address} {port}; do\n  \
           if [ \"$(date +%s)\" -ge \"$end\" ]; then\n    \
             echo \"{address}:{port} did not answer within {timeout_s} s\" >&2\n    \
             exit 1\n  \
           fi\n  \
           sleep 2\n\
         done\n"
    );
    Container {
        name: WAIT.to_owned(),
        image: Some(wait.image.clone()),
        command: Some(["sh", "-c", &script].map(str::to_owned).into()),
        ..Container::default()
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::tests::{env, job, ports, shaped};

    const JOB: &str = r#"{"tasks": [{"name": "master", "replicas": 2}, {"name": "worker", "replicas": 3}, {"name": "other", "replicas": 1}]}"#;

    #[test]
    fn masters_come_first_in_rank_then_workers() {
        let cases =
            [("master", 0, Some("0")), ("master", 1, Some("1")), ("worker", 0, Some("2")), ("worker", 2, Some("4"))];
        for (task, index, rank) in cases.into_iter().chain([("other", 0, None)]) {
            let (_, pod) = shaped(&job(JOB), "pytorch", &[], task, index);
            let mut expected = vec![("MASTER_ADDR", "j-master-0.j"), ("MASTER_PORT", "23456"), ("WORLD_SIZE", "5")];
            expected.extend(rank.map(|rank| ("RANK", rank)));
            for container in &pod.containers {
                assert_eq!(env(container), expected, "{task} {index}");
                assert_eq!(ports(container), [("pytorchjob-port", 23456)]);
            }
            let init = &pod.init_containers.unwrap();
            assert_eq!((init.len(), env(&init[0]), ports(&init[0])), (1, vec![], vec![]));
        }
    }

    #[test]
    fn arguments_name_tasks_and_port() {
        let (_, pod) = shaped(&job(JOB), "pytorch", &["--master=other", "-worker", "master", "--port=7"], "master", 1);
        let expected = [("MASTER_ADDR", "j-other-0.j"), ("MASTER_PORT", "7"), ("WORLD_SIZE", "3"), ("RANK", "2")];
        assert_eq!(env(&pod.containers[0]), expected);
    }

    #[test]
    fn workers_wait_for_the_master_where_asked() {
        type Case<'a> = (&'a [&'a str], &'a str, Option<(&'a str, &'a str)>);
        let cases: &[Case<'_>] = &[
            (&["--wait-master-enabled"], "worker", Some(("busybox:1.36.1", "+ 300 "))),
            (&["--wait-master-enabled=true", "--wait-master-timeout=0"], "worker", Some(("busybox:1.36.1", "+ 300 "))),
            (
                &["--wait-master-enabled", "--wait-master-timeout=9", "--wait-master-image=i"],
                "worker",
                Some(("i", "+ 9 ")),
            ),
            (&["--wait-master-enabled"], "master", None),
            (&["--wait-master-enabled"], "other", None),
            (&["--wait-master-enabled=false"], "worker", None),
            (&["--wait-master-timeout=9"], "worker", None),
        ];
        for (arguments, task, expected) in cases {
            let (_, pod) = shaped(&job(JOB), "pytorch", arguments, task, 0);
            let init = pod.init_containers.unwrap();
            let waits = init.iter().find(|container| container.name == "wait-for-master");
            assert_eq!(waits.is_some(), expected.is_some(), "{arguments:?} {task}");
            if let (Some(container), Some((image, timeout))) = (waits, expected) {
                let command = container.command.as_ref().unwrap();
                assert_eq!((container.image.as_deref(), command.len()), (Some(*image), 3));
                assert!(
                    command[2].contains(timeout) && command[2].contains("nc -z -w 2 j-master-0.j 23456"),
                    "{command:?}"
                );
            }
        }
    }

    #[test]
    fn a_wait_of_the_users_own_stays() {
        let job = job(
            r#"{"tasks": [{"name": "master", "replicas": 1}, {"name": "worker", "replicas": 1, "template": {"spec":
            {"containers": [{"name": "c", "ports": [{"containerPort": 23456}]}], "initContainers": [{"name": "wait-for-master"}]}}}]}"#,
        );
        let (_, pod) = shaped(&job, "pytorch", &["--wait-master-enabled"], "worker", 0);
        let init = pod.init_containers.unwrap();
        assert_eq!((init.len(), init[0].command.as_ref()), (1, None));
        assert_eq!(ports(&pod.containers[0]), [("", 23456)], "the port was open already");
    }

    #[test]
    fn without_a_master_nothing_happens_and_it_is_told() {
        let job = job(r#"{"tasks": [{"name": "worker", "replicas": 2}], "plugins": {"pytorch": []}}"#);
        let (_, pod) = shaped(&job, "pytorch", &["--wait-master-enabled"], "worker", 0);
        assert_eq!(env(&pod.containers[0]), []);
        let plugins = crate::plugins::of_job(&job).unwrap();
        assert_eq!(
            plugins[0].doubts(&job),
            [r#"job plugin pytorch finds no task "master" to be the master, and does nothing; name one by --master"#]
        );
    }
}
