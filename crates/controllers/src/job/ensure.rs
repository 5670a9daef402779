//! Objects of plugins: made, kept right, removed.
//!
//! Invariant: an object of the same name that this job does not control is never touched, nor used.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Resource};
use pumice_cluster::{Failure, failure, write};
use pumice_machines::job::{Ensured, ObjectId, ObjectKind};
use pumice_machines::plugins::ssh::{self, SecretPlan};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

use super::execute::{Target, Trouble};

const REASON: &str = "PluginError";

/// Whether the job of this uid controls an object.
pub(super) fn is_controlled(metadata: &ObjectMeta, job_uid: Option<&str>) -> bool {
    let owners = metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| owner.controller == Some(true) && Some(owner.uid.as_str()) == job_uid)
}

/// Makes an object be as the plugin wants it.
pub(super) async fn ensure(target: &Target<'_>, id: &ObjectId, object: Ensured) -> Result<(), Trouble> {
    match object {
        Ensured::ConfigMap(wanted) => {
            if let Some(found) = create_or_find(target, id, &*wanted).await?
                && found.data != wanted.data
            {
                let patch = json!({"data": entries(found.data.as_ref(), wanted.data.as_ref())});
                change::<ConfigMap>(target, id, &patch).await?;
            }
        }
        Ensured::Service(wanted) => {
            if let Some(found) = create_or_find(target, id, &*wanted).await? {
                let publish = |service: &Service| {
                    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses).unwrap_or(false)
                };
                if publish(&found) != publish(&wanted) {
                    let patch = json!({"spec": {"publishNotReadyAddresses": publish(&wanted)}});
                    change::<Service>(target, id, &patch).await?;
                }
            }
        }
        // It depends on nothing that changes.
        Ensured::NetworkPolicy(wanted) => drop(create_or_find(target, id, &*wanted).await?),
        Ensured::SshSecret(plan) => ensure_secret(target, id, &plan).await?,
    }
    Ok(())
}

/// Keys are made only if there are none; the config follows the plan.
async fn ensure_secret(target: &Target<'_>, id: &ObjectId, plan: &SecretPlan) -> Result<(), Trouble> {
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
    if found.data.as_ref().and_then(|data| data.get(ssh::CONFIG)) != Some(&config) {
        change::<Secret>(target, id, &json!({"data": {ssh::CONFIG: config}})).await?;
    }
    Ok(())
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

async fn change<K>(target: &Target<'_>, id: &ObjectId, patch: &Value) -> Result<(), Trouble>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let changed = write::merge(&target.api::<K>(), &id.name, patch).await;
    changed.map(drop).map_err(|error| trouble(id, &error))
}

/// New entries, and null for those that go.
fn entries(old: Option<&BTreeMap<String, String>>, new: Option<&BTreeMap<String, String>>) -> Map<String, Value> {
    let gone = old.into_iter().flatten().map(|(key, _)| (key.clone(), Value::Null));
    let wanted = new.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone().into()));
    gone.chain(wanted).collect()
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
