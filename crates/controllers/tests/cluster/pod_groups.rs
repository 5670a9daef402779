//! PodGroups of pods that nobody made one for.

use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ReplicationController};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client};
use kube_runtime::wait::{Condition as _, conditions};
use pumice_api::names;
use pumice_api::scheduling::PodGroup;
use pumice_cluster::write::{PodRef, bind_pod};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::harness::Cluster;

async fn make_pod(cluster: &Cluster, name: &str, metadata: Value, spec: Value) -> Pod {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"schedulerName": "volcano", "containers": [
            {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}]}});
    for (part, more) in [("metadata", metadata), ("spec", spec)] {
        pod[part].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    }
    cluster.create(&cluster.api::<Pod>(), pod).await
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap()
}

/// Binds a pod to a node, as the scheduler would.
async fn bind(cluster: &Cluster, pod: &Pod) {
    let name = pod.metadata.name.as_deref().unwrap();
    let pod = PodRef { namespace: "default", name, uid: uid(pod) };
    bind_pod(&cluster.admin, pod, "node", &Default::default()).await.unwrap();
}

async fn wait_told(cluster: &Cluster, pod: &str, group: &str) {
    let told = |pod: Option<&Pod>| {
        let annotations = pod.and_then(|pod| pod.metadata.annotations.as_ref());
        annotations.and_then(|all| all.get(names::GROUP_NAME)).is_some_and(|told| told == group)
    };
    cluster.wait(&cluster.api::<Pod>(), pod, told).await;
}

async fn wait_group(cluster: &Cluster, name: &str, wanted: impl Fn(&PodGroup) -> bool + Send + Sync) -> PodGroup {
    let groups = cluster.api::<PodGroup>();
    cluster.wait(&groups, name, |group| group.is_some_and(&wanted)).await.unwrap()
}

fn controlled_by(version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({"ownerReferences": [{"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true}]})
}

#[tokio::test]
async fn a_pod_alone_gets_its_group_after_its_bind() {
    let cluster = Cluster::start().await;
    let pod =
        make_pod(&cluster, "bare", json!({"annotations": {names::SCHEDULING_QUEUE_NAME: "default"}}), json!({})).await;
    bind(&cluster, &pod).await;
    let name = format!("podgroup-{}", uid(&pod));
    wait_told(&cluster, "bare", &name).await;
    let group = wait_group(&cluster, &name, |_| true).await;
    assert_eq!((group.spec.min_member, &*group.spec.queue), (1, "default"));
    assert_eq!(group.metadata.owner_references.unwrap()[0].uid, uid(&pod));
}

#[tokio::test]
async fn a_pod_that_waits_gets_its_group_too() {
    let cluster = Cluster::start().await;
    let pod = make_pod(&cluster, "stuck", json!({}), json!({})).await;
    wait_told(&cluster, "stuck", &format!("podgroup-{}", uid(&pod))).await;
}

#[tokio::test]
async fn pods_with_a_group_and_pods_of_others_get_none_and_groups_stay_as_they_were_made() {
    let cluster = Cluster::start().await;
    let groups = cluster.api::<PodGroup>();
    let spec = json!({"minMember": 0, "minResources": {"cpu": "3"}, "queue": "default", "futureField": {"a": [1]}});
    let theirs = cluster
        .create(
            &groups,
            json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
            "metadata": {"name": "spark-1-podgroup"}, "spec": spec}),
        )
        .await;
    let of_theirs = json!({"annotations": {names::GROUP_NAME: "spark-1-podgroup"}});
    let mut others = vec![make_pod(&cluster, "driver", of_theirs.clone(), json!({})).await];
    others.push(make_pod(&cluster, "labelled", json!({"labels": {names::GROUP_NAME: "x"}}), json!({})).await);
    others.push(make_pod(&cluster, "foreign", json!({}), json!({"schedulerName": "other"})).await);
    others.push(make_pod(&cluster, "without-name", of_theirs, json!({"schedulerName": "default-scheduler"})).await);
    for pod in &others {
        bind(&cluster, pod).await;
    }
    let last = make_pod(&cluster, "last", json!({}), json!({})).await;
    bind(&cluster, &last).await;
    wait_told(&cluster, "last", &format!("podgroup-{}", uid(&last))).await;
    let all = groups.list(&kube::api::ListParams::default()).await.unwrap().items;
    assert_eq!(all.len(), 2, "{all:#?}");
    let now = groups.get("spark-1-podgroup").await.unwrap();
    assert_eq!(now.metadata.resource_version, theirs.metadata.resource_version);
}

#[tokio::test]
async fn pods_of_any_controller_share_one_group() {
    let mut cluster = Cluster::without_controllers(std::sync::Arc::new(pumice_apiserver::AdmitAll)).await;
    let flow: ConfigMap = cluster
        .create(&cluster.api(), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "workflow"}}))
        .await;
    let owner = flow.metadata.uid.unwrap();
    let metadata = controlled_by("v1", "ConfigMap", "workflow", &owner);
    for name in ["a", "b", "c"] {
        make_pod(&cluster, name, metadata.clone(), json!({})).await;
    }
    cluster.start_controllers();
    let name = format!("podgroup-{owner}");
    for pod in ["a", "b", "c"] {
        wait_told(&cluster, pod, &name).await;
    }
    cluster.stop_controllers().await;
    // What was not finished then is found again.
    let untold = json!({"metadata": {"annotations": {names::GROUP_NAME: null}}});
    cluster.api::<Pod>().patch("b", &PatchParams::default(), &Patch::Merge(&untold)).await.unwrap();
    cluster.api::<PodGroup>().delete(&name, &Default::default()).await.unwrap();
    cluster.start_controllers();
    let group = wait_group(&cluster, &name, |_| true).await;
    assert_eq!(group.metadata.owner_references.unwrap()[0].name, "workflow");
    wait_told(&cluster, "b", &name).await;
}

