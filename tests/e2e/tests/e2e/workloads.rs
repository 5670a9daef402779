//! Kubernetes' own kinds on `pumice up`, with stock `kubectl`, on a real node.

use pumice_testkit::{Platform, eventually};
use serde_json::Value;

fn apply(platform: &Platform, manifest: &str) {
    platform.kubectl_with_input(["apply", "-f", "-"], manifest).ok();
}

fn words(output: &str) -> String {
    output.split_whitespace().collect::<Vec<_>>().join(" ")
}

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: c, image: 'web:1', command: [sleep, '1000']}
";

fn images(platform: &Platform) -> Vec<String> {
    let active = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null() && pod["status"]["phase"] == "Running";
    let pods = platform.list("pods");
    pods.iter().filter(active).map(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_deployment_is_rolled_out_scaled_and_undone() {
    let platform = Platform::new();
    apply(&platform, DEPLOYMENT);
    let status = ["rollout", "status", "deployment/web", "--timeout=60s"];
    assert!(platform.kubectl(status).ok().contains("successfully rolled out"));
    let wide = words(&platform.kubectl(["get", "deploy", "-o", "wide"]).ok());
    assert!(wide.starts_with("NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR web 2/2 2 2"), "{wide}");
    assert!(wide.ends_with("c web:1 app=web"), "{wide}");
    platform.kubectl(["set", "image", "deployment/web", "c=web:2"]).ok();
    platform.kubectl(status).ok();
    assert_eq!(images(&platform), ["web:2", "web:2"]);
    let history = platform.kubectl(["rollout", "history", "deployment/web"]).ok();
    assert!(words(&history).contains("1 <none> 2 <none>"), "{history}");
    platform.kubectl(["rollout", "undo", "deployment/web"]).ok();
    platform.kubectl(status).ok();
    assert_eq!(images(&platform), ["web:1", "web:1"]);
    platform.kubectl(["rollout", "restart", "deployment/web"]).ok();
    platform.kubectl(status).ok();
    platform.kubectl(["scale", "deployment/web", "--replicas=1"]).ok();
    platform.kubectl(["wait", "--for=jsonpath={.status.replicas}=1", "deployment/web", "--timeout=30s"]).ok();
    let all = platform.kubectl(["get", "all", "-o", "name"]).ok();
    assert!(all.contains("deployment.apps/web") && all.contains("replicaset.apps/web-"), "{all}");
    platform.kubectl(["delete", "deployment", "web", "--timeout=30s"]).ok();
    eventually("its pods are gone", || match platform.list("pods").len() {
        0 => Ok(()),
        left => Err(format!("{left} are left")),
    });
}

#[test]
fn a_job_runs_to_its_end_and_each_pod_knows_its_index() {
    let platform = Platform::new();
    apply(
        &platform,
        "
apiVersion: batch/v1
kind: Job
metadata: {name: squares}
spec:
  completions: 3
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: c, image: any, command: [sh, -c, 'echo index $JOB_COMPLETION_INDEX on $(hostname)']}
",
    );
    platform.kubectl(["wait", "--for=condition=complete", "job/squares", "--timeout=60s"]).ok();
    let table = words(&platform.kubectl(["get", "jobs"]).ok());
    assert!(table.starts_with("NAME STATUS COMPLETIONS DURATION AGE squares Complete 3/3"), "{table}");
    let logs = platform.kubectl(["logs", "-l", "batch.kubernetes.io/job-name=squares", "--prefix"]).ok();
    for index in 0..3 {
        assert!(logs.contains(&format!("index {index} on squares-{index}")), "{logs}");
    }
    platform.kubectl(["delete", "job", "squares", "--timeout=30s"]).ok();
    eventually("its pods are gone", || match platform.list("pods").len() {
        0 => Ok(()),
        left => Err(format!("{left} are left")),
    });
}

#[test]
fn a_job_that_fails_says_so() {
    let platform = Platform::new();
    apply(
        &platform,
        "
apiVersion: batch/v1
kind: Job
metadata: {name: bad}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: c, image: any, command: [sh, -c, 'exit 3']}
",
    );
    platform.kubectl(["wait", "--for=condition=failed", "job/bad", "--timeout=60s"]).ok();
    let job = platform.get("jobs.batch", "bad").unwrap();
    assert_eq!(job["status"]["failed"], 1, "{}", job["status"]);
}

#[test]
fn a_cron_job_is_run_by_hand() {
    let platform = Platform::new();
    apply(
        &platform,
        "
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: '0 3 * * *'
  timeZone: Europe/Berlin
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: OnFailure
          containers:
          - {name: c, image: any, command: ['true']}
",
    );
    platform.kubectl(["create", "job", "--from=cronjob/nightly", "now"]).ok();
    platform.kubectl(["wait", "--for=condition=complete", "job/now", "--timeout=60s"]).ok();
    let table = words(&platform.kubectl(["get", "cronjobs"]).ok());
    assert!(table.contains("nightly 0 3 * * * Europe/Berlin False"), "{table}");
}

#[test]
fn a_stateful_set_keeps_what_its_pods_have_written() {
    let platform = Platform::new();
    apply(
        &platform,
        "
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: any
        command: [sh, -c, 'echo $(hostname) >> /data/starts; touch /own/told; exec sleep 1000']
        # It runs before it has written anything.
        readinessProbe: {exec: {command: [test, -e, /own/told]}, periodSeconds: 1}
        volumeMounts: [{name: data, mountPath: /data}, {name: own, mountPath: /own}]
      volumes: [{name: own, emptyDir: {}}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
",
    );
    let status = ["rollout", "status", "statefulset/db", "--timeout=60s"];
    platform.kubectl(status).ok();
    let claims = platform.kubectl(["get", "pvc", "-o", "name"]).ok();
    assert_eq!(words(&claims), "persistentvolumeclaim/data-db-0 persistentvolumeclaim/data-db-1");
    platform.kubectl(["rollout", "restart", "statefulset/db"]).ok();
    platform.kubectl(status).ok();
    for pod in ["db-0", "db-1"] {
        let starts = platform.kubectl(["exec", pod, "--", "cat", "/data/starts"]).ok();
        assert_eq!(words(&starts), format!("{pod} {pod}"), "both starts are there");
    }
}
