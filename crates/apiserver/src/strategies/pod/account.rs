//! The service account of a pod, its credentials for images, and the volume with its token.
//!
//! Invariant: a pod that is stored has an account that was there. The volume is upstream's, but pods of the account
//! `default` get it only where the pod or the account asks for it: most pods never call the API, and a volume less makes
//! them smaller and quicker to start.

use pumice_objects::meta;
use pumice_objects::names;
use pumice_objects::status::{GroupResource, Status};
use serde_json::{Value, json};
use uuid::Uuid;

use super::CONTAINER_LISTS;
use crate::strategies::Hook;
use crate::strategies::service_account::{DEFAULT, ROOT_CERTIFICATE, SERVICE_ACCOUNTS};

/// What the names of such volumes begin with.
const VOLUME_PREFIX: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Life of the token in seconds, as upstream asks for it.
const TOKEN_SECONDS: i64 = 3607;
const FILE_MODE: i32 = 0o644;

/// Checks the account, and adds the volume where there is to be one.
pub(super) fn provide(pod: &mut Value, hook: &Hook<'_>) -> Result<(), Status> {
    let namespace = meta::namespace(pod).unwrap_or_default();
    let name = pod["spec"]["serviceAccountName"].as_str().unwrap_or(DEFAULT);
    let Some(account) = hook.reader.get(SERVICE_ACCOUNTS, namespace, name) else {
        let cause = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        return Err(Status::forbidden(GroupResource { group: "", resource: "pods" }, meta::name(pod), cause));
    };
    if wants_token(&pod["spec"], &account, name) {
        mount(pod);
    }
    give_pull_secrets(&mut pod["spec"], &account);
    Ok(())
}

/// The account's credentials for images are those of pods that name none, as upstream gives them.
fn give_pull_secrets(spec: &mut Value, account: &Value) {
    const FIELD: &str = "imagePullSecrets";
    let is_set = |object: &Value| object[FIELD].as_array().is_some_and(|secrets| !secrets.is_empty());
    if !is_set(spec) && is_set(account) {
        spec[FIELD] = account[FIELD].clone();
    }
}

/// The pod's word goes before the account's.
fn wants_token(spec: &Value, account: &Value, name: &str) -> bool {
    const FIELD: &str = "automountServiceAccountToken";
    spec[FIELD].as_bool().or_else(|| account[FIELD].as_bool()).unwrap_or(name != DEFAULT)
}

fn mount(pod: &mut Value) {
    let suffix = meta::uid(pod).and_then(|uid| uid.parse::<Uuid>().ok()).unwrap_or_default().as_u64_pair().1;
    let spec = &mut pod["spec"];
    let volumes = spec["volumes"].as_array().into_iter().flatten().filter_map(|volume| volume["name"].as_str());
    let given = volumes.into_iter().find(|name| name.starts_with(VOLUME_PREFIX)).map(str::to_owned);
    let has_volume = given.is_some();
    let name = given.unwrap_or_else(|| format!("{VOLUME_PREFIX}{}", names::suffix(suffix)));
    let mut mounted = false;
    for list in CONTAINER_LISTS {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if !mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
                mounts.push(json!({ "name": name, "readOnly": true, "mountPath": MOUNT_PATH }));
                mounted = true;
            }
        }
    }
    if has_volume || !mounted {
        return;
    }
    if !spec["volumes"].is_array() {
        spec["volumes"] = json!([]);
    }
    if let Some(volumes) = spec["volumes"].as_array_mut() {
        volumes.push(volume(&name));
    }
}

fn volume(name: &str) -> Value {
    let reference = json!({ "apiVersion": "v1", "fieldPath": "metadata.namespace" });
    json!({
        "name": name,
        "projected": {
            "defaultMode": FILE_MODE,
            "sources": [
                { "serviceAccountToken": { "expirationSeconds": TOKEN_SECONDS, "path": "token" } },
                { "configMap": { "name": ROOT_CERTIFICATE, "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": reference }] } },
            ],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pods_word_goes_before_the_accounts() {
        let says = |yes: Option<bool>| yes.map_or(json!({}), |yes| json!({"automountServiceAccountToken": yes}));
        for (pod, account, name, wanted) in [
            (None, None, "robot", true),
            (None, None, DEFAULT, false),
            (Some(true), None, DEFAULT, true),
            (None, Some(true), DEFAULT, true),
            (Some(false), Some(true), "robot", false),
            (None, Some(false), "robot", false),
            (Some(true), Some(false), "robot", true),
        ] {
            assert_eq!(wants_token(&says(pod), &says(account), name), wanted, "{pod:?} {account:?} {name}");
        }
    }

    #[test]
    fn pods_that_name_no_pull_secrets_get_the_accounts() {
        let (own, accounts) = (json!([{"name": "mine"}]), json!([{"name": "theirs"}]));
        for (pod, account, expected) in [
            (json!({}), json!({}), Value::Null),
            (json!({}), json!({"imagePullSecrets": accounts}), accounts.clone()),
            (json!({"imagePullSecrets": []}), json!({"imagePullSecrets": accounts}), accounts.clone()),
            (json!({"imagePullSecrets": own}), json!({"imagePullSecrets": accounts}), own),
        ] {
            let mut spec = pod;
            give_pull_secrets(&mut spec, &account);
            assert_eq!(spec["imagePullSecrets"], expected);
        }
    }

    #[test]
    fn every_container_without_one_gets_the_mount() {
        let own = json!([{"name": "mine", "mountPath": MOUNT_PATH}]);
        let mut pod = json!({
            "metadata": {"uid": "018f0000-0000-7000-8000-000000000000"},
            "spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "a"}, {"name": "b", "volumeMounts": own}]},
        });
        mount(&mut pod);
        let name = pod["spec"]["volumes"][0]["name"].as_str().expect("a volume").to_owned();
        assert!(name.starts_with(VOLUME_PREFIX) && name.len() == VOLUME_PREFIX.len() + 5, "{name}");
        let wanted = json!([{"name": name, "readOnly": true, "mountPath": MOUNT_PATH}]);
        assert_eq!(pod["spec"]["initContainers"][0]["volumeMounts"], wanted);
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"], wanted);
        assert_eq!(pod["spec"]["containers"][1]["volumeMounts"], own);
        let once = pod.clone();
        mount(&mut pod);
        assert_eq!(pod, once);
    }
}
