//! Stored objects in the version that a client asks for, and back.
//!
//! Invariant: what is stored carries the version in which it was written; what is served carries that of its descriptor.
//! Everything between reading and writing works on the served form. Called by the verbs; what deletes and collects looks
//! at metadata alone, which all versions share, and needs no conversion.

use std::sync::Arc;

use bytes::Bytes;
use pumice_objects::schema::Schema;
use pumice_objects::status::Status;
use pumice_store::Object;
use serde_json::{Value, json};

use crate::kinds::Descriptor;
use crate::stored::parse;
use crate::webhooks::Webhooks;

pub(crate) mod events;
pub(crate) mod webhook;

use webhook::Converter;

/// How the versions of a kind become each other.
#[derive(Clone, Debug)]
pub(crate) enum Conversion {
    /// There is one version.
    Same,
    /// Those of a definition with several.
    Versions(Arc<Versions>),
    /// Events of `events.k8s.io` are those of the core under other names.
    Events,
}

/// What all versions of a definition share.
#[derive(Debug)]
pub(crate) struct Versions {
    /// The schema of the version in which objects are stored.
    pub(crate) storage_schema: Schema,
    /// Who converts; without one, versions differ in nothing but their schemas.
    pub(crate) converter: Option<Converter>,
}

impl Conversion {
    /// Where a stored object has the field of this dotted path.
    pub(crate) fn stored_path<'p>(&self, path: &'p str) -> std::borrow::Cow<'p, str> {
        match self {
            Self::Events => events::stored_path(path),
            Self::Same | Self::Versions(_) => path.into(),
        }
    }
}

/// Stored objects as they are served.
pub(crate) async fn served(
    webhooks: &Webhooks,
    descriptor: &Descriptor,
    mut objects: Vec<Arc<Object>>,
) -> Result<Vec<Arc<Object>>, Status> {
    if matches!(descriptor.conversion, Conversion::Same) {
        return Ok(objects);
    }
    let wanted = descriptor.api_version();
    let prefix = prefix(&wanted);
    let others: Vec<usize> = (0..objects.len()).filter(|index| !objects[*index].body.starts_with(&prefix)).collect();
    let mut values: Vec<Value> = others.iter().map(|index| parse(&objects[*index])).collect();
    match &descriptor.conversion {
        Conversion::Same => {}
        Conversion::Events => values.iter_mut().for_each(events::served),
        Conversion::Versions(versions) => {
            values = versions.convert(webhooks, &wanted, values).await?;
            values.iter_mut().for_each(|value| descriptor.schema.complete(value));
        }
    }
    for (index, value) in others.into_iter().zip(values) {
        objects[index] = with_body(&objects[index], &value);
    }
    Ok(objects)
}

impl Versions {
    /// As many objects as it is given, in the version `wanted`.
    async fn convert(&self, webhooks: &Webhooks, wanted: &str, mut objects: Vec<Value>) -> Result<Vec<Value>, Status> {
        match &self.converter {
            // Few definitions have one: what that takes is not of every request.
            Some(converter) => Box::pin(converter.convert(webhooks, wanted, objects)).await,
            None => {
                objects.iter_mut().for_each(|object| object["apiVersion"] = json!(wanted));
                Ok(objects)
            }
        }
    }
}

/// One stored object as it is served.
pub(crate) async fn served_one(
    webhooks: &Webhooks,
    descriptor: &Descriptor,
    object: Arc<Object>,
) -> Result<Arc<Object>, Status> {
    let converted = served(webhooks, descriptor, vec![object]).await?;
    converted.into_iter().next().ok_or_else(|| Status::internal_error("a conversion lost its object"))
}

/// A served object as it is to be stored.
pub(crate) async fn stored(webhooks: &Webhooks, descriptor: &Descriptor, object: &mut Value) -> Result<(), Status> {
    match &descriptor.conversion {
        Conversion::Events => events::stored(object),
        Conversion::Versions(versions) if !descriptor.is_storage() => {
            let served = std::mem::take(object);
            let converted = versions.convert(webhooks, &descriptor.storage_api_version(), vec![served]).await?;
            *object = converted.into_iter().next().unwrap_or_default();
            versions.storage_schema.prune(object);
        }
        Conversion::Same | Conversion::Versions(_) => {}
    }
    Ok(())
}

/// How the text of a stored object of a version begins.
fn prefix(api_version: &str) -> Vec<u8> {
    format!("{{\"apiVersion\":{}", json!(api_version)).into_bytes()
}

/// The same object with another body.
fn with_body(object: &Object, value: &Value) -> Arc<Object> {
    let body = Bytes::from(value.to_string());
    Arc::new(Object { key: object.key.clone(), revision: object.revision, body })
}
