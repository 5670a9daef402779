//! Binding: puts a pod on a node, once.
//!
//! Invariant: a pod's node never changes once it is set. Called by schedulers.

use pumice_objects::meta;
use pumice_objects::status::{GroupResource, Status};
use pumice_store::{ApplyError, Change, Expect};
use serde_json::{Value, json};

use super::done;
use crate::body::Body;
use crate::clock::wire_time;
use crate::pipeline::{Answer, Call};
use crate::query::WriteOptions;
use crate::render::{draft, parse};
use crate::verbs::write;

/// How often a binding is tried against a changing pod.
const ATTEMPTS_MAX: usize = 16;

struct Binding {
    pod: String,
    node: String,
    uid: Option<String>,
    annotations: Vec<(String, String)>,
}

/// Answers a create of `pods/x/binding`, or of `bindings`.
pub(crate) async fn bind(call: &Call, body: Body) -> Answer {
    let options = WriteOptions::parse(&call.query)?;
    let decoded = write::read_object(call, body).await?;
    let binding = parse_binding(call, &decoded.value)?;
    for _ in 0..ATTEMPTS_MAX {
        let stored = call
            .state
            .store
            .find("pods", &call.request.namespace, &binding.pod)
            .ok_or_else(|| Status::not_found(call.resource(), &binding.pod))?;
        let mut pod = parse(&stored);
        check(&pod, &binding)?;
        place(&mut pod, &binding, &wire_time(call.state.clock.now()));
        if options.dry_run {
            return Ok(done());
        }
        let expect = Expect::Revision(stored.revision);
        match call.state.commit(Change::Put { key: stored.key.clone(), draft: draft(&pod), expect }).await {
            Ok(_) => return Ok(done()),
            Err(ApplyError::Conflict(_)) => {}
            Err(error) => return Err(write::apply_status(call.resource(), &error)),
        }
    }
    Err(Status::conflict_modified(call.resource(), &binding.pod))
}

fn parse_binding(call: &Call, object: &Value) -> Result<Binding, Status> {
    if !matches!(object["kind"].as_str(), None | Some("Binding")) {
        return Err(Status::bad_request("the body must be a v1 Binding"));
    }
    let given = meta::name(object);
    let pod = if call.request.name.is_empty() { given } else { call.request.name.as_str() };
    if pod.is_empty() || !given.is_empty() && given != pod {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({pod})"
        )));
    }
    let target = &object["target"];
    let node = target["name"].as_str().unwrap_or_default();
    if node.is_empty() || !matches!(target["kind"].as_str(), None | Some("" | "Node")) {
        return Err(Status::bad_request(
            "target must name a Node: set target.kind to Node and target.name to its name",
        ));
    }
    Ok(Binding {
        pod: pod.to_owned(),
        node: node.to_owned(),
        uid: meta::uid(object).filter(|uid| !uid.is_empty()).map(str::to_owned),
        annotations: meta::annotations(object).map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
    })
}

fn check(pod: &Value, binding: &Binding) -> Result<(), Status> {
    let name = &binding.pod;
    let refuse = |cause: String| {
        let resource = GroupResource { group: "", resource: "pods/binding" };
        Err(Status::conflict(resource, name, cause))
    };
    if let (Some(wanted), Some(uid)) = (binding.uid.as_deref(), meta::uid(pod))
        && wanted != uid
    {
        return refuse(format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}"));
    }
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return refuse(format!("pod {name} is already assigned to node {node:?}"));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}

fn place(pod: &mut Value, binding: &Binding, now: &str) {
    pod["spec"]["nodeName"] = json!(binding.node);
    for (key, value) in &binding.annotations {
        meta::set_annotation(pod, key, value);
    }
    let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] != "PodScheduled");
    conditions.push(json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": Value::Null, "lastTransitionTime": now,
    }));
    pod["status"]["conditions"] = Value::Array(conditions);
}
