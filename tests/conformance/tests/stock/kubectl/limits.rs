//! What limits and carries, as kubectl shows it; and a drain that waits for a budget.

use super::*;

fn limited() -> Value {
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"},
        "spec": {"hard": {"pods": "2", "requests.cpu": "1", "limits.cpu": "2"}}})
}

fn ranged() -> Value {
    json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "sizes"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}, "max": {"cpu": "1"}},
    ]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_and_ranges_are_printed_described_and_kept() {
    let cluster = Cluster::start().await;
    let kubectl = Kubectl(&cluster);
    kubectl.apply(&limited()).await;
    kubectl.apply(&ranged()).await;
    kubectl.apply(&pod("a")).await;
    kubectl.apply(&pod("b")).await;
    let refused = kubectl.fed("apply -f -", &pod("c").to_string()).await;
    let wanted = "pods \"c\" is forbidden: exceeded quota: team, requested: limits.cpu=1,pods=1,requests.cpu=500m, used: \
                  limits.cpu=2,pods=2,requests.cpu=1, limited: limits.cpu=2,pods=2,requests.cpu=1";
    assert!(refused.code != 0 && refused.err.contains(wanted), "{}", refused.err);
    kubectl.ok("wait quota/team --for=jsonpath={.status.used.pods}=2 --timeout=20s").await;
    let shown = kubectl.ok("get quota").await;
    let (head, row) = shown.split_once('\n').expect("two lines");
    assert_eq!(head.split_whitespace().collect::<Vec<_>>(), ["NAME", "REQUEST", "LIMIT", "AGE"]);
    assert!(row.contains("pods: 2/2, requests.cpu: 1/1") && row.contains("limits.cpu: 2/2"), "{row}");
    let described = kubectl.ok("describe quota team").await;
    assert!(described.contains("requests.cpu  1     1"), "{described}");
    let described = kubectl.ok("describe limits sizes").await;
    let line = described.lines().find(|line| line.starts_with("Container")).expect("a row");
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["Container", "cpu", "-", "1", "500m", "1", "-"]);
    kubectl.ok("delete pod a --force --grace-period=0").await;
    kubectl.apply(&pod("c")).await;
    kubectl.ok("create quota small --hard=count/configmaps=1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_waits_for_the_budget() {
    let cluster = Cluster::start().await;
    let kubectl = Kubectl(&cluster);
    kubectl.apply(&node("n")).await;
    for name in ["a", "b"] {
        let mut pod = pod(name);
        pod["metadata"]["labels"] = json!({"app": "web"});
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "example.com/v1", "kind": "Set", "name": "s", "uid": "u", "controller": true}]);
        pod["spec"]["nodeName"] = json!("n");
        pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
        kubectl.apply(&pod).await;
        ready(&cluster, name).await;
    }
    kubectl.ok("create pdb web --selector=app=web --min-available=1").await;
    kubectl.ok("wait pdb/web --for=jsonpath={.status.disruptionsAllowed}=1 --timeout=20s").await;
    let shown = kubectl.ok("get pdb").await;
    let (head, row) = shown.split_once('\n').expect("two lines");
    assert!(
        head.starts_with("NAME") && head.contains("MIN AVAILABLE") && head.contains("ALLOWED DISRUPTIONS"),
        "{head}"
    );
    assert_eq!(row.split_whitespace().take(4).collect::<Vec<_>>(), ["web", "1", "N/A", "1"]);
    let refused = kubectl.run("drain n --timeout=3s").await;
    assert_ne!(refused.code, 0, "{}{}", refused.out, refused.err);
    assert!(
        refused.err.contains("Cannot evict pod as it would violate the pod's disruption budget."),
        "{}",
        refused.err
    );
    let left = kubectl.ok("get pods -o name").await;
    assert_eq!(left.lines().count(), 1, "one may go: {left}");
    // Another one takes its place elsewhere, while a second drain waits for it.
    let drain = kubectl.command("drain n --timeout=60s").output();
    let replace = async {
        let mut other = pod("c");
        other["metadata"]["labels"] = json!({"app": "web"});
        other["spec"]["nodeName"] = json!("elsewhere");
        kubectl.apply(&other).await;
        ready(&cluster, "c").await;
    };
    let (drained, ()) = tokio::join!(tokio::time::timeout(PATIENCE * 3, drain), replace);
    let drained = Said::from(drained.expect("in time").expect("kubectl runs"));
    assert_eq!(drained.code, 0, "{}{}", drained.out, drained.err);
    assert_eq!(kubectl.ok("get pods -o name").await, "pod/c\n");
    let described = kubectl.ok("describe pdb web").await;
    assert!(described.contains("Allowed disruptions:  0") && described.contains("Desired:"), "{described}");
}

/// A pod that runs, as its node would say.
async fn ready(cluster: &Cluster, name: &str) {
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    cluster.wire.merge(&format!("{PODS}/{name}/status"), &json!({ "status": status })).await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_volumes_and_classes() {
    let cluster = Cluster::start().await;
    let kubectl = Kubectl(&cluster);
    kubectl
        .apply(&json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}))
        .await;
    kubectl.ok("wait pvc/data --for=jsonpath={.status.phase}=Bound --timeout=20s").await;
    let shown = kubectl.ok("get sc").await;
    assert!(shown.contains("folder (default)") && shown.contains("pumice.sh/folder"), "{shown}");
    let shown = kubectl.ok("get pvc,pv").await;
    assert!(shown.contains("default/data") && shown.contains("Retain") && shown.contains("RWO"), "{shown}");
    let volume = kubectl.ok("get pvc data -o jsonpath={.spec.volumeName}").await;
    assert!(kubectl.ok("describe pvc data").await.contains("Status:        Bound"));
    let described = kubectl.ok(&format!("describe pv {volume}")).await;
    assert!(described.contains("pumice.sh/folder") && described.contains("default/data"), "{described}");
    kubectl.ok("delete pvc data").await;
    kubectl.ok(&format!("wait pv/{volume} --for=jsonpath={{.status.phase}}=Released --timeout=20s")).await;
    kubectl.ok(&format!("delete pv {volume}")).await;
    let said = kubectl
        .fed(
            "apply -f -",
            &json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "none"},
                "spec": {"podSelector": {"matchLabels": {"a": "b"}}}})
            .to_string(),
        )
        .await;
    assert!(said.err.contains("has no effect here"), "{}", said.err);
    assert!(kubectl.ok("get netpol").await.contains("a=b"));
}
