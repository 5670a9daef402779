//! Carries out what the core asks of the cluster, and says how it went.
//!
//! Invariant: each call has one answer, and an answer that the cluster did not give is never taken for a refusal.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client, Resource};
use pumice_fleet_model::names::{former_pod_name, pod_name};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use pumice_cluster::{Failure, failure, words};
use pumice_ledger::RunId;

use super::core::{DeleteAnswer, Deletion, Input, Refusal, RefusalKind};
use super::facts::Kind;
use super::pending_checks::Checks;
use super::pod::Objects;
use crate::labels::RUN_LABEL;

pub mod volcano_job;

/// Makes the pod of a run and what stands beside it, or the Job of a Volcano job. The last answer is about the pod.
pub async fn create(client: Client, checks: &Checks, run: RunId, objects: Objects) -> Vec<Input> {
    if objects.kind == Kind::Job {
        return vec![volcano_job::create(client, checks, run, objects.pod).await];
    }
    let mut pod: Pod = match serde_json::from_value(objects.pod) {
        Ok(pod) => pod,
        Err(error) => {
            let (reason, message) = ("InvalidLease".to_owned(), error.to_string());
            let refusal = Refusal { kind: RefusalKind::Fatal, reason, message };
            return vec![Input::NotCreated { run, refusal }];
        }
    };
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let mut made = pods.create(&PostParams::default(), &pod).await;
    if made.as_ref().is_err_and(lacks_class)
        && let Some(spec) = &mut pod.spec
    {
        // The fleet decides who goes first; a cluster that does not know the class needs no say in it.
        spec.priority_class_name = None;
        made = pods.create(&PostParams::default(), &pod).await;
    }
    let made = match made {
        Err(error) if failure(&error) == Failure::AlreadyExists => {
            let there = pods.get(pod.metadata.name.as_deref().unwrap_or_default()).await;
            taken_by(there, run, |pod| &pod.metadata)
        }
        other => other.map_err(|error| refusal(checks, &error)),
    };
    let pod = match made {
        Ok(pod) => pod,
        Err(refusal) => return vec![Input::NotCreated { run, refusal }],
    };
    for service in objects.services {
        beside::<Service>(&client, &namespace, &pod, service).await;
    }
    let mut addresses = BTreeMap::new();
    for ingress in objects.ingresses {
        addresses.extend(hosts(&ingress));
        beside::<Ingress>(&client, &namespace, &pod, ingress).await;
    }
    let created = Input::Created { run, uid: pod.metadata.uid.unwrap_or_default() };
    let told = (!addresses.is_empty()).then_some(Input::Addresses { run, addresses });
    told.into_iter().chain([created]).collect()
}

/// Kubernetes' admission refuses pods of classes that its cluster does not have.
fn lacks_class(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.message.contains("no PriorityClass with name"))
}

/// Something of that name is there: it counts as made where it is of this run. That of the run before may have it from an
/// earlier release.
fn taken_by<K>(there: kube::Result<K>, run: RunId, metadata: impl Fn(&K) -> &ObjectMeta) -> Result<K, Refusal> {
    let refuse = |kind, reason: &str, message| Err(Refusal { kind, reason: reason.to_owned(), message });
    match there {
        Ok(there) => {
            let label = metadata(&there).labels.as_ref().and_then(|labels| labels.get(RUN_LABEL));
            let owner = label.and_then(|label| label.parse::<RunId>().ok());
            if owner == Some(run) {
                return Ok(there);
            }
            if owner.is_some_and(|owner| owner.job == run.job && former_pod_name(owner) == pod_name(run)) {
                let message = "what is left of the run before has that name: an earlier release made it".to_owned();
                return refuse(RefusalKind::Taken, "NameTaken", message);
            }
            refuse(RefusalKind::Refused, "NameTaken", "what has that name already is not the fleet's".to_owned())
        }
        Err(error) => refuse(RefusalKind::Unclear, "Unclear", words(&error)),
    }
}

fn refusal(checks: &Checks, error: &kube::Error) -> Refusal {
    let reason = match error {
        kube::Error::Api(status) => status.reason.clone(),
        _ => "Unavailable".to_owned(),
    };
    let message = words(error);
    let kind = match failure(error) {
        _ if checks.is_fatal(&reason, &message) => RefusalKind::Fatal,
        _ if matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_)) => RefusalKind::Unanswered,
        Failure::Unavailable if reason != "TooManyRequests" => RefusalKind::Unclear,
        _ => RefusalKind::Refused,
    };
    Refusal { kind, reason, message }
}

