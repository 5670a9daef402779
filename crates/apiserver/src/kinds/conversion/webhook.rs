//! ConversionReview, version 1: what converts objects between the versions of a definition.
//!
//! Invariant: a conversion changes nothing of the metadata but labels and annotations, and gives each object that was asked,
//! in its order, in the version that was asked. Anything else fails, as does silence.

use std::time::Duration;

use pumice_objects::names;
use pumice_objects::status::Status;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::webhooks::{Callee, Webhooks, response};

const VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";
/// How long one question may take, as upstream.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of objects that are asked about at a time, but for one that is larger by itself: answers are bounded.
const ASKED_BYTES_MAX: usize = 1024 * 1024;

/// Who converts the objects of a definition.
#[derive(Debug)]
pub(crate) struct Converter {
    callee: Callee,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    converted_objects: Vec<Value>,
    #[serde(default)]
    result: ReviewResult,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReviewResult {
    status: String,
    message: String,
}

impl Converter {
    /// That of a definition's `spec.conversion.webhook`.
    pub(crate) fn new(webhook: &Value) -> Self {
        Self { callee: Callee::new(&webhook["clientConfig"], TIMEOUT) }
    }

    /// The objects in the version `wanted`, in their order.
    pub(super) async fn convert(
        &self,
        webhooks: &Webhooks,
        wanted: &str,
        objects: Vec<Value>,
    ) -> Result<Vec<Value>, Status> {
        let mut converted = Vec::with_capacity(objects.len());
        let (mut asked, mut bytes) = (Vec::new(), 0);
        for object in objects {
            let size = object.to_string().len();
            if bytes + size > ASKED_BYTES_MAX && !asked.is_empty() {
                converted.extend(self.ask(webhooks, wanted, std::mem::take(&mut asked)).await?);
                bytes = 0;
            }
            bytes += size;
            asked.push(object);
        }
        if !asked.is_empty() {
            converted.extend(self.ask(webhooks, wanted, asked).await?);
        }
        Ok(converted)
    }

    async fn ask(&self, webhooks: &Webhooks, wanted: &str, objects: Vec<Value>) -> Result<Vec<Value>, Status> {
        let of = |field: &str| objects.first().and_then(|object| object[field].as_str()).unwrap_or_default();
        let what = format!("conversion webhook for {}, Kind={}", of("apiVersion"), of("kind"));
        let uid = Uuid::now_v7().to_string();
        let review = json!({
            "kind": KIND, "apiVersion": VERSION,
            "request": { "uid": uid, "desiredAPIVersion": wanted, "objects": objects },
        });
        let answer = webhooks.ask(&self.callee, review.to_string().into_bytes()).await;
        let converted = answer.and_then(|answer| read(&answer, &uid));
        let failed = |cause: String| Status::internal_error(format!("{what} {cause}"));
        let converted = converted.map_err(|cause| failed(format!("failed: {cause}")))?;
        if converted.len() != objects.len() {
            let cause = format!("returned {} objects, expected {}", converted.len(), objects.len());
            return Err(failed(cause));
        }
        let pairs = objects.iter().zip(converted).enumerate();
        pairs
            .map(|(index, (asked, given))| {
                settle(asked, given, wanted)
                    .map_err(|cause| failed(format!("returned invalid converted object at index {index}: {cause}")))
            })
            .collect()
    }
}

/// The objects of an answer to the request `uid`.
fn read(body: &[u8], uid: &str) -> Result<Vec<Value>, String> {
    let response: Response = response(body, VERSION, KIND)?;
    if response.uid != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", response.uid));
    }
    match response.result {
        ReviewResult { status, .. } if status == "Success" => Ok(response.converted_objects),
        ReviewResult { message, .. } if !message.is_empty() => Err(message),
        ReviewResult { status, .. } => Err(format!("response.result.status was '{status}', not 'Success'")),
    }
}