/// What owns them is not served here, or is gone already: nothing says how large the gang is.
#[tokio::test]
async fn pods_of_an_owner_that_can_not_be_read_are_grouped_all_the_same() {
    let cluster = Cluster::start().await;
    for (kind, version) in [("DaemonSet", "apps/v1"), ("Workflow", "argoproj.io/v1alpha1")] {
        let name = kind.to_lowercase();
        let metadata = controlled_by(version, kind, "o", &format!("uid-of-{name}"));
        make_pod(&cluster, &name, metadata, json!({})).await;
        let group = format!("podgroup-uid-of-{name}");
        wait_told(&cluster, &name, &group).await;
        assert_eq!(wait_group(&cluster, &group, |_| true).await.spec.min_member, 1);
    }
}

/// Nothing of ours makes pods of one, but somebody else's controller may.
#[tokio::test]
async fn pods_of_a_replication_controller_share_one_group() {
    let cluster = Cluster::start().await;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "none"}]}});
    let controller = json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "o"},
        "spec": {"replicas": 2, "selector": {"a": "b"}, "template": template}});
    let controller: ReplicationController = cluster.create(&cluster.api(), controller).await;
    let owner = controller.metadata.uid.unwrap();
    for name in ["a", "b"] {
        let metadata = controlled_by("v1", "ReplicationController", "o", &owner);
        make_pod(&cluster, name, metadata, json!({})).await;
        wait_told(&cluster, name, &format!("podgroup-{owner}")).await;
    }
    assert_eq!(wait_group(&cluster, &format!("podgroup-{owner}"), |_| true).await.spec.min_member, 1);
}

/// Where the test's server has what Kubernetes 1.37 has in `scheduling.k8s.io`, a group of its own which takes no definitions.
const NATIVE: &str = "native.example.com";

/// Serves a kind of Kubernetes' own there.
async fn serve_native(cluster: &Cluster, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(NATIVE, "v1beta1", kind));
    let plural = resource.plural.as_str();
    let name = format!("{plural}.{NATIVE}");
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {"group": NATIVE, "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": schema}]}});
    cluster.create(&definitions, definition).await;
    cluster.wait(&definitions, &name, |crd| conditions::is_crd_established().matches_object(crd)).await;
    Api::namespaced_with(cluster.admin.clone(), "default", &resource)
}

/// The API with that group where Kubernetes has it.
fn with_natives(cluster: &Cluster) -> Client {
    let there = format!("/apis/{NATIVE}/v1beta1/");
    let service = cluster.admin_service().map_request(move |mut request: Request<kube::client::Body>| {
        let uri = request.uri().to_string().replace("/apis/scheduling.k8s.io/v1beta1/", &there);
        *request.uri_mut() = uri.parse().unwrap();
        request
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn pod_groups_of_kubernetes_own_say_what_the_template_of_their_workload_adds() {
    let mut cluster = Cluster::without_controllers(std::sync::Arc::new(pumice_apiserver::AdmitAll)).await;
    let workloads = serve_native(&cluster, "Workload").await;
    let natives = serve_native(&cluster, "PodGroup").await;
    let template = json!({"name": "workers", "schedulingPolicy": {"gang": {"minCount": 7}},
        "schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}});
    let workload = json!({"apiVersion": format!("{NATIVE}/v1beta1"), "kind": "Workload", "metadata": {"name": "training"},
        "spec": {"podGroupTemplates": [template]}});
    let native = json!({"apiVersion": format!("{NATIVE}/v1beta1"), "kind": "PodGroup", "metadata": {"name": "gang"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}},
            "workloadRef": {"workloadName": "training", "templateName": "workers"}}});
    let workload: DynamicObject = cluster.create(&workloads, workload).await;
    let member = json!({"schedulingGroup": {"podGroupName": "gang"}});
    make_pod(&cluster, "m", json!({}), member).await;
    // Pods alone beside it: a Workload groups nothing by itself.
    let alone = make_pod(&cluster, "alone", json!({}), json!({})).await;
    cluster.start_controllers_over(with_natives(&cluster));
    wait_told(&cluster, "alone", &format!("podgroup-{}", uid(&alone))).await;
    assert_eq!(cluster.api::<PodGroup>().get_opt("gang").await.unwrap(), None, "Kubernetes' own comes yet");

    let native: DynamicObject = cluster.create(&natives, native).await;
    let group = wait_group(&cluster, "gang", |group| group.spec.network_topology.is_some()).await;
    assert_eq!(
        (group.spec.min_member, &*group.spec.network_topology.unwrap().highest_tier_name),
        (3, "example.com/rack")
    );
    let owner = &group.metadata.owner_references.unwrap()[0];
    assert_eq!((&*owner.api_version, Some(&owner.uid)), ("scheduling.k8s.io/v1beta1", native.metadata.uid.as_ref()));
    // Without it the gang stays what it was.
    workloads.delete(workload.metadata.name.as_deref().unwrap(), &Default::default()).await.unwrap();
    let last = make_pod(&cluster, "last", json!({}), json!({})).await;
    wait_told(&cluster, "last", &format!("podgroup-{}", uid(&last))).await;
    wait_group(&cluster, "gang", |group| group.spec.network_topology.is_some()).await;
}
