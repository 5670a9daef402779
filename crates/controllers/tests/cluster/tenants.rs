//! Tenants against an API server: their namespaces and rights made, drift repaired, suspended, gone.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1 as native;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod, ResourceQuota};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use pumice_api::batch::Job;
use pumice_api::names::{SUSPEND, TENANT};
use pumice_api::tenant::Tenant;
use serde_json::{Value, json};

use crate::harness::Cluster;

/// More than the controllers look at in one turn.
const MANY: usize = 300;

fn tenant(name: &str, uid: i64, more: &Value) -> Value {
    let mut spec = json!({"user": name, "uid": uid, "gid": uid, "namespace": name});
    let more = more.as_object().cloned().unwrap_or_default();
    spec.as_object_mut().expect("an object").extend(more);
    json!({"apiVersion": "pumice.sh/v1alpha1", "kind": "Tenant", "metadata": {"name": name}, "spec": spec})
}

struct Seen {
    tenants: Api<Tenant>,
    namespaces: Api<Namespace>,
    bindings: Api<RoleBinding>,
}

impl Seen {
    fn of(cluster: &Cluster) -> Self {
        Self {
            tenants: Api::all(cluster.admin.clone()),
            namespaces: Api::all(cluster.admin.clone()),
            bindings: Api::namespaced(cluster.admin.clone(), "alice"),
        }
    }

    async fn phase(&self, cluster: &Cluster, name: &str, phase: &str) -> Tenant {
        let is_so = |tenant: Option<&Tenant>| {
            tenant.is_some_and(|one| {
                one.status.phase == phase && Some(one.status.observed_generation) == one.metadata.generation
            })
        };
        cluster.wait(&self.tenants, name, is_so).await.expect("a tenant")
    }

    async fn merge(&self, name: &str, patch: Value) {
        self.tenants.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("a patch");
    }
}

const BINDING: &str = "pumice-tenant-edit";

