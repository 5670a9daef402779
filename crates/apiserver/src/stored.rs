//! Stored texts and JSON values: one becomes the other.
//!
//! Invariant: a draft is the whole object, with a hole for the revision that the store fills. Called wherever objects are read
//! from the store or written to it.

use pumice_store::{Draft, Object, Store};
use serde_json::{Map, Value, json};

use crate::json_scan::field;

/// Other objects, as they are now.
pub trait ObjectReader: Send + Sync {
    /// One object. `resource` is the store's name: `pods`, `batch.volcano.sh/jobs`; `namespace` is `""` for resources
    /// of the cluster. Parses the body.
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value>;

    /// All objects of a resource, or of one namespace of it. Parses every body.
    fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Value>;

    /// The metadata of one object. Need not parse the rest.
    fn metadata(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.get(resource, namespace, name)?.get_mut("metadata").map(Value::take)
    }

    /// The first object of a resource of the cluster whose field `name`, one of its first level, is `true`.
    fn find_flagged(&self, resource: &str, name: &str) -> Option<Value> {
        self.list(resource, None).into_iter().find(|object| object[name] == true)
    }
}

impl ObjectReader for Store {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        serde_json::from_slice(&self.find(resource, namespace, name)?.body).ok()
    }

    fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Value> {
        let listing = Store::list(self, resource, namespace);
        listing.items.iter().filter_map(|object| serde_json::from_slice(&object.body).ok()).collect()
    }

    fn metadata(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        serde_json::from_slice(field(&self.find(resource, namespace, name)?.body, "metadata")?).ok()
    }

    // Asked for each pod that is made: what is found is parsed, and nothing else.
    fn find_flagged(&self, resource: &str, name: &str) -> Option<Value> {
        let listing = Store::list(self, resource, None);
        let found = listing.items.iter().find(|object| field(&object.body, name) == Some(b"true"))?;
        serde_json::from_slice(&found.body).ok()
    }
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
