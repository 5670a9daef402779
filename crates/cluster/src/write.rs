//! Writing to a Kubernetes API, with failures sorted by what a component should do next.
//!
//! Invariant: nothing here retries by itself; the component knows whether its intent still holds.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

/// What a failed call means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The object is not there.
    NotFound,
    /// Something with that name is there already.
    AlreadyExists,
    /// The object has changed since it was read: look again.
    Conflict,
    /// Not allowed, by authorisation, a quota or an admission rule: wait, the rule may change.
    Forbidden,
    /// The server refuses this object as it is: repeating the call can't help.
    Invalid,
    /// The server is not there, slow, or asks to slow down: repeat with backoff.
    Unavailable,
}

/// Sorts an error of a call by what to do next.
pub fn failure(error: &kube::Error) -> Failure {
    let kube::Error::Api(status) = error else { return Failure::Unavailable };
    match (status.code, status.reason.as_str()) {
        (404, _) => Failure::NotFound,
        (409, "AlreadyExists") => Failure::AlreadyExists,
        (409, _) => Failure::Conflict,
        (401 | 403, _) => Failure::Forbidden,
        (408 | 429, _) | (500.., _) => Failure::Unavailable,
        _ => Failure::Invalid,
    }
}

/// What an error says to people: the server's own words, without what surrounds them.
pub fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// A pod by its name and, so that another of that name is left alone, by its uid.
#[derive(Debug, Clone, Copy)]
pub struct PodRef<'p> {
    pub namespace: &'p str,
    pub name: &'p str,
    pub uid: &'p str,
}

/// Binds a pod to a node; `annotations` are merged into the pod's by the server, in the same write. The server refuses
/// (409) a pod that is bound elsewhere or being deleted, and (by uid) another pod of the same name.
pub async fn bind_pod(
    client: &Client,
    pod: PodRef<'_>,
    node: &str,
    annotations: &BTreeMap<String, String>,
) -> Result<(), kube::Error> {
    let mut body = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    if !annotations.is_empty() {
        body["metadata"]["annotations"] = json!(annotations);
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), pod.namespace);
    pods.create_subresource::<Value, Value>("binding", pod.name, &PostParams::default(), &body).await.map(drop)
}

/// Asks for the end of a pod, within its own grace period. The server refuses (409) another pod of the same name.
pub async fn delete_pod(client: &Client, pod: PodRef<'_>) -> Result<(), kube::Error> {
    let preconditions = Preconditions { uid: Some(pod.uid.to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let pods: Api<Pod> = Api::namespaced(client.clone(), pod.namespace);
    pods.delete(pod.name, &params).await.map(drop)
}

/// Merges `patch` into an object's main resource.
pub async fn merge<K>(api: &Api<K>, name: &str, patch: &Value) -> Result<K, kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

/// Merges `patch` into an object's status subresource.
pub async fn merge_status<K>(api: &Api<K>, name: &str, patch: &Value) -> Result<K, kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

/// Merges `patch` into an object, or into its subresource. Of the answer nothing is read.
pub async fn merge_unread<K>(
    client: &Client,
    namespace: &str,
    name: &str,
    subresource: Option<&str>,
    patch: &impl Serialize,
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()>,
{
    let request = Request::new(K::url_path(&(), Some(namespace)));
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let request = match subresource {
        Some(subresource) => request.patch_subresource(subresource, name, &params, &patch),
        None => request.patch(name, &params, &patch),
    };
    client.request::<IgnoredAny>(request.map_err(kube::Error::BuildRequest)?).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn api_error(code: u16, reason: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, reason: reason.into(), ..Default::default() }))
    }

    #[test]
    fn people_are_told_the_servers_own_words() {
        let status = Status { code: 403, message: "pods is forbidden".into(), ..Default::default() };
        assert_eq!(words(&kube::Error::Api(Box::new(status))), "pods is forbidden");
    }

    #[test]
    fn failures_are_sorted_by_code_and_reason() {
        let cases = [
            (404, "NotFound", Failure::NotFound),
            (409, "AlreadyExists", Failure::AlreadyExists),
            (409, "Conflict", Failure::Conflict),
            (403, "Forbidden", Failure::Forbidden),
            (401, "Unauthorized", Failure::Forbidden),
            (422, "Invalid", Failure::Invalid),
            (400, "BadRequest", Failure::Invalid),
            (429, "TooManyRequests", Failure::Unavailable),
            (503, "ServiceUnavailable", Failure::Unavailable),
            (507, "InsufficientStorage", Failure::Unavailable),
        ];
        for (code, reason, expected) in cases {
            assert_eq!(failure(&api_error(code, reason)), expected, "{code} {reason}");
        }
    }
}
