//! Commands about workloads, and waiting.

use pumice_testkit::{Clients, eventually};

use super::{fails, fed, object, ok, says, unplaced};

/// A deployment of two pods that do nothing.
fn deployment(image: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  replicas: 2\n  selector: {{matchLabels: {{app: web}}}}\n  \
         template:\n    metadata: {{labels: {{app: web}}}}\n    spec:\n      schedulerName: volcano\n      terminationGracePeriodSeconds: \
         1\n      containers: [{{name: c, image: '{image}', command: [sleep, '1000'], resources: {{requests: {{cpu: 10m}}}}}}]\n"
    )
}

const STATUS: &str = "rollout status deployment/web --timeout=60s";

fn rolled_out(clients: &Clients) {
    fed(clients, "apply -f -", &deployment("web:1"));
    says(clients, STATUS, "deployment \"web\" successfully rolled out");
}

fn image(clients: &Clients) -> String {
    ok(clients, "get deployment web -o jsonpath={.spec.template.spec.containers[0].image}")
}

pub fn status(clients: &Clients) {
    rolled_out(clients);
    says(clients, "get deployment web", "NAME READY UP-TO-DATE AVAILABLE AGE web 2/2 2 2");
    says(clients, "describe deployment web", "Replicas: 2 desired | 2 updated | 2 total | 2 available | 0 unavailable");
}

pub fn undo(clients: &Clients) {
    rolled_out(clients);
    fed(clients, "apply -f -", &deployment("web:2"));
    ok(clients, STATUS);
    says(clients, "rollout history deployment/web", "REVISION CHANGE-CAUSE 1 <none> 2 <none>");
    says(clients, "rollout undo deployment/web", "deployment.apps/web rolled back");
    ok(clients, STATUS);
    assert_eq!(image(clients), "web:1");
}

pub fn restart(clients: &Clients) {
    rolled_out(clients);
    ok(clients, "rollout pause deployment/web");
    ok(clients, "set image deployment/web c=web:3");
    fails(clients, "rollout restart deployment/web", "can't restart paused deployment");
    ok(clients, "rollout resume deployment/web");
    ok(clients, STATUS);
    ok(clients, "rollout restart deployment/web");
    ok(clients, STATUS);
    says(clients, "get rs -l app=web --no-headers", "web-");
}

pub fn set(clients: &Clients) {
    ok(clients, "create deployment d --image=none:1 --replicas=0");
    says(clients, "set image deployment/d none=none:2", "image updated");
    says(clients, "set env deployment/d A=1", "env updated");
    says(clients, "set resources deployment/d --limits=cpu=200m", "resource requirements updated");
    ok(clients, "create serviceaccount sa");
    says(clients, "set serviceaccount deployment/d sa", "serviceaccount updated");
    let container = &object(clients, "deployment", "d")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&container["image"], &container["env"][0]["value"]), (&"none:2".into(), &"1".into()), "{container}");
    assert_eq!(container["resources"]["limits"]["cpu"], "200m");
}

pub fn scale(clients: &Clients) {
    rolled_out(clients);
    says(clients, "scale deployment/web --replicas=1 --current-replicas=2", "deployment.apps/web scaled");
    ok(clients, "wait --for=jsonpath={.status.replicas}=1 deployment/web --timeout=30s");
    fails(clients, "scale deployment/web --replicas=1 --current-replicas=7", "Expected replicas to be 7");
}

pub fn autoscale(clients: &Clients) {
    ok(clients, "create deployment d --image=none --replicas=0");
    says(clients, "autoscale deployment d --min=1 --max=3", "autoscaled");
}

pub fn expose(clients: &Clients) {
    rolled_out(clients);
    says(clients, "expose deployment web --port=80 --cluster-ip=None", "service/web exposed");
    says(clients, "describe service web", "Selector: app=web");
}

pub fn endpoints(clients: &Clients) {
    expose(clients);
    let line = "get endpointslices -l kubernetes.io/service-name=web -o jsonpath={.items[*].endpoints[*].addresses[0]}";
    eventually("the Service has its pods", || {
        let found = ok(clients, line);
        if found.split_whitespace().count() == 2 { Ok(()) } else { Err(found) }
    });
}

pub fn from_cron_job(clients: &Clients) {
    ok(clients, "create cronjob c --image=none --schedule='0 0 1 1 *' -- true");
    says(clients, "create job now --from=cronjob/c", "job.batch/now created");
    assert_eq!(
        object(clients, "job.batch", "now")["metadata"]["annotations"]["cronjob.kubernetes.io/instantiate"],
        "manual"
    );
    says(clients, "get cronjob c", "SCHEDULE");
}

pub fn wait(clients: &Clients) {
    rolled_out(clients);
    says(clients, "wait --for=condition=Available deployment/web --timeout=20s", "condition met");
    ok(clients, "wait --for=jsonpath={.status.readyReplicas}=2 deployment/web --timeout=20s");
    ok(clients, "wait --for=condition=Ready pod -l app=web --timeout=20s");
    ok(clients, "wait --for=condition=Established crd/jobs.batch.volcano.sh --timeout=20s");
    fails(clients, "wait --for=condition=Progressing=False deployment/web --timeout=0s", "condition not met");
    ok(clients, "delete deployment web --wait=false");
    ok(clients, "wait --for=delete deployment/web --timeout=30s");
}

pub fn wait_for_create(clients: &Clients) {
    fed(clients, "create -f -", &unplaced("p"));
    ok(clients, "wait --for=create pod/p --timeout=20s");
}

pub fn drain(clients: &Clients) {
    // A drain looks into every namespace: with a label of its own it leaves the pods of other behaviours alone.
    fed(clients, "apply -f -", &deployment("web:1").replace("app: web", "app: drained"));
    ok(clients, STATUS);
    ok(clients, "create poddisruptionbudget web --selector=app=drained --min-available=2");
    eventually("the budget counts", || {
        let allowed = ok(clients, "get pdb web -o jsonpath={.status.currentHealthy}");
        if allowed == "2" { Ok(()) } else { Err(allowed) }
    });
    let node = ok(clients, "get pods -l app=drained -o jsonpath={.items[0].spec.nodeName}");
    let line = format!(
        "drain {node} --pod-selector=app=drained --ignore-daemonsets --delete-emptydir-data --force --timeout=2s"
    );
    fails(clients, &line, "Cannot evict pod as it would violate the pod's disruption budget");
    ok(clients, "delete pdb web");
    let said = ok(clients, &line.replace("2s", "60s"));
    ok(clients, &format!("uncordon {node}"));
    assert!(said.contains("evicted") && said.contains("drained"), "{said}");
}
