//! An API server, controllers with their own rights, and an administrator who plays the rest.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use kube_runtime::wait::{await_condition, conditions};
use pumice_api::batch::{Job, JobPhase};
use pumice_api::bus::Command;
use pumice_api::names;
use pumice_api::scheduling::{PodGroup, PodGroupPhase, Queue};
use pumice_apiserver::ApiServer;
use pumice_auth::{Identity, Policy, built_in};
use pumice_store::Store;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Nothing here takes as long, unless it is broken.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// How often is looked at what no watch tells.
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub struct Cluster {
    pub admin: Client,
    server: ApiServer,
    controllers: Option<(CancellationToken, JoinHandle<()>)>,
    vitals: Option<pumice_controllers::Handle>,
}

impl Cluster {
    /// A cluster with the queue `default` and running controllers.
    pub async fn start() -> Self {
        let mut cluster = Self::without_controllers(Arc::new(pumice_apiserver::AdmitAll)).await;
        cluster.start_controllers();
        cluster
    }

    pub async fn without_controllers(admission: Arc<dyn pumice_apiserver::Admission>) -> Self {
        let store = Store::in_memory(pumice_store::Options::default()).unwrap();
        let server = ApiServer::builder(store, Policy::new(built_in())).admission(admission).build().await.unwrap();
        let admin = Client::new(as_admin(&server), "default");
        let cluster = Self { admin, server, controllers: None, vitals: None };
        let definitions: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
        for definition in pumice_api::crds::all() {
            let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
            let created = definitions.create(&PostParams::default(), &definition).await.unwrap();
            let name = created.metadata.name.unwrap();
            cluster
                .wait(&definitions, &name, |crd| {
                    use kube_runtime::wait::Condition as _;
                    conditions::is_crd_established().matches_object(crd)
                })
                .await;
        }
        cluster
            .create::<Queue>(
                &Api::all(cluster.admin.clone()),
                json!({
                    "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"},
                    "spec": {"weight": 1},
                }),
            )
            .await;
        cluster
    }

    /// The API as an administrator sees it.
    pub fn admin_service(&self) -> pumice_apiserver::ClientService {
        as_admin(&self.server)
    }

    /// The API as the controllers may see it.
    pub fn controllers_service(&self) -> pumice_apiserver::ClientService {
        self.server.client_service(Identity::new(names::USER_CONTROLLERS, [pumice_auth::AUTHENTICATED]))
    }

    pub fn start_controllers(&mut self) {
        self.start_controllers_over(Client::new(self.controllers_service(), "default"));
    }

    pub fn start_controllers_over(&mut self, client: Client) {
        self.start_controllers_with(pumice_controllers::Options::new(client));
    }

    #[allow(clippy::disallowed_methods, reason = "the test supervises the controllers itself")]
    pub fn start_controllers_with(&mut self, options: pumice_controllers::Options) {
        let shutdown = CancellationToken::new();
        let controllers = options.build();
        self.vitals = Some(controllers.handle());
        let token = shutdown.clone();
        let task = tokio::spawn(async move { controllers.run(token).await.unwrap() });
        self.controllers = Some((shutdown, task));
    }

    /// What the running controllers have counted.
    pub fn counted(&self) -> String {
        use pumice_cluster::Vitals as _;
        self.vitals.as_ref().unwrap().metrics()
    }

    pub async fn stop_controllers(&mut self) {
        let (shutdown, task) = self.controllers.take().unwrap();
        shutdown.cancel();
        task.await.unwrap();
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.admin.clone(), "default")
    }

    pub async fn create<K>(&self, api: &Api<K>, object: Value) -> K
    where
        K: Clone + Debug + Serialize + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    /// A job `name` of one task `w`.
    pub async fn job(&self, name: &str, replicas: i32, extra: Value) -> Job {
        let mut spec = json!({
            "minAvailable": replicas, "queue": "default", "maxRetry": 3, "schedulerName": "volcano",
            "tasks": [{"name": "w", "replicas": replicas, "minAvailable": replicas,
                "template": {"spec": {"containers": [{"name": "c", "image": "none"}]}}}],
        });
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        self.create(
            &self.api(),
            json!({
                "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name}, "spec": spec,
            }),
        )
        .await
    }

    /// Waits until an object, or its absence, is as wanted.
    pub async fn wait<K>(&self, api: &Api<K>, name: &str, wanted: impl Fn(Option<&K>) -> bool + Send) -> Option<K>
    where
        K: Resource + Clone + Debug + Send + DeserializeOwned + 'static,
    {
        let waiting = await_condition(api.clone(), name, wanted);
        match tokio::time::timeout(DEADLINE, waiting).await {
            Ok(result) => result.unwrap(),
            Err(_) => panic!("{name} is not as wanted: {:#?}", api.get_opt(name).await),
        }
    }

    pub async fn wait_phase(&self, job: &str, phase: JobPhase) -> Job {
        self.wait_job(job, |job| job.status.state.phase.as_ref() == Some(&phase)).await
    }

    pub async fn wait_job(&self, job: &str, wanted: impl Fn(&Job) -> bool + Send + Sync) -> Job {
        self.wait(&self.api::<Job>(), job, |job| job.is_some_and(&wanted)).await.unwrap()
    }

    /// Plays the scheduler: admits the job's group once it is there in the wanted version.
    pub async fn admit(&self, job: &Job, version: i32) -> PodGroup {
        let name = group_name(job);
        let groups = self.api::<PodGroup>();
        let of_version = |group: Option<&PodGroup>| {
            let annotations = group.and_then(|group| group.metadata.annotations.as_ref());
            annotations.and_then(|all| all.get(names::JOB_VERSION)).is_some_and(|text| *text == version.to_string())
        };
        self.wait(&groups, &name, of_version).await;
        let patch = json!({"status": {"phase": PodGroupPhase::Inqueue}});
        groups.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap()
    }

    /// Plays the node: waits for a pod and gives it a phase.
    pub async fn set_pod(&self, name: &str, phase: &str) -> Pod {
        let pods = self.api::<Pod>();
        self.wait(&pods, name, |pod| pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none())).await;
        let ended = matches!(phase, "Succeeded" | "Failed");
        let code = i32::from(phase == "Failed");
        let state = if ended { json!({"terminated": {"exitCode": code}}) } else { json!({"running": {}}) };
        let patch = json!({"status": {"phase": phase, "containerStatuses": [{
            "name": "c", "image": "none", "imageID": "", "restartCount": 0, "ready": !ended, "state": state,
        }]}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap()
    }

    pub async fn set_pods(&self, job: &str, replicas: i32, phase: &str) {
        for index in 0..replicas {
            self.set_pod(&format!("{job}-w-{index}"), phase).await;
        }
    }

    pub async fn pods(&self, job: &str) -> Vec<Pod> {
        let selector = ListParams::default().labels(&format!("{}={job}", names::JOB_NAME));
        self.api::<Pod>().list(&selector).await.unwrap().items
    }

    /// Gives a Command and waits until it is gone.
    pub async fn command(&self, action: &str, api_version: &str, kind: &str, name: &str) {
        let given = self.give_command(action, api_version, kind, name).await;
        self.wait(&self.api::<Command>(), &given, |command| command.is_none()).await;
    }

    async fn give_command(&self, action: &str, api_version: &str, kind: &str, name: &str) -> String {
        let commands = self.api::<Command>();
        let command = self
            .create(
                &commands,
                json!({
                    "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command",
                    "metadata": {"generateName": format!("{name}-")}, "action": action,
                    "target": {"apiVersion": api_version, "kind": kind, "name": name, "uid": ""},
                }),
            )
            .await;
        command.metadata.name.unwrap()
    }

    pub async fn give_job_command(&self, action: &str, name: &str) -> String {
        self.give_command(action, "batch.volcano.sh/v1alpha1", "Job", name).await
    }

    pub async fn job_command(&self, action: &str, name: &str) {
        self.command(action, "batch.volcano.sh/v1alpha1", "Job", name).await;
    }

    pub async fn delete_pod(&self, name: &str) {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.api::<Pod>().delete(name, &now).await.unwrap();
    }

    /// Waits for an Event of a reason about a job.
    pub async fn wait_event(&self, job: &str, reason: &str) -> String {
        self.wait_event_in("default", job, reason).await
    }

    /// Waits for an Event of a reason about an object of a namespace.
    pub async fn wait_event_in(&self, namespace: &str, job: &str, reason: &str) -> String {
        use futures::StreamExt as _;
        use k8s_openapi::api::core::v1::Event;
        let events: Api<Event> = Api::namespaced(self.admin.clone(), namespace);
        let events = pumice_cluster::watch(events, pumice_cluster::WatchScope::default());
        let mut events = std::pin::pin!(events);
        let found = async {
            while let Some(change) = events.next().await {
                let seen = match change {
                    pumice_cluster::Change::Replace(all) => all,
                    pumice_cluster::Change::Applied(one) => vec![one],
                    pumice_cluster::Change::Deleted(_) => Vec::new(),
                };
                let about = |event: &Event| {
                    event.involved_object.name.as_deref() == Some(job) && event.reason.as_deref() == Some(reason)
                };
                if let Some(event) = seen.into_iter().find(about) {
                    return event.message.unwrap_or_default();
                }
            }
            panic!("the watch of events ended")
        };
        tokio::time::timeout(DEADLINE, found).await.unwrap_or_else(|_| panic!("no event {reason} about {job}"))
    }
}

/// Waits until something holds.
pub async fn eventually<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.unwrap_or_else(|_| panic!("in vain: {what}"));
}

fn as_admin(server: &ApiServer) -> pumice_apiserver::ClientService {
    server.client_service(Identity::new("admin", [names::GROUP_MASTERS]))
}

pub fn group_name(job: &Job) -> String {
    names::pod_group_name(job.metadata.name.as_deref().unwrap(), job.metadata.uid.as_deref().unwrap())
}
