//! Deleting what controllers have made.

use std::fmt::Debug;

use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use kube::{Api, Resource};
use pumice_cluster::{Change, Failure, failure};
use serde::de::DeserializeOwned;

/// Deletes an object and what it made; says what became of it. Who is gone already, or another of that name, is none of ours.
pub(crate) async fn delete<K>(
    api: &Api<K>,
    namespace: Option<&str>,
    name: &str,
    uid: String,
) -> Result<Change<K>, kube::Error>
where
    K: Resource + Default + Clone + Debug + DeserializeOwned,
{
    let mut gone = K::default();
    let metadata = gone.meta_mut();
    metadata.namespace = namespace.map(str::to_owned);
    metadata.name = Some(name.to_owned());
    metadata.uid = Some(uid.clone());
    let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
    let propagation_policy = Some(PropagationPolicy::Background);
    let params = DeleteParams { preconditions, propagation_policy, ..DeleteParams::default() };
    match api.delete(name, &params).await {
        Ok(left) => Ok(left.left().map_or(Change::Deleted(gone), Change::Applied)),
        Err(error) if matches!(failure(&error), Failure::NotFound | Failure::Conflict) => Ok(Change::Deleted(gone)),
        Err(error) => Err(error),
    }
}
