//! Commands that look.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn get_prints_what_is_asked() {
    let cluster = furnished().await;
    let kubectl = Kubectl(&cluster);
    for (line, wanted) in [
        ("get pods", "NAME READY STATUS RESTARTS AGE / p 1/1 Running 2"),
        ("get pods -o wide", "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES / p 1/1 Running 2"),
        ("get po -A", "NAMESPACE NAME READY STATUS RESTARTS AGE / default p 1/1 Running 2"),
        ("get pods --show-labels", "NAME READY STATUS RESTARTS AGE LABELS / p 1/1 Running 2"),
        ("get pods -L tier --no-headers", "p 1/1 Running 2"),
        ("get pods -l tier=x -o name", "pod/p"),
        ("get pods -l tier!=x -o name", ""),
        ("get pods --field-selector=status.phase=Running,spec.nodeName=n -o name", "pod/p"),
        ("get pods --field-selector=status.phase=Pending -o name", ""),
        ("get po/p cm/a -o name", "pod/p / configmap/a"),
        ("get nodes", "NAME STATUS ROLES AGE VERSION / n Ready <none>"),
        ("get no n -o jsonpath={.status.capacity.cpu}", "4"),
        ("get pod p -o jsonpath={.spec.nodeName}:{.status.phase}", "n:Running"),
        ("get pod p -o 'jsonpath={range .spec.containers[*]}{.name}{end}'", "main"),
        ("get pods -o custom-columns=N:.metadata.name,P:.status.phase", "N P / p Running"),
        ("get pods -o 'go-template={{range .items}}{{.metadata.name}}{{end}}'", "p"),
        ("get vcjob", "NAME STATUS MINAVAILABLE RUNNINGS AGE / j"),
        ("get vcjob -o wide", "NAME STATUS MINAVAILABLE RUNNINGS AGE QUEUE / j"),
        ("get vj,q -o name", "job.batch.volcano.sh/j / queue.scheduling.volcano.sh/default"),
        ("get queue default -o name", "queue.scheduling.volcano.sh/default"),
        ("get ns -o name", "namespace/default"),
        (
            "get crd jobs.batch.volcano.sh -o name",
            "customresourcedefinition.apiextensions.k8s.io/jobs.batch.volcano.sh",
        ),
        ("get cm --sort-by=.metadata.name", "NAME DATA AGE / a 1"),
        ("get events --no-headers", ""),
        ("get all -o name", "pod/p"),
        ("get pods --chunk-size=1 -o name", "pod/p"),
        ("get pods none --ignore-not-found", ""),
    ] {
        let out = kubectl.ok(line).await;
        let lines: Vec<String> =
            out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let found = lines.join(" / ");
        assert!(
            if wanted.is_empty() { line.contains("events") || found.is_empty() } else { found.starts_with(wanted) },
            "{line}: {found}"
        );
    }
    let yaml = kubectl.ok("get pod p -o yaml").await;
    assert!(yaml.starts_with("apiVersion: v1\nkind: Pod\n"), "{yaml}");
    let list: Value = serde_json::from_str(&kubectl.ok("get cm -o json").await).expect("json");
    assert_eq!((&list["kind"], list["items"].as_array().map(Vec::len)), (&json!("List"), Some(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn describe_tells_the_story() {
    let cluster = furnished().await;
    let kubectl = Kubectl(&cluster);
    for (line, wanted) in [
        (
            "describe pod p",
            &[
                "Node:             n",
                "IP:               10.9.8.7",
                "Restart Count:  2",
                "Successfully assigned default/p to n",
                "Scheduled",
            ][..],
        ),
        (
            "describe vcjob j",
            &[
                "API Version:  batch.volcano.sh/v1alpha1",
                "Min Available:   1",
                "Scheduler Name:  volcano",
                "Events:",
                "<none>",
            ],
        ),
        ("describe queue default", &["API Version:  scheduling.volcano.sh/v1beta1", "Weight:"]),
        (
            "describe node n",
            &["Ready   True", "Allocatable:", "default                     p", "cpu                0 (0%)"],
        ),
        ("describe cm a", &["Data\n====\na:\n----\n1"]),
        ("describe ns default", &["Status:       Active"]),
        ("events --for pod/p", &["Successfully assigned default/p to n"]),
        ("get events", &["Scheduled", "pod/p"]),
    ] {
        let out = kubectl.ok(line).await;
        for part in wanted {
            assert!(out.contains(part), "{line}: {part:?} is not in\n{out}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_and_explain() {
    let cluster = Cluster::start().await;
    let kubectl = Kubectl(&cluster);
    let versions = kubectl.ok("api-versions").await;
    for wanted in [
        "v1",
        "batch.volcano.sh/v1alpha1",
        "scheduling.volcano.sh/v1beta1",
        "bus.volcano.sh/v1alpha1",
        "apiextensions.k8s.io/v1",
    ] {
        assert!(versions.lines().any(|line| line == wanted), "{wanted}: {versions}");
    }
    let resources = kubectl.ok("api-resources -o wide --no-headers").await;
    for wanted in ["pods po v1 true Pod", "jobs vcjob,vj batch.volcano.sh/v1alpha1 true Job", "nodes no v1 false Node"]
    {
        let found =
            resources.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ").starts_with(wanted));
        assert!(found, "{wanted}: {resources}");
    }
    assert_eq!(kubectl.ok("api-resources --api-group=bus.volcano.sh -o name").await, "commands.bus.volcano.sh\n");
    let namespaced = kubectl.ok("api-resources --namespaced=false -o name").await;
    assert!(namespaced.contains("queues.scheduling.volcano.sh") && !namespaced.contains("pods"), "{namespaced}");
    for (line, wanted) in [
        ("explain vcjob.spec", "minAvailable\t<integer>"),
        ("explain vcjob.spec.tasks.template.spec.containers.image", "image <string>"),
        ("explain queue", "KIND:       Queue"),
        ("explain pods.spec.containers", "image\t<string>"),
        ("explain pod --recursive", "terminationGracePeriodSeconds\t<integer>"),
    ] {
        let out = kubectl.ok(line).await;
        assert!(out.contains(wanted), "{line}: {out}");
    }
    kubectl.run("explain vcjob.nothing").await.fails("explain");
    let version: Value = serde_json::from_str(&kubectl.ok("version -o json").await).expect("json");
    assert!(version["serverVersion"]["gitVersion"].as_str().expect("text").starts_with("v1."));
    assert_eq!(kubectl.ok("get --raw /readyz").await, "ok");
    let list: Value = serde_json::from_str(&kubectl.ok("get --raw /api/v1/namespaces").await).expect("json");
    assert_eq!(list["kind"], "NamespaceList");
    assert!(kubectl.ok("cluster-info").await.contains("is running at"));
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_prints_every_event() {
    let cluster = Cluster::start().await;
    let kubectl = Kubectl(&cluster);
    let wire = &cluster.wire;
    wire.post(PODS, &pod("first")).await.is(201);
    let mut child = kubectl.command("get pods -w --output-watch-events --no-headers").spawn().expect("kubectl starts");
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(child.stdout.take().expect("piped")));
    let mut next = async || {
        let line =
            tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("an event").expect("text").expect("line");
        line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(next().await, "ADDED first");
    wire.post(PODS, &pod("second")).await.is(201);
    assert_eq!(next().await, "ADDED second");
    wire.merge(&format!("{PODS}/second/status"), &json!({"status": {"phase": "Running"}})).await.is(200);
    assert_eq!(next().await, "MODIFIED second");
    wire.delete(&format!("{PODS}/second"), &Value::Null).await.is(200);
    assert_eq!(next().await, "DELETED second");
    child.kill().await.expect("ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_ends_when_the_state_comes() {
    let cluster = furnished().await;
    let kubectl = Kubectl(&cluster);
    for line in [
        "wait --for=condition=Ready pod/p --timeout=20s",
        "wait --for=jsonpath={.status.phase}=Running pod/p --timeout=20s",
        "wait --for=condition=Established crd/jobs.batch.volcano.sh --timeout=20s",
        "wait --for=create pod/p --timeout=20s",
        "wait --for=delete pod/none --timeout=20s",
    ] {
        kubectl.ok(line).await;
    }
    kubectl.run("wait --for=condition=Ready=False pod/p --timeout=0s").await.fails("wait");
    let later = kubectl.run("wait --for=jsonpath={.status.state.phase}=Completed vcjob/j --timeout=20s");
    let change = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let patch = json!({"status": {"state": {"phase": "Completed"}}});
        cluster.wire.merge(&format!("{JOBS}/j/status"), &patch).await.is(200);
    };
    let (said, ()) = tokio::join!(later, change);
    assert_eq!(said.ok("wait"), "job.batch.volcano.sh/j condition met\n");
}
