//! The generated definitions at work on manifests people have: nothing is lost, and bad values are named.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use pumice_api::batch::{CronJob, Job};
use pumice_api::bus::Command;
use pumice_api::colocation::ColocationConfiguration;
use pumice_api::flow::{JobFlow, JobTemplate};
use pumice_api::scheduling::{PodGroup, Queue};
use pumice_api::topology::HyperNode;
use pumice_objects::schema::Schema;
use serde_json::{Map, Value, json};

/// Fields of the fixtures that exist in no version of the types.
const UNKNOWN: &[&str] = &["spec.tasks[0].template.spec.priorityClass", "spec.tasks[1].template.spec.priorityClass"];

/// The schema of a kind; all of them are read once.
fn schema(kind: &str) -> Option<&'static Schema> {
    static SCHEMAS: LazyLock<BTreeMap<String, Schema>> = LazyLock::new(|| {
        let definitions = pumice_api::crds::all().into_iter();
        let compiled = definitions.map(|crd| {
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let kind = crd["spec"]["names"]["kind"].as_str().expect("a kind").to_owned();
            (kind, Schema::from_openapi(schema, &Map::new()).expect("compiles"))
        });
        compiled.collect()
    });
    SCHEMAS.get(kind)
}

/// Files of the fixtures; none where they are absent.
fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    if !folder.is_dir() {
        assert!(std::env::var_os("CI").is_none(), "fixtures are missing at {}", folder.display());
        return Vec::new();
    }
    let folders = ["volcano/examples", "articles"].map(|name| folder.join(name));
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("folder"));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    files.sort();
    files
}

fn typed(kind: &str, object: Value) -> Value {
    match kind {
        "ColocationConfiguration" => through::<ColocationConfiguration>(object),
        "Command" => through::<Command>(object),
        "CronJob" => through::<CronJob>(object),
        "HyperNode" => through::<HyperNode>(object),
        "Job" => through::<Job>(object),
        "JobFlow" => through::<JobFlow>(object),
        "JobTemplate" => through::<JobTemplate>(object),
        "PodGroup" => through::<PodGroup>(object),
        "Queue" => through::<Queue>(object),
        _ => panic!("{kind} has no type here"),
    }
}

fn through<T: serde::Serialize + serde::de::DeserializeOwned>(object: Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(object).expect("reads")).expect("writes")
}

/// Without Go's zero values, which the wire types leave out; numbers as text, because a quantity may be either.
fn plain(value: Value) -> Value {
    let is_zero =
        |value: &Value| *value == json!(0) || *value == json!("") || *value == json!({}) || *value == json!([]);
    match value {
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, member)| (name, plain(member)));
            Value::Object(members.filter(|(_, member)| !is_zero(member)).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(plain).collect()),
        Value::Number(number) => Value::String(number.to_string()),
        other => other,
    }
}

#[test]
fn manifests_pass_the_schemas_and_survive_the_types() {
    let files = files();
    let (mut seen, mut unknown) = (0, BTreeSet::new());
    for path in &files {
        let text = std::fs::read_to_string(path).expect("fixture");
        for mut object in serde_saphyr::from_str_multiple::<Value, Vec<Value>>(&text).expect("YAML") {
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            if !object["apiVersion"].as_str().is_some_and(|version| version.contains(".volcano.sh/")) {
                continue;
            }
            let Some(schema) = schema(&kind) else { continue };
            let findings = schema.admit(&mut object);
            assert_eq!(findings.errors, [], "{}", path.display());
            // Definitions say nothing about metadata; the API server does.
            unknown.extend(findings.unknown_fields.into_iter().filter(|field| !field.starts_with("metadata.")));
            assert_eq!(plain(typed(&kind, object.clone())), plain(object), "{}", path.display());
            seen += 1;
        }
    }
    assert!(files.is_empty() || seen > 30, "only {seen} objects were found");
    assert!(files.is_empty() || unknown.iter().eq(UNKNOWN), "{unknown:?}");
}

#[test]
fn defaults_are_filled_in() {
    let mut job = json!({ "spec": { "tasks": [{ "template": { "spec": { "containers": [
        { "name": "c", "ports": [{ "containerPort": 1 }], "env": [{ "name": "e", "valueFrom": { "secretKeyRef": { "key": "k" } } }] },
    ] } } }] } });
    assert_eq!(schema("Job").expect("schema").admit(&mut job).errors, []);
    assert_eq!(job["spec"]["queue"], "default");
    assert_eq!(job["spec"]["maxRetry"], 3);
    let container = &job["spec"]["tasks"][0]["template"]["spec"]["containers"][0];
    assert_eq!(container["ports"][0]["protocol"], "TCP");
    assert_eq!(container["env"][0]["valueFrom"]["secretKeyRef"]["name"], "");
    let mut queue = json!({ "spec": {} });
    schema("Queue").expect("schema").admit(&mut queue);
    assert_eq!(queue["spec"], json!({ "weight": 1, "dequeueStrategy": "traverse" }));
}

#[test]
fn bad_values_are_named_in_upstreams_words() {
    let cases = [
        (
            "Job",
            json!({ "spec": { "minAvailable": -1 } }),
            "spec.minAvailable: Invalid value: -1: spec.minAvailable in body should be greater than or equal to 0",
        ),
        (
            "Job",
            json!({ "spec": { "tasks": [] } }),
            "spec.tasks: Invalid value: 0: spec.tasks in body should have at least 1 items",
        ),
        (
            "Job",
            json!({ "spec": { "tasks": [{ "name": "A_b" }] } }),
            "spec.tasks[0].name: Invalid value: \"A_b\": spec.tasks[0].name in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'",
        ),
        (
            "Job",
            json!({ "spec": { "policies": [{ "event": "Solstice" }] } }),
            "spec.policies[0].event: Unsupported value: \"Solstice\"",
        ),
        ("Job", json!({ "spec": { "volumes": [{ "mountPath": "a:b" }] } }), "should match '^[^:]+$'"),
        ("Job", json!({ "spec": { "queue": "" } }), "spec.queue in body should match"),
        ("Queue", json!({ "spec": { "weight": 65536 } }), "spec.weight in body should be less than or equal to 65535"),
        ("Queue", json!({ "spec": { "capability": { "cpu": "1x" } } }), "spec.capability.cpu in body should match"),
        (
            "PodGroup",
            json!({ "spec": { "subGroupPolicy": [{ "subGroupSize": 0 }] } }),
            "should be greater than or equal to 1",
        ),
        ("Command", json!({ "target": { "kind": "Job" } }), "target.name: Required value"),
    ];
    for (kind, mut object, wanted) in cases {
        let errors = schema(kind).expect("schema").admit(&mut object).errors;
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert!(texts.iter().any(|text| text.contains(wanted)), "{wanted}: {texts:?}");
    }
}
