//! Volcano's own examples are accepted as Volcano accepts them, run in the images that they name, and end as their policies say.
//!
//! Nothing of the manifests is changed. What they need from outside is made first, and the images come from a registry
//! ([`crate::example_images`]). Of those with pods these are not run: `dra_quota__5` and `resource_strategy_fit_plugin__2`, which need
//! a real GPU; `argo`, which needs the operator of Argo; `cronjob`, which only starts every five minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pumice_testkit::{Clients, Platform, Setup, eventually, eventually_within, shared_fixture};
use serde_json::Value;

use crate::example_images::{World, serve_pages};

/// What becomes of the pods of a file.
enum End {
    /// `kubectl create` says no, with this.
    Refused(&'static str),
    /// Every pod of each Job runs and goes on running.
    Runs(u64),
    /// The same, and each pod serves its page to the first of them.
    Serves(u64),
    /// The same, and the pod whose name ends so says all that.
    Says(u64, &'static str, &'static [&'static str]),
    /// So many pods, which are no Job's, do so.
    Pods(usize),
    /// A flow of Jobs comes to its end.
    Flows,
    /// Every pod succeeds by itself.
    Succeeds(u64),
    /// The task of this name is done, so the job's policy completes it and the rest is ended.
    Completes(&'static str),
    /// `kubectl create` warns of the first, and the job waits, for the second reason.
    Waits { said: &'static str, why: &'static str },
}
use End::{Completes, Flows, Pods, Refused, Runs, Says, Serves, Succeeds, Waits};

struct Example {
    file: &'static str,
    end: End,
    /// How `kubectl create` is told to check fields.
    validate: &'static str,
    /// What is made first, beside the file.
    first: First,
}

enum First {
    Nothing,
    Objects(&'static str),
    File(&'static str),
    /// The node is said to have this many of `nvidia.com/gpu`, once the job was seen to wait for them.
    Gpus,
}

const fn example(file: &'static str, end: End) -> Example {
    Example { file, end, validate: "strict", first: First::Nothing }
}

const fn after(first: First, file: &'static str, end: End) -> Example {
    Example { file, end, validate: "strict", first }
}

/// Every Job of the folder, and what else of it has pods. The ends follow from the manifests: a job without policies is over when all its pods are, one with
/// TaskCompleted -> CompleteJob when every pod of that task has succeeded.
const EXAMPLES: &[Example] = &[
    // Two containers that sleep for 1000 s.
    example("docs__user-guide__how_to_configure_priorityclass_for_job__1.yaml", Runs(2)),
    after(First::Objects(HIGH_PRIORITY), "docs__user-guide__how_to_use_cdp_plugin__2.yaml", Serves(8)),
    example("docs__user-guide__how_to_use_job_policy__1.yaml", Completes("worker")),
    example("docs__user-guide__how_to_use_mpi_plugin__1.yaml", Completes("mpimaster")),
    after(
        First::Objects(HYPERNODE),
        "docs__user-guide__how_to_use_network_topology_aware_scheduling__2.yaml",
        Serves(8),
    ),
    example("docs__user-guide__how_to_use_network_topology_aware_scheduling__4.yaml", Serves(2)),
    example("docs__user-guide__how_to_use_ray_plugin__1.yaml", RAY),
    example("docs__user-guide__how_to_use_resource_strategy_fit_plugin__4.yaml", Succeeds(2)),
    after(
        First::Gpus,
        "docs__user-guide__how_to_use_ssh_plugin__1.yaml",
        Says(3, "mpimaster-0", &["mpiworker-0, rank 0 out of 2", "mpiworker-1, rank 1 out of 2", "ended with [0, 0]"]),
    ),
    example("docs__user-guide__how_to_use_svc_plugin__1.yaml", Completes("worker")),
    // Nobody makes claims of devices here, so the one that the pod names never comes.
    after(
        First::Objects(GPU_TEAM),
        "docs__user-guide__how_to_use_dra_quota__5.yaml",
        Waits { said: "nothing here gives devices to claims", why: "resource claim gpu is not made yet" },
    ),
    example("example__MindSpore-example__mindspore_cpu__mindspore-cpu.yaml", Succeeds(8)),
    after(First::File("example__hierarchical-jobs__queues.yaml"), "example__hierarchical-jobs__jobs.yaml", Serves(6)),
    example("example__integrations__mpi__mpi-example.yaml", Completes("mpimaster")),
    example("example__integrations__ray__ray-example.yaml", RAY),
    example("example__integrations__tensorflow__benchmark__tf-example.yaml", Completes("worker")),
    example("example__invalid_jobs__duplicatedTaskName-webhook-deny.yaml", Refused("duplicated task name task-1")),
    example(
        "example__invalid_jobs__minAvailable-webhook-deny.yaml",
        Refused("job 'minAvailable' should not be greater than total replicas in tasks"),
    ),
    example("example__job.yaml", Serves(6)),
    example("example__kubecon-2019-china__horovod-sample__lm-horovod-tf-mnist-v0.5.yaml", Completes("master")),
    example("example__kubecon-2019-china__mpi-sample__mpi-example.yaml", Completes("mpimaster")),
    example(
        "example__kubecon-2019-china__task-priority__elastic-job.yaml",
        Refused("unknown field \"spec.tasks[0].template.spec.priorityClass\""),
    ),
    Example {
        file: "example__kubecon-2019-china__task-priority__elastic-job.yaml",
        end: Serves(10),
        validate: "warn",
        first: First::Nothing,
    },
    // A chain of three tasks: each waits for the one before it.
    example("example__task-start-dependency__job.yaml", Serves(11)),
    after(
        First::File("docs__user-guide__how_to_use_capacity_plugin__3.yaml"),
        "docs__user-guide__how_to_use_capacity_plugin__5.yaml",
        Pods(8),
    ),
    example("docs__user-guide__how_to_use_scheduling_gates_queue_admission__1.yaml", Pods(1)),
    example("example__kubecon-2019-china__drf__nginx-1.yaml", Pods(8)),
    example("example__kubecon-2019-china__drf__nginx-2.yaml", Pods(8)),
    example("example__kubecon-2019-china__task-priority__nginx.yaml", Pods(4)),
    after(First::File("example__jobflow__JobTemplate.yaml"), "example__jobflow__JobFlow.yaml", Flows),
];

/// A head and two workers of Ray: the head takes both in.
const RAY: End = Says(3, "head-0", &["node ray-cluster-job-worker-0 joined", "node ray-cluster-job-worker-1 joined"]);

const HIGH_PRIORITY: &str = r#"
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high-priority}
value: 1000
"#;
const GPU_TEAM: &str = r#"
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: gpu-team}
spec: {weight: 1}
"#;
/// Every node in one domain of the lowest tier.
const HYPERNODE: &str = r#"
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {name: rack}
spec:
  tier: 1
  members: [{type: Node, selector: {regexMatch: {pattern: ".*"}}}]
"#;

/// How many examples are under way at once.
const LANES: usize = 4;

fn folder() -> Option<PathBuf> {
    shared_fixture("volcano/examples")
}

#[test]
fn every_job_of_volcanos_examples_is_listed() {
    let Some(folder) = folder() else { return };
    let jobs = EXAMPLES.iter().filter(|example| has_job(&folder.join(example.file)));
    let listed: BTreeSet<String> = jobs.map(|example| example.file.to_owned()).collect();
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let there: BTreeSet<String> = entries
        .filter(|path| path.extension().is_some_and(|end| end == "yaml") && has_job(path))
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(listed, there);
}

/// Whether one of its documents is a Job of Volcano.
fn has_job(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap();
    text.split("\n---").any(|document| {
        let says = |line: &str| document.lines().any(|one| one.trim_end() == line);
        says("kind: Job") && says("apiVersion: batch.volcano.sh/v1alpha1")
    })
}

#[test]
fn volcanos_examples_run_in_their_images_and_end_as_their_policies_say() {
    let Some(folder) = folder() else { return };
    let world = World::start(&["--cpu", "256", "--memory", "512Gi", "--pods", "500"]);
    let platform = &world.platform;
    // Examples that name their namespace share it, and names in it: one after the other.
    let mut namespaces: BTreeMap<String, Vec<&Example>> = BTreeMap::new();
    for (index, example) in EXAMPLES.iter().enumerate() {
        let fixed = std::fs::read_to_string(folder.join(example.file)).unwrap().contains("\n  namespace: default\n");
        let namespace = if fixed { "default".to_owned() } else { format!("example-{index}") };
        namespaces.entry(namespace).or_default().push(example);
    }
    let queue = std::sync::Mutex::new(namespaces.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().next();
                    let Some((namespace, examples)) = next else { break };
                    let own = (namespace != "default")
                        .then(|| platform.in_namespace(&platform.data_dir().join("kubeconfig"), &namespace));
                    for example in examples {
                        check(own.as_ref().unwrap_or(platform), &folder, example);
                    }
                }
            });
        }
    });
}

