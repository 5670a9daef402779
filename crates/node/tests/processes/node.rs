//! A node agent with an embedded API server; the test plays user and scheduler.

use std::path::PathBuf;
use std::time::Duration;

use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use pumice_apiserver::ApiServer;
use pumice_auth::{Identity, Policy, built_in};
use pumice_linux::cgroup::CgroupSpec;
use pumice_node::{DeviceFolders, Handle, Options, ShimProgram, tear_down};
use pumice_shim::spec::{SPEC_FILE, ShimSpec};
use pumice_store::Store;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::harness::SHIM_ARGS;

/// Longest wait for anything; a test that needs it fails.
const DEADLINE: Duration = Duration::from_secs(60);
pub const NODE: &str = "test-node";

/// An API server and a node's data directory; the agent comes and goes.
pub struct TestNode {
    pub admin: Client,
    pub data_dir: tempfile::TempDir,
    server: ApiServer,
    agent: Option<(CancellationToken, JoinHandle<()>, Handle)>,
    image_map: Option<PathBuf>,
    /// What an agent that is started takes for the machine's devices.
    pub devices: DeviceFolders,
    /// Where it says that the API answers.
    pub api_port: Option<u16>,
}

impl TestNode {
    /// With the agent running and registered.
    pub async fn start() -> TestNode {
        let mut node = TestNode::without_agent().await;
        node.start_agent().await;
        node
    }

    pub async fn without_agent() -> TestNode {
        let store = Store::in_memory(pumice_store::Options::default()).unwrap();
        let server = ApiServer::builder(store, Policy::new(built_in())).build().await.unwrap();
        let admin = Client::new(server.client_service(Identity::new("admin", ["system:masters"])), "default");
        TestNode {
            admin,
            data_dir: tempfile::tempdir().unwrap(),
            server,
            agent: None,
            image_map: None,
            devices: DeviceFolders::default(),
            api_port: None,
        }
    }

    pub async fn with_image_map(text: &str) -> TestNode {
        let mut node = TestNode::without_agent().await;
        let path = node.data_dir.path().join("images.yaml");
        std::fs::write(&path, text).unwrap();
        node.image_map = Some(path);
        node.start_agent().await;
        node
    }

    #[allow(clippy::disallowed_methods, reason = "the test supervises the agent itself")]
    pub async fn start_agent(&mut self) {
        let identity = Identity::node(NODE);
        let client = Client::new(self.server.client_service(identity), "default");
        let shim = ShimProgram {
            embedded: None,
            program: std::env::current_exe().unwrap(),
            args: SHIM_ARGS.iter().map(Into::into).collect(),
        };
        let mut options = Options::new(client, self.data_dir.path().join("data"), NODE.into(), shim);
        options.image_map.clone_from(&self.image_map);
        options.devices = self.devices.clone();
        options.cpu_milli = Some(100_000);
        options.api_port = self.api_port;
        let agent = options.build().unwrap();
        let (handle, shutdown) = (agent.handle(), CancellationToken::new());
        let token = shutdown.clone();
        let task = tokio::spawn(async move { agent.run(token).await.unwrap() });
        self.agent = Some((shutdown, task, handle));
    }

    pub fn handle(&self) -> Handle {
        self.agent.as_ref().unwrap().2.clone()
    }

    /// Stops the agent in an orderly way.
    pub async fn stop_agent(&mut self) {
        let (shutdown, task, _) = self.agent.take().unwrap();
        shutdown.cancel();
        task.await.unwrap();
    }

