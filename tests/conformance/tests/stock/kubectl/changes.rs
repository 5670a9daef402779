//! Commands that make and change.

use super::*;
use crate::wire::MAPS;

#[tokio::test(flavor = "multi_thread")]
async fn apply_makes_keeps_and_changes() {
    let cluster = furnished().await;
    let kubectl = Kubectl(&cluster);
    let mut changing = queue("team");
    let wanted = |verb: &str| format!("queue.scheduling.volcano.sh/team {verb}\n");
    assert_eq!(kubectl.apply(&changing).await, wanted("created"));
    assert_eq!(kubectl.apply(&changing).await, wanted("unchanged"));
    changing["spec"]["weight"] = json!(5);
    changing["spec"].as_object_mut().expect("spec").remove("reclaimable");
    let said = kubectl.fed("diff -f -", &changing.to_string()).await;
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert!(said.out.contains("-  weight: 1") && said.out.contains("+  weight: 5"), "{}", said.out);
    assert_eq!(kubectl.apply(&changing).await, wanted("configured"));
    assert_eq!(kubectl.fed("diff -f -", &changing.to_string()).await.code, 0, "no difference is left");
    let spec = cluster.wire.get(&format!("{QUEUES}/team")).await.body["spec"].clone();
    assert_eq!((&spec["weight"], spec.get("reclaimable")), (&json!(5), None), "what was left out goes");
    for object in [map("m"), pod("q")] {
        kubectl.apply(&object).await;
        let again = kubectl.apply(&object).await;
        assert!(again.ends_with("unchanged\n"), "{again}");
    }
    let mut changed = map("m");
    changed["data"] = json!({"z": "1"});
    assert_eq!(kubectl.apply(&changed).await, "configmap/m configured\n");
    assert_eq!(kubectl.ok("get cm m -o jsonpath={.data}").await, "{\"z\":\"1\"}", "what was left out goes");
    let mut scaled = job("scaled");
    // A merge patch replaces the whole list of tasks: what admission filled in there has to stand in the manifest.
    scaled["spec"]["tasks"][0]["maxRetry"] = json!(3);
    scaled["spec"]["tasks"][0]["minAvailable"] = json!(1);
    assert_eq!(kubectl.apply(&scaled).await, "job.batch.volcano.sh/scaled created\n");
    assert_eq!(kubectl.apply(&scaled).await, "job.batch.volcano.sh/scaled unchanged\n");
    scaled["spec"]["tasks"][0]["replicas"] = json!(4);
    assert_eq!(kubectl.apply(&scaled).await, "job.batch.volcano.sh/scaled configured\n");
    assert_eq!(kubectl.ok("get vcjob scaled -o jsonpath={.spec.tasks[0].replicas}").await, "4");
}

/// Lists of built-in kinds merge by their keys, so `apply` leaves alone what others wrote into them.
#[tokio::test(flavor = "multi_thread")]
async fn apply_keeps_what_others_added_to_a_list() {
    let cluster = furnished().await;
    let kubectl = Kubectl(&cluster);
    let port = |name: &str, port: u16| json!({"name": name, "port": port});
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "peers"},
        "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [port("one", 1), port("two", 2)]}});
    assert_eq!(kubectl.apply(&service).await, "service/peers created\n");
    let added = "patch service peers -p '{\"spec\":{\"ports\":[{\"name\":\"theirs\",\"port\":9}]}}'";
    assert_eq!(kubectl.ok(added).await, "service/peers patched\n");
    service["spec"]["ports"] = json!([port("two", 2), port("three", 3)]);
    assert_eq!(kubectl.apply(&service).await, "service/peers configured\n");
    let revision = "get service peers -o jsonpath={.metadata.resourceVersion}";
    let before = kubectl.ok(revision).await;
    // kubectl states the order anew wherever others' items are in a list, and calls that "configured".
    assert_eq!(kubectl.apply(&service).await, "service/peers configured\n");
    assert_eq!(kubectl.ok(revision).await, before, "nothing is written that changes nothing");
    let names = kubectl.ok("get service peers -o jsonpath={.spec.ports[*].name}").await;
    assert_eq!(names, "theirs two three", "ours in our order, one of ours gone, theirs kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn create_and_replace_take_manifests() {
    let cluster = furnished().await;
    let kubectl = Kubectl(&cluster);
    let several = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa", "namespace": "team"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "team"}, "stringData": {"a": "b"}}),
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "hi"}, "value": 10}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "svc", "namespace": "team"},
            "spec": {"clusterIP": "None", "selector": {"a": "b"}}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "pvc", "namespace": "team"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
    ];
    let text: Vec<String> = several.iter().map(Value::to_string).collect();
    let out = kubectl.fed("create -f -", &text.join("\n")).await.ok("create");
    let wanted = "namespace/team created\nserviceaccount/sa created\nsecret/s created\n\
                  priorityclass.scheduling.k8s.io/hi created\nservice/svc created\npersistentvolumeclaim/pvc created\n";
    assert_eq!(out, wanted);
    let again = kubectl.fed("create -f -", &text[0]).await.fails("create");
    assert!(
        again.contains("Error from server (AlreadyExists)") && again.contains("namespaces \"team\" already exists"),
        "{again}"
    );
    assert_eq!(
        kubectl
            .fed(
                "create -f - -o name",
                "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"generateName\":\"gen-\"}}"
            )
            .await
            .ok("create")
            .find("configmap/gen-"),
        Some(0)
    );
    let mut changed = map("a");
    changed["data"] = json!({"b": "2"});
    assert_eq!(kubectl.fed("replace -f -", &changed.to_string()).await.ok("replace"), "configmap/a replaced\n");
    assert_eq!(cluster.wire.get(&format!("{MAPS}/a")).await.body["data"], json!({"b": "2"}));
    let mut changed = queue("default");
    changed["spec"]["weight"] = json!(3);
    kubectl.fed("replace -f -", &changed.to_string()).await.ok("replace");
    kubectl.fed("replace --force -f -", &job("j").to_string()).await.ok("replace --force");
    kubectl.fed("replace -f -", &map("none").to_string()).await.fails("replace");
    let dry = kubectl.ok("run x --image=busybox --dry-run=server -o yaml").await;
    assert!(dry.contains("schedulerName: default-scheduler"), "{dry}");
    // In protobuf.
    kubectl.ok("create configmap lit --from-literal=k=v").await;
    assert_eq!(kubectl.ok("get cm lit -o jsonpath={.data.k}").await, "v");
}

