//! Objects of which only a part is kept, of a kind that is said when it is watched: not every server has it.
//!
//! Invariant: of the metadata no more is kept than says which object it is, and in which version.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::ApiResource;
use kube::core::DynamicResourceScope;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// What is kept of an object.
pub(crate) trait Part: Clone + Debug + Send + 'static {
    /// As much of its `spec` as is read.
    type Spec: Default + DeserializeOwned;

    fn of(annotations: BTreeMap<String, String>, spec: Self::Spec) -> Self;
}

/// An object, without what nobody here needs.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Whole<P::Spec>", bound = "P: Part")]
pub(crate) struct Slim<P: Part> {
    pub metadata: ObjectMeta,
    pub part: P,
}

#[derive(Deserialize)]
#[serde(bound = "S: Default + DeserializeOwned")]
struct Whole<S> {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: S,
}

impl<P: Part> From<Whole<P::Spec>> for Slim<P> {
    fn from(Whole { metadata, spec }: Whole<P::Spec>) -> Self {
        let ObjectMeta { name, namespace, uid, resource_version, annotations, .. } = metadata;
        Self {
            metadata: ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() },
            part: P::of(annotations.unwrap_or_default(), spec),
        }
    }
}

impl<P: Part> Resource for Slim<P> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }
    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }
    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }
    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What an API of Kubernetes' own is called.
pub(crate) fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}
