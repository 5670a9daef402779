//! A scheduler that admits every group, and nodes that run every pod at once.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use pumice_api::scheduling::{PodGroup, PodGroupPhase};
use pumice_cluster::{Change, WatchScope, watch};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

#[derive(Default)]
struct State {
    made: BTreeMap<String, u32>,
    /// Task of which no pod is run.
    held: Option<String>,
    waiting: Vec<Pod>,
}

pub struct World {
    pods: Api<Pod>,
    state: Arc<Mutex<State>>,
    released: Arc<Notify>,
    _tasks: JoinSet<()>,
}

impl World {
    pub fn start(client: Client) -> Self {
        let pods = Api::namespaced(client.clone(), "default");
        let (state, released) = (Arc::new(Mutex::new(State::default())), Arc::new(Notify::new()));
        let mut tasks = JoinSet::new();
        tasks.spawn(admit(Api::namespaced(client, "default")));
        tasks.spawn(run(pods.clone(), Arc::clone(&state), Arc::clone(&released)));
        Self { pods, state, released, _tasks: tasks }
    }

    pub fn made(&self) -> BTreeMap<String, u32> {
        self.state.lock().unwrap().made.clone()
    }

    /// Runs no pod of a task any more.
    pub fn hold_back(&self, task: &str) {
        self.state.lock().unwrap().held = Some(task.to_owned());
    }

    pub fn let_go(&self) {
        self.state.lock().unwrap().held = None;
        self.released.notify_one();
    }

    pub async fn out_of_memory(&self, name: &str) {
        self.end(name, json!({"exitCode": 137, "reason": "OOMKilled"})).await;
    }

    pub async fn fail(&self, name: &str, code: i32) {
        self.end(name, json!({"exitCode": code, "reason": "Error"})).await;
    }

    async fn end(&self, name: &str, terminated: Value) {
        let pod = self.pods.get(name).await.unwrap();
        assert!(set(&self.pods, &pod, "Failed", json!({"terminated": terminated})).await, "{name} is there");
    }

    pub async fn succeed_all(&self) {
        let all = self.pods.list(&ListParams::default()).await.unwrap().items;
        let ends = futures::stream::iter(&all)
            .map(|pod| set(&self.pods, pod, "Succeeded", json!({"terminated": {"exitCode": 0}})));
        let ended: Vec<bool> = ends.buffer_unordered(16).collect().await;
        assert!(ended.iter().all(|ended| *ended));
    }
}

async fn admit(groups: Api<PodGroup>) {
    let mut changes = std::pin::pin!(watch(groups.clone(), WatchScope::default()));
    while let Some(change) = changes.next().await {
        for group in present(change).into_iter().filter(|group| group.status.phase.is_none()) {
            let patch = json!({"metadata": {"uid": group.metadata.uid}, "status": {"phase": PodGroupPhase::Inqueue}});
            let name = group.metadata.name.as_deref().unwrap();
            // One that is gone meanwhile needs no admission.
            drop(groups.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await);
        }
    }
}

fn present<K>(change: Change<K>) -> Vec<K> {
    match change {
        Change::Replace(all) => all,
        Change::Applied(one) => vec![one],
        Change::Deleted(_) => Vec::new(),
    }
}

async fn run(pods: Api<Pod>, state: Arc<Mutex<State>>, released: Arc<Notify>) {
    let mut changes = std::pin::pin!(watch(pods.clone(), WatchScope::default()));
    let mut seen: HashSet<String> = HashSet::new();
    let mut calls = FuturesUnordered::new();
    let start = |pod: Pod| {
        let pods = pods.clone();
        async move {
            // One that is gone meanwhile needs nothing.
            set(&pods, &pod, "Running", json!({"running": {}})).await;
        }
    };
    loop {
        tokio::select! {
            change = changes.next() => {
                for pod in present(change.unwrap()) {
                    if !seen.insert(pod.metadata.uid.clone().unwrap()) {
                        continue;
                    }
                    let mut state = state.lock().unwrap();
                    let name = pod.metadata.name.clone().unwrap();
                    let held = state.held.as_ref().is_some_and(|task| name.starts_with(&format!("long-{task}-")));
                    *state.made.entry(name).or_default() += 1;
                    if held { state.waiting.push(pod) } else { calls.push(start(pod)) }
                }
            }
            Some(()) = calls.next() => {}
            () = released.notified() => calls.extend(std::mem::take(&mut state.lock().unwrap().waiting).into_iter().map(start)),
        }
    }
}

/// Tells what has become of a pod; false if it is not there any more.
async fn set(pods: &Api<Pod>, pod: &Pod, phase: &str, state: Value) -> bool {
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"phase": phase, "containerStatuses": [{
        "name": "c", "image": "none", "imageID": "", "restartCount": 0, "ready": phase == "Running", "state": state,
    }]}});
    pods.patch_status(pod.metadata.name.as_deref().unwrap(), &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .is_ok()
}