/// What was `given` for the object `asked`, with the metadata that is not a converter's to change.
fn settle(asked: &Value, mut given: Value, wanted: &str) -> Result<Value, String> {
    if given["apiVersion"] != wanted {
        return Err(format!("invalid groupVersion (expected {wanted}, received {})", given["apiVersion"]));
    }
    if given["kind"] != asked["kind"] {
        return Err(format!("invalid kind (expected {}, received {})", asked["kind"], given["kind"]));
    }
    for field in ["name", "namespace", "uid"] {
        let (before, after) = (&asked["metadata"][field], &given["metadata"][field]);
        if before.as_str().unwrap_or_default() != after.as_str().unwrap_or_default() {
            return Err(format!("must have the same {field}: {before} != {after}"));
        }
    }
    let Some(said) = given["metadata"].as_object() else {
        return Err("invalid metadata in converted object".to_owned());
    };
    let mut metadata = asked["metadata"].as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        metadata.remove(field);
        match said.get(field) {
            None | Some(Value::Null) => {}
            Some(Value::Object(pairs)) => {
                check(field, pairs)?;
                metadata.insert(field.to_owned(), Value::Object(pairs.clone()));
            }
            Some(_) => return Err(format!("metadata.{field} must be an object in converted object")),
        }
    }
    given["metadata"] = Value::Object(metadata);
    Ok(given)
}

fn check(field: &str, pairs: &Map<String, Value>) -> Result<(), String> {
    for (key, value) in pairs {
        let Some(text) = value.as_str() else {
            return Err(format!("metadata.{field}[{key}] must be a string in converted object"));
        };
        let sound = match field {
            "labels" => names::check_qualified_name(key).and_then(|()| names::check_label_value(text)),
            _ => names::check_qualified_name(&key.to_lowercase()),
        };
        sound.map_err(|error| format!("metadata.{field}[{key}]: {error}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str, metadata: &Value) -> Value {
        json!({ "apiVersion": version, "kind": "Widget", "metadata": metadata })
    }

    #[test]
    fn only_labels_and_annotations_are_a_converters_to_change() {
        let asked = object("g/v1", &json!({ "name": "a", "uid": "u", "generation": 3, "labels": { "a": "b" } }));
        let given = object("g/v2", &json!({ "name": "a", "uid": "u", "generation": 9, "annotations": { "c": "d" } }));
        let settled = settle(&asked, given, "g/v2").unwrap();
        let metadata = json!({ "name": "a", "uid": "u", "generation": 3, "annotations": { "c": "d" } });
        assert_eq!(settled, object("g/v2", &metadata));
        for (version, metadata, cause) in [
            ("g/v1", json!({ "name": "a", "uid": "u" }), "invalid groupVersion"),
            ("g/v2", json!({ "name": "b", "uid": "u" }), "must have the same name"),
            ("g/v2", json!({ "name": "a" }), "must have the same uid"),
            ("g/v2", json!({ "name": "a", "uid": "u", "labels": { "a": 1 } }), "must be a string"),
            ("g/v2", json!({ "name": "a", "uid": "u", "labels": { "a": "b c" } }), "label"),
            ("g/v2", json!({ "name": "a", "uid": "u", "annotations": 1 }), "must be an object"),
            ("g/v2", json!(1), "same name"),
        ] {
            let refused = settle(&asked, object(version, &metadata), "g/v2").unwrap_err();
            assert!(refused.contains(cause), "{metadata}: {refused}");
        }
    }

    #[test]
    fn answers_count_only_if_they_are_about_the_question() {
        let answer = |response: Value| {
            read(json!({ "apiVersion": VERSION, "kind": KIND, "response": response }).to_string().as_bytes(), "u")
        };
        let yes = json!({ "uid": "u", "convertedObjects": [1], "result": { "status": "Success" } });
        assert_eq!(answer(yes), Ok(vec![json!(1)]));
        for (response, cause) in [
            (json!({ "uid": "v", "result": { "status": "Success" } }), "expected response.uid"),
            (json!({ "uid": "u", "result": { "status": "Failed", "message": "no" } }), "no"),
            (json!({ "uid": "u" }), "response.result.status was ''"),
            (Value::Null, "webhook response was absent"),
        ] {
            let told = answer(response).unwrap_err();
            assert!(told.contains(cause), "{told}");
        }
        for body in ["", "{}", "[]", "\u{0}"] {
            assert!(read(body.as_bytes(), "u").is_err());
        }
    }
}
