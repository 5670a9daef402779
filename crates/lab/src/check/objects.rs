//! A case's worlds as the Kubernetes and Volcano objects that the API would hand to the watches.
//!
//! Invariant: each key of a case reaches a field of an object, or is an error.

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use pumice_api::names;
use pumice_api::scheduling::{PodGroup, Queue};
use pumice_api::topology::HyperNode;
use pumice_cluster::Change;
use pumice_engine::{Delta, ShardFacts};
use pumice_scheduler::WatchedChange;
use pumice_translate as translate;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::file::{Case, Objects};

/// The scheduler's own NodeShard.
pub(super) const SHARD: &str = "volcano";

type Object = Map<String, Value>;

/// Everything there is, as the first list of each watch.
pub(super) fn inputs(case: &Case) -> Result<Vec<WatchedChange>, String> {
    Ok(vec![
        WatchedChange::Priority(Change::Replace(all::<PriorityClass>(
            &case.priority_classes,
            "priorityClass",
            priority,
        )?)),
        WatchedChange::Queue(Change::Replace(all::<Queue>(&case.queues, "queue", queue)?)),
        WatchedChange::Node(Change::Replace(all::<Node>(&case.nodes, "node", node)?)),
        WatchedChange::Group(Change::Replace(all::<PodGroup>(&case.podgroups, "podgroup", group)?)),
        WatchedChange::Pod(Change::Replace(all::<Pod>(&case.pods, "pod", pod)?)),
    ])
}

/// What only some configurations read.
pub(super) fn deltas(case: &Case) -> Result<Vec<Delta>, String> {
    let mut deltas = Vec::new();
    for node in all::<HyperNode>(&case.hypernodes, "hypernode", hyper_node)? {
        deltas.push(Delta::HyperNodeUpsert(translate::hyper_node_facts(&node)));
    }
    if let Some(sharding) = &case.config.sharding {
        let desired = sharding.nodes.iter().map(|node| node.as_str().into()).collect();
        deltas.push(Delta::ShardUpsert(ShardFacts { name: SHARD.to_owned(), desired, ..ShardFacts::default() }));
    }
    for (kind, items) in &case.objects {
        for item in items {
            match kind.as_str() {
                "resourceQuotas" => deltas.push(Delta::QuotaUpsert(translate::quota_facts(&object(item)?))),
                "persistentVolumes" => deltas.push(Delta::VolumeUpsert(translate::volume_facts(&object(item)?))),
                "persistentVolumeClaims" => {
                    deltas.push(Delta::VolumeClaimUpsert(translate::volume_claim_facts(&object(item)?)));
                }
                "storageClasses" => {
                    deltas.push(Delta::StorageClassUpsert(translate::storage_class_facts(&object(item)?)));
                }
                "resourceClaims" => {
                    deltas.push(Delta::DeviceClaimUpsert(translate::device_claim_facts(&object(item)?)));
                }
                "deviceClasses" => deltas.push(Delta::DeviceClassUpsert(translate::device_class_facts(&object(item)?))),
                "resourceSlices" => {
                    deltas.push(Delta::DeviceSliceUpsert(translate::device_slice_facts(&object(item)?)))
                }
                _ => return Err(format!("the scheduler reads no {kind}")),
            }
        }
    }
    Ok(deltas)
}

fn object<K: DeserializeOwned>(item: &Object) -> Result<K, String> {
    serde_json::from_value(Value::Object(item.clone())).map_err(|error| error.to_string())
}

/// The nodes that a case lists are its members where it names none.
fn hyper_node(mut item: Object) -> Result<Value, String> {
    let metadata = metadata(&mut item, by_name)?;
    let nodes = item.remove("realNodes");
    let member = |member: Value| match member {
        Value::Object(mut keys) => {
            let kind = keys.remove("type");
            let selector = keys.remove("selector").unwrap_or(Value::Object(keys));
            json!({ "type": kind, "selector": selector })
        }
        other => other,
    };
    let named = item.remove("members").and_then(|members| members.as_array().cloned()).unwrap_or_default();
    let mut members: Vec<Value> = named.into_iter().map(member).collect();
    if members.is_empty() {
        let nodes = nodes.as_ref().and_then(Value::as_array).into_iter().flatten();
        members = nodes.map(|name| json!({"type": "Node", "selector": {"exactMatch": {"name": name}}})).collect();
    }
    item.insert("members".to_owned(), members.into());
    Ok(json!({ "metadata": metadata, "spec": item }))
}

fn all<K: DeserializeOwned + Serialize>(
    items: &Objects,
    kind: &str,
    build: fn(Object) -> Result<Value, String>,
) -> Result<Vec<K>, String> {
    let one = |item: &Object| {
        let name = item.get("name").and_then(Value::as_str).unwrap_or("without a name").to_owned();
        build(item.clone()).and_then(read::<K>).map_err(|error| format!("{kind} {name}: {error}"))
    };
    items.iter().map(one).collect()
}

/// The typed object; a key that it has no field for is an error.
fn read<K: DeserializeOwned + Serialize>(value: Value) -> Result<K, String> {
    let typed: K = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    let back = serde_json::to_value(&typed).map_err(|error| error.to_string())?;
    for part in ["spec", "status", "metadata"] {
        let kept = |key: &String| back[part].get(key).is_some();
        let lost = value[part].as_object().into_iter().flatten().find(|(key, value)| !kept(key) && says(value));
        if let Some((key, _)) = lost {
            return Err(format!("nothing reads the key {key}"));
        }
    }
    Ok(typed)
}

