//! The cases on kube-apiserver and kube-controller-manager, our components as processes; and what only Kubernetes has.

use pumice_testkit::{Clients, RealKube, Tenant, eventually};

/// Nodes of the control plane that all tests of this file share.
const NODES: u32 = 10;

fn start(case: &str) -> Tenant {
    Tenant::new(&case.replace('_', "-"), NODES)
}

pumice_realkube::on_each_case!(start);

fn create(clients: &Clients, manifest: &str) {
    clients.kubectl_with_input(["create", "-f", "-"], manifest).ok();
}

fn wait_for_bound(clients: &Clients, selector: &str, wanted: usize) {
    eventually(&format!("{wanted} pods of {selector} run"), || {
        let text = clients.kubectl(["get", "pods", "-l", selector, "-o", "jsonpath={.items[*].status.phase}"]).ok();
        let running = text.split_whitespace().filter(|phase| *phase == "Running").count();
        if running == wanted { Ok(()) } else { Err(text) }
    });
}

/// The pods of Kubernetes' own kinds, which name our scheduler.
#[test]
fn pods_of_deployments_stateful_sets_and_jobs_are_scheduled() {
    let clients = start("workloads");
    let template = |app: &str, more: &str| {
        format!(
            "{{metadata: {{labels: {{app: {app}}}}}, spec: {{schedulerName: volcano{more}, containers: [{{name: main, \
             image: none, resources: {{requests: {{cpu: 1}}}}}}]}}}}"
        )
    };
    let (deployment, set) = (template("d", ""), template("s", ""));
    let job = template("j", ", restartPolicy: Never");
    create(
        &clients,
        &format!(
            "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: d}}
spec: {{replicas: 3, selector: {{matchLabels: {{app: d}}}}, template: {deployment}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: s}}
spec: {{replicas: 2, serviceName: s, selector: {{matchLabels: {{app: s}}}}, template: {set}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: j}}
spec: {{parallelism: 2, completions: 2, template: {job}}}
"
        ),
    );
    for (selector, wanted) in [("app=d", 3), ("app=s", 2), ("app=j", 2)] {
        wait_for_bound(&clients, selector, wanted);
    }
}

const CLAIMING: &str = r#"
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: claiming}
spec:
  schedulerName: volcano
  minAvailable: 1
  volumes: [{mountPath: /data, volumeClaimName: data}]
  tasks:
  - name: w
    replicas: 1
    template: {spec: {restartPolicy: Never, containers: [{name: main, image: none}]}}
"#;

/// On one machine a claim is a folder; on a cluster somebody else has to make the volume first.
#[test]
fn a_pod_waits_for_the_volume_of_its_claim() {
    let clients = start("claims");
    create(
        &clients,
        r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: shelf, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"#,
    );
    create(&clients, CLAIMING);
    eventually("the group says why it waits", || {
        let told: String =
            clients.list("podgroups").iter().map(|group| group["status"]["conditions"].to_string()).collect();
        if told.contains("volume claim data is not bound yet") { Ok(()) } else { Err(told) }
    });
    // Comes from the volume: the claim is the first that asks for one of this class.
    create(
        &clients,
        r#"
apiVersion: v1
kind: PersistentVolume
metadata: {name: shelf-1}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: shelf
  hostPath: {path: /nowhere}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [sim-00004]}]}]}}
"#,
    );
    clients.wait_for_phase("claiming", "Running");
    let pod = clients.get("pod", "claiming-w-0").expect("its pod");
    assert_eq!(pod["spec"]["nodeName"], "sim-00004", "where the volume is");
}

/// Dynamic resource allocation: the claim's template is resolved by kube-controller-manager, its devices by us.
#[test]
fn devices_are_allocated_with_the_rights_that_kubernetes_asks_for() {
    let clients = start("devices");
    create(
        &clients,
        r#"
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: gpus-of-sim-00002}
spec:
  driver: gpu.example.com
  nodeName: sim-00002
  pool: {name: sim-00002, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: one, exactly: {deviceClassName: gpu.example.com}}]}}}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: trainer}
spec:
  schedulerName: volcano
  minAvailable: 2
  tasks:
  - name: w
    replicas: 2
    template:
      spec:
        restartPolicy: Never
        resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
        containers: [{name: main, image: none, resources: {claims: [{name: gpu}]}}]
"#,
    );
    clients.wait_for_phase("trainer", "Running");
    let mut devices: Vec<String> = clients
        .list("resourceclaims")
        .iter()
        .map(|claim| claim["status"]["allocation"]["devices"]["results"][0]["device"].to_string())
        .collect();
    devices.sort();
    assert_eq!(devices, [r#""gpu-0""#, r#""gpu-1""#]);
    for pod in clients.list("pods") {
        assert_eq!(pod["spec"]["nodeName"], "sim-00002", "where the devices are");
    }
}

/// Kubernetes' own ResourceQuota, which ours does not serve: a 403 is no failure of the job.
#[test]
fn pods_over_a_quota_come_later() {
    let clients = start("quota");
    create(&clients, "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: two}\nspec: {hard: {pods: 2}}\n");
    eventually("the quota counts", || {
        let quota = clients.get("resourcequota", "two").ok_or("no quota")?;
        if quota["status"]["hard"]["pods"] == "2" { Ok(()) } else { Err(quota["status"].to_string()) }
    });
    create(
        &clients,
        r#"
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: many}
spec:
  schedulerName: volcano
  minAvailable: 1
  tasks:
  - name: w
    replicas: 4
    minAvailable: 1
    template:
      metadata: {annotations: {pumice.sh/simulated-duration: 2s}}
      spec: {restartPolicy: Never, containers: [{name: main, image: none}]}
"#,
    );
    let job = clients.wait_for_phase("many", "Completed");
    assert_eq!(job["status"]["succeeded"], 4, "{}", job["status"]);
    assert_eq!(job["status"]["retryCount"].as_i64().unwrap_or(0), 0, "{}", job["status"]);
}

/// A control plane of its own, because others would notice. It has no admission: the controllers fill in what they need.
#[test]
fn components_that_are_killed_go_on_where_they_were() {
    let mut cluster = RealKube::with_pumice(2);
    let job = |name: &str, seconds: u32| {
        format!(
            "
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: {name}}}
spec:
  schedulerName: volcano
  minAvailable: 20
  tasks:
  - name: w
    replicas: 20
    template:
      metadata: {{annotations: {{pumice.sh/simulated-duration: {seconds}s}}}}
      spec: {{restartPolicy: Never, containers: [{{name: main, image: none}}]}}
"
        )
    };
    create(&cluster, &job("before", 10));
    eventually("pods are made", || match cluster.list("pods").len() {
        0 => Err(String::new()),
        _ => Ok(()),
    });
    cluster.crash_and_restart("controllers");
    cluster.crash_and_restart("scheduler");
    cluster.crash_and_restart("nodes");
    let short =
        job("after", 1).replace("  schedulerName: volcano\n", "").replace("  - name: w\n    replicas", "  - replicas");
    create(&cluster, &short);
    for name in ["before", "after"] {
        let job = cluster.wait_for_phase(name, "Completed");
        assert_eq!(job["status"]["succeeded"], 20, "{}", job["status"]);
        assert_eq!(job["status"]["retryCount"].as_i64().unwrap_or(0), 0, "{}", job["status"]);
    }
}