#[tokio::test(flavor = "multi_thread")]
async fn small_changes() {
    let cluster = furnished().await;
    let kubectl = Kubectl(&cluster);
    for (line, wanted) in [
        ("patch cm a --type=merge -p '{\"data\":{\"b\":\"2\"}}'", "configmap/a patched"),
        ("patch cm a --type=merge -p '{\"data\":{\"b\":\"2\"}}'", "configmap/a patched (no change)"),
        ("patch cm a --type=json -p '[{\"op\":\"remove\",\"path\":\"/data/b\"}]'", "configmap/a patched"),
        (
            "patch queue default --type=merge -p '{\"spec\":{\"weight\":7}}'",
            "queue.scheduling.volcano.sh/default patched",
        ),
        (
            "patch vcjob j --subresource=status --type=merge -p '{\"status\":{\"state\":{\"phase\":\"Running\"}}}'",
            "job.batch.volcano.sh/j patched",
        ),
        ("patch cm a -p '{\"data\":{\"c\":\"3\"}}'", "configmap/a patched"),
        ("patch cm a -p '{\"data\":{\"c\":null}}'", "configmap/a patched"),
        ("patch cm a -p '{\"data\":{\"c\":null}}'", "configmap/a patched (no change)"),
        ("taint node n a=b:NoSchedule", "node/n tainted"),
        ("taint node n c=d:NoExecute", "node/n tainted"),
        ("taint node n a-", "node/n untainted"),
        ("set image pod/p main=other:2", "pod/p image updated"),
        ("label pod p colour=red", "pod/p labeled"),
        ("label pod p colour=red", "pod/p not labeled"),
        ("label pod p colour=blue --overwrite", "pod/p labeled"),
        ("label pods --all extra=1", "pod/p labeled"),
        ("label pod p colour-", "pod/p unlabeled"),
        ("annotate vcjob j a.b/c=d", "job.batch.volcano.sh/j annotated"),
        ("annotate vcjob j a.b/c-", "job.batch.volcano.sh/j annotated"),
        ("label node n role=worker", "node/n labeled"),
    ] {
        assert_eq!(kubectl.ok(line).await.trim(), wanted, "{line}");
    }
    assert_eq!(kubectl.ok("get pod p -o jsonpath={.metadata.labels}").await, "{\"extra\":\"1\",\"tier\":\"x\"}");
    assert_eq!(kubectl.ok("get node n -o jsonpath={.spec.taints[*].key}").await, "c");
    assert_eq!(kubectl.ok("get pod p -o jsonpath={.spec.containers[*].image}").await, "other:2");
    kubectl.run("label pod p tier=y").await.fails("label without --overwrite");
    let edited = kubectl
        .command("edit queue default")
        .env("EDITOR", "sed -i s/weight:.*/weight:\\ 9/")
        .output()
        .await
        .expect("edit");
    assert!(edited.status.success(), "{edited:?}");
    assert_eq!(kubectl.ok("get queue default -o jsonpath={.spec.weight}").await, "9");
}
