//! The objects that a pod refers to: ConfigMaps, Secrets, claims with their volumes; and its account's tokens.
//!
//! Invariant: what is missing is known as missing, so that an optional reference and a required one
//! can be told apart without another call.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use k8s_openapi::api::core::v1::{ConfigMap, Container, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::{ByteString, NamespaceResourceScope};
use kube::{Api, Client};
use serde::de::DeserializeOwned;

use crate::pod_spec::tokens::{self, Tokens};
use crate::probes;

/// Names of the objects that a pod refers to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct References {
    config_maps: BTreeSet<String>,
    secrets: BTreeSet<String>,
    claims: BTreeSet<String>,
}

/// The objects themselves; `None` for one that does not exist.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    config_maps: BTreeMap<String, Option<ConfigMap>>,
    secrets: BTreeMap<String, Option<Secret>>,
    claims: BTreeMap<String, Option<PersistentVolumeClaim>>,
    /// By the name of their claim.
    volumes: BTreeMap<String, PersistentVolume>,
    tokens: Tokens,
}

impl References {
    /// Everything that `pod` refers to.
    pub(crate) fn of(pod: &Pod) -> References {
        let mut found = References::default();
        probes::containers(pod).for_each(|container| found.add_environment(container));
        let Some(spec) = &pod.spec else { return found };
        for volume in spec.volumes.iter().flatten() {
            found.config_maps.extend(volume.config_map.as_ref().map(|source| source.name.clone()));
            found.secrets.extend(volume.secret.as_ref().and_then(|source| source.secret_name.clone()));
            found.claims.extend(volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.clone()));
            for part in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
                found.config_maps.extend(part.config_map.as_ref().map(|source| source.name.clone()));
                found.secrets.extend(part.secret.as_ref().map(|source| source.name.clone()));
            }
        }
        found
    }

    fn add_environment(&mut self, container: &Container) {
        for source in container.env_from.iter().flatten() {
            self.config_maps.extend(source.config_map_ref.as_ref().map(|source| source.name.clone()));
            self.secrets.extend(source.secret_ref.as_ref().map(|source| source.name.clone()));
        }
        for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
            self.config_maps.extend(source.config_map_key_ref.as_ref().map(|source| source.name.clone()));
            self.secrets.extend(source.secret_key_ref.as_ref().map(|source| source.name.clone()));
        }
    }

    /// Gets them all for `pod`, one after the other; a pod has a handful.
    pub(crate) async fn fetch(self, client: &Client, pod: &Pod) -> Result<Sources, kube::Error> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let claims = fetch_all(client, namespace, self.claims).await?;
        Ok(Sources {
            tokens: tokens::request_all(client, pod).await?,
            config_maps: fetch_all(client, namespace, self.config_maps).await?,
            secrets: fetch_all(client, namespace, self.secrets).await?,
            volumes: fetch_volumes(client, &claims).await?,
            claims,
        })
    }
}

/// The volumes of claims that are bound.
async fn fetch_volumes(
    client: &Client,
    claims: &BTreeMap<String, Option<PersistentVolumeClaim>>,
) -> Result<BTreeMap<String, PersistentVolume>, kube::Error> {
    let api: Api<PersistentVolume> = Api::all(client.clone());
    let mut found = BTreeMap::new();
    for (name, claim) in claims {
        if let Some(volume) = claim.as_ref().and_then(bound_to)
            && let Some(volume) = api.get_opt(volume).await?
        {
            found.insert(name.clone(), volume);
        }
    }
    Ok(found)
}

/// The volume of a claim that has one for good.
fn bound_to(claim: &PersistentVolumeClaim) -> Option<&str> {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    volume.filter(|volume| !volume.is_empty() && phase == Some("Bound"))
}

/// The objects of a namespace by these names; none for one that does not exist.
pub(crate) async fn fetch_all<K>(
    client: &Client,
    namespace: &str,
    names: BTreeSet<String>,
) -> Result<BTreeMap<String, Option<K>>, kube::Error>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let mut found = BTreeMap::new();
    for name in names {
        let object = api.get_opt(&name).await?;
        found.insert(name, object);
    }
    Ok(found)
}

impl Sources {
    /// All keys of a ConfigMap.
    pub(crate) fn config_map(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        let map = self.config_maps.get(name)?.as_ref()?;
        let text = map.data.iter().flatten().map(|(key, value)| (key.clone(), value.clone().into_bytes()));
        let bytes = map.binary_data.iter().flatten().map(|(key, ByteString(value))| (key.clone(), value.clone()));
        Some(text.chain(bytes).collect())
    }

    /// All keys of a Secret.
    pub(crate) fn secret(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        let secret = self.secrets.get(name)?.as_ref()?;
        let bytes = secret.data.iter().flatten().map(|(key, ByteString(value))| (key.clone(), value.clone()));
        let text = secret.string_data.iter().flatten().map(|(key, value)| (key.clone(), value.clone().into_bytes()));
        Some(bytes.chain(text).collect())
    }

    /// The token that is to stand in `path` of `volume`.
    pub(crate) fn token(&self, volume: &str, path: &str) -> Option<&str> {
        let found = self.tokens.iter().find(|(file, _)| file.volume == volume && file.path == path);
        found.map(|(_, token)| token.as_str())
    }

    /// Whether a claim exists.
    pub(crate) fn has_claim(&self, name: &str) -> bool {
        matches!(self.claims.get(name), Some(Some(_)))
    }

    /// The volume that a claim is bound to.
    pub(crate) fn volume(&self, claim: &str) -> Option<&PersistentVolume> {
        self.volumes.get(claim)
    }
}

#[cfg(test)]
impl Sources {
    pub(crate) fn add_token(&mut self, volume: &str, path: &str, token: &str) {
        self.tokens.insert(tokens::TokenFile::of(volume, path), token.to_owned());
    }

    /// Sources made of JSON objects by kind.
    pub(crate) fn of(objects: Vec<serde_json::Value>) -> Sources {
        let mut sources = Sources::default();
        for object in objects {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            match object["kind"].as_str().unwrap() {
                "ConfigMap" => drop(sources.config_maps.insert(name, serde_json::from_value(object).unwrap())),
                "Secret" => drop(sources.secrets.insert(name, serde_json::from_value(object).unwrap())),
                "PersistentVolume" => {
                    let claim = object["spec"]["claimRef"]["name"].as_str().unwrap().to_owned();
                    sources.volumes.insert(claim, serde_json::from_value(object).unwrap());
                }
                _ => drop(sources.claims.insert(name, serde_json::from_value(object).unwrap())),
            }
        }
        sources
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_reference_of_a_pod_is_found() {
        let pod = json!({"spec": {
            "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "s1"}}]}],
            "containers": [{"name": "c",
                "envFrom": [{"configMapRef": {"name": "c1"}}],
                "env": [
                    {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c2", "key": "k"}}},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s2", "key": "k"}}},
                ]}],
            "volumes": [
                {"name": "a", "configMap": {"name": "c3"}},
                {"name": "b", "secret": {"secretName": "s3"}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "p1"}},
                {"name": "d", "projected": {"sources": [{"configMap": {"name": "c4"}}, {"secret": {"name": "s4"}}]}},
                {"name": "e", "emptyDir": {}},
            ],
        }});
        let found = References::of(&serde_json::from_value(pod).unwrap());
        let names = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(",");
        assert_eq!(names(&found.config_maps), "c1,c2,c3,c4");
        assert_eq!(names(&found.secrets), "s1,s2,s3,s4");
        assert_eq!(names(&found.claims), "p1");
    }
}
