//! Operators of others themselves, built from source, each with the definitions and the role that its source brings, on an API
//! server of its own: what they do is a column of `docs/clients.md`.

use std::net::{TcpListener, TcpStream};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;

use pumice_testkit::{Clients, Platform, Process, RealKube, eventually};
use serde_json::{Value, json};

use crate::compatibility::{Column, Verdict};
use crate::operators::Server;

/// An API server that an operator can be a user of.
pub trait Cluster: Deref<Target = Clients> {
    /// The kubeconfig of a user who has no rights but those that are given to it.
    fn user(&self, name: &str) -> PathBuf;
    /// Files in a new directory: a certificate for this machine, its key, and their authority.
    fn certificate(&self, directory: &Path) -> (PathBuf, PathBuf, PathBuf);
}

impl Cluster for RealKube {
    fn user(&self, name: &str) -> PathBuf {
        self.kubeconfig_of(name)
    }

    fn certificate(&self, directory: &Path) -> (PathBuf, PathBuf, PathBuf) {
        self.certificate_files(directory)
    }
}

impl Cluster for Platform {
    fn user(&self, name: &str) -> PathBuf {
        self.kubeconfig_without_rights(name)
    }

    fn certificate(&self, directory: &Path) -> (PathBuf, PathBuf, PathBuf) {
        self.certificate_files(directory)
    }
}

/// An operator that is not started yet.
struct Operator<C> {
    name: &'static str,
    source: PathBuf,
    cluster: C,
}

impl<C: Cluster> Operator<C> {
    /// The operator, with its definitions on the server.
    fn install(name: &'static str, cluster: C, definitions: &[&str]) -> Operator<C> {
        let operator = Operator { name, source: RealKube::program(&format!("{name}.source")), cluster };
        for file in definitions {
            operator.create(&operator.read(file));
        }
        operator.cluster.wait_for_definitions();
        operator
    }

    /// An object or several of a file of its source.
    fn read(&self, file: &str) -> Value {
        let path = self.source.join(file);
        let path = path.to_str().expect("a path of this machine");
        let text =
            self.cluster.kubectl(["create", "--dry-run=client", "--validate=false", "-o", "json", "-f", path]).ok();
        // Several are printed one after the other.
        let objects: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&text).into_iter().collect();
        json!({"apiVersion": "v1", "kind": "List", "items": objects.expect("kubectl prints JSON")})
    }

    fn create(&self, object: &Value) {
        self.cluster.kubectl_with_input(["create", "-f", "-"], &object.to_string()).ok();
    }

    /// Gives it one role and starts it.
    fn start(&self, role: &str, command: &mut Command) -> Process {
        let user = format!("operators:{}", self.name);
        let group = "rbac.authorization.k8s.io";
        self.create(
            &json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": self.name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}]}),
        );
        command.env("KUBECONFIG", self.cluster.user(&user));
        Process::start(self.name, command, self.cluster.scratch())
    }

    fn running(&self, selector: &str) -> Vec<Value> {
        let text = self.cluster.kubectl(["get", "pods", "-l", selector, "-o", "json"]).ok();
        let pods: Value = serde_json::from_str(&text).expect("kubectl prints JSON");
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        pods.into_iter().filter(|pod| pod["status"]["phase"] == "Running").collect()
    }

    fn wait_for_running(&self, process: &Process, selector: &str, count: usize) {
        eventually(&format!("{count} pods of {selector} run"), || match self.running(selector).len() {
            found if found == count => Ok(()),
            found => Err(format!("{found} do; {}", process.tail())),
        });
    }

    /// Deletes a pod, waits until `count` pods run that did not before, and gives these.
    fn lose(&self, process: &Process, selector: &str, pod: &str, count: usize) -> Vec<Value> {
        let before: Vec<_> = self.running(selector).iter().map(|pod| pod["metadata"]["uid"].clone()).collect();
        self.cluster.kubectl(["delete", "pod", pod, "--wait=false"]).ok();
        eventually(&format!("{count} pods of {selector} run anew after {pod} was lost"), || {
            let mut running = self.running(selector);
            running.retain(|pod| !before.contains(&pod["metadata"]["uid"]));
            match running.len() {
                found if found == count => Ok(running),
                found => Err(format!("{found} do; groups {:?}; {}", self.groups(), process.tail())),
            }
        })
    }

    /// Waits until what was made for a pod goes with that pod: Kubernetes looks for new kinds every half minute only.
    fn wait_for_garbage_collection(&self) {
        let owner =
            json!({"apiVersion": "v1", "kind": "Pod", "name": "nobody", "uid": "00000000-0000-0000-0000-000000000000"});
        self.create(&json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
            "metadata": {"name": "of-nobody", "ownerReferences": [owner]}, "spec": {"minMember": 1}}));
        eventually("groups go with their owners", || {
            match self.cluster.get("podgroups.scheduling.volcano.sh", "of-nobody") {
                None => Ok(()),
                Some(group) => Err(group.to_string()),
            }
        });
    }

    fn groups(&self) -> Vec<Value> {
        let text = self
            .cluster
            .kubectl(["get", "podgroups.scheduling.volcano.sh", "--show-managed-fields", "-o", "json"])
            .ok();
        let groups: Value = serde_json::from_str(&text).expect("kubectl prints JSON");
        groups["items"].as_array().cloned().unwrap_or_default()
    }
}

