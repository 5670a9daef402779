//! The Jobs among Volcano's own examples are accepted as Volcano accepts them, run, and end as their policies say.
//!
//! Nothing of the manifests is changed. What they need from outside is made first, and the image map gives each image a command
//! that does what counts for the job's end: serve until it is ended, or find the peers and go.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use pumice_testkit::{Clients, Platform, Setup, eventually, shared_fixture};
use serde_json::Value;

/// What becomes of every Job of a file.
enum End {
    /// `kubectl create` says no, with this.
    Refused(&'static str),
    /// Every pod runs and goes on running.
    Runs(u64),
    /// Every pod succeeds by itself.
    Succeeds(u64),
    /// The task of this name is done, so the job's policy completes it and the rest is ended.
    Completes(&'static str),
    /// `kubectl create` warns of the first, and the job waits, for the second reason.
    Waits { said: &'static str, why: &'static str },
}
use End::{Completes, Refused, Runs, Succeeds, Waits};

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

/// Every Job of the folder. The ends follow from the manifests: a job without policies is over when all its pods are, one with
/// TaskCompleted -> CompleteJob when every pod of that task has succeeded.
const EXAMPLES: &[Example] = &[
    // Two containers that sleep for 1000 s.
    example("docs__user-guide__how_to_configure_priorityclass_for_job__1.yaml", Runs(2)),
    after(First::Objects(HIGH_PRIORITY), "docs__user-guide__how_to_use_cdp_plugin__2.yaml", Runs(8)),
    example("docs__user-guide__how_to_use_job_policy__1.yaml", Completes("worker")),
    example("docs__user-guide__how_to_use_mpi_plugin__1.yaml", Completes("mpimaster")),
    after(First::Objects(HYPERNODE), "docs__user-guide__how_to_use_network_topology_aware_scheduling__2.yaml", Runs(8)),
    example("docs__user-guide__how_to_use_network_topology_aware_scheduling__4.yaml", Runs(2)),
    example("docs__user-guide__how_to_use_ray_plugin__1.yaml", Runs(3)),
    example("docs__user-guide__how_to_use_resource_strategy_fit_plugin__4.yaml", Succeeds(2)),
    after(First::Gpus, "docs__user-guide__how_to_use_ssh_plugin__1.yaml", Runs(3)),
    example("docs__user-guide__how_to_use_svc_plugin__1.yaml", Completes("worker")),
    // Nobody makes claims of devices here, so the one that the pod names never comes.
    after(
        First::Objects(GPU_TEAM),
        "docs__user-guide__how_to_use_dra_quota__5.yaml",
        Waits { said: "nothing here gives devices to claims", why: "resource claim gpu is not made yet" },
    ),
    example("example__MindSpore-example__mindspore_cpu__mindspore-cpu.yaml", Succeeds(8)),
    after(First::File("example__hierarchical-jobs__queues.yaml"), "example__hierarchical-jobs__jobs.yaml", Runs(6)),
    example("example__integrations__mpi__mpi-example.yaml", Completes("mpimaster")),
    example("example__integrations__ray__ray-example.yaml", Runs(3)),
    example("example__integrations__tensorflow__benchmark__tf-example.yaml", Completes("worker")),
    example("example__invalid_jobs__duplicatedTaskName-webhook-deny.yaml", Refused("duplicated task name task-1")),
    example(
        "example__invalid_jobs__minAvailable-webhook-deny.yaml",
        Refused("job 'minAvailable' should not be greater than total replicas in tasks"),
    ),
    example("example__job.yaml", Runs(6)),
    example("example__kubecon-2019-china__horovod-sample__lm-horovod-tf-mnist-v0.5.yaml", Completes("master")),
    example("example__kubecon-2019-china__mpi-sample__mpi-example.yaml", Completes("mpimaster")),
    example(
        "example__kubecon-2019-china__task-priority__elastic-job.yaml",
        Refused("unknown field \"spec.tasks[0].template.spec.priorityClass\""),
    ),
    Example {
        file: "example__kubecon-2019-china__task-priority__elastic-job.yaml",
        end: Runs(10),
        validate: "warn",
        first: First::Nothing,
    },
    // A chain of three tasks: each waits for the one before it.
    example("example__task-start-dependency__job.yaml", Runs(11)),
];

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

/// What each image of the examples does. A server serves until it is ended; who works finds the servers and itself by name and goes.
/// It doesn't look for those who work beside it: one that has gone has no name any more.
const IMAGES: &str = r#"
alpine: {replaceCommand: true, command: [sleep, "1000"]}
nginx: {command: [sleep, "1000"]}
"rayproject/ray:*": {replaceCommand: true, command: [sleep, "1000"]}
"bitnami/ray:*": {replaceCommand: true, command: [sleep, "1000"]}
my-worker: {command: ["true"]}
nvidia/cuda: {replaceCommand: true, command: ["true"]}
lyd911/mindspore-cpu-example: {replaceCommand: true, command: [test, -f, /etc/volcano/pod.host]}
lyd911/mindspore-gpu-example: {replaceCommand: true, command: [sleep, "1000"]}
volcanosh/dist-mnist-tf-example: &tensorflow
  replaceCommand: true
  command:
    - sh
    - -ec
    - |
      case $(hostname) in *-ps-*) exec sleep 1000;; esac
      test "$VK_TASK_INDEX" -lt 2
      for peer in $(cat /etc/volcano/ps.host) $(sed -n $((VK_TASK_INDEX + 1))p /etc/volcano/worker.host); do
        until getent hosts $peer; do sleep 0.1; done
      done
volcanosh/example-tf: *tensorflow
volcanosh/example-mpi:
  replaceCommand: true
  command:
    - sh
    - -ec
    - |
      case $(hostname) in *-mpiworker-*) exec sleep 1000;; esac
      test -f /root/.ssh/id_rsa
      for peer in $(cat /etc/volcano/mpiworker.host); do until getent hosts $peer; do sleep 0.1; done; done
