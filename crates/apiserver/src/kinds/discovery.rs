//! Discovery: which groups, versions and resources there are, in the legacy and the aggregated form.
//!
//! Invariant: both forms and the OpenAPI documents come from one list, made with the registry, so they never disagree.
//! Served by `documents`.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::kinds::Descriptor;
use crate::kinds::aggregated::AggregatedApi;
use crate::kinds::descriptor::GroupVersionKind;
use crate::kinds::openapi;

/// A document with its fingerprint.
#[derive(Clone)]
pub(crate) struct Document {
    pub(crate) body: Bytes,
    pub(crate) hash: String,
}

impl Document {
    pub(crate) fn new(value: &Value) -> Self {
        let text = value.to_string();
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self { body: Bytes::from(text), hash: format!("{:016X}", hasher.finish()) }
    }
}

/// A resource as discovery shows it.
pub(crate) struct Entry {
    name: String,
    singular: String,
    kind: String,
    namespaced: bool,
    verbs: Vec<&'static str>,
    short_names: Vec<String>,
    categories: Vec<String>,
    subresources: Vec<Below>,
}

struct Below {
    name: &'static str,
    kind: Option<GroupVersionKind<'static>>,
    verbs: &'static [&'static str],
}

/// A version of a group.
pub(crate) struct Version {
    pub(crate) group: String,
    pub(crate) name: String,
    entries: Vec<Entry>,
    descriptors: Vec<Arc<Descriptor>>,
    openapi: OnceLock<Document>,
}

impl Version {
    /// Its path without the leading slash: `api/v1` for the core, else `apis/group/version`.
    pub(crate) fn path(&self) -> String {
        if self.group.is_empty() { format!("api/{}", self.name) } else { format!("apis/{}/{}", self.group, self.name) }
    }

    fn api_version(&self) -> String {
        if self.group.is_empty() { self.name.clone() } else { format!("{}/{}", self.group, self.name) }
    }

    /// The OpenAPI document, made when it is first asked for.
    pub(crate) fn openapi(&self) -> &Document {
        self.openapi.get_or_init(|| Document::new(&openapi::document(&self.descriptors)))
    }

    /// The `APIResourceList`, for clients that ask for discovery one version at a time.
    pub(crate) fn resource_list(&self) -> Value {
        let mut resources = Vec::new();
        for entry in &self.entries {
            resources.push(json!({
                "name": entry.name, "singularName": entry.singular, "namespaced": entry.namespaced,
                "kind": entry.kind, "verbs": entry.verbs, "shortNames": entry.short_names,
                "categories": entry.categories,
            }));
            for below in &entry.subresources {
                let mut resource = json!({
                    "name": format!("{}/{}", entry.name, below.name), "singularName": "",
                    "namespaced": entry.namespaced, "kind": below.kind.map_or(entry.kind.as_str(), |own| own.kind),
                    "verbs": below.verbs,
                });
                if let Some(own) = below.kind {
                    resource["group"] = json!(own.group);
                    resource["version"] = json!(own.version);
                }
                resources.push(resource);
            }
        }
        json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": self.api_version(), "resources": resources,
        })
    }

    fn aggregated(&self) -> Value {
        let resources: Vec<Value> = self
            .entries
            .iter()
            .map(|entry| {
                let own = GroupVersionKind { group: &self.group, version: &self.name, kind: &entry.kind };
                let below: Vec<Value> = entry
                    .subresources
                    .iter()
                    .map(|below| {
                        json!({
                            "subresource": below.name, "verbs": below.verbs,
                            "responseKind": below.kind.unwrap_or(own).to_json(),
                        })
                    })
                    .collect();
                json!({
                    "resource": entry.name, "responseKind": own.to_json(),
                    "scope": if entry.namespaced { "Namespaced" } else { "Cluster" },
                    "singularResource": entry.singular, "verbs": entry.verbs, "shortNames": entry.short_names,
                    "categories": entry.categories, "subresources": below,
                })
            })
            .collect();
        json!({ "version": self.name, "resources": resources, "freshness": "Current" })
    }
}

/// Every document that describes one registry.
pub(crate) struct Documents {
    versions: Vec<Version>,
    core: Document,
    groups: Document,
    aggregated_core: Document,
    aggregated_groups: Document,
}

