//! The scheduler with its own rights against the embedded API server, in one process; the test plays all the others.

#![allow(clippy::unwrap_used, reason = "the harness of a test fails by panicking")]
#![allow(clippy::large_futures, reason = "a test has one of them")]

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use kube_runtime::wait::{Condition as _, await_condition, conditions};
use pumice_api::names;
use pumice_api::scheduling::{PodGroup, PodGroupPhase, Queue, QueueState};
use pumice_apiserver::{AdmitAll, ApiServer};
use pumice_auth::{Identity, Policy, built_in};
use pumice_cluster::Vitals as _;
use pumice_scheduler::{Handle, LeaseOptions, Options};
use pumice_store::Store;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Nothing here takes as long, unless it is broken.
const DEADLINE: Duration = Duration::from_secs(30);

struct Cluster {
    admin: Client,
    server: ApiServer,
}

impl Cluster {
    async fn new() -> Self {
        let store = Store::in_memory(pumice_store::Options::default()).unwrap();
        let admission = std::sync::Arc::new(AdmitAll);
        let server = ApiServer::builder(store, Policy::new(built_in())).admission(admission).build().await.unwrap();
        let service = server.client_service(Identity::new("admin", [names::GROUP_MASTERS]));
        let cluster = Self { admin: Client::new(service, "default"), server };
        let definitions: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
        for definition in pumice_api::crds::all() {
            let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
            let name = definitions.create(&PostParams::default(), &definition).await.unwrap().metadata.name.unwrap();
            let established =
                |crd: Option<&CustomResourceDefinition>| conditions::is_crd_established().matches_object(crd);
            cluster.wait(&definitions, &name, established).await;
        }
        cluster
    }