    /// Ends the agent wherever it is, as `kill -9` would.
    pub async fn kill_agent(&mut self) {
        let (_, task, _) = self.agent.take().unwrap();
        task.abort();
        let _ = task.await;
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.admin.clone(), "default")
    }

    pub fn pod_dir(&self, pod: &Pod) -> PathBuf {
        self.data_dir.path().join("data/node/pods").join(pod.metadata.uid.as_ref().unwrap())
    }

    /// The process that is a pod's shim.
    pub fn shim_pid(&self, pod: &Pod) -> i32 {
        let text = std::fs::read_to_string(self.pod_dir(pod).join("shim.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["pid"].as_i64().unwrap() as i32
    }

    /// The control groups that a pod's shim was given.
    pub fn pod_groups(&self, uid: &str) -> Option<CgroupSpec> {
        let spec = std::fs::read(self.data_dir.path().join("data/node/pods").join(uid).join(SPEC_FILE)).unwrap();
        serde_json::from_slice::<ShimSpec>(&spec).unwrap().cgroup
    }

    /// Creates a pod that is bound to the node already.
    pub async fn create(&self, name: &str, spec: Value) -> Pod {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "nodeName": NODE, "restartPolicy": "Never"}});
        for (key, value) in spec.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        let pod: Pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap()
    }

    /// Creates a pod of one container that runs `script`.
    pub async fn sh(&self, name: &str, script: &str) -> Pod {
        self.create(name, json!({"containers": [sh(script)]})).await
    }

    pub async fn config_map(&self, name: &str, data: Value) {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(self.admin.clone(), "default");
        maps.create(&PostParams::default(), &map).await.unwrap();
    }

    pub async fn get(&self, name: &str) -> Option<Pod> {
        self.pods().get_opt(name).await.unwrap()
    }

    /// Waits until a pod is as wanted.
    pub async fn pod(&self, name: &str, what: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        let mut last = None;
        let waiting = async {
            loop {
                last = self.get(name).await;
                if let Some(pod) = last.as_ref().filter(|pod| wanted(pod)) {
                    return pod.clone();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let found = tokio::time::timeout(DEADLINE, waiting).await;
        found.unwrap_or_else(|_| panic!("pod {name} never was {what}: {:#?}", last.and_then(|pod| pod.status)))
    }

    pub async fn phase(&self, name: &str, phase: &str) -> Pod {
        self.pod(name, phase, |pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase)).await
    }

    /// The events about a pod.
    pub async fn events(&self, name: &str) -> Vec<Event> {
        let events: Api<Event> = Api::namespaced(self.admin.clone(), "default");
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        events.list(&about).await.unwrap().items
    }

    /// Waits for an event of this reason about a pod, that is as wanted.
    pub async fn event(&self, name: &str, reason: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        let looking = async {
            loop {
                let found = self.events(name).await;
                let mut found = found.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
                if let Some(event) = found.find(&wanted) {
                    return event;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let found = tokio::time::timeout(DEADLINE, looking).await;
        found.unwrap_or_else(|_| panic!("there never was an event {reason} as wanted about {name}"))
    }

    /// Waits until a pod's object and directory are gone.
    pub async fn gone(&self, pod: &Pod) {
        let (name, dir) = (pod.metadata.name.clone().unwrap(), self.pod_dir(pod));
        let waiting = async {
            while self.get(&name).await.is_some_and(|found| found.metadata.uid == pod.metadata.uid) || dir.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, waiting).await.unwrap_or_else(|_| panic!("pod {name} never went"));
    }

    pub async fn delete(&self, name: &str, params: &DeleteParams) {
        self.pods().delete(name, params).await.unwrap();
    }

    /// The log of a container, by the agent.
    pub async fn log(&self, pod: &str, container: &str) -> String {
        let uri = format!("/containerLogs/default/{pod}/{container}");
        let response = self.handle().answer(http::Request::get(uri).body(()).unwrap());
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    /// Waits until a log is as wanted.
    pub async fn log_when(&self, pod: &str, container: &str, wanted: impl Fn(&str) -> bool) -> String {
        let looking = async {
            loop {
                let log = self.log(pod, container).await;
                if wanted(&log) {
                    return log;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let found = tokio::time::timeout(DEADLINE, looking).await;
        found.unwrap_or_else(|_| panic!("the log of {container} in {pod} never was as wanted"))
    }

    /// Names of links on this host.
    pub fn links() -> Vec<String> {
        let entries = std::fs::read_dir("/sys/class/net").unwrap().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// The name of this node's bridge.
    pub fn bridge(&self) -> String {
        let text = std::fs::read_to_string(self.data_dir.path().join("data/node/network.json")).unwrap();
        let record: Value = serde_json::from_str(&text).unwrap();
        record["bridge"].as_str().unwrap().to_owned()
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        if let Some((_, task, _)) = self.agent.take() {
            task.abort();
        }
        let _ = tear_down(&self.data_dir.path().join("data"), Some(Duration::ZERO), |_, _| {});
    }
}

/// A container that runs `script`.
pub fn sh(script: &str) -> Value {
    json!({"name": "main", "image": "none", "command": ["/bin/sh", "-c", script]})
}
