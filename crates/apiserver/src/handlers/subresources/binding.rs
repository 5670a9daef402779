//! Binding: puts a pod on a node, once.
//!
//! Invariant: a pod's node never changes once it is set. Called by schedulers.

use pumice_clock::wire_time;
use pumice_objects::meta;
use pumice_objects::status::{GroupResource, Status};
use pumice_store::{ApplyError, Change, Draft, Expect, Object};
use serde_json::{Value, json};

use super::done;
use crate::context::Call;
use crate::handlers::verbs::write;
use crate::http::body::Body;
use crate::http::query::WriteOptions;
use crate::http::respond::Answer;
use crate::json_scan::{PartlyParsed, parse_fields};
use crate::storage::apply_status;
use crate::stored::{draft, draft_with, parse};

/// How often a binding is tried against a changing pod.
const ATTEMPTS_MAX: usize = 16;
/// What stands before the spec in what is left of a pod's text.
const SPEC: &[u8] = b",\"spec\":";

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
    write::judge_binding(call, &binding.pod, &decoded.value, options.dry_run)?;
    write::validate_below(call, "CREATE", &decoded.value, options.dry_run).await?;
    for _ in 0..ATTEMPTS_MAX {
        let stored = call
            .store()
            .find("pods", &call.request.namespace, &binding.pod)
            .ok_or_else(|| Status::not_found(call.resource(), &binding.pod))?;
        let mut seen = Seen::of(&stored);
        check(&seen.pod, &binding)?;
        assign_node(&mut seen.pod, &binding, &wire_time(call.now()));
        if options.dry_run {
            return Ok(done());
        }
        let expect = Expect::Revision(stored.revision);
        match call.state.storage.commit(Change::Put { key: stored.key.clone(), draft: seen.draft(), expect }).await {
            Ok(_) => return Ok(done()),
            Err(ApplyError::Conflict(_)) => {}
            Err(error) => return Err(apply_status(call.resource(), &error)),
        }
    }
    Err(Status::conflict_modified(call.resource(), &binding.pod))
}

/// A pod, of whose spec only what a binding looks at is parsed.
struct Seen {
    pod: Value,
    /// The other fields of the spec, as text; nothing where all of the pod is parsed.
    spec_rest: Option<Vec<u8>>,
}

impl Seen {
    fn of(stored: &Object) -> Seen {
        Seen::in_part(stored).unwrap_or_else(|| Seen { pod: parse(stored), spec_rest: None })
    }

    fn in_part(stored: &Object) -> Option<Seen> {
        let PartlyParsed { object: mut pod, rest } =
            parse_fields(&stored.body, &["apiVersion", "kind", "metadata", "status"])?;
        let spec = parse_fields(rest.strip_prefix(SPEC)?, &["nodeName", "schedulingGates"])?;
        pod["spec"] = spec.object;
        Some(Seen { pod, spec_rest: Some(spec.rest) })
    }

    fn draft(mut self) -> Draft {
        let Some(spec_rest) = self.spec_rest else { return draft(&self.pod) };
        // It has a node by now, so there is a field before the rest.
        let spec = self.pod.as_object_mut().and_then(|pod| pod.remove("spec")).unwrap_or_default().to_string();
        let spec = spec.strip_suffix('}').unwrap_or_default();
        draft_with(&self.pod, &[SPEC, spec.as_bytes(), &spec_rest, b"}"].concat())
    }
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

fn assign_node(pod: &mut Value, binding: &Binding, now: &str) {
    pod["spec"]["nodeName"] = json!(binding.node);
    for (key, value) in &binding.annotations {
        meta::set_annotation(pod, key, value);
    }
    let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] != "PodScheduled");
    // Without the `lastProbeTime: null` that Kubernetes writes: no later patch of the pod would be valid.
    conditions.push(json!({ "type": "PodScheduled", "status": "True", "lastTransitionTime": now }));
    pod["status"]["conditions"] = Value::Array(conditions);
}

#[cfg(test)]
mod tests {
    use pumice_store::Key;

    use super::*;

    #[test]
    fn a_pod_seen_in_part_is_bound_as_one_seen_whole() {
        for spec in [
            json!({"containers": [{"name": "}{"}], "tolerations": []}),
            json!({"containers": [], "nodeName": "", "schedulingGates": [], "terminationGracePeriodSeconds": 1}),
            json!({"nodeName": ""}),
        ] {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u"}, "spec": spec,
                "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]},
            });
            let key = Key::new("pods", "default", "p");
            let stored = Object { key, revision: 7, body: draft(&pod).render(7) };
            let bound = |mut seen: Seen| -> Value {
                let annotations = vec![("a".to_owned(), "1".to_owned())];
                let binding = Binding { pod: "p".into(), node: "n".into(), uid: Some("u".into()), annotations };
                check(&seen.pod, &binding).unwrap();
                assign_node(&mut seen.pod, &binding, "2026-01-01T00:00:00Z");
                serde_json::from_slice(&seen.draft().render(8)).unwrap()
            };
            let whole = bound(Seen { pod: parse(&stored), spec_rest: None });
            assert_eq!(whole["spec"]["nodeName"], "n");
            assert_eq!(bound(Seen::in_part(&stored).unwrap()), whole);
        }
    }
}
