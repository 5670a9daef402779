//! Probes and hooks of real containers; a folder of the host tells both sides how things are.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::harness::{is_root, wait_for};
use crate::node::{TestNode, sh};

/// Lives until it is told to end, and says then what it found in the folder.
const LIVES: &str = "trap 'ls /v >/v/found; exit 0' TERM\n: >/v/lives\nsleep 1000 & wait";

/// A node with a folder that pods have as `/v`.
struct Attended {
    node: TestNode,
    folder: tempfile::TempDir,
}

impl Attended {
    async fn start() -> Attended {
        Attended { node: TestNode::start().await, folder: tempfile::tempdir().unwrap() }
    }

    /// A pod of one container that lives, with these fields beside.
    async fn create(&self, restart_policy: &str, fields: Value) -> Pod {
        let mut container = sh(LIVES);
        container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        for (key, value) in fields.as_object().unwrap() {
            container[key] = value.clone();
        }
        let volumes = json!([{"name": "v", "hostPath": {"path": self.folder.path()}}]);
        let spec = json!({"containers": [container], "volumes": volumes, "restartPolicy": restart_policy,
            "terminationGracePeriodSeconds": 20});
        self.node.create("p", spec).await
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn touch(&self, name: &str) {
        std::fs::write(self.file(name), "").unwrap();
    }

    /// Waits until the program is one that can be told to end.
    async fn lives(&self) {
        tokio::task::block_in_place(|| wait_for("the program's trap", || self.file("lives").exists().then_some(())));
    }

    async fn until(&self, what: &str, wanted: impl Fn(&ContainerStatus) -> bool) -> Pod {
        let of = |pod: &Pod| pod.status.as_ref()?.container_statuses.as_ref()?.first().cloned();
        self.node.pod("p", what, |pod| of(pod).is_some_and(|container| wanted(&container))).await
    }

    /// Waits for an event with this reason and gives its text.
    async fn event(&self, reason: &str) -> String {
        self.node.event("p", reason, |_| true).await.message.unwrap()
    }
}

fn condition(pod: &Pod, kind: &str) -> String {
    let conditions = pod.status.as_ref().unwrap().conditions.as_ref().unwrap();
    conditions.iter().find(|condition| condition.type_ == kind).unwrap().status.clone()
}

fn exec(command: &str) -> Value {
    json!({"exec": {"command": ["/bin/sh", "-c", command]}})
}

/// Asks every second, and believes each answer.
fn probe(command: &str) -> Value {
    let mut probe = exec(command);
    probe["periodSeconds"] = json!(1);
    probe["failureThreshold"] = json!(1);
    probe["timeoutSeconds"] = json!(30);
    probe
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_ready_is_shown_as_such() {
    if !is_root() {
        return;
    }
    let test = Attended::start().await;
    test.create("Never", json!({"readinessProbe": probe("echo no door; test -e /v/ready")})).await;
    let pod = test.until("started", |container| container.started == Some(true) && !container.ready).await;
    assert_eq!(condition(&pod, "Ready"), "False");
    assert_eq!(test.event("Unhealthy").await, "Readiness probe failed: command terminated with exit code 1: no door");
    test.touch("ready");
    let pod = test.until("ready", |container| container.ready).await;
    assert_eq!((condition(&pod, "Ready"), condition(&pod, "ContainersReady")), ("True".into(), "True".into()));
    std::fs::remove_file(test.file("ready")).unwrap();
    test.until("not ready any more", |container| !container.ready && container.restart_count == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_well_is_started_again() {
    if !is_root() {
        return;
    }
    let test = Attended::start().await;
    let mut startup = probe("test -e /v/up");
    startup["failureThreshold"] = json!(1000);
    let fields = json!({"startupProbe": startup, "livenessProbe": probe("test ! -e /v/ill"),
        "lifecycle": {"preStop": exec("touch /v/bye")}});
    test.create("Always", fields).await;
    let pod = test.until("running", |container| container.state.as_ref().is_some_and(|s| s.running.is_some())).await;
    assert_eq!(pod.status.unwrap().container_statuses.unwrap()[0].started, Some(false));
    test.lives().await;
    test.touch("up");
    test.until("started", |container| container.started == Some(true) && container.ready).await;
    test.touch("ill");
    test.until("ended", |container| container.last_state.as_ref().is_some_and(|last| last.terminated.is_some())).await;
    let found = std::fs::read_to_string(test.file("found")).unwrap();
    assert_eq!(found, "bye\nfound\nill\nlives\nup\n", "its last hook came first");
    assert_eq!(test.event("Killing").await, "Container main failed liveness probe, will be restarted");
    std::fs::remove_file(test.file("ill")).unwrap();
    let pod = test.until("up again", |container| container.restart_count == 1 && container.ready).await;
    let last = pod.status.unwrap().container_statuses.unwrap()[0].last_state.clone().unwrap().terminated.unwrap();
    assert_eq!(last.exit_code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_are_called_after_the_start_and_before_the_end() {
    if !is_root() {
        return;
    }
    let mut test = Attended::start().await;
    let fields = json!({"lifecycle": {"postStart": exec("echo hello >>/v/hello"), "preStop": exec("touch /v/bye")}});
    let pod = test.create("Never", fields).await;
    test.until("started", |container| container.started == Some(true) && container.ready).await;
    assert_eq!(std::fs::read_to_string(test.file("hello")).unwrap(), "hello\n");
    test.lives().await;
    // What was done once is not done again by the next agent.
    test.node.kill_agent().await;
    test.node.start_agent().await;
    test.node.delete("p", &DeleteParams::default()).await;
    test.node.gone(&pod).await;
    assert_eq!(std::fs::read_to_string(test.file("found")).unwrap(), "bye\nfound\nhello\nlives\n");
    assert_eq!(std::fs::read_to_string(test.file("hello")).unwrap(), "hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_after_a_sidecar_waits_until_it_is_up() {
    if !is_root() {
        return;
    }
    let mut test = Attended::start().await;
    let mounts = json!([{"name": "v", "mountPath": "/v"}]);
    let mut startup = probe("test -e /v/up");
    startup["failureThreshold"] = json!(1000);
    let side = json!({"name": "side", "image": "none", "command": ["sleep", "1000"], "restartPolicy": "Always",
        "startupProbe": startup, "volumeMounts": mounts});
    let next = json!({"name": "next", "image": "none", "command": ["touch", "/v/next"], "volumeMounts": mounts});
    let main = json!({"name": "main", "image": "none", "command": ["test", "-e", "/v/next"], "volumeMounts": mounts});
    let volumes = json!([{"name": "v", "hostPath": {"path": test.folder.path()}}]);
    let spec = json!({"initContainers": [side, next], "containers": [main], "volumes": volumes,
        "terminationGracePeriodSeconds": 1});
    test.node.create("p", spec).await;
    test.node.event("p", "Unhealthy", |event| event.count >= Some(2)).await;
    let pod = test.node.get("p").await.unwrap();
    assert_eq!(
        (condition(&pod, "Initialized"), pod.status.unwrap().phase.as_deref()),
        ("False".into(), Some("Pending"))
    );
    assert!(!test.file("next").exists());
    // Nor does it wait for ever where the agent was away meanwhile.
    test.node.kill_agent().await;
    test.touch("up");
    test.node.start_agent().await;
    let pod = test.node.phase("p", "Succeeded").await;
    let side = pod.status.unwrap().init_container_statuses.unwrap()[0].clone();
    assert_eq!((side.name.as_str(), side.restart_count), ("side", 0));
    assert!(side.state.unwrap().terminated.is_some(), "it ended with the pod");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_hook_that_fails_ends_its_container() {
    if !is_root() {
        return;
    }
    let test = Attended::start().await;
    test.create("Never", json!({"lifecycle": {"postStart": exec("exit 7")}})).await;
    // It may be told to end before it has set its trap.
    test.node
        .pod("p", "over", |pod| {
            matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
        })
        .await;
    let message = test.event("FailedPostStartHook").await;
    assert_eq!(message, "PostStartHook failed: command terminated with exit code 7");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_last_hook_has_no_longer_than_its_pod() {
    if !is_root() {
        return;
    }
    let test = Attended::start().await;
    let pod = test.create("Never", json!({"lifecycle": {"preStop": exec("touch /v/begun; sleep 1000")}})).await;
    test.node.phase("p", "Running").await;
    test.node.delete("p", &DeleteParams::default().grace_period(5)).await;
    test.node.gone(&pod).await;
    wait_for("the hook's beginning", || test.file("begun").exists().then_some(()));
    let message = test.event("FailedPreStopHook").await;
    assert!(message.starts_with("PreStopHook of container main failed: no answer within "), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_this_node_can_not_ask_is_said() {
    let test = Attended::start().await;
    test.create("Never", json!({"livenessProbe": {"httpGet": {"port": 1, "scheme": "FTP"}}})).await;
    let reason = |container: &ContainerStatus| container.state.clone()?.waiting?.reason;
    let pod = test.until("refused", |found| reason(found).as_deref() == Some("CreateContainerConfigError")).await;
    let waiting = pod.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap().waiting.unwrap();
    assert_eq!(waiting.message.unwrap(), "this node can't provide probes and hooks over \"FTP\"");
}