volcanosh/horovod-tf-mnist:
  replaceCommand: true
  command:
    - sh
    - -ec
    - |
      case $(hostname) in *-worker-*) exec sleep 1000;; esac
      test -f /root/.ssh/id_rsa
      for peer in $(cat /etc/volcano/worker.host); do until getent hosts $peer; do sleep 0.1; done; done
"#;

/// How many examples are under way at once.
const LANES: usize = 4;

fn folder() -> Option<PathBuf> {
    shared_fixture("volcano/examples")
}

#[test]
fn every_job_of_volcanos_examples_is_listed() {
    let Some(folder) = folder() else { return };
    let listed: BTreeSet<String> = EXAMPLES.iter().map(|example| example.file.to_owned()).collect();
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
fn every_job_of_volcanos_examples_ends_as_its_policies_say() {
    let Some(folder) = folder() else { return };
    let flags = ["--cpu", "256", "--memory", "512Gi", "--pods", "500"].map(String::from).to_vec();
    let platform = Platform::start_with_image_map(Setup { flags }, IMAGES);
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
                        check(own.as_ref().unwrap_or(&platform), &folder, example);
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
    assert!(!jobs.is_empty(), "{}", example.file);
    match example.end {
        Waits { why, .. } => waits(clients, example.file, why),
        _ => jobs.iter().for_each(|job| ends(clients, example, job["metadata"]["name"].as_str().unwrap())),
    }
    clients.kubectl(["delete", "jobs.batch.volcano.sh", "--all"]).ok();
}

fn ends(clients: &Clients, example: &Example, job: &str) {
    let file = example.file;
    match example.end {
        Runs(pods) => eventually(&format!("{file}: {pods} pods of {job} run"), || {
            let status = clients.get("jobs.batch.volcano.sh", job).ok_or("no such job")?["status"].take();
            let running = status["state"]["phase"] == "Running" && status["running"] == pods;
            if running { Ok(()) } else { Err(status.to_string()) }
        }),
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
        Refused(_) | Waits { .. } => unreachable!("seen to before"),
    }
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
