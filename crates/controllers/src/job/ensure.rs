//! Objects of plugins: made, kept right, removed.
//!
//! Invariant: an object of the same name that this job does not control is never touched, nor used.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceSpec};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Resource};
use pumice_cluster::{Failure, failure, write};
use pumice_machines::job::{Ensured, ObjectId, ObjectKind};
use pumice_machines::plugins::ssh::{self, SecretPlan};
use pumice_units::stable_hash;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

use super::execute::{Target, Trouble};
use crate::index::CONTENT;

const REASON: &str = "PluginError";

/// Whether the job of this uid controls an object.
pub(super) fn is_controlled(metadata: &ObjectMeta, job_uid: Option<&str>) -> bool {
    let owners = metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| owner.controller == Some(true) && Some(owner.uid.as_str()) == job_uid)
}

/// A hash of what a plugin wants, the same in each life of the controllers. Keys are none of it: they are made once.
pub(super) fn content(object: &Ensured) -> String {
    let text = match object {
        Ensured::ConfigMap(wanted) => json!(wanted.data).to_string(),
        Ensured::Service(wanted) => json!(wanted.spec).to_string(),
        Ensured::NetworkPolicy(wanted) => json!(wanted.spec).to_string(),
        Ensured::SshSecret(plan) => plan.config.clone(),
    };
    format!("{:016x}", stable_hash(text.bytes()))
}

/// Makes an object be as the plugin wants it, and says so on it.
pub(super) async fn ensure(target: &Target<'_>, id: &ObjectId, mut object: Ensured) -> Result<(), Trouble> {
    let note = content(&object);
    let metadata = match &mut object {
        Ensured::ConfigMap(wanted) => &mut wanted.metadata,
        Ensured::Service(wanted) => &mut wanted.metadata,
        Ensured::NetworkPolicy(wanted) => &mut wanted.metadata,
        Ensured::SshSecret(plan) => &mut plan.metadata,
    };
    metadata.annotations.get_or_insert_default().insert(CONTENT.to_owned(), note.clone());
    match object {
        Ensured::ConfigMap(wanted) => {
            if let Some(found) = create_or_find(target, id, &*wanted).await? {
                let differs = found.data != wanted.data;
                let patch = differs.then(|| json!({"data": entries(found.data.as_ref(), wanted.data.as_ref())}));
                change(target, id, &found, patch, &note).await?;
            }
        }
        Ensured::Service(wanted) => {
            if let Some(found) = create_or_find(target, id, &*wanted).await? {
                let patch = service_patch(found.spec.as_ref(), wanted.spec.as_ref());
                change(target, id, &found, patch, &note).await?;
            }
        }
        // It depends on nothing that changes.
        Ensured::NetworkPolicy(wanted) => drop(create_or_find(target, id, &*wanted).await?),
        Ensured::SshSecret(plan) => ensure_secret(target, id, &plan, &note).await?,
    }
    Ok(())
}

/// Keys are made only if there are none; the config follows the plan.
async fn ensure_secret(target: &Target<'_>, id: &ObjectId, plan: &SecretPlan, note: &str) -> Result<(), Trouble> {
    let secrets = target.api::<Secret>();
    let found = secrets.get_opt(&id.name).await.map_err(|error| trouble(id, &error))?;
    let found = match found {
        Some(found) => found,
        None => {
            let keys = match &plan.keys {
                Some(keys) => keys.clone(),
                None => target.keys.take().await.map_err(|error| {
                    let message = format!("cannot make keys for secret {}: {error}", id.name);
                    Trouble { failure: Failure::Unavailable, event: Some((REASON, message)) }
                })?,
            };
            match create_or_find(target, id, &plan.with_keys(&keys)).await? {
                Some(found) => found,
                None => return Ok(()),
            }
        }
    };
    if !is_controlled(&found.metadata, target.job_uid()) {
        return Err(foreign(id));
    }
    let config = ByteString(plan.config.clone().into_bytes());
    let differs = found.data.as_ref().and_then(|data| data.get(ssh::CONFIG)) != Some(&config);
    let patch = differs.then(|| json!({"data": {ssh::CONFIG: config}}));
    change(target, id, &found, patch, note).await
}

/// Creates an object; if it was there and is this job's, returns it.
async fn create_or_find<K>(target: &Target<'_>, id: &ObjectId, wanted: &K) -> Result<Option<K>, Trouble>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    let api: Api<K> = target.api();
    match api.create(&PostParams::default(), wanted).await {
        Ok(_) => return Ok(None),
        Err(error) if failure(&error) == Failure::AlreadyExists => {}
        Err(error) => return Err(trouble(id, &error)),
    }
    match api.get_opt(&id.name).await {
        Ok(Some(found)) if is_controlled(found.meta(), target.job_uid()) => Ok(Some(found)),
        Ok(Some(_)) => Err(foreign(id)),
        Ok(None) => Err(Trouble { failure: Failure::Conflict, event: None }),
        Err(error) => Err(trouble(id, &error)),
    }
}

/// Patches an object if something differs, or if the object does not say yet what it holds.
async fn change<K>(
    target: &Target<'_>,
    id: &ObjectId,
    found: &K,
    patch: Option<Value>,
    note: &str,
) -> Result<(), Trouble>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let said = found.meta().annotations.as_ref().and_then(|all| all.get(CONTENT)).map(String::as_str);
    if patch.is_none() && said == Some(note) {
        return Ok(());
    }
    let mut patch = patch.unwrap_or_else(|| json!({}));
    patch["metadata"] = json!({"annotations": {CONTENT: note}});
    let changed = write::merge(&target.api::<K>(), &id.name, &patch).await;
    changed.map(drop).map_err(|error| trouble(id, &error))
}

