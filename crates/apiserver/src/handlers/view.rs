//! Stored objects into answers: whole, as a Table, or metadata alone.
//!
//! Invariant: objects come in the version that is asked for; a whole one is answered with its own bytes. Called by the verbs,
//! after [`crate::kinds::conversion`].

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::Timestamp;
use pumice_objects::status::Status;
use pumice_objects::table::IncludeObject;
use pumice_store::Object;
use serde_json::{Value, json};

use crate::context::Call;
use crate::handlers::paging::Page;
use crate::http::body::Body;
use crate::http::negotiate::{self, Shape};
use crate::http::respond::json as json_response;
use crate::http::respond::not_acceptable;
use crate::kinds::Descriptor;
use crate::kinds::tables;
use crate::stored::parse;

/// How one request wants to see objects.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) descriptor: Arc<Descriptor>,
    pub(crate) shape: Shape,
    include: IncludeObject,
    now: Timestamp,
}

impl View {
    /// Negotiates; 406 where nothing fits.
    pub(crate) fn of(call: &Call) -> Result<Self, Status> {
        let shape = negotiate::shape(&call.headers).ok_or_else(not_acceptable)?;
        let include = match call.query.filled("includeObject") {
            None | Some("Metadata") => IncludeObject::Metadata,
            Some("Object") => IncludeObject::Object,
            Some("None") => IncludeObject::None,
            Some(other) => {
                return Err(Status::bad_request(format!(
                    "invalid value {other:?} for query parameter \"includeObject\": want None, Metadata or Object"
                )));
            }
        };
        Ok(Self { descriptor: Arc::clone(&call.descriptor), shape, include, now: call.now() })
    }

    /// The bytes of one object in this view.
    pub(crate) fn bytes(&self, object: &Object) -> Bytes {
        match self.shape {
            Shape::Whole => object.body.clone(),
            Shape::Table | Shape::Partial => Bytes::from(self.value(parse(object)).to_string()),
        }
    }

    /// One parsed object in this view.
    pub(crate) fn value(&self, object: Value) -> Value {
        match self.shape {
            Shape::Whole => object,
            Shape::Partial => tables::partial(&object),
            Shape::Table => {
                let metadata = json!({ "resourceVersion": object["metadata"]["resourceVersion"] });
                self.table(metadata, &[object])
            }
        }
    }

    fn table(&self, metadata: Value, objects: &[Value]) -> Value {
        let table = &self.descriptor.table;
        let rows = objects.iter().map(|object| table.row(object, self.include, self.now)).collect();
        table.to_json(metadata, rows, true)
    }

    /// An answer with one object.
    pub(crate) fn one(&self, code: StatusCode, object: &Object) -> Response<Body> {
        json_response(code, self.bytes(object))
    }

    /// An answer with one object that is not stored (dry runs).
    pub(crate) fn unstored(&self, code: StatusCode, object: Value) -> Response<Body> {
        json_response(code, self.value(object).to_string())
    }

    /// An answer with a list.
    pub(crate) fn list(&self, page: Page) -> Response<Body> {
        let (metadata, items) = (list_metadata(&page), page.items);
        match self.shape {
            Shape::Whole => {
                let head = format!(
                    "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
                    json!(self.descriptor.list_kind),
                    json!(self.descriptor.api_version()),
                );
                json_response(StatusCode::OK, Body::list(Bytes::from(head), items, "]}"))
            }
            Shape::Table => {
                let objects: Vec<Value> = items.iter().map(|object| parse(object)).collect();
                json_response(StatusCode::OK, self.table(metadata, &objects).to_string())
            }
            Shape::Partial => {
                let items: Vec<Value> = items.iter().map(|object| self.value(parse(object))).collect();
                let list = json!({
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": metadata,
                    "items": items,
                });
                json_response(StatusCode::OK, list.to_string())
            }
        }
    }
}

fn list_metadata(page: &Page) -> Value {
    let mut metadata = json!({ "resourceVersion": page.revision.to_string() });
    if let Some(next) = &page.next {
        metadata["continue"] = json!(next);
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    metadata
}
