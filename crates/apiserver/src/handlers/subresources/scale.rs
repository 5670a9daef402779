//! Scale: the replica counts of an object behind one shape for all kinds.

use http::StatusCode;
use pumice_objects::meta;
use pumice_objects::patch::{apply_json_patch, apply_merge_patch};
use pumice_objects::selector::LabelSelector;
use pumice_objects::status::Status;
use serde_json::{Value, json};

use crate::context::Call;
use crate::handlers::verbs::update::{self, Edit};
use crate::handlers::verbs::{read, write};
use crate::http::body::Body;
use crate::http::decode::{self, Format};
use crate::http::negotiate::{self, BodyKind, JSON_PATCH, MERGE_PATCH};
use crate::http::request::Verb;
use crate::http::respond::{Answer, json as json_response};
use crate::kinds::descriptor::Subresource;
use crate::stored::parse;

/// Answers get, update and patch of `x/scale`.
pub(crate) async fn serve(call: &Call, subresource: &Subresource, body: Body) -> Answer {
    let Subresource::Scale { spec, status, selector } = subresource else { return Err(Status::unknown_path()) };
    let paths = Paths { spec, status, selector: selector.as_deref() };
    let edit = match call.request.verb {
        Verb::Get => None,
        Verb::Update => Some(Change::Replace(write::read_object(call, body).await?.value)),
        _ => Some(read_patch(call, body).await?),
    };
    if let Some(change) = edit {
        update::run(call, Some(subresource), &ScaleEdit { paths, change }).await?;
    }
    let stored = read::served(call).await?;
    Ok(json_response(StatusCode::OK, paths.scale(&parse(&stored)).to_string()))
}

/// The Scale of an object, if `subresource` is that.
pub(crate) fn scale_of(subresource: &Subresource, object: &Value) -> Option<Value> {
    let Subresource::Scale { spec, status, selector } = subresource else { return None };
    Some(Paths { spec, status, selector: selector.as_deref() }.scale(object))
}

/// Media types of the patches that a Scale takes.
const PATCHES: [&str; 2] = [JSON_PATCH, MERGE_PATCH];

async fn read_patch(call: &Call, body: Body) -> Result<Change, Status> {
    let kind = negotiate::body_kind(&call.headers);
    if !matches!(kind, BodyKind::JsonPatch | BodyKind::MergePatch) {
        return Err(update::unsupported(&PATCHES, kind));
    }
    let bytes = decode::read(body).await?;
    let patch = decode::decode(&bytes, Format::Json)?.value;
    Ok(if kind == BodyKind::JsonPatch { Change::JsonPatch(patch) } else { Change::MergePatch(patch) })
}

#[derive(Clone, Copy)]
struct Paths<'a> {
    spec: &'a str,
    status: &'a str,
    selector: Option<&'a str>,
}

impl Paths<'_> {
    fn scale(self, object: &Value) -> Value {
        let metadata = &object["metadata"];
        let mut scale = json!({
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {
                "name": metadata["name"], "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
            },
            "spec": { "replicas": at(object, self.spec).cloned().unwrap_or(json!(0)) },
            "status": { "replicas": at(object, self.status).cloned().unwrap_or(json!(0)) },
        });
        if let Some(namespace) = meta::namespace(object) {
            scale["metadata"]["namespace"] = json!(namespace);
        }
        if let Some(selector) = self.selector.and_then(|path| at(object, path)) {
            let text = selector_text(selector);
            scale["status"]["selector"] = text.map_or_else(|| selector.clone(), |text| json!(text));
        }
        scale
    }
}

/// A selector of a built-in kind as text: they have it as an object, that of a ReplicationController is nothing but labels.
/// Other kinds name a text.
fn selector_text(selector: &Value) -> Option<String> {
    let is_labels = selector.as_object()?.values().any(Value::is_string);
    let read = if is_labels {
        LabelSelector::from_json(&json!({ "matchLabels": selector }))
    } else {
        LabelSelector::from_json(selector)
    };
    Some(read.ok()?.to_string())
}

enum Change {
    Replace(Value),
    JsonPatch(Value),
    MergePatch(Value),
}

struct ScaleEdit<'a> {
    paths: Paths<'a>,
    change: Change,
}

impl Edit for ScaleEdit<'_> {
    fn edit(&self, old: &Value) -> Result<Value, Status> {
        let mut before = self.paths.scale(old);
        let scale = match &self.change {
            Change::Replace(scale) => scale.clone(),
            Change::JsonPatch(patch) => apply_json_patch(&before, patch)?,
            Change::MergePatch(patch) => {
                apply_merge_patch(&mut before, patch)?;
                before
            }
        };
        let replicas = &scale["spec"]["replicas"];
        if !replicas.as_i64().is_some_and(|count| (0..=i64::from(i32::MAX)).contains(&count)) {
            return Err(Status::bad_request("spec.replicas of a Scale must be a whole number that is not negative"));
        }
        let pointer = self.paths.spec.split('.').fold(String::new(), |path, step| format!("{path}/{step}"));
        let patch = json!([{ "op": "add", "path": pointer, "value": replicas }]);
        let mut new = apply_json_patch(old, &patch)?;
        if matches!(self.change, Change::Replace(_)) {
            new["metadata"]["resourceVersion"] = scale["metadata"]["resourceVersion"].clone();
        } else {
            meta::set_resource_version(&mut new, None);
        }
        Ok(new)
    }
}

/// The value at a dotted path.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, step| value.get(step))
}