fn check(clients: &Clients, folder: &Path, example: &Example) {
    let file = folder.join(example.file);
    match example.first {
        First::Objects(manifest) => drop(clients.kubectl_with_input(["create", "-f", "-"], manifest).ok()),
        First::File(name) => drop(clients.kubectl(["create", "-f", path(&folder.join(name))]).ok()),
        First::Nothing | First::Gpus => {}
    }
    let validate = format!("--validate={}", example.validate);
    let created = clients.kubectl(["create", &validate, "-f", path(&file)]);
    if let Refused(why) = example.end {
        assert!(created.code != 0 && created.stderr.contains(why), "{}: {created:?}", example.file);
        assert!(clients.list("jobs.batch.volcano.sh").is_empty(), "{}", example.file);
        return;
    }
    match example.end {
        Waits { said, .. } => {
            assert!(created.code == 0 && created.stderr.contains(said), "{}: {created:?}", example.file)
        }
        _ => assert_eq!(created.code, 0, "{}: {created:?}", example.file),
    }
    if matches!(example.first, First::Gpus) {
        waits(clients, example.file, "insufficient nvidia.com/gpu");
        give_gpus(clients);
    }
    let jobs = clients.list("jobs.batch.volcano.sh");
    assert!(!jobs.is_empty() || matches!(example.end, Pods(_) | Flows), "{}", example.file);
    match example.end {
        Waits { why, .. } => waits(clients, example.file, why),
        Pods(pods) => serve_pages(clients, "", pods),
        Flows => flows(clients, example.file),
        _ => jobs.iter().for_each(|job| ends(clients, example, job["metadata"]["name"].as_str().unwrap())),
    }
    clients.kubectl(["delete", "--ignore-not-found", "-f", path(&file)]).ok();
}