    /// Runs the scheduler beside `story`, to the story's end.
    async fn beside(&self, story: impl AsyncFnOnce(Handle)) {
        let service = self.server.client_service(Identity::new(names::USER_SCHEDULER, [pumice_auth::AUTHENTICATED]));
        let scheduler = Options::new(Client::new(service, "default")).build().unwrap();
        let handle = scheduler.handle();
        let shutdown = CancellationToken::new();
        let run = scheduler.run(shutdown.clone());
        let story = async {
            story(handle).await;
            shutdown.cancel();
        };
        let (result, ()) = tokio::join!(run, story);
        result.unwrap();
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.admin.clone(), "default")
    }

    fn queues(&self) -> Api<Queue> {
        Api::all(self.admin.clone())
    }

    async fn create<K>(&self, api: &Api<K>, object: Value) -> K
    where
        K: Clone + Debug + Serialize + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    async fn wait<K>(&self, api: &Api<K>, name: &str, wanted: impl Fn(Option<&K>) -> bool + Send) -> Option<K>
    where
        K: Resource + Clone + Debug + Send + DeserializeOwned + 'static,
    {
        match tokio::time::timeout(DEADLINE, await_condition(api.clone(), name, wanted)).await {
            Ok(result) => result.unwrap(),
            Err(_) => panic!("{name} is not as wanted: {:#?}", api.get_opt(name).await),
        }
    }

    async fn node(&self, name: &str, cpu: &str) {
        let nodes: Api<Node> = Api::all(self.admin.clone());
        let object = json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "4Gi", "pods": "110"}}});
        self.create(&nodes, object.clone()).await;
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&object)).await.unwrap();
    }

    async fn group(&self, name: &str, min_member: i32, queue: &str) {
        let spec = json!({"minMember": min_member, "queue": queue, "minResources": {"cpu": "1"}});
        self.create::<PodGroup>(&self.api(), json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    async fn pod(&self, group: &str, index: u32) -> String {
        let name = format!("{group}-{index}");
        let object = json!({
            "metadata": {"name": name, "annotations": {names::GROUP_NAME: group}},
            "spec": {"schedulerName": "volcano", "containers": [
                {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
        });
        self.create::<Pod>(&self.api(), object).await;
        name
    }

    async fn bound(&self, pod: &str) -> String {
        let is_bound = |pod: Option<&Pod>| node_of(pod).is_some();
        node_of(self.wait(&self.api::<Pod>(), pod, is_bound).await.as_ref()).unwrap()
    }

    async fn phase(&self, group: &str, phase: PodGroupPhase) -> PodGroup {
        let is_in = |group: Option<&PodGroup>| group.is_some_and(|group| group.status.phase == Some(phase.clone()));
        self.wait(&self.api::<PodGroup>(), group, is_in).await.unwrap()
    }
}

fn node_of(pod: Option<&Pod>) -> Option<String> {
    pod.and_then(|pod| pod.spec.as_ref()?.node_name.clone())
}

fn scheduled_reason(pod: Option<&Pod>) -> Option<String> {
    let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref())?;
    let condition = conditions.iter().find(|condition| condition.type_ == "PodScheduled")?;
    if condition.status == "False" { condition.reason.clone() } else { None }
}

#[tokio::test]
async fn a_gang_waits_for_room_tells_why_and_runs() {
    let cluster = Cluster::new().await;
    cluster.node("n1", "1").await;
    cluster
        .beside(async |handle| {
            let open = |queue: Option<&Queue>| queue.is_some();
            cluster.wait(&cluster.queues(), names::ROOT_QUEUE, open).await;
            cluster.wait(&cluster.queues(), names::DEFAULT_QUEUE, open).await;
            cluster.group("g", 2, "default").await;
            cluster.phase("g", PodGroupPhase::Inqueue).await;
            let pods = [cluster.pod("g", 0).await, cluster.pod("g", 1).await];
            let unscheduled = |pod: Option<&Pod>| scheduled_reason(pod).as_deref() == Some("Unschedulable");
            cluster.wait(&cluster.api::<Pod>(), &pods[0], unscheduled).await;
            let told = |group: Option<&PodGroup>| {
                group.is_some_and(|group| group.status.conditions.iter().any(|c| c.reason == "NotEnoughResources"))
            };
            let group = cluster.wait(&cluster.api::<PodGroup>(), "g", told).await.unwrap();
            let condition = &group.status.conditions[0];
            assert_eq!((condition.status.as_str(), condition.last_transition_time.is_some()), ("True", true));
            assert!(handle.why("default", "g").is_some());
            cluster.node("n2", "4").await;
            let nodes = [cluster.bound(&pods[0]).await, cluster.bound(&pods[1]).await];
            assert!(nodes.contains(&"n2".to_owned()), "{nodes:?}");
            cluster.phase("g", PodGroupPhase::Running).await;
            assert_eq!(handle.why("default", "g"), None);
            let holds = |queue: Option<&Queue>| {
                queue.and_then(|queue| queue.status.allocated.get("cpu")).is_some_and(|cpu| cpu.0 == "2")
            };
            cluster.wait(&cluster.queues(), "default", holds).await;
            for pod in &pods {
                let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
                cluster.api::<Pod>().delete(pod, &now).await.unwrap();
            }
            let holds_nothing = |queue: Option<&Queue>| {
                queue.is_some_and(|queue| {
                    queue.status.allocated["cpu"].0 == "0" && !queue.status.allocated.contains_key("pods")
                })
            };
            cluster.wait(&cluster.queues(), "default", holds_nothing).await;
        })
        .await;
}

#[tokio::test]
async fn a_bare_pod_is_bound_and_an_event_says_so() {
    let cluster = Cluster::new().await;
    cluster.node("n1", "1").await;
    cluster
        .beside(async |_| {
            let spec = json!({"containers": [{"name": "c", "image": "none"}]});
            cluster.create::<Pod>(&cluster.api(), json!({"metadata": {"name": "bare"}, "spec": spec})).await;
            assert_eq!(cluster.bound("bare").await, "n1");
            let events = pumice_cluster::watch(cluster.api::<Event>(), pumice_cluster::WatchScope::default());
            let mut events = std::pin::pin!(events);
            let scheduled = |event: &Event| event.reason.as_deref() == Some("Scheduled");
            let told = async {
                use futures::StreamExt as _;
                loop {
                    let found = match events.next().await.unwrap() {
                        pumice_cluster::Change::Replace(all) => all.iter().any(scheduled),
                        pumice_cluster::Change::Applied(event) => scheduled(&event),
                        pumice_cluster::Change::Deleted(_) => false,
                    };
                    if found {
                        return;
                    }
                }
            };
            tokio::time::timeout(DEADLINE, told).await.expect("an event says where the pod went");
        })
        .await;
}

#[tokio::test]
async fn a_closed_queue_takes_nothing_until_it_opens() {
    let cluster = Cluster::new().await;
    cluster.node("n1", "4").await;
    let queue = json!({"metadata": {"name": "q"}, "spec": {"weight": 1}});
    cluster.create::<Queue>(&cluster.queues(), queue).await;
    let state = async |state: QueueState| {
        let patch = json!({"status": {"state": state.as_str()}});
        cluster.queues().patch_status("q", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    };
    state(QueueState::Closed).await;
    cluster
        .beside(async |handle| {
            cluster.group("shut", 1, "q").await;
            cluster.group("open", 1, "default").await;
            cluster.phase("open", PodGroupPhase::Inqueue).await;
            let waiting = handle.why("default", "shut").expect("its queue is closed");
            assert_eq!(waiting.why.reasons.to_string(), "queue q is Closed and takes no new work");
            state(QueueState::Open).await;
            cluster.phase("shut", PodGroupPhase::Inqueue).await;
        })
        .await;
}

/// Another scheduler on the same objects, as after a crash: what was decided is read from them.
#[tokio::test]
async fn a_new_scheduler_goes_on_where_the_old_one_ended() {
    let cluster = Cluster::new().await;
    cluster.node("n1", "2").await;
    cluster
        .beside(async |_| {
            cluster.group("first", 1, "default").await;
            cluster.phase("first", PodGroupPhase::Inqueue).await;
            let pod = cluster.pod("first", 0).await;
            cluster.bound(&pod).await;
        })
        .await;
    // Something that ran before the crash held what nothing holds now.
    let held = json!({"status": {"allocated": {"nvidia.com/gpu": "2"}}});
    cluster.queues().patch_status("default", &PatchParams::default(), &Patch::Merge(&held)).await.unwrap();
    cluster.group("second", 1, "default").await;
    cluster
        .beside(async |handle| {
            let forgotten = |queue: Option<&Queue>| {
                queue.is_some_and(|queue| !queue.status.allocated.contains_key("nvidia.com/gpu"))
            };
            cluster.wait(&cluster.queues(), "default", forgotten).await;
            cluster.phase("second", PodGroupPhase::Inqueue).await;
            let pods = [cluster.pod("second", 0).await, cluster.pod("second", 1).await];
            let (one, other) = (cluster.api::<Pod>(), cluster.api::<Pod>());
            let bound = |pod: Option<&Pod>| node_of(pod).is_some();
            // One cpu is left, so only one of the two is placed.
            let placed = tokio::select! {
                _ = cluster.wait(&one, &pods[0], bound) => &pods[0],
                _ = cluster.wait(&other, &pods[1], bound) => &pods[1],
            };
            let left = pods.iter().find(|pod| *pod != placed).unwrap();
            let unscheduled = |pod: Option<&Pod>| scheduled_reason(pod).is_some();
            cluster.wait(&cluster.api::<Pod>(), left, unscheduled).await;
            assert!(handle.why("default", "second").unwrap().why.to_string().contains("insufficient cpu (short by 1)"));
        })
        .await;
}

#[tokio::test]
async fn one_of_two_schedules_and_the_other_takes_over() {
    let cluster = Cluster::new().await;
    cluster.node("n1", "4").await;
    let scheduler = |identity: &str| {
        let service = cluster.server.client_service(Identity::new(names::USER_SCHEDULER, [pumice_auth::AUTHENTICATED]));
        let mut options = Options::new(Client::new(service, "default"));
        options.lease = Some(LeaseOptions {
            retry: Duration::from_millis(50),
            ..LeaseOptions::new("default", "volcano", identity)
        });
        options.build().unwrap()
    };
    let holder = |wanted: &'static str| {
        move |lease: Option<&Lease>| {
            lease.and_then(|lease| lease.spec.as_ref()?.holder_identity.as_deref()) == Some(wanted)
        }
    };
    let (first, second) = (scheduler("first"), scheduler("second"));
    let watched = second.handle();
    let (stop_first, stop_second) = (CancellationToken::new(), CancellationToken::new());
    let story = async {
        cluster.wait(&cluster.api::<Lease>(), "volcano", holder("first")).await;
        let bare = async |name: &str| {
            let spec = json!({"containers": [{"name": "c", "image": "none"}]});
            cluster.create::<Pod>(&cluster.api(), json!({"metadata": {"name": name}, "spec": spec})).await;
            cluster.bound(name).await
        };
        bare("one").await;
        assert!(watched.metrics().contains("pumice_scheduler_leads 0"));
        stop_first.cancel();
        // Given up, not run out: that takes 15 seconds.
        let lease = cluster.wait(&cluster.api::<Lease>(), "volcano", holder("second")).await.unwrap();
        assert_eq!(lease.spec.unwrap().lease_transitions, Some(1));
        bare("two").await;
        assert!(watched.metrics().contains("pumice_scheduler_leads 1"));
        stop_second.cancel();
    };
    let start_second = async {
        cluster.wait(&cluster.api::<Lease>(), "volcano", holder("first")).await;
        second.run(stop_second.clone()).await
    };
    let (first, second, ()) = tokio::join!(first.run(stop_first.clone()), start_second, story);
    first.unwrap();
    second.unwrap();
}