/// Whether a value says more than its absence.
fn says(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

/// What of an object's keys belongs into `metadata`.
fn metadata(item: &mut Object, uid: impl Fn(&str, Option<&str>) -> String) -> Result<Value, String> {
    let full = item.remove("name").and_then(|name| name.as_str().map(str::to_owned)).ok_or("it has no name")?;
    let (namespace, name) = match full.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, full.as_str()),
    };
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), name.into());
    metadata.insert("uid".to_owned(), item.remove("uid").unwrap_or_else(|| uid(name, namespace).into()));
    if let Some(namespace) = namespace {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    for (key, field) in [
        ("labels", "labels"),
        ("annotations", "annotations"),
        ("created", "creationTimestamp"),
        ("creationTimestamp", "creationTimestamp"),
        ("deleted", "deletionTimestamp"),
        ("deletionTimestamp", "deletionTimestamp"),
        ("ownerReferences", "ownerReferences"),
        ("finalizers", "finalizers"),
        ("resourceVersion", "resourceVersion"),
    ] {
        if let Some(value) = item.remove(key) {
            metadata.insert(field.to_owned(), value);
        }
    }
    Ok(Value::Object(metadata))
}

fn by_name(name: &str, namespace: Option<&str>) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}-{name}"))
}

/// Amounts may stand in the file as numbers.
fn amounts(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let text = |value: Value| if let Value::Number(number) = value { number.to_string().into() } else { value };
            Value::Object(map.into_iter().map(|(name, value)| (name, text(value))).collect())
        }
        other => other,
    }
}

fn take_amounts(item: &mut Object, key: &str) -> Option<Value> {
    item.remove(key).map(amounts)
}

fn named(fields: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Value {
    let present = fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(present.collect())
}

fn priority(mut item: Object) -> Result<Value, String> {
    let metadata = metadata(&mut item, by_name)?;
    item.insert("metadata".to_owned(), metadata);
    Ok(Value::Object(item))
}

fn queue(mut item: Object) -> Result<Value, String> {
    let metadata = metadata(&mut item, by_name)?;
    let status = named([("state", item.remove("state")), ("allocated", take_amounts(&mut item, "allocated"))]);
    for key in ["capability", "deserved"] {
        if let Some(list) = take_amounts(&mut item, key) {
            item.insert(key.to_owned(), list);
        }
    }
    if let Some(guarantee) = take_amounts(&mut item, "guarantee") {
        let wrapped = if guarantee.get("resource").is_some() { guarantee } else { json!({ "resource": guarantee }) };
        item.insert("guarantee".to_owned(), wrapped);
    }
    Ok(json!({ "metadata": metadata, "spec": item, "status": status }))
}

fn group(mut item: Object) -> Result<Value, String> {
    let metadata = metadata(&mut item, by_name)?;
    let mut status = Map::new();
    for key in ["phase", "conditions", "running", "succeeded", "failed"] {
        if let Some(value) = item.remove(key) {
            status.insert(key.to_owned(), value);
        }
    }
    if let Some(list) = take_amounts(&mut item, "minResources") {
        item.insert("minResources".to_owned(), list);
    }
    Ok(json!({ "metadata": metadata, "spec": item, "status": status }))
}

fn node(mut item: Object) -> Result<Value, String> {
    let metadata = metadata(&mut item, by_name)?;
    let allocatable = take_amounts(&mut item, "allocatable").unwrap_or_else(|| json!({}));
    let capacity = take_amounts(&mut item, "capacity").unwrap_or_else(|| allocatable.clone());
    let mut status = Map::from_iter([("allocatable".to_owned(), allocatable), ("capacity".to_owned(), capacity)]);
    for key in ["conditions", "images", "addresses", "nodeInfo"] {
        if let Some(value) = item.remove(key) {
            status.insert(key.to_owned(), value);
        }
    }
    Ok(json!({ "metadata": metadata, "spec": item, "status": status }))
}

fn pod(mut item: Object) -> Result<Value, String> {
    let mut metadata = metadata(&mut item, by_name)?;
    let annotate = |metadata: &mut Value, key: &str, value: Value| metadata["annotations"][key] = value;
    if let Some(group) = item.remove("group") {
        annotate(&mut metadata, names::GROUP_NAME, group);
    }
    let status = named([
        ("phase", item.remove("phase")),
        ("nominatedNodeName", item.remove("nominatedNode").or_else(|| item.remove("nominatedNodeName"))),
        ("startTime", item.remove("startTime").or_else(|| item.remove("started"))),
        ("conditions", item.remove("conditions")),
        ("qosClass", item.remove("qosClass")),
        ("containerStatuses", item.remove("containerStatuses")),
        ("resourceClaimStatuses", item.remove("resourceClaimStatuses")),
    ]);
    let mut spec = item;
    if let Some(node) = spec.remove("node") {
        spec.insert("nodeName".to_owned(), node);
    }
    spec.entry("schedulerName").or_insert_with(|| names::SCHEDULER_VOLCANO.into());
    containers(&mut spec);
    Ok(json!({ "metadata": metadata, "spec": spec, "status": status }))
}

/// A pod of a case has one container with `requests`, or containers written out.
fn containers(spec: &mut Object) {
    let requests = take_amounts(spec, "requests");
    let limits = take_amounts(spec, "limits");
    let mut single = spec.remove("container").and_then(|value| value.as_object().cloned()).unwrap_or_default();
    if spec.contains_key("containers") {
        return;
    }
    let claims = single.remove("claims");
    let resources = named([("requests", requests), ("limits", limits), ("claims", claims)]);
    single.entry("name").or_insert_with(|| "main".into());
    single.entry("resources").or_insert(resources);
    spec.insert("containers".to_owned(), json!([single]));
}