/// Makes an object that goes with the pod. The job runs without one that is refused.
async fn beside<K>(client: &Client, namespace: &str, pod: &Pod, mut object: Value)
where
    K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let metadata = &pod.metadata;
    object["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid }]);
    let object: K = match serde_json::from_value(object) {
        Ok(object) => object,
        Err(error) => return tracing::warn!(pod = ?metadata.name, %error, "an object beside a pod is not made"),
    };
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => {}
        Err(error) if failure(&error) == Failure::AlreadyExists => {}
        Err(error) => tracing::warn!(pod = ?metadata.name, %error, "an object beside a pod is not made"),
    }
}

/// The host of each rule of an ingress, by the port of the service that it leads to. Rules without either are left out.
fn hosts(ingress: &Value) -> BTreeMap<i32, String> {
    let rules = ingress["spec"]["rules"].as_array().into_iter().flatten();
    let host = |rule: &Value| {
        let port = rule.pointer("/http/paths/0/backend/service/port/number")?.as_i64()?;
        Some((i32::try_from(port).ok()?, rule["host"].as_str()?.to_owned()))
    };
    rules.filter_map(host).collect()
}

/// Deletes a pod by its name, and by its uid where that is known.
pub async fn delete(client: Client, namespace: &str, name: &str, uid: Option<String>, how: &Deletion) -> DeleteAnswer {
    let params =
        DeleteParams { grace_period_seconds: (*how == Deletion::Forced).then_some(0), ..DeleteParams::default() };
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    delete_one(&pods, DeleteTarget { kind: "pod", namespace, name, uid }, how, params).await
}

/// An object that is to be deleted.
struct DeleteTarget<'t> {
    /// What it is, as the log has it.
    kind: &'static str,
    namespace: &'t str,
    name: &'t str,
    /// Where it is known, one of the same name with another uid stays.
    uid: Option<String>,
}

/// Deletes an object, on the conditions that its uid and `how` are.
async fn delete_one<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    target: DeleteTarget<'_>,
    how: &Deletion,
    params: DeleteParams,
) -> DeleteAnswer {
    let DeleteTarget { kind, namespace, name, uid } = target;
    let has_uid = uid.is_some();
    let resource_version = match how {
        Deletion::IfVersion(version) => Some(version.clone()),
        Deletion::Graceful | Deletion::Forced => None,
    };
    let has_version = resource_version.is_some();
    let params = DeleteParams { preconditions: Some(Preconditions { uid, resource_version }), ..params };
    match api.delete(name, &params).await {
        Ok(_) => DeleteAnswer::Accepted,
        Err(error) => match failure(&error) {
            Failure::NotFound => DeleteAnswer::NotFound,
            Failure::Conflict if has_version => DeleteAnswer::Changed,
            // Another one has the name by now.
            Failure::Conflict if has_uid => DeleteAnswer::NotFound,
            _ => {
                let error = words(&error);
                tracing::warn!(namespace, name, error, "a {kind} was not deleted, will be tried again");
                DeleteAnswer::Failed
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_the_name_already_is_the_runs_or_of_an_earlier_release_or_anothers() {
        let job = pumice_ledger::JobId(1);
        let run = |attempt| RunId { job, attempt };
        let of = |label: Option<String>| {
            let labels = label.map(|label| [(RUN_LABEL.to_owned(), label)].into());
            let pod = Pod { metadata: ObjectMeta { labels, ..ObjectMeta::default() }, ..Pod::default() };
            taken_by(Ok(pod), run(2), |pod| &pod.metadata).map(drop).map_err(|refusal| refusal.kind)
        };
        assert_eq!(of(Some(run(2).to_string())), Ok(()));
        assert_eq!(of(Some(run(1).to_string())), Err(RefusalKind::Taken));
        for other in [None, Some("x".to_owned()), Some(run(3).to_string())] {
            assert_eq!(of(other.clone()), Err(RefusalKind::Refused), "{other:?}");
        }
    }
}