#[tokio::test]
async fn a_tenant_has_its_namespace_and_drift_is_repaired() {
    let cluster = Cluster::start().await;
    let seen = Seen::of(&cluster);
    let home = json!({"home": {"mountPath": "/home/alice", "persistentVolume": "homes"}, "limits": {"pods": "7"}});
    cluster.create::<Tenant>(&seen.tenants, tenant("alice", 4001, &home)).await;
    seen.phase(&cluster, "alice", "Active").await;
    let has_uid = |namespace: Option<&Namespace>| {
        let annotations = namespace.and_then(|one| one.metadata.annotations.as_ref());
        annotations.and_then(|all| all.get("pumice.sh/tenant-uid")).is_some_and(|uid| uid == "4001")
    };
    cluster.wait(&seen.namespaces, "alice", has_uid).await;
    cluster.wait(&seen.bindings, BINDING, |binding| binding.is_some()).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.admin.clone(), "alice");
    cluster.wait(&claims, "homes", |claim| claim.is_some()).await;
    let quotas: Api<ResourceQuota> = Api::namespaced(cluster.admin.clone(), "alice");
    let has_pods = |pods: &'static str| {
        move |quota: Option<&ResourceQuota>| {
            let hard = quota.and_then(|one| one.spec.as_ref()?.hard.as_ref());
            hard.and_then(|hard| hard.get("pods")).is_some_and(|amount| amount.0 == pods)
        }
    };
    cluster.wait(&quotas, "pumice-tenant", has_pods("7")).await;

    // Whatever somebody changes is put right.
    seen.bindings.delete(BINDING, &DeleteParams::default()).await.unwrap();
    cluster.wait(&seen.bindings, BINDING, |binding| binding.is_some()).await;
    let more = json!({"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}]});
    seen.bindings.patch(BINDING, &PatchParams::default(), &Patch::Merge(&more)).await.unwrap();
    let is_alices = |binding: Option<&RoleBinding>| {
        binding.and_then(|one| one.subjects.as_ref()).is_some_and(|all| all.len() == 1 && all[0].name == "alice")
    };
    cluster.wait(&seen.bindings, BINDING, is_alices).await;
    let other = json!({"metadata": {"annotations": {"pumice.sh/tenant-uid": "0"}, "labels": {TENANT: null}}});
    seen.namespaces.patch("alice", &PatchParams::default(), &Patch::Merge(&other)).await.unwrap();
    let is_labelled = |namespace: Option<&Namespace>| {
        let labels = namespace.and_then(|one| one.metadata.labels.as_ref());
        has_uid(namespace) && labels.is_some_and(|labels| labels.get(TENANT).is_some_and(|name| name == "alice"))
    };
    cluster.wait(&seen.namespaces, "alice", is_labelled).await;
    let quota = json!({"spec": {"hard": {"pods": "1000"}}});
    quotas.patch("pumice-tenant", &PatchParams::default(), &Patch::Merge(&quota)).await.unwrap();
    cluster.wait(&quotas, "pumice-tenant", has_pods("7")).await;

    // Gone: nobody has rights, the namespace takes no pods, and all else is there.
    seen.tenants.delete("alice", &DeleteParams::default()).await.unwrap();
    cluster.wait(&seen.bindings, BINDING, |binding| binding.is_none()).await;
    let is_closed = |namespace: Option<&Namespace>| {
        let annotations = namespace.and_then(|one| one.metadata.annotations.as_ref());
        annotations.and_then(|all| all.get("pumice.sh/tenant-closed")).is_some_and(|why| why.contains("is gone"))
    };
    cluster.wait(&seen.namespaces, "alice", is_closed).await;
    assert!(claims.get("homes").await.is_ok());
}

#[tokio::test]
async fn what_no_tenant_may_be_is_refused_until_it_is_free() {
    let cluster = Cluster::start().await;
    let seen = Seen::of(&cluster);
    cluster.create::<Tenant>(&seen.tenants, tenant("alice", 4001, &json!({}))).await;
    seen.phase(&cluster, "alice", "Active").await;
    for (name, uid, says) in [("system", 999, "spec.uid: 999"), ("second", 4001, "is the Tenant alice's")] {
        cluster.create::<Tenant>(&seen.tenants, tenant(name, uid, &json!({}))).await;
        let refused = seen.phase(&cluster, name, "Refused").await;
        assert!(refused.status.message.contains(says), "{}", refused.status.message);
        assert!(seen.namespaces.get_opt(name).await.unwrap().is_none(), "nothing is made of {name}");
    }
    // When the first gives its uid up the second has it.
    seen.tenants.delete("alice", &DeleteParams::default()).await.unwrap();
    seen.phase(&cluster, "second", "Active").await;

    let somebodys = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "taken"}});
    cluster.create::<Namespace>(&seen.namespaces, somebodys).await;
    cluster.create::<Tenant>(&seen.tenants, tenant("taken", 4005, &json!({}))).await;
    let refused = seen.phase(&cluster, "taken", "Refused").await;
    assert!(refused.status.message.contains("kubectl label namespace taken"), "{}", refused.status.message);
    let given = json!({"metadata": {"labels": {TENANT: "taken"}}});
    seen.namespaces.patch("taken", &PatchParams::default(), &Patch::Merge(&given)).await.unwrap();
    seen.phase(&cluster, "taken", "Active").await;
}

