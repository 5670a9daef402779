//! Jobs that other controllers than the Job's own make and delete.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Client};
use pumice_api::batch::Job;
use pumice_cluster::Change;

use crate::deletion;

/// Deletes a Job and what it made; says what became of it.
pub(crate) async fn delete(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: String,
) -> Result<Change<Job>, kube::Error> {
    deletion::delete(&Api::namespaced(client.clone(), namespace), Some(namespace), name, uid).await
}

/// The object of a kind that controls a Job.
pub(crate) fn controller_of<'a>(job: &'a Job, kind: &str) -> Option<&'a OwnerReference> {
    let mut owners = job.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true) && owner.kind == kind)
}
