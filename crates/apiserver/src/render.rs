//! Stored objects into answers: whole, as a Table, or metadata alone.
//!
//! Invariant: objects come in the version that is asked for; a whole one is answered with its own bytes. Called by the verbs,
//! after [`crate::conversion`].

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::Timestamp;
use pumice_objects::status::Status;
use pumice_objects::table::IncludeObject;
use pumice_store::{Draft, Object};
use serde_json::{Map, Value, json};

use crate::body::Body;
use crate::cut::field;
use crate::negotiate::{self, Shape};
use crate::paging::Page;
use crate::pipeline::{Call, json as json_response};
use crate::registry::Descriptor;
use crate::tables;

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
        Ok(Self { descriptor: Arc::clone(&call.descriptor), shape, include, now: call.state.clock.now() })
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

pub(crate) fn not_acceptable() -> Status {
    Status::not_acceptable(&[negotiate::WRITTEN])
}

/// A stored body as a value; the server wrote it, so it parses.
pub(crate) fn parse(object: &Object) -> Value {
    serde_json::from_slice(&object.body).unwrap_or_default()
}

/// A stored body of which only the metadata is kept.
pub(crate) fn parse_metadata(object: &Object) -> Value {
    let metadata = field(&object.body, "metadata").and_then(|text| serde_json::from_slice::<Value>(text).ok());
    json!({ "metadata": metadata })
}

/// An object as the store takes it: its text with a hole where the revision goes.
pub(crate) fn draft(object: &Value) -> Draft {
    draft_with(object, &[])
}

/// As [`draft`], of an object that has more fields: `rest` is their text, each as `,"name":value`.
pub(crate) fn draft_with(object: &Value, rest: &[u8]) -> Draft {
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let mut head = b"{".to_vec();
    for name in ["apiVersion", "kind"] {
        if let Some(value) = fields.get(name) {
            put_field(&mut head, name, value);
            head.push(b',');
        }
    }
    head.extend_from_slice(b"\"metadata\":{");
    for (name, value) in metadata.iter().filter(|(name, _)| *name != "resourceVersion") {
        put_field(&mut head, name, value);
        head.push(b',');
    }
    head.extend_from_slice(b"\"resourceVersion\":\"");
    let mut tail = b"\"}".to_vec();
    tail.extend_from_slice(rest);
    for (name, value) in fields.iter().filter(|(name, _)| !["apiVersion", "kind", "metadata"].contains(&name.as_str()))
    {
        tail.push(b',');
        put_field(&mut tail, name, value);
    }
    tail.push(b'}');
    Draft::new(head, tail)
}

/// Straight into the bytes: `Display` of a value goes through the formatter for each piece.
fn put_field(text: &mut Vec<u8>, name: &str, value: &Value) {
    const PROOF: &str = "values have text as keys, and memory takes all of it";
    serde_json::to_writer(&mut *text, name).expect(PROOF);
    text.push(b':');
    serde_json::to_writer(text, value).expect(PROOF);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_the_object_at_its_revision() {
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "data": {"a\"b": "\\"},
            "metadata": {"name": "x", "labels": {"k": "v"}, "resourceVersion": "1"}, "spec": {"n": 1.5},
        });
        let body = draft_with(&object, br#","more":[]"#).render(7);
        let mut wanted = object;
        wanted["metadata"]["resourceVersion"] = json!("7");
        wanted["more"] = json!([]);
        assert_eq!(serde_json::from_slice::<Value>(&body).expect("json"), wanted);
    }

    #[test]
    fn an_odd_object_is_still_json() {
        for object in [json!(null), json!({}), json!({"metadata": 1})] {
            let body = draft(&object).render(1);
            assert!(serde_json::from_slice::<Value>(&body).is_ok());
        }
    }
}