#[tokio::test]
async fn a_suspended_tenant_stops_and_goes_on() {
    let mut cluster = Cluster::without_controllers(Arc::new(pumice_apiserver::AdmitAll)).await;
    let mut options = pumice_controllers::Options::new(kube::Client::new(cluster.controllers_service(), "default"));
    // Kubernetes' own Jobs are suspended where they are ours.
    options.enabled = "tenant-controller,workload-controller".parse().unwrap();
    cluster.start_controllers_with(options);
    let seen = Seen::of(&cluster);
    cluster.create::<Tenant>(&seen.tenants, tenant("alice", 4001, &json!({"runningPods": "stop"}))).await;
    seen.phase(&cluster, "alice", "Active").await;
    let jobs: Api<Job> = Api::namespaced(cluster.admin.clone(), "alice");
    let job = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"tasks": [{"name": "t", "replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}]}});
    cluster.create::<Job>(&jobs, job).await;
    let pods: Api<Pod> = Api::namespaced(cluster.admin.clone(), "alice");
    let restricted = json!({"runAsNonRoot": true, "runAsUser": 4001, "seccompProfile": {"type": "RuntimeDefault"}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "securityContext": restricted,
        "containers": [{"name": "c", "image": "i", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}});
    cluster.create::<Pod>(&pods, pod).await;
    let natives: Api<native::Job> = Api::namespaced(cluster.admin.clone(), "alice");
    for (name, suspend) in [("n", false), ("by-hand", true)] {
        let container = json!({"name": "c", "image": "i"});
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
        let native = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"parallelism": 0, "suspend": suspend, "template": template}});
        cluster.create::<native::Job>(&natives, native).await;
    }
    let is_suspended = |wanted: bool| {
        move |job: Option<&native::Job>| job.is_some_and(|job| job.spec.as_ref().unwrap().suspend == Some(wanted))
    };

    seen.merge("alice", json!({"spec": {"suspended": true}})).await;
    seen.phase(&cluster, "alice", "Suspended").await;
    cluster.wait(&seen.bindings, BINDING, |binding| binding.is_none()).await;
    cluster.wait(&pods, "p", |pod| pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())).await;
    let suspended = |wanted: Option<&'static str>| {
        move |job: Option<&Job>| {
            let annotations = job.and_then(|job| job.metadata.annotations.as_ref());
            annotations.and_then(|all| all.get(SUSPEND)).map(String::as_str) == wanted
        }
    };
    cluster.wait(&jobs, "j", suspended(Some("true"))).await;
    cluster.wait(&natives, "n", is_suspended(true)).await;
    // Nobody ends pods here but this.
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    let _ = pods.delete("p", &now).await;
    let is_stopped = |tenant: Option<&Tenant>| {
        tenant.is_some_and(|one| one.status.conditions.iter().any(|it| it.type_ == "Stopped" && it.status == "True"))
    };
    cluster.wait(&seen.tenants, "alice", is_stopped).await;

    seen.merge("alice", json!({"spec": {"suspended": false}})).await;
    seen.phase(&cluster, "alice", "Active").await;
    cluster.wait(&seen.bindings, BINDING, |binding| binding.is_some()).await;
    cluster.wait(&jobs, "j", suspended(None)).await;
    cluster.wait(&natives, "n", is_suspended(false)).await;
    cluster.wait(&natives, "by-hand", is_suspended(true)).await;
}

#[tokio::test]
async fn many_tenants_are_made_and_then_nothing_is_written() {
    let mut cluster = Cluster::start().await;
    let seen = Seen::of(&cluster);
    for index in 0..MANY {
        let uid = 5000 + i64::try_from(index).expect("small");
        cluster.create::<Tenant>(&seen.tenants, tenant(&format!("t{index}"), uid, &json!({}))).await;
    }
    let all: Api<RoleBinding> = Api::all(cluster.admin.clone());
    let made = ListParams::default().labels(TENANT);
    while all.list_metadata(&made).await.unwrap().items.len() < MANY {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for index in 0..MANY {
        seen.phase(&cluster, &format!("t{index}"), "Active").await;
    }
    // A restart finds all as it is wanted.
    cluster.stop_controllers().await;
    let version = |list: kube::core::ObjectList<kube::core::PartialObjectMeta<Namespace>>| {
        list.items.into_iter().map(|one| one.metadata.resource_version).collect::<Vec<_>>()
    };
    let before = version(seen.namespaces.list_metadata(&made).await.unwrap());
    cluster.start_controllers();
    cluster.create::<Tenant>(&seen.tenants, tenant("last", 4999, &json!({}))).await;
    seen.phase(&cluster, "last", "Active").await;
    let mut after = seen.namespaces.list_metadata(&made).await.unwrap();
    after.items.retain(|one| one.metadata.name.as_deref() != Some("last"));
    assert_eq!(version(after), before);
}
