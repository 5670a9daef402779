//! Any object that a definition allows survives its type: read and written again it is the same JSON.

use proptest::prelude::*;
use pumice_api::batch::{CronJob, Job};
use pumice_api::bus::Command;
use pumice_api::colocation::ColocationConfiguration;
use pumice_api::directory::Directory;
use pumice_api::flow::{JobFlow, JobTemplate};
use pumice_api::nodeinfo::Numatopology;
use pumice_api::profile::ResourceProfile;
use pumice_api::reservation::Reservation;
use pumice_api::scheduling::{PodGroup, Queue};
use pumice_api::shard::NodeShard;
use pumice_api::tenant::Tenant;
use pumice_api::topology::HyperNode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Choices drawn from a list of bytes that proptest makes and shrinks; when they are used up, the smallest choice.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % bound
    }

    /// True for one in `among`.
    fn rarely(&mut self, among: usize) -> bool {
        self.below(among) == 1
    }
}

/// A value that `schema` allows and that is not the zero value of a Go type, which the types leave out by design.
fn value(schema: &Value, choices: &mut Choices<'_>, name: &str) -> Value {
    if schema["x-kubernetes-int-or-string"] == true {
        let is_quantity = schema["pattern"].is_string();
        return if is_quantity || choices.below(2) == 1 { json!("2") } else { json!(7) };
    }
    if let Some(words) = schema["enum"].as_array() {
        return words[choices.below(words.len())].clone();
    }
    match schema["type"].as_str() {
        Some("object") => object(schema, choices),
        Some("array") => {
            let fewest = usize::try_from(schema["minItems"].as_u64().unwrap_or(1)).expect("small").max(1);
            let items = fewest + choices.below(2);
            Value::Array((0..items).map(|_| value(&schema["items"], choices, name)).collect())
        }
        Some("integer") => {
            let least = schema["minimum"].as_i64().unwrap_or(0).max(1);
            let most = schema["maximum"].as_i64().unwrap_or(1000);
            json!(least + i64::try_from(choices.below(200)).expect("small") % (most - least + 1))
        }
        Some("number") => json!(1.5),
        Some("boolean") => json!(true),
        Some("string") => match schema["format"].as_str() {
            Some("date-time") if name == "renewTime" => json!("2026-01-02T03:04:05.678901Z"),
            Some("date-time") => json!("2026-01-02T03:04:05Z"),
            Some("byte") => json!("aGVsbG8="),
            _ => json!(["a", "b1", "x0y"][choices.below(3)]),
        },
        _ => panic!("no type at {name}: {schema}"),
    }
}

/// Never empty: an empty object is a zero value.
fn object(schema: &Value, choices: &mut Choices<'_>) -> Value {
    let mut members = Map::new();
    if let Some(of_all) = schema.get("additionalProperties") {
        for key in 0..=choices.below(2) {
            members.insert(format!("k{key}"), value(of_all, choices, "value"));
        }
        return Value::Object(members);
    }
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let least = choices.below(properties.len().max(1));
    for (place, (name, schema)) in properties.iter().enumerate() {
        // Kubernetes' own types always write a member whose default is the empty string.
        let is_written = required.contains(&name.as_str()) || schema["default"] == "";
        let wanted = is_written || choices.rarely(4);
        if wanted || (place == least && required.is_empty()) {
            members.insert(name.clone(), value(schema, choices, name));
        }
    }
    Value::Object(members)
}

fn schema_of<T: k8s_openapi::Resource>() -> Value {
    let mut definitions = pumice_api::crds::all().into_iter();
    let definition = definitions
        .find(|crd| crd["spec"]["names"]["kind"] == T::KIND && crd["spec"]["group"] == T::GROUP)
        .expect("a definition");
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

fn survives<T: k8s_openapi::Resource + Serialize + DeserializeOwned>(schema: &Value, choices: &[u8]) {
    let mut object = object(schema, &mut Choices(choices.iter()));
    object["apiVersion"] = T::API_VERSION.into();
    object["kind"] = T::KIND.into();
    object["metadata"] = json!({ "name": "x", "labels": { "a": "b" } });
    // Exactly one of a union, which a structural schema can't say.
    one_selector(&mut object);
    let typed: T = serde_json::from_value(object.clone()).expect("reads");
    assert_eq!(serde_json::to_value(&typed).expect("writes"), object);
}

fn one_selector(object: &mut Value) {
    for member in object.pointer_mut("/spec/members").and_then(Value::as_array_mut).into_iter().flatten() {
        // Members of a Tenant are names.
        if member.is_object() {
            member["selector"] = json!({ "exactMatch": { "name": "n" } });
        }
    }
}

macro_rules! survive {
    ($($test:ident: $kind:ty,)+) => { $(
        #[test]
        fn $test() {
            let schema = schema_of::<$kind>();
            let config = ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() };
            proptest!(config, |(choices in proptest::collection::vec(any::<u8>(), 0..4000))| {
                survives::<$kind>(&schema, &choices);
            });
        }
    )+ };
}

survive! {
    any_job: Job,
    any_cron_job: CronJob,
    any_command: Command,
    any_pod_group: PodGroup,
    any_queue: Queue,
    any_hyper_node: HyperNode,
    any_node_shard: NodeShard,
    any_resource_profile: ResourceProfile,
    any_reservation: Reservation,
    any_tenant: Tenant,
    any_directory: Directory,
    any_numatopology: Numatopology,
    any_job_flow: JobFlow,
    any_job_template: JobTemplate,
    any_colocation_configuration: ColocationConfiguration,
}
