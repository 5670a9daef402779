//! Jobs that other controllers than the Job's own make and delete.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use kube::{Api, Client};
use pumice_api::batch::Job;
use pumice_cluster::{Change, Failure, failure};

/// Deletes a Job and what it made; says what became of it. Who is gone already, or another of that name, is none of ours.
pub(crate) async fn delete(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: String,
) -> Result<Change<Job>, kube::Error> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let mut gone = Job::default();
    gone.metadata.namespace = Some(namespace.to_owned());
    gone.metadata.name = Some(name.to_owned());
    gone.metadata.uid = Some(uid.clone());
    let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
    let propagation_policy = Some(PropagationPolicy::Background);
    let params = DeleteParams { preconditions, propagation_policy, ..DeleteParams::default() };
    match jobs.delete(name, &params).await {
        Ok(left) => Ok(left.left().map_or(Change::Deleted(gone), Change::Applied)),
        Err(error) if matches!(failure(&error), Failure::NotFound | Failure::Conflict) => Ok(Change::Deleted(gone)),
        Err(error) => Err(error),
    }
}

/// The object of a kind that controls a Job.
pub(crate) fn controller_of<'a>(job: &'a Job, kind: &str) -> Option<&'a OwnerReference> {
    let mut owners = job.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true) && owner.kind == kind)
}
