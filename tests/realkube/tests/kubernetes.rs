//! The cases on kube-apiserver and kube-controller-manager, our components as processes; and what only Kubernetes has.

use pumice_testkit::{Clients, RealKube, Tenant, eventually};
use serde_json::Value;

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

/// A template of pods that name our scheduler.
fn template(app: &str, cpu: u32, more: &str) -> String {
    format!(
        "{{metadata: {{labels: {{app: {app}}}}}, spec: {{schedulerName: volcano{more}, containers: [{{name: main, image: \
         none, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}"
    )
}

fn groups(clients: &Clients) -> Vec<Value> {
    clients.list("podgroups.scheduling.volcano.sh")
}

/// The group of the pods of an app: its minimum, and how many of them name it.
fn group_of(clients: &Clients, app: &str) -> Option<(Value, usize)> {
    let pods = clients.list("pods").into_iter().filter(|pod| pod["metadata"]["labels"]["app"] == app);
    let pods: Vec<Value> = pods.collect();
    let told = |pod: &Value| pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"].clone();
    let name = told(pods.first()?);
    let group = groups(clients).into_iter().find(|group| group["metadata"]["name"] == name)?;
    Some((group, pods.iter().filter(|pod| told(pod) == name).count()))
}

/// The pods of Kubernetes' own kinds, which name our scheduler: one group for each owner, as large as it says.
#[test]
fn pods_of_deployments_stateful_sets_and_jobs_are_scheduled_in_groups() {
    let clients = start("workloads");
    let (deployment, set, daemon) = (template("d", 1, ""), template("s", 1, ""), template("e", 1, ""));
    let (job, controller) = (template("j", 1, ", restartPolicy: Never"), template("c", 1, ""));
    let gang = |number: u32| format!("annotations: {{scheduling.volcano.sh/group-min-member: \"{number}\"}}");
    create(
        &clients,
        &format!(
            "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: d, {}}}
spec: {{replicas: 3, selector: {{matchLabels: {{app: d}}}}, template: {deployment}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: s}}
spec: {{replicas: 2, serviceName: s, selector: {{matchLabels: {{app: s}}}}, template: {set}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: j, {}}}
spec: {{parallelism: 2, completions: 2, template: {job}}}
---
apiVersion: v1
kind: ReplicationController
metadata: {{name: c}}
spec: {{replicas: 2, selector: {{app: c}}, template: {controller}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: e}}
spec: {{selector: {{matchLabels: {{app: e}}}}, template: {daemon}}}
",
            gang(3),
            gang(2),
        ),
    );
    let nodes = NODES as usize;
    for (app, wanted, minimum) in [("d", 3, 3), ("s", 2, 1), ("j", 2, 2), ("c", 2, 1), ("e", nodes, 1)] {
        wait_for_bound(&clients, &format!("app={app}"), wanted);
        eventually(&format!("all pods of {app} name one group"), || match group_of(&clients, app) {
            Some((group, told)) if told == wanted && group["spec"]["minMember"] == minimum => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    clients.kubectl(["scale", "deployment", "d", "--replicas=0"]).ok();
    eventually("nobody's group is left behind", || match groups(&clients).len() {
        4 => Ok(()),
        n => Err(format!("{n} groups")),
    });
    clients.kubectl(["scale", "deployment", "d", "--replicas=3"]).ok();
    wait_for_bound(&clients, "app=d", 3);
}

/// The group is there before any of its pods is bound.
#[test]
fn no_pod_of_a_gang_that_does_not_fit_is_bound() {
    let clients = start("misfit");
    let pods = template("big", 20, ", nodeSelector: {kubernetes.io/hostname: sim-00007}");
    create(
        &clients,
        &format!(
            "
apiVersion: apps/v1
kind: ReplicaSet
metadata: {{name: big, annotations: {{scheduling.volcano.sh/group-min-member: \"2\"}}}}
spec: {{replicas: 2, selector: {{matchLabels: {{app: big}}}}, template: {pods}}}
"
        ),
    );
    eventually("the group says why it waits", || match group_of(&clients, "big") {
        Some((group, 2)) if group["status"]["conditions"].to_string().contains("Unschedulable") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    for pod in clients.list("pods") {
        assert!(pod["spec"]["nodeName"].is_null(), "{pod}");
    }
    let one = "scheduling.volcano.sh/group-min-member=1";
    clients.kubectl(["annotate", "--overwrite", "replicaset", "big", one]).ok();
    wait_for_bound(&clients, "app=big", 1);
}

/// Kubernetes' own gangs: made by hand, of a Workload's template, and by its Job controller for a Job whose pods all run at once.
#[test]
fn pod_groups_of_kubernetes_own_are_gangs() {
    let clients = start("native");
    let member = |number: u32| {
        format!(
            "
---
apiVersion: v1
kind: Pod
metadata: {{name: m{number}, labels: {{app: m}}}}
spec: {{schedulerName: volcano, schedulingGroup: {{podGroupName: gang}}, containers: [{{name: main, image: none}}]}}"
        )
    };
    create(
        &clients,
        &format!(
            "
apiVersion: scheduling.k8s.io/v1alpha2
kind: Workload
metadata: {{name: training}}
spec: {{podGroupTemplates: [{{name: workers, schedulingPolicy: {{gang: {{minCount: 3}}}}}}]}}
---
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {{name: gang}}
spec:
  podGroupTemplateRef: {{workload: {{workloadName: training, podGroupTemplateName: workers}}}}
  schedulingPolicy: {{gang: {{minCount: 3}}}}{}{}",
            member(1),
            member(2)
        ),
    );
    eventually("two of three wait", || {
        let group = clients.get("podgroups.scheduling.volcano.sh", "gang").ok_or("no group")?;
        if group["status"]["conditions"].to_string().contains("Unschedulable") {
            Ok(())
        } else {
            Err(group.to_string())
        }
    });
    assert_eq!(clients.kubectl(["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"]).ok(), "");
    create(&clients, &member(3));
    wait_for_bound(&clients, "app=m", 3);

    let pods = template("i", 1, ", restartPolicy: Never");
    create(
        &clients,
        &format!(
            "
apiVersion: batch/v1
kind: Job
metadata: {{name: indexed}}
spec: {{parallelism: 4, completions: 4, completionMode: Indexed, template: {pods}}}
"
        ),
    );
    wait_for_bound(&clients, "app=i", 4);
    let owned = |group: &&Value| group["metadata"]["ownerReferences"][0]["apiVersion"] == "scheduling.k8s.io/v1alpha2";
    let mut minima: Vec<_> =
        groups(&clients).iter().filter(owned).map(|group| group["spec"]["minMember"].clone()).collect();
    minima.sort_by_key(Value::to_string);
    assert_eq!(minima, [3, 4], "that of the Job was made by Kubernetes");
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
        let told: String = clients
            .list("podgroups.scheduling.volcano.sh")
            .iter()
            .map(|group| group["status"]["conditions"].to_string())
            .collect();
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
