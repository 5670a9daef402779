//! Stock kubectl over TLS: the commands people type.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::definitions::definition;
use crate::harness::{pod, server};

struct Kubectl {
    directory: tempfile::TempDir,
}

impl Kubectl {
    fn run(&self, arguments: &[&str]) -> Output {
        Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(self.directory.path().join("kubeconfig"))
            .args(arguments)
            .env("HOME", self.directory.path())
            .output()
            .expect("kubectl runs")
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "kubectl {arguments:?}: {out}{err}");
        out.into_owned()
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "kubectl {arguments:?} must fail");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn file(&self, name: &str, object: &Value) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, object.to_string()).expect("write");
        path.to_string_lossy().into_owned()
    }
}

#[allow(clippy::disallowed_methods)]
fn ci() -> bool {
    std::env::var("CI").is_ok()
}

fn kubectl_is_there() -> bool {
    let there = Command::new("kubectl").args(["version", "--client"]).output().is_ok();
    assert!(there || !ci(), "kubectl is missing: install it, or put it on the PATH");
    if !there {
        eprintln!("kubectl is missing: its tests are left out");
    }
    there
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_people_type_work() {
    if !kubectl_is_there() {
        return;
    }
    let directory = tempfile::tempdir().expect("directory");
    let server = server().await;
    let (stop, task) = server.listen(directory.path()).await;
    let kubectl = Kubectl { directory };
    tokio::task::spawn_blocking(move || {
        discovery(&kubectl);
        config_maps(&kubectl);
        events(&kubectl);
        protobuf(&kubectl);
        pods(&kubectl);
        definitions(&kubectl);
        articles(&kubectl);
        refusals(&kubectl);
        rights(&kubectl);
    })
    .await
    .expect("kubectl");
    stop.cancel();
    task.await.expect("the listener ends");
}

fn discovery(kubectl: &Kubectl) {
    let resources = kubectl.ok(&["api-resources"]);
    for name in ["configmaps", "pods", "priorityclasses", "customresourcedefinitions"] {
        assert!(resources.contains(name), "{resources}");
    }
    assert!(kubectl.ok(&["version"]).contains("v1.36.0+pumice"));
    assert!(kubectl.ok(&["explain", "pod.spec.containers.image"]).contains("string"));
    assert!(kubectl.ok(&["get", "ns"]).contains("pumice-system"));
    assert_eq!(kubectl.ok(&["get", "--raw", "/readyz"]), "ok");
}

fn events(kubectl: &Kubectl) {
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "eventTime": "2026-01-02T03:04:05.000006Z", "reportingController": "example.com/c", "reportingInstance": "c-0",
        "action": "Act", "reason": "Because", "type": "Normal", "note": "a note",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
    });
    kubectl.ok(&["create", "-f", &kubectl.file("event.json", &event)]);
    for resource in ["events.events.k8s.io", "events"] {
        let table = kubectl.ok(&["get", resource]);
        assert!(table.contains("LAST SEEN") && table.contains("pod/p") && table.contains("a note"), "{table}");
    }
    kubectl.ok(&["delete", "events.events.k8s.io", "e"]);
}

fn config_maps(kubectl: &Kubectl) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let file = kubectl.file("map.json", &map);
    kubectl.ok(&["create", "-f", &file]);
    let table = kubectl.ok(&["get", "cm"]);
    assert!(table.starts_with("NAME") && table.contains("DATA") && table.contains("AGE"), "{table}");
    kubectl.ok(&["patch", "cm", "a", "--type=merge", "-p", r#"{"data":{"k":"w"}}"#]);
    kubectl.ok(&["label", "cm", "a", "tier=x"]);
    kubectl.ok(&["annotate", "cm", "a", "note=y"]);
    assert_eq!(kubectl.ok(&["get", "cm", "-l", "tier=x", "-o", "jsonpath={.items[0].data.k}"]), "w");
    let team = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    let file = kubectl.file("team.json", &team);
    kubectl.ok(&["create", "-f", &file]);
    kubectl.ok(&["delete", "ns", "team", "--timeout=20s"]);
    kubectl.ok(&["delete", "cm", "a"]);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}});
    let file = kubectl.file("secret.json", &secret);
    kubectl.ok(&["create", "-f", &file]);
    assert!(kubectl.ok(&["describe", "secret", "s"]).contains("1 bytes"));
}