fn ends(clients: &Clients, example: &Example, job: &str) {
    let file = example.file;
    match example.end {
        Runs(pods) => runs(clients, file, job, pods),
        Serves(pods) => {
            runs(clients, file, job, pods);
            serve_pages(clients, &format!("volcano.sh/job-name={job}"), usize::try_from(pods).unwrap());
        }
        Says(pods, pod, words) => {
            runs(clients, file, job, pods);
            eventually(&format!("{file}: {pod} says {words:?}"), || {
                let said = clients.kubectl(["logs", &format!("{job}-{pod}")]).stdout;
                if words.iter().all(|word| said.contains(word)) { Ok(()) } else { Err(said) }
            });
        }
        Succeeds(pods) => {
            let status = &clients.wait_for_phase(job, "Completed")["status"];
            assert_eq!((&status["succeeded"], &status["failed"]), (&pods.into(), &Value::Null), "{file}: {status}");
        }
        Completes(task) => {
            let job = clients.wait_for_phase(job, "Completed");
            let replicas = &job["spec"]["tasks"].as_array().unwrap().iter().find(|one| one["name"] == task).unwrap();
            let succeeded = &job["status"]["taskStatusCount"][task]["phase"]["Succeeded"];
            assert_eq!(succeeded, &replicas["replicas"], "{file}: {}", job["status"]);
            assert_eq!(job["status"]["retryCount"], Value::Null, "{file}: {}", job["status"]);
        }
        Refused(_) | Waits { .. } | Pods(_) | Flows => unreachable!("seen to before"),
    }
}

fn runs(clients: &Clients, file: &str, job: &str, pods: u64) {
    eventually(&format!("{file}: {pods} pods of {job} run"), || {
        let status = clients.get("jobs.batch.volcano.sh", job).ok_or("no such job")?["status"].take();
        let running = status["state"]["phase"] == "Running" && status["running"] == pods;
        if running { Ok(()) } else { Err(status.to_string()) }
    });
}