/// New entries, and null for those that go.
fn entries(old: Option<&BTreeMap<String, String>>, new: Option<&BTreeMap<String, String>>) -> Map<String, Value> {
    let gone = old.into_iter().flatten().map(|(key, _)| (key.clone(), Value::Null));
    let wanted = new.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone().into()));
    gone.chain(wanted).collect()
}

/// What must change in a Service; the API server has filled in what the plugin left open.
fn service_patch(found: Option<&ServiceSpec>, wanted: Option<&ServiceSpec>) -> Option<Value> {
    let wanted = wanted?;
    let selector = |spec: Option<&ServiceSpec>| spec.and_then(|spec| spec.selector.clone()).unwrap_or_default();
    let publish = |spec: Option<&ServiceSpec>| spec.and_then(|spec| spec.publish_not_ready_addresses).unwrap_or(false);
    let mut patch = Map::new();
    let (old, new) = (selector(found), selector(Some(wanted)));
    if old != new {
        patch.insert("selector".to_owned(), entries(Some(&old), Some(&new)).into());
    }
    if publish(found) != publish(Some(wanted)) {
        patch.insert("publishNotReadyAddresses".to_owned(), publish(Some(wanted)).into());
    }
    if ports(found) != ports(Some(wanted)) {
        patch.insert("ports".to_owned(), json!(wanted.ports.as_deref().unwrap_or_default()));
    }
    (!patch.is_empty()).then(|| json!({"spec": patch}))
}

/// A port as the API server keeps it: defaults are filled in.
#[derive(PartialEq)]
struct Port<'a> {
    name: &'a str,
    number: i32,
    protocol: &'a str,
    target: IntOrString,
}

fn ports(spec: Option<&ServiceSpec>) -> Vec<Port<'_>> {
    let mut all = Vec::new();
    for port in spec.and_then(|spec| spec.ports.as_deref()).unwrap_or_default() {
        let target = port.target_port.clone().unwrap_or(IntOrString::Int(port.port));
        let name = port.name.as_deref().unwrap_or_default();
        all.push(Port { name, number: port.port, protocol: port.protocol.as_deref().unwrap_or("TCP"), target });
    }
    all
}

/// Removes an object if this job controls it.
pub(super) async fn remove(target: &Target<'_>, id: &ObjectId) -> Result<(), Trouble> {
    match id.kind {
        ObjectKind::ConfigMap => remove_kind::<ConfigMap>(target, id).await,
        ObjectKind::Secret => remove_kind::<Secret>(target, id).await,
        ObjectKind::Service => remove_kind::<Service>(target, id).await,
        ObjectKind::NetworkPolicy => remove_kind::<NetworkPolicy>(target, id).await,
    }
}

async fn remove_kind<K>(target: &Target<'_>, id: &ObjectId) -> Result<(), Trouble>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let api: Api<K> = target.api();
    let found = match api.get_opt(&id.name).await {
        Ok(Some(found)) if is_controlled(found.meta(), target.job_uid()) => found,
        // A kind that is not served counts as absent, too.
        Ok(_) => return Ok(()),
        Err(error) if failure(&error) == Failure::NotFound => return Ok(()),
        Err(error) => return Err(trouble(id, &error)),
    };
    let preconditions = Preconditions { uid: found.meta().uid.clone(), ..Preconditions::default() };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api.delete(&id.name, &parameters).await {
        Ok(_) => Ok(()),
        Err(error) if matches!(failure(&error), Failure::NotFound | Failure::Conflict) => Ok(()),
        Err(error) => Err(trouble(id, &error)),
    }
}

fn trouble(id: &ObjectId, error: &kube::Error) -> Trouble {
    Trouble::new(REASON, &format!("write {:?} {}", id.kind, id.name), error)
}

fn foreign(id: &ObjectId) -> Trouble {
    let message =
        format!("{:?} {} exists and belongs to something else; delete it and the job goes on", id.kind, id.name);
    Trouble { failure: Failure::AlreadyExists, event: Some((REASON, message)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_changed_only_where_it_differs() {
        let found = json!({
            "clusterIP": "10.0.0.1", "type": "ClusterIP", "selector": {"a": "1", "b": "2"}, "sessionAffinity": "None",
            "ports": [{"name": "gcs", "port": 6379, "protocol": "TCP", "targetPort": "gcs"}, {"port": 7, "targetPort": 7}],
        });
        let wanted = |selector: Value, ports: Value, publish: Value| json!({"selector": selector, "ports": ports, "publishNotReadyAddresses": publish});
        let (selector, ports) =
            (json!({"a": "1", "b": "2"}), json!([{"name": "gcs", "port": 6379, "targetPort": "gcs"}, {"port": 7}]));
        let none = Value::Null;
        let other = json!([{"name": "gcs", "port": 1, "targetPort": "gcs"}]);
        let cases = [
            (wanted(selector.clone(), ports.clone(), none.clone()), None),
            (wanted(selector.clone(), ports.clone(), json!(false)), None),
            (wanted(selector.clone(), ports.clone(), json!(true)), Some(json!({"publishNotReadyAddresses": true}))),
            (wanted(json!({"a": "3"}), ports, none.clone()), Some(json!({"selector": {"a": "3", "b": null}}))),
            (wanted(selector.clone(), other.clone(), none.clone()), Some(json!({"ports": other}))),
            (wanted(selector, json!([]), none), Some(json!({"ports": []}))),
        ];
        let spec = |value: &Value| serde_json::from_value::<ServiceSpec>(value.clone()).unwrap();
        for (wanted, expected) in cases {
            let patch = service_patch(Some(&spec(&found)), Some(&spec(&wanted)));
            assert_eq!(patch, expected.map(|spec| json!({"spec": spec})), "{wanted}");
        }
    }
}
