//! Parameters and results in ConfigMaps: submitted by a user with a user's rights, read and recorded with the token of the job's
//! own service account. There is no kubelet, so the test runs the commands of the pods.

use std::path::{Path, PathBuf};

use pumice_testkit::{Output, RealKube, binary, eventually, shard_words};
use serde_json::Value;

const NAMESPACE: &str = "lab";

/// Users of the namespace. `admin` and `edit` are Kubernetes' own roles; only the first may make roles.
const USERS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: lab}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: submit}
rules:
- {apiGroups: [batch.volcano.sh], resources: ['*'], verbs: ['*']}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: submit, namespace: lab}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: submit}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: ada}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: admin, namespace: lab}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ada}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: edit, namespace: lab}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]
";

/// Runs `jobctl` as whoever a kubeconfig is of.
fn jobctl(cluster: &RealKube, kubeconfig: &Path, args: &[&str]) -> Output {
    let front = ["--namespace", NAMESPACE, "--kubeconfig", kubeconfig.to_str().expect("a path")];
    cluster.run(&binary("jobctl"), front.iter().chain(args), None)
}

fn bundled(cluster: &RealKube, kind: &str) -> usize {
    let text = cluster.kubectl(["get", kind, "-n", NAMESPACE, "-l", "pumice.sh/bundle", "-o", "name"]).ok();
    text.lines().count()
}

fn wait_for_bundled(cluster: &RealKube, wanted: usize) {
    for kind in ["configmaps", "serviceaccounts", "roles", "rolebindings"] {
        eventually(&format!("{wanted} {kind}"), || match bundled(cluster, kind) {
            found if found == wanted => Ok(()),
            found => Err(format!("{found} are there")),
        });
    }
}

/// Runs the command of a pod with the token where a pod has it, and nothing else: `jobctl` finds the API as in a cluster.
fn run_in_cluster(cluster: &RealKube, job: &Value, index: u32, account: &str) -> Output {
    let folder: PathBuf = cluster.scratch().join("projected");
    cluster.certificate_files(&folder);
    let token = cluster.kubectl(["create", "token", account, "-n", NAMESPACE]).ok();
    std::fs::write(folder.join("token"), token.trim()).expect("write a token");
    std::fs::write(folder.join("namespace"), NAMESPACE).expect("write a namespace");
    let script = "mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount && \
        cp \"$1\"/* /run/secrets/kubernetes.io/serviceaccount/ && shift && exec env \"$@\"";
    let folder = folder.display().to_string();
    let front = ["--user", "--map-root-user", "--mount", "sh", "-ec", script, "sh", &folder].map(str::to_owned);
    let port = cluster.url().trim_end_matches('/').rsplit(':').next().expect("a port").to_owned();
    let place = ["KUBERNETES_SERVICE_HOST=127.0.0.1".to_owned(), format!("KUBERNETES_SERVICE_PORT={port}")];
    let words = front.into_iter().chain(place).chain(shard_words(job, index, &[]));
    cluster.run(Path::new("unshare"), words, None)
}

#[test]
fn pods_read_and_record_with_the_token_of_their_job_and_can_do_nothing_else() {
    let cluster = RealKube::with_pumice(1);
    cluster.kubectl_with_input(["create", "-f", "-"], USERS).ok();
    let (ada, bob) = (cluster.kubeconfig_of("ada"), cluster.kubeconfig_of("bob"));
    let rows: String = (0..6).map(|row| format!("run-{row},{row}\n")).collect();
    std::fs::write(cluster.scratch().join("grid.csv"), format!("name,x\n{rows}")).expect("write a table");
    let grid = ["--params", "grid.csv", "--key", "name", "--rows-per-task", "2", "--image", "any"];
    let script = "echo $1, squared: $(expr $PUMICE_PARAM_X '*' $PUMICE_PARAM_X) > $PUMICE_RESULT";
    let command = ["--", "sh", "-c", script, "sh", "{key}"];

    let refused = jobctl(&cluster, &bob, &[&["submit"], &grid[..], &command].concat());
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(refused.stderr.contains("which takes the right to create service accounts, roles"), "{refused:?}");
    assert!(refused.stderr.contains("next:  jobctl run --bundle-dir FOLDER ..."), "{refused:?}");
    wait_for_bundled(&cluster, 0);

    jobctl(&cluster, &ada, &[&["submit", "--name", "grid"], &grid[..], &command].concat()).ok();
    let text = cluster.kubectl(["get", "jobs.batch.volcano.sh", "grid", "-n", NAMESPACE, "-o", "json"]).ok();
    let job: Value = serde_json::from_str(&text).expect("kubectl prints JSON");
    let account = job["spec"]["tasks"][0]["template"]["spec"]["serviceAccountName"].as_str().expect("an account");
    let token = cluster.kubeconfig_of_account(NAMESPACE, account);
    for index in [0, 1] {
        let output = cluster.run_shard(&job, index, &token);
        assert_eq!(output.code, 0, "{output:?}");
    }
    let missing = jobctl(&cluster, &ada, &["results", "grid", "--missing", "-o", "keys"]).ok();
    assert_eq!(missing, "run-4\nrun-5\n");
    let output = run_in_cluster(&cluster, &job, 2, account);
    assert_eq!(output.code, 0, "{output:?}");
    let keys = jobctl(&cluster, &ada, &["results", "grid", "--missing", "--failed", "-o", "keys"]).ok();
    assert_eq!(keys, "");
    let results = jobctl(&cluster, &ada, &["results", "grid", "-o", "csv"]).ok();
    assert!((0..6).all(|row| results.contains(&format!("run-{row}, squared: {}", row * row))), "{results}");

    let token = token.to_str().expect("a path");
    for request in [
        &["get", "configmaps"][..],
        &["delete", "configmap", account],
        &["label", "configmap", account, "a=b"],
        &["get", "secrets"],
        &["get", "configmaps", "-n", "kube-system"],
    ] {
        let output = cluster.kubectl([&["--kubeconfig", token, "-n", NAMESPACE], request].concat());
        assert!(output.code != 0 && output.stderr.contains("forbidden"), "{request:?}: {output:?}");
    }
    cluster.kubectl(["delete", "jobs.batch.volcano.sh", "grid", "-n", NAMESPACE]).ok();
    wait_for_bundled(&cluster, 0);
}