/// The spec of a group is the operator's own work, as far as the server knows who wrote what: ours does where somebody applies.
fn assert_written_by(group: &Value, manager: &str) {
    let entries = group["metadata"]["managedFields"].as_array().into_iter().flatten();
    for entry in entries.filter(|entry| !entry["fieldsV1"]["f:spec"].is_null()) {
        assert_eq!(entry["manager"], manager, "{group}");
    }
}

fn container() -> Value {
    json!({"name": "main", "image": "an-image", "command": ["work"], "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}})
}

/// What an operator did, each in words.
fn column(client: &str, version: &str, server: Server, done: &[&str]) -> Column {
    let verdicts = done.iter().map(|name| Verdict { name: (*name).to_owned(), wrong: None }).collect();
    Column::new(client, &[version], version, server, verdicts)
}

/// The MPI operator with a job of simulated pods.
///
/// # Panics
/// When something is not as its users want it.
pub fn mpi_operator<C: Cluster>(server: Server, cluster: C) -> Column {
    let manifests = "manifests/base";
    let definitions = [&format!("{manifests}/kubeflow.org_mpijobs.yaml"), &format!("{manifests}/cluster-role.yaml")];
    let operator = Operator::install("mpi-operator", cluster, &definitions.map(String::as_str));
    let mut command = Command::new(RealKube::program("mpi-operator"));
    let process = operator.start("mpi-operator", command.args(["-gang-scheduling=volcano", "-lock-namespace=default"]));

    let replica = |count: u32, annotations: Value| json!({"replicas": count, "template": {"metadata": {"annotations": annotations}, "spec": {"containers": [container()]}}});
    operator.create(&json!({
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "pi"},
        "spec": {"slotsPerWorker": 1, "runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs": {
            "Launcher": replica(1, json!({"pumice.sh/simulated-duration": "20s"})), "Worker": replica(2, json!({}))}},
    }));
    operator.wait_for_running(&process, "training.kubeflow.org/job-name=pi", 3);
    let groups = operator.groups();
    assert_eq!(groups.len(), 1, "{groups:?}");
    assert_eq!(
        groups[0]["spec"],
        json!({"minMember": 3, "queue": "default", "minResources": {"cpu": "3", "memory": "192Mi"}})
    );
    assert_written_by(&groups[0], "mpi-operator");
    // One that is lost joins the gang that runs.
    operator.lose(&process, "training.kubeflow.org/job-name=pi", "pi-worker-0", 1);

    eventually("the job has succeeded", || {
        let job = operator.cluster.get("mpijob", "pi").ok_or("no job")?;
        let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let done = conditions.iter().any(|one| one["type"] == "Succeeded" && one["status"] == "True");
        if done { Ok(()) } else { Err(format!("{}; {}", job["status"], process.tail())) }
    });
    operator.wait_for_running(&process, "training.kubeflow.org/job-name=pi", 0);
    eventually("its group is gone", || match operator.groups().as_slice() {
        [] => Ok(()),
        groups => Err(format!("{groups:?}")),
    });
    let done = [
        "launcher and workers start as one gang",
        "a worker that is lost joins again",
        "the job succeeds, its group goes",
    ];
    column("MPI operator", "0.8.2", server, &done)
}

/// Its configuration, and where its webhooks listen.
fn configuration(scratch: &Path, certificates: &Path) -> (PathBuf, u16) {
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    let port = free.expect("a free port").port();
    let configuration = json!({
        "apiVersion": "config.lws.x-k8s.io/v1alpha1", "kind": "Configuration",
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": certificates},
        "health": {"healthProbeBindAddress": "127.0.0.1:0"}, "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": false}, "internalCertManagement": {"enable": false},
        "gangSchedulingManagement": {"schedulerProvider": "volcano"},
    });
    let path = scratch.join("lws.yaml");
    std::fs::write(&path, configuration.to_string()).expect("write a configuration");
    (path, port)
}

