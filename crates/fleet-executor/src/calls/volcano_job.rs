//! Calls about Volcano Jobs.
//!
//! Invariant: a Job that is deleted is there until its pods are gone, so that a run whose Job is gone has nothing that runs.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams, PropagationPolicy};
use kube::core::ApiResource;
use kube::{Api, Client};
use pumice_api::batch;
use serde_json::Value;

use pumice_cluster::{Failure, failure};
use pumice_ledger::RunId;

use super::{DeleteTarget, delete_one, refusal, taken_by};
use crate::core::{DeleteAnswer, Deletion, Input, Refusal, RefusalKind};
use crate::labels::RUN_LABEL;
use crate::pending_checks::Checks;

/// Jobs of a namespace, as they are: a newer Volcano may say more of them than is known here.
pub fn jobs_of(client: Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client, namespace, &ApiResource::erase::<batch::Job>(&()))
}

/// Jobs of all namespaces.
pub fn jobs(client: Client) -> Api<DynamicObject> {
    Api::all_with(client, &ApiResource::erase::<batch::Job>(&()))
}

/// Makes the Job of a run.
pub async fn create(client: Client, checks: &Checks, run: RunId, job: Value) -> Input {
    let job: DynamicObject = match serde_json::from_value(job) {
        Ok(job) => job,
        Err(error) => {
            let (reason, message) = ("InvalidLease".to_owned(), error.to_string());
            return Input::NotCreated { run, refusal: Refusal { kind: RefusalKind::Fatal, reason, message } };
        }
    };
    let jobs = jobs_of(client, job.metadata.namespace.as_deref().unwrap_or_default());
    let made = match jobs.create(&PostParams::default(), &job).await {
        Err(error) if failure(&error) == Failure::AlreadyExists => {
            let there = jobs.get(job.metadata.name.as_deref().unwrap_or_default()).await;
            taken_by(there, run, |job| &job.metadata)
        }
        other => other.map_err(|error| refusal(checks, &error)),
    };
    match made {
        Ok(job) => Input::Created { run, uid: job.metadata.uid.unwrap_or_default() },
        Err(refusal) => Input::NotCreated { run, refusal },
    }
}

/// Deletes a Job by its name, and by its uid where that is known. By force, its pods are deleted whatever their nodes say.
pub async fn delete(
    client: Client,
    run: RunId,
    namespace: &str,
    name: &str,
    uid: Option<String>,
    how: &Deletion,
) -> DeleteAnswer {
    if *how == Deletion::Forced
        && let Err(error) = delete_pods(&client, run, namespace).await
    {
        tracing::warn!(namespace, job = name, %error, "pods of a job were not deleted, will be tried again");
        return DeleteAnswer::Failed;
    }
    let params = DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    let target = DeleteTarget { kind: "job", namespace, name, uid };
    delete_one(&jobs_of(client, namespace), target, how, params).await
}

/// Deletes all pods of a run at once.
async fn delete_pods(client: &Client, run: RunId, namespace: &str) -> Result<(), kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let of_run = ListParams::default().labels(&format!("{RUN_LABEL}={run}"));
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    for name in pods.list(&of_run).await?.items.into_iter().filter_map(|pod| pod.metadata.name) {
        match pods.delete(&name, &now).await {
            Err(error) if failure(&error) != Failure::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
