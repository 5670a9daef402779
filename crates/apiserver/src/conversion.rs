//! Stored objects in the version that a client asks for, and back.
//!
//! Invariant: what is stored carries the version in which it was written; what is served carries that of its descriptor.
//! Everything between reading and writing works on the served form. Called by the verbs; what deletes and collects looks
//! at metadata alone, which all versions share, and needs no conversion.

use std::sync::Arc;

use bytes::Bytes;
use pumice_objects::status::Status;
use pumice_store::Object;
use serde_json::{Value, json};

use crate::registry::Descriptor;
use crate::render::parse;
use crate::server::State;

pub(crate) mod events;

/// How the versions of a kind become each other.
#[derive(Clone, Debug)]
pub(crate) enum Conversion {
    /// There is one version.
    Same,
    /// They differ in nothing but their names.
    Renamed,
    /// Events of `events.k8s.io` are those of the core under other names.
    Events,
}

impl Conversion {
    /// Whether a body is the same in each version, but for the version's name.
    pub(crate) fn keeps_fields(&self) -> bool {
        matches!(self, Self::Same | Self::Renamed)
    }

    /// Where a stored object has the field of this dotted path.
    pub(crate) fn stored_path<'p>(&self, path: &'p str) -> std::borrow::Cow<'p, str> {
        match self {
            Self::Events => events::stored_path(path),
            Self::Same | Self::Renamed => path.into(),
        }
    }
}

/// Stored objects as they are served.
pub(crate) async fn served(
    _state: &State,
    descriptor: &Descriptor,
    objects: Vec<Arc<Object>>,
) -> Result<Vec<Arc<Object>>, Status> {
    let one: fn(&Descriptor, &mut Value) = match descriptor.conversion {
        Conversion::Same => return Ok(objects),
        Conversion::Renamed => rename,
        Conversion::Events => |_, event| events::served(event),
    };
    let prefix = prefix(&descriptor.api_version());
    let convert = |object: Arc<Object>| {
        if object.body.starts_with(&prefix) {
            return object;
        }
        let mut value = parse(&object);
        one(descriptor, &mut value);
        with_body(&object, &value)
    };
    Ok(objects.into_iter().map(convert).collect())
}

/// One stored object as it is served.
pub(crate) async fn served_one(
    state: &State,
    descriptor: &Descriptor,
    object: Arc<Object>,
) -> Result<Arc<Object>, Status> {
    let converted = served(state, descriptor, vec![object]).await?;
    converted.into_iter().next().ok_or_else(|| Status::internal_error("a conversion lost its object"))
}

/// A served object as it is to be stored.
pub(crate) async fn stored(_state: &State, descriptor: &Descriptor, object: &mut Value) -> Result<(), Status> {
    match descriptor.conversion {
        Conversion::Same => {}
        Conversion::Renamed => object["apiVersion"] = json!(descriptor.storage_api_version()),
        Conversion::Events => events::stored(object),
    }
    Ok(())
}

fn rename(descriptor: &Descriptor, object: &mut Value) {
    object["apiVersion"] = json!(descriptor.api_version());
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