/// Its webhooks, called where they listen instead of through a Service, and for its own pods alone.
fn webhooks<C: Cluster>(operator: &Operator<C>, authority: &Path, port: u16) -> Value {
    let bundle = base64(authority);
    let mut list = operator.read("config/webhook/manifests.yaml");
    for hook in
        list["items"].as_array_mut().into_iter().flatten().flat_map(|one| one["webhooks"].as_array_mut()).flatten()
    {
        let path = hook["clientConfig"]["service"]["path"].as_str().expect("a path").to_owned();
        hook["clientConfig"] = json!({"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": bundle});
        if path.ends_with("-v1-pod") {
            let of_a_set = json!({"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"});
            hook["objectSelector"] = json!({"matchExpressions": [of_a_set]});
        }
    }
    list
}

fn base64(file: &Path) -> String {
    let output = Command::new("base64").arg("-w0").arg(file).output().expect("run base64");
    String::from_utf8(output.stdout).expect("base64 is text")
}

/// LeaderWorkerSet with its webhooks: a group for each replica.
///
/// # Panics
/// When something is not as its users want it.
pub fn leader_worker_set<C: Cluster>(server: Server, cluster: C) -> Column {
    let crd = |name: &str| format!("config/crd/bases/{name}");
    let definitions = [
        crd("leaderworkerset.x-k8s.io_leaderworkersets.yaml"),
        crd("disaggregatedset.x-k8s.io_disaggregatedsets.yaml"),
    ];
    let operator = Operator::install("lws", cluster, &definitions.each_ref().map(String::as_str));
    let mut role = operator.read("config/rbac/role.yaml");
    // config/components/volcano/manager_role_patch.yaml
    let groups = json!({"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"], "verbs": ["create", "get", "list", "watch"]});
    role["items"][0]["rules"].as_array_mut().expect("rules").push(groups);
    operator.create(&role);
    let certificates = operator.cluster.scratch().join("webhook");
    let (_, _, authority) = operator.cluster.certificate(&certificates);
    let (configuration, port) = configuration(operator.cluster.scratch(), &certificates);
    let mut command = Command::new(RealKube::program("lws"));
    let process = operator.start("manager-role", command.arg("--config").arg(configuration));
    eventually("its webhooks listen", || match TcpStream::connect(("127.0.0.1", port)) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{error}; {}", process.tail())),
    });
    operator.create(&webhooks(&operator, &authority, port));

    operator.create(&json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve", "annotations": {"volcano.sh/sla-waiting-time": "5m"}},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": {"spec": {
            "schedulerName": "volcano", "containers": [container()]}}}},
    }));
    let all = "leaderworkerset.sigs.k8s.io/name=serve";
    operator.wait_for_running(&process, all, 6);
    let groups = operator.groups();
    assert_eq!(groups.len(), 2, "{groups:?}");
    for group in &groups {
        assert_eq!(
            group["spec"],
            json!({"minMember": 3, "queue": "default", "minResources": {"cpu": "3", "memory": "192Mi"}})
        );
        assert_eq!(group["metadata"]["annotations"]["volcano.sh/sla-waiting-time"], "5m", "{group}");
        assert_written_by(group, "lws");
    }

    // With any of its pods the set gives a whole replica up, and makes it again: leader, group and workers.
    operator.wait_for_garbage_collection();
    for (replica, lost) in [(0, "serve-0-1"), (1, "serve-1")] {
        let selector = format!("{all},leaderworkerset.sigs.k8s.io/group-index={replica}");
        let new = operator.lose(&process, &selector, lost, 3);
        let leader = new.iter().find(|pod| pod["metadata"]["name"] == format!("serve-{replica}")).expect("a leader");
        // The group of the leader before may have let them start, and goes with its owner.
        eventually(&format!("replica {replica} has a group of its own"), || {
            let groups = operator.groups();
            let mut owners = groups.iter().map(|group| &group["metadata"]["ownerReferences"][0]["uid"]);
            if owners.any(|uid| *uid == leader["metadata"]["uid"]) { Ok(()) } else { Err(format!("{groups:?}")) }
        });
    }

    // A replica that is no longer wanted takes its group along.
    let one = r#"{"spec": {"replicas": 1}}"#;
    operator.cluster.kubectl(["patch", "leaderworkerset", "serve", "--type=merge", "-p", one]).ok();
    operator.wait_for_running(&process, all, 3);
    eventually("one group is left", || match operator.groups().len() {
        1 => Ok(()),
        found => Err(format!("{found} are")),
    });
    let done = [
        "its webhooks are asked",
        "each replica is a gang of its own",
        "a replica that loses a pod is made anew",
        "scaling down takes pods and group along",
    ];
    column("LeaderWorkerSet", "0.9.0", server, &done)
}