/// kubectl makes these objects itself, and sends them as protobuf.
fn protobuf(kubectl: &Kubectl) {
    kubectl.ok(&["create", "configmap", "made", "--from-literal=a=1", "--from-literal=empty="]);
    assert_eq!(kubectl.ok(&["get", "cm", "made", "-o", "jsonpath={.data}"]), r#"{"a":"1","empty":""}"#);
    kubectl.ok(&["create", "secret", "generic", "made", "--from-literal=k=v"]);
    assert_eq!(kubectl.ok(&["get", "secret", "made", "-o", "jsonpath={.data.k} {.type}"]), "dg== Opaque");
    kubectl.ok(&["create", "namespace", "made"]);
    kubectl.ok(&["create", "serviceaccount", "made"]);
    kubectl.ok(&["create", "service", "clusterip", "made", "--clusterip=None", "--tcp=80:http"]);
    let port = kubectl.ok(&["get", "svc", "made", "-o", "jsonpath={.spec.ports[0].targetPort}"]);
    assert_eq!(port, "http");
    kubectl.ok(&["create", "priorityclass", "made", "--value=0", "--description=none"]);
    assert_eq!(kubectl.ok(&["get", "priorityclass", "made", "-o", "jsonpath={.value}"]), "0");
    assert_eq!(kubectl.ok(&["get", "cm", "--chunk-size=1", "-o", "name"]), "configmap/made\n");
    kubectl.ok(&["delete", "ns", "made", "--timeout=20s"]);
}

fn pods(kubectl: &Kubectl) {
    let file = kubectl.file("pod.json", &pod("p"));
    assert!(kubectl.ok(&["apply", "-f", &file]).contains("created"));
    assert!(kubectl.ok(&["apply", "-f", &file]).contains("unchanged"));
    let table = kubectl.ok(&["get", "pods", "-o", "wide"]);
    assert!(table.contains("0/1") && table.contains("Pending") && table.contains("NODE"), "{table}");
    kubectl.ok(&["wait", "pod/p", "--for=jsonpath={.status.phase}=Pending", "--timeout=20s"]);
    assert!(kubectl.ok(&["get", "pods", "-o", "yaml"]).contains("terminationGracePeriodSeconds: 30"));
    kubectl.ok(&["describe", "pod", "p"]);
    kubectl.ok(&["delete", "pod", "p", "--timeout=20s"]);
    kubectl.ok(&["run", "r", "--image=busybox", "--restart=Never", "--", "true"]);
    kubectl.ok(&["delete", "pod", "r", "--now", "--timeout=20s"]);
}

fn rights(kubectl: &Kubectl) {
    let mut role = crate::rights::role("Role", "reader", &["get", "list"], &["pods"]);
    let mut binding = crate::rights::binding("RoleBinding", "ann", "Role", "reader", &crate::rights::user("ann"));
    for object in [&mut role, &mut binding] {
        object["metadata"]["namespace"] = json!("default");
    }
    let file = kubectl.file("rights.json", &json!({"apiVersion": "v1", "kind": "List", "items": [role, binding]}));
    kubectl.ok(&["apply", "-f", &file]);
    assert!(kubectl.ok(&["apply", "-f", &file]).contains("unchanged"));
    assert!(kubectl.ok(&["get", "role,rolebinding"]).contains("Role/reader"));
    assert!(kubectl.ok(&["get", "clusterroles"]).contains("cluster-admin"));
    assert!(kubectl.ok(&["describe", "role", "reader"]).contains("[get list]"));
    assert!(kubectl.ok(&["get", "pods", "--as", "ann"]).is_empty());
    assert!(kubectl.fails(&["get", "secrets", "--as", "ann"]).contains("User \"ann\" cannot list"));
    assert!(kubectl.ok(&["auth", "reconcile", "-f", &file]).contains("reconciled"));
    assert_eq!(kubectl.ok(&["auth", "can-i", "list", "pods", "--as", "ann"]).trim(), "yes");
    kubectl.fails(&["auth", "can-i", "delete", "pods", "--as", "ann"]);
    assert!(kubectl.ok(&["auth", "can-i", "--list", "--as", "ann"]).contains("[get list]"));
    assert!(kubectl.ok(&["auth", "whoami"]).contains("system:masters"));
    assert_eq!(kubectl.ok(&["create", "token", "default"]).trim().split('.').count(), 3);
}

fn definitions(kubectl: &Kubectl) {
    let file = kubectl.file("definition.json", &definition());
    kubectl.ok(&["apply", "-f", &file]);
    kubectl.ok(&["wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=20s"]);
    let mut widget = crate::definitions::widget("w");
    let file = kubectl.file("widget.json", &widget);
    kubectl.ok(&["apply", "-f", &file]);
    widget["spec"]["color"] = json!("blue");
    let file = kubectl.file("widget.json", &widget);
    assert!(kubectl.ok(&["apply", "-f", &file]).contains("configured"));
    assert_eq!(kubectl.ok(&["get", "wd", "w", "-o", "jsonpath={.spec.color}"]), "blue");
    assert!(kubectl.ok(&["get", "widgets"]).contains("SIZE"));
    kubectl.ok(&["scale", "widget", "w", "--replicas=6"]);
    assert!(kubectl.ok(&["explain", "widget.spec.size"]).contains("integer"));
    kubectl.ok(&["delete", "widget", "w", "--cascade=foreground", "--timeout=20s"]);
}

/// The manifests that Volcano's introduction shows, applied as people would.
fn articles(kubectl: &Kubectl) {
    for (index, definition) in pumice_api::crds::all().iter().enumerate() {
        let file = kubectl.file(&format!("crd-{index}.json"), definition);
        kubectl.ok(&["create", "-f", &file]);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/articles");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        assert!(!ci(), "the fixtures are missing at {}", folder.display());
        return;
    };
    let mut applied = 0;
    for entry in entries.flatten().filter(|entry| entry.path().extension().is_some_and(|ending| ending == "yaml")) {
        let path = entry.path().to_string_lossy().into_owned();
        assert!(kubectl.ok(&["apply", "-f", &path]).contains("created"), "{path}");
        // Defaults inside lists make kubectl send the same object again; for the server nothing changes then.
        let revision = || kubectl.ok(&["get", "-f", &path, "-o", "jsonpath={.metadata.resourceVersion}"]);
        let before = revision();
        kubectl.ok(&["apply", "-f", &path]);
        assert_eq!(revision(), before, "{path}");
        applied += 1;
    }
    assert!(applied >= 5, "{applied}");
    assert!(kubectl.ok(&["get", "vcjob"]).contains("test-job"));
    kubectl.ok(&["delete", "vcjob", "--all", "--timeout=20s"]);
}

fn refusals(kubectl: &Kubectl) {
    assert!(kubectl.fails(&["get", "cm", "none"]).contains("configmaps \"none\" not found"));
    let mut odd = pod("odd");
    odd["spec"]["containerz"] = json!([]);
    let file = kubectl.file("odd.json", &odd);
    assert!(kubectl.fails(&["create", "-f", &file]).contains("unknown field \"spec.containerz\""));
    odd = pod("odd");
    odd["spec"]["containers"][0]["image"] = json!("");
    let file = kubectl.file("odd.json", &odd);
    assert!(kubectl.fails(&["create", "-f", &file]).contains("spec.containers[0].image: Required value"));
    assert!(kubectl.fails(&["delete", "ns", "default"]).contains("may not be deleted"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_over_tls_ends_with_the_server() {
    if !kubectl_is_there() {
        return;
    }
    let directory = tempfile::tempdir().expect("directory");
    let server = server().await;
    let (stop, task) = server.listen(directory.path()).await;
    let mut child = Command::new("kubectl")
        .arg("--kubeconfig")
        .arg(directory.path().join("kubeconfig"))
        .args(["get", "cm", "-w", "--no-headers"])
        .env("HOME", directory.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("kubectl runs");
    let stdout = child.stdout.take().expect("piped");
    let first = tokio::task::spawn_blocking(move || {
        use std::io::BufRead as _;
        let mut line = String::new();
        std::io::BufReader::new(stdout).read_line(&mut line).map(|_| line)
    });
    server.post(crate::harness::MAPS, &crate::harness::config_map("seen")).await.is(201);
    assert!(first.await.expect("task").expect("line").contains("seen"));
    stop.cancel();
    task.await.expect("the listener ends");
    tokio::task::spawn_blocking(move || child.wait()).await.expect("task").expect("kubectl ends");
}
