//! Operators of others themselves, built from source, each with the definitions and the role that its source brings, on a
//! control plane of its own.

use std::path::PathBuf;
use std::process::Command;

use pumice_testkit::{Process, RealKube, eventually};
use serde_json::{Value, json};

/// An operator that is not started yet.
struct Operator {
    name: &'static str,
    source: PathBuf,
    cluster: RealKube,
}

impl Operator {
    /// A control plane with the operator's definitions.
    fn install(name: &'static str, definitions: &[&str]) -> Operator {
        let operator =
            Operator { name, source: RealKube::program(&format!("{name}.source")), cluster: RealKube::with_pumice(4) };
        for file in definitions {
            operator.create(&operator.read(file));
        }
        operator.cluster.kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).ok();
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
        command.env("KUBECONFIG", self.cluster.kubeconfig_of(&user));
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

    fn groups(&self) -> Vec<Value> {
        let text = self
            .cluster
            .kubectl(["get", "podgroups.scheduling.volcano.sh", "--show-managed-fields", "-o", "json"])
            .ok();
        let groups: Value = serde_json::from_str(&text).expect("kubectl prints JSON");
        groups["items"].as_array().cloned().unwrap_or_default()
    }
}

/// The spec of a group is the operator's own work.
fn assert_written_by(group: &Value, manager: &str) {
    let entries = group["metadata"]["managedFields"].as_array().expect("a server that knows who wrote what");
    for entry in entries.iter().filter(|entry| !entry["fieldsV1"]["f:spec"].is_null()) {
        assert_eq!(entry["manager"], manager, "{group}");
    }
}

fn container() -> Value {
    json!({"name": "main", "image": "an-image", "command": ["work"], "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}})
}

#[test]
fn the_mpi_operator_runs_a_job() {
    let manifests = "manifests/base";
    let definitions = [&format!("{manifests}/kubeflow.org_mpijobs.yaml"), &format!("{manifests}/cluster-role.yaml")];
    let operator = Operator::install("mpi-operator", &definitions.map(String::as_str));
    let mut command = Command::new(RealKube::program("mpi-operator"));
    let process = operator.start("mpi-operator", command.args(["-gang-scheduling=volcano", "-lock-namespace=default"]));

    let replica = |count: u32, annotations: Value| json!({"replicas": count, "template": {"metadata": {"annotations": annotations}, "spec": {"containers": [container()]}}});
    operator.create(&json!({
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "pi"},
        "spec": {"slotsPerWorker": 1, "runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs": {
            "Launcher": replica(1, json!({"pumice.sh/simulated-duration": "10s"})), "Worker": replica(2, json!({}))}},
    }));
    operator.wait_for_running(&process, "training.kubeflow.org/job-name=pi", 3);
    let groups = operator.groups();
    assert_eq!(groups.len(), 1, "{groups:?}");
    assert_eq!(
        groups[0]["spec"],
        json!({"minMember": 3, "queue": "default", "minResources": {"cpu": "3", "memory": "192Mi"}})
    );
    assert_written_by(&groups[0], "mpi-operator");

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
}