/// An MPI job of real processes: workers with `sshd`, and `mpirun` that reaches them.
///
/// # Panics
/// When it does not succeed.
pub fn mpi_job_of_processes(cluster: Platform) {
    let manifests = "manifests/base";
    let definitions = [&format!("{manifests}/kubeflow.org_mpijobs.yaml"), &format!("{manifests}/cluster-role.yaml")];
    let operator = Operator::install("mpi-operator", cluster, &definitions.map(String::as_str));
    let mut command = Command::new(RealKube::program("mpi-operator"));
    let process = operator.start("mpi-operator", command.args(["-gang-scheduling=volcano", "-lock-namespace=default"]));
    let replica = |count: u32, script: &str| {
        let container = json!({"name": "main", "image": "none", "command": ["sh", "-c", script]});
        json!({"replicas": count, "template": {"spec": {"containers": [container]}}})
    };
    let worker = "mkdir -p /run/sshd && ssh-keygen -A && exec /usr/sbin/sshd -De -p 2222";
    // Names are known before `sshd` listens.
    let launcher = "for i in $(seq 300); do mpirun --allow-run-as-root --mca plm_rsh_args \"-p 2222 -o StrictHostKeyChecking=no -o \
                    ConnectionAttempts=60\" -n 2 hostname && exit; sleep 0.2; done; exit 1";
    operator.create(&json!({
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "real"},
        "spec": {"slotsPerWorker": 1, "runPolicy": {"cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {"Launcher": replica(1, launcher), "Worker": replica(2, worker)}},
    }));
    let launcher = eventually("the launcher has ended", || {
        let pods = operator.cluster.list("pods");
        let mut ended = pods.iter().filter(|pod| pod["status"]["phase"] == "Succeeded");
        let name = ended.next().and_then(|pod| pod["metadata"]["name"].as_str().map(str::to_owned));
        name.ok_or_else(|| {
            format!("{:?}; {}", pods.iter().map(|pod| &pod["status"]).collect::<Vec<_>>(), process.tail())
        })
    });
    let logs = operator.cluster.kubectl(["logs", &launcher]).ok();
    let mut said: Vec<&str> = logs.lines().filter(|line| line.starts_with("real-worker-")).collect();
    said.sort_unstable();
    assert_eq!(said, ["real-worker-0", "real-worker-1"], "{logs}");
}
