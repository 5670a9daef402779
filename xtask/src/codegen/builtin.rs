//! OpenAPI schemas of the built-in kinds the API server serves, from k8s-openapi, without descriptions.
//!
//! Names are upstream's (`io.k8s.api.core.v1.Pod`); references stay references because some schemas are recursive. Kinds
//! carry `x-kubernetes-group-version-kind`, by which clients find them. `metadata` and fields with a default are not required,
//! as upstream has it.

use std::collections::BTreeSet;

use anyhow::Context as _;
use k8s_openapi::api::{
    admissionregistration::v1 as admissionregistration, apps::v1 as apps, authentication::v1 as authentication,
    authorization::v1 as authorization, batch::v1 as batch, coordination::v1 as coordination, core::v1 as core,
    discovery::v1 as discovery, events::v1 as events, networking::v1 as networking, policy::v1 as policy,
    rbac::v1 as rbac, resource::v1 as resource, scheduling::v1 as scheduling, storage::v1 as storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as extensions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::sorted;
use super::structural::{Markers, kubernetes_markers, not_required};

/// Schemas whose values have no structure a schema could say: any JSON, or a union of a schema with something else.
const FREE_FORM: &[&str] = &[
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
];

/// Types that controller-gen calls atomic because they inline one that is. Kubernetes' own document does not.
const INLINING: &[&str] = &[
    "io.k8s.api.core.v1.ConfigMapEnvSource",
    "io.k8s.api.core.v1.ConfigMapProjection",
    "io.k8s.api.core.v1.ConfigMapVolumeSource",
    "io.k8s.api.core.v1.SecretEnvSource",
    "io.k8s.api.core.v1.SecretProjection",
];

/// The document: one compact line of `{"components":{"schemas":{...}}}`.
pub fn document() -> anyhow::Result<String> {
    let mut generator = generator();
    let kinds = [
        kind::<core::Namespace>(&mut generator),
        kind::<core::Node>(&mut generator),
        kind::<core::Pod>(&mut generator),
        kind::<core::Binding>(&mut generator),
        kind::<core::ConfigMap>(&mut generator),
        kind::<core::Secret>(&mut generator),
        kind::<core::Service>(&mut generator),
        kind::<core::ServiceAccount>(&mut generator),
        kind::<core::Event>(&mut generator),
        kind::<core::PersistentVolumeClaim>(&mut generator),
        kind::<apps::ControllerRevision>(&mut generator),
        kind::<apps::Deployment>(&mut generator),
        kind::<apps::ReplicaSet>(&mut generator),
        kind::<apps::StatefulSet>(&mut generator),
        kind::<batch::CronJob>(&mut generator),
        kind::<batch::Job>(&mut generator),
        kind::<core::PersistentVolume>(&mut generator),
        kind::<core::ResourceQuota>(&mut generator),
        kind::<core::LimitRange>(&mut generator),
        kind::<core::ReplicationController>(&mut generator),
        kind::<discovery::EndpointSlice>(&mut generator),
        kind::<events::Event>(&mut generator),
        kind::<coordination::Lease>(&mut generator),
        kind::<scheduling::PriorityClass>(&mut generator),
        kind::<networking::NetworkPolicy>(&mut generator),
        kind::<policy::PodDisruptionBudget>(&mut generator),
        kind::<policy::Eviction>(&mut generator),
        kind::<storage::StorageClass>(&mut generator),
        kind::<storage::CSIDriver>(&mut generator),
        kind::<storage::CSINode>(&mut generator),
        kind::<storage::CSIStorageCapacity>(&mut generator),
        kind::<storage::VolumeAttachment>(&mut generator),
        kind::<resource::DeviceClass>(&mut generator),
        kind::<resource::ResourceClaim>(&mut generator),
        kind::<resource::ResourceClaimTemplate>(&mut generator),
        kind::<resource::ResourceSlice>(&mut generator),
        kind::<rbac::Role>(&mut generator),
        kind::<rbac::RoleBinding>(&mut generator),
        kind::<rbac::ClusterRole>(&mut generator),
        kind::<rbac::ClusterRoleBinding>(&mut generator),
        kind::<authentication::TokenRequest>(&mut generator),
        kind::<authentication::TokenReview>(&mut generator),
        kind::<authentication::SelfSubjectReview>(&mut generator),
        kind::<authorization::SubjectAccessReview>(&mut generator),
        kind::<authorization::LocalSubjectAccessReview>(&mut generator),
        kind::<authorization::SelfSubjectAccessReview>(&mut generator),
        kind::<authorization::SelfSubjectRulesReview>(&mut generator),
        kind::<admissionregistration::MutatingWebhookConfiguration>(&mut generator),
        kind::<admissionregistration::ValidatingWebhookConfiguration>(&mut generator),
        kind::<admissionregistration::ValidatingAdmissionPolicy>(&mut generator),
        kind::<admissionregistration::ValidatingAdmissionPolicyBinding>(&mut generator),
        kind::<extensions::CustomResourceDefinition>(&mut generator),
        kind::<meta::Status>(&mut generator),
    ];
    generator.subschema_for::<meta::DeleteOptions>();
    let mut schemas = generator.take_definitions(true);
    for (name, group_version_kind) in kinds {
        let schema =
            schemas.get_mut(&name).and_then(Value::as_object_mut).with_context(|| format!("no schema {name}"))?;
        schema.insert("x-kubernetes-group-version-kind".into(), json!([group_version_kind]));
    }
    for name in FREE_FORM {
        let schema = schemas.get_mut(*name).with_context(|| format!("no schema {name}"))?;
        *schema = json!({ "x-kubernetes-preserve-unknown-fields": true });
    }
    let markers = kubernetes_markers()?;
    let keys = list_keys(&markers);
    for (name, schema) in &mut schemas {
        if let Some(schema) = schema.as_object_mut() {
            not_required(schema, "metadata");
            for (field, additions) in markers.get(name).into_iter().flatten() {
                if field != "." || !INLINING.contains(&name.as_str()) {
                    mark(schema, field, additions, &keys).with_context(|| format!("{name}.{field}"))?;
                }
            }
        }
    }
    let mut schemas = Value::Object(schemas);
    drop_descriptions(&mut schemas);
    let document = json!({ "components": { "schemas": schemas } });
    Ok(serde_json::to_string(&sorted(&document))? + "\n")
}

/// The members that tell items of lists apart.
fn list_keys(markers: &Markers) -> BTreeSet<&str> {
    let fields = markers.values().flat_map(|fields| fields.values());
    let keys = fields.filter_map(|additions| additions.get("x-kubernetes-list-map-keys")?.as_array());
    keys.flatten().filter_map(Value::as_str).collect()
}

/// Says of a type or one of its fields how it is merged. The server fills in defaults by kind, so a default only makes a
/// field not required; but a key that is left out means its default.
fn mark(
    schema: &mut Map<String, Value>,
    field: &str,
    additions: &Map<String, Value>,
    keys: &BTreeSet<&str>,
) -> anyhow::Result<()> {
    let default = additions.get("default");
    if default.is_some() {
        not_required(schema, field);
    }
    let is_of_key = keys.contains(field) && default != Some(&json!(""));
    let merging = additions.iter().filter(|(keyword, _)| match keyword.as_str() {
        "default" => is_of_key,
        keyword => keyword.starts_with("x-kubernetes-"),
    });
    let merging: Vec<_> = merging.map(|(keyword, value)| (keyword.clone(), value.clone())).collect();
    if field == "." {
        schema.extend(merging);
    } else {
        let property = schema.get_mut("properties").and_then(|properties| properties.get_mut(field));
        property.and_then(Value::as_object_mut).context("no such field")?.extend(merging);
    }
    Ok(())
}

/// A generator whose references point into an OpenAPI document.
pub fn generator() -> SchemaGenerator {
    SchemaSettings::openapi3().with(|settings| settings.transforms.clear()).into_generator()
}

fn kind<T: JsonSchema + k8s_openapi::Resource>(generator: &mut SchemaGenerator) -> (String, Value) {
    generator.subschema_for::<T>();
    (T::schema_name().into_owned(), json!({ "group": T::GROUP, "version": T::VERSION, "kind": T::KIND }))
}

/// Removes every description. A property of that name is an object and stays.
pub fn drop_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            remove_text(members);
            members.values_mut().for_each(drop_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_descriptions),
        _ => {}
    }
}

fn remove_text(members: &mut Map<String, Value>) {
    if members.get("description").is_some_and(Value::is_string) {
        members.remove("description");
    }
}