impl Documents {
    /// `ordered` is by group, then preference of the version, then name.
    pub(crate) fn new(ordered: &[Arc<Descriptor>], aggregated: &[Arc<AggregatedApi>]) -> Self {
        let mut versions: Vec<Version> = Vec::new();
        for descriptor in ordered {
            let same = |version: &Version| version.group == descriptor.group && version.name == descriptor.version;
            if !versions.last().is_some_and(same) {
                versions.push(Version {
                    group: descriptor.group.clone(),
                    name: descriptor.version.clone(),
                    entries: Vec::new(),
                    descriptors: Vec::new(),
                    openapi: OnceLock::new(),
                });
            }
            if let Some(version) = versions.last_mut() {
                version.entries.push(entry(descriptor));
                version.descriptors.push(Arc::clone(descriptor));
            }
        }
        versions.extend(aggregated.iter().map(|api| foreign(api)));
        if let Some(core) = versions.iter_mut().find(|version| version.group.is_empty()) {
            core.entries.push(bindings());
            core.entries.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let (core, groups): (Vec<&Version>, Vec<&Version>) = versions.iter().partition(|one| one.group.is_empty());
        let legacy_core = json!({
            "kind": "APIVersions", "versions": core.iter().map(|one| &one.name).collect::<Vec<_>>(),
            "serverAddressByClientCIDRs": [],
        });
        Self {
            core: Document::new(&legacy_core),
            groups: Document::new(&group_list(&groups)),
            aggregated_core: Document::new(&aggregated_list(&core)),
            aggregated_groups: Document::new(&aggregated_list(&groups)),
            versions,
        }
    }

    /// A version of a group.
    pub(crate) fn version(&self, group: &str, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.group == group && version.name == name)
    }

    /// What `/api` answers: the versions of the core, with all their resources if `aggregated`.
    pub(crate) fn core(&self, aggregated: bool) -> &Document {
        if aggregated { &self.aggregated_core } else { &self.core }
    }

    /// What `/apis` answers: all groups but the core, with all their resources if `aggregated`.
    pub(crate) fn groups(&self, aggregated: bool) -> &Document {
        if aggregated { &self.aggregated_groups } else { &self.groups }
    }

    /// What `/apis/GROUP` answers; none of a group that is not served.
    pub(crate) fn group(&self, name: &str) -> Option<Value> {
        let versions: Vec<&Version> = self.versions.iter().filter(|version| version.group == name).collect();
        if versions.is_empty() {
            return None;
        }
        let mut group = api_group(name, &versions);
        group["kind"] = json!("APIGroup");
        group["apiVersion"] = json!("v1");
        Some(group)
    }

    /// What `/openapi/v3` answers: where the document of each version is. Makes those that nobody asked for yet.
    pub(crate) fn openapi_index(&self) -> Value {
        let paths: BTreeMap<String, Value> = self
            .versions
            .iter()
            .filter(|version| !version.descriptors.is_empty())
            .map(|version| {
                let path = version.path();
                let url = format!("/openapi/v3/{path}?hash={}", version.openapi().hash);
                (path, json!({ "serverRelativeURL": url }))
            })
            .collect();
        json!({ "paths": paths })
    }
}

fn entry(descriptor: &Descriptor) -> Entry {
    Entry {
        name: descriptor.plural.clone(),
        singular: descriptor.singular.clone(),
        kind: descriptor.kind.clone(),
        namespaced: descriptor.namespaced,
        verbs: descriptor.verbs().to_vec(),
        short_names: descriptor.short_names.clone(),
        categories: descriptor.categories.clone(),
        subresources: descriptor
            .subresources
            .iter()
            .map(|one| Below { name: one.name(), kind: one.kind(), verbs: one.verbs() })
            .collect(),
    }
}

/// The one resource of the core group that is not stored.
fn bindings() -> Entry {
    Entry {
        name: "bindings".to_owned(),
        singular: "binding".to_owned(),
        kind: "Binding".to_owned(),
        namespaced: true,
        verbs: vec!["create"],
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: Vec::new(),
    }
}

fn foreign(api: &AggregatedApi) -> Version {
    let entries = api.resources.iter().map(|resource| Entry {
        name: resource.name.clone(),
        singular: resource.kind.to_lowercase(),
        kind: resource.kind.clone(),
        namespaced: resource.namespaced,
        verbs: resource.verbs.iter().map(|verb| verb.as_str()).collect(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: Vec::new(),
    });
    Version {
        group: api.group.clone(),
        name: api.version.clone(),
        entries: entries.collect(),
        descriptors: Vec::new(),
        openapi: OnceLock::new(),
    }
}

fn by_group<'a>(versions: &[&'a Version]) -> BTreeMap<&'a str, Vec<&'a Version>> {
    let mut groups: BTreeMap<&str, Vec<&Version>> = BTreeMap::new();
    for version in versions {
        groups.entry(&version.group).or_default().push(version);
    }
    groups
}

fn api_group(name: &str, versions: &[&Version]) -> Value {
    let versions: Vec<Value> =
        versions.iter().map(|one| json!({ "groupVersion": one.api_version(), "version": one.name })).collect();
    json!({ "name": name, "preferredVersion": versions.first(), "versions": versions })
}

fn group_list(versions: &[&Version]) -> Value {
    let groups: Vec<Value> =
        by_group(versions).into_iter().map(|(name, versions)| api_group(name, &versions)).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

fn aggregated_list(versions: &[&Version]) -> Value {
    let items: Vec<Value> = by_group(versions)
        .into_iter()
        .map(|(name, versions)| {
            let versions: Vec<Value> = versions.iter().map(|version| version.aggregated()).collect();
            json!({ "metadata": { "name": name, "creationTimestamp": Value::Null }, "versions": versions })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}