/// Five Jobs in four steps, each of which sleeps for ten seconds.
fn flows(clients: &Clients, file: &str) {
    eventually_within(Duration::from_secs(180), &format!("{file}: the flow succeeds"), || {
        let status = clients.get("jobflows.flow.volcano.sh", "test").ok_or("no such flow")?["status"].take();
        if status["state"]["phase"] == "Succeed" { Ok(()) } else { Err(status.to_string()) }
    });
}

/// Waits until the job's group says why it isn't placed.
fn waits(clients: &Clients, file: &str, why: &str) {
    eventually(&format!("{file}: it waits: {why}"), || {
        let groups = clients.list("podgroups");
        let told = |group: &Value| {
            let mut conditions = group["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|one| one["type"] == "Unschedulable" && one["message"].to_string().contains(why))
        };
        if groups.iter().any(told) { Ok(()) } else { Err(format!("{groups:?}")) }
    });
}

/// As an administrator advertises an extended resource: in the node's status.
fn give_gpus(clients: &Clients) {
    let node = clients.list("nodes")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let gpus = r#"{"nvidia.com/gpu": "2"}"#;
    let patch = format!(r#"{{"status": {{"capacity": {gpus}, "allocatable": {gpus}}}}}"#);
    clients.kubectl(["patch", "node", &node, "--subresource=status", "--type=merge", "-p", &patch]).ok();
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What shows that the programs in the images really meet: without what a plugin does for it, none of these jobs gets to its end.
#[test]
fn without_the_work_of_a_plugin_no_example_completes() {
    let Some(folder) = folder() else { return };
    let world = World::start(&["--cpu", "16", "--memory", "64Gi"]);
    let platform = &world.platform;
    for (file, plugin, pod) in [
        ("example__integrations__tensorflow__benchmark__tf-example.yaml", "svc", "tensorflow-benchmark-worker-1"),
        ("example__integrations__mpi__mpi-example.yaml", "ssh", "lm-mpi-job-mpimaster-0"),
        ("example__MindSpore-example__mindspore_cpu__mindspore-cpu.yaml", "env", "mindspore-cpu-pod-1"),
    ] {
        let whole = std::fs::read_to_string(folder.join(file)).unwrap();
        let manifest = whole.replace(&format!("    {plugin}: []\n"), "");
        assert_ne!(manifest, whole, "{file}");
        platform.kubectl_with_input(["create", "-f", "-"], &manifest).ok();
        eventually(&format!("{file}: {pod} fails without {plugin}"), || {
            let status = platform.get("pod", pod).ok_or("no such pod")?["status"].take();
            let container = &status["containerStatuses"][0];
            let ends =
                [&container["state"], &container["lastState"]].map(|state| state["terminated"]["exitCode"].as_u64());
            if ends.iter().flatten().any(|code| *code != 0) { Ok(()) } else { Err(status.to_string()) }
        });
    }
    for job in platform.list("jobs.batch.volcano.sh") {
        assert_eq!(job["status"]["succeeded"], Value::Null, "{job}");
        assert_ne!(job["status"]["state"]["phase"], "Completed", "{job}");
    }
}

#[test]
fn a_job_of_unmapped_images_waits_and_names_the_map() {
    let Some(folder) = folder() else { return };
    let setup = Setup { flags: vec!["--cpu".into(), "16".into()] };
    let platform = Platform::start_with_image_map(setup, "busybox: {command: [\"true\"]}");
    platform.kubectl(["create", "-f", path(&folder.join("example__job.yaml"))]).ok();
    let map = platform.scratch().join("images.yaml");
    let wanted = format!("add \"nginx\" to the image map {}", map.display());
    eventually("each pod waits and names the map", || {
        let pods = platform.list("pods");
        let named = pods.iter().all(|pod| {
            let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
            let told = waiting["message"].as_str().is_some_and(|text| text.contains(&wanted));
            pod["status"]["phase"] == "Pending" && waiting["reason"] == "ErrImageNeverPull" && told
        });
        if pods.len() == 6 && named { Ok(()) } else { Err(format!("{pods:?}")) }
    });
}
