//! Our definitions against Volcano's: whatever theirs says, ours says too.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

/// What the spec of a Job has in ours and not in theirs. An entry here is a decision: it must be optional, so that a
/// manifest written for Volcano keeps its meaning.
const IN_JOB_SPECS: &[&str] = &[
    "activeDeadlineSeconds",
    "policies.items.properties.event.enum[OOMKilled]",
    "policies.items.properties.events.items.enum[OOMKilled]",
    "policies.items.properties.scaleUp",
    "suspend",
    "tasks.items.properties.maxParallel",
    "tasks.items.properties.minSuccess",
    "tasks.items.properties.policies.items.properties.event.enum[OOMKilled]",
    "tasks.items.properties.policies.items.properties.events.items.enum[OOMKilled]",
    "tasks.items.properties.policies.items.properties.scaleUp",
    "tasks.items.properties.retries",
];

/// Definitions that Volcano has not.
const OURS: &[&str] = &[
    "pumice.sh_directories.yaml",
    "pumice.sh_reservations.yaml",
    "pumice.sh_resourceprofiles.yaml",
    "pumice.sh_tenants.yaml",
];

/// Where specs of Jobs are.
const JOB_SPECS: &[(&str, &str)] = &[
    ("batch.volcano.sh_jobs", "spec"),
    ("batch.volcano.sh_cronjobs", "spec.properties.jobTemplate.properties.spec"),
    ("flow.volcano.sh_jobflows", "spec.properties.flows.items.properties.patch.properties.jobSpec"),
    ("flow.volcano.sh_jobtemplates", "spec"),
];

/// What else ours has and theirs has not.
const ELSEWHERE: &[(&str, &str)] = &[
    ("batch.volcano.sh_jobs", "status.properties.memoryRaises"),
    ("batch.volcano.sh_jobs", "status.properties.podRetries"),
    ("flow.volcano.sh_jobflows", "spec.properties.flows.items.properties.retries"),
    ("scheduling.volcano.sh_queues", "spec.properties.maxRunningJobs"),
];

/// All of it, as paths.
fn additions() -> BTreeSet<String> {
    let path = |file: &str, path: &str| format!("{file}.spec.versions[0].schema.openAPIV3Schema.properties.{path}");
    let in_specs = JOB_SPECS.iter().flat_map(|(file, spec)| {
        IN_JOB_SPECS.iter().map(move |addition| path(file, &format!("{spec}.properties.{addition}")))
    });
    in_specs.chain(ELSEWHERE.iter().map(|(file, addition)| path(file, addition))).collect()
}

/// Keywords and annotations that carry no behaviour.
const IGNORED: &[&str] = &["description", "controller-gen.kubebuilder.io/version"];

/// Volcano's definitions, or nothing where the fixtures are absent.
fn upstream(file: &str) -> Option<Value> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures/volcano/crds");
    if !folder.is_dir() {
        assert!(std::env::var_os("CI").is_none(), "fixtures are missing at {}", folder.display());
        return None;
    }
    let text = std::fs::read_to_string(folder.join(file)).expect("fixture");
    Some(serde_saphyr::from_str(&text).expect("YAML"))
}

/// Differences of `ours` from `theirs`; additions of ours go to `added`.
fn compare(theirs: &Value, ours: &Value, path: &str, differences: &mut Vec<String>, added: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            for (name, value) in
                theirs.iter().filter(|(name, _)| !IGNORED.contains(&name.as_str()) || path.ends_with(".properties"))
            {
                match ours.get(name) {
                    Some(own) if name == "required" => {
                        compare_sets(value, own, &format!("{path}.required"), differences)
                    }
                    Some(own) => compare(value, own, &format!("{path}.{name}"), differences, added),
                    None => differences.push(format!("{path}.{name}: missing, upstream has {value}")),
                }
            }
            added.extend(ours.keys().filter(|name| !theirs.contains_key(*name)).map(|name| format!("{path}.{name}")));
        }
        // More words are an addition, too.
        (Value::Array(theirs), Value::Array(ours))
            if path.ends_with(".enum") && theirs.iter().all(|word| ours.contains(word)) =>
        {
            let more = ours.iter().filter(|word| !theirs.contains(word));
            added.extend(more.map(|word| format!("{path}[{}]", word.as_str().unwrap_or_default())));
        }
        (Value::Array(theirs), Value::Array(ours)) if theirs.len() == ours.len() => {
            for (index, (theirs, ours)) in theirs.iter().zip(ours).enumerate() {
                compare(theirs, ours, &format!("{path}[{index}]"), differences, added);
            }
        }
        _ if theirs == ours => {}
        _ => differences.push(format!("{path}: {ours}, upstream has {theirs}")),
    }
}

fn compare_sets(theirs: &Value, ours: &Value, path: &str, differences: &mut Vec<String>) {
    let sort = |value: &Value| {
        let mut names: Vec<String> = value.as_array().expect("list").iter().map(Value::to_string).collect();
        names.sort();
        names
    };
    if sort(theirs) != sort(ours) {
        differences.push(format!("{path}: {ours}, upstream has {theirs}"));
    }
}

/// Every definition of Volcano's has one of ours to be compared with.
#[test]
fn no_definition_is_left_out() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures/volcano/crds");
    let Ok(files) = std::fs::read_dir(folder) else { return };
    let mut theirs: Vec<String> =
        files.map(|file| file.expect("file").file_name().into_string().expect("UTF-8")).collect();
    let ours = xtask::codegen::crd::definitions().expect("generates");
    let mut ours: Vec<String> = ours.iter().map(file_of).filter(|file| !OURS.contains(&file.as_str())).collect();
    theirs.sort();
    ours.sort();
    assert_eq!(ours, theirs);
}

fn file_of(definition: &Value) -> String {
    format!("{}_{}.yaml", definition["spec"]["group"], definition["spec"]["names"]["plural"]).replace('"', "")
}

#[test]
fn definitions_say_what_volcano_says() {
    let mut differences = Vec::new();
    let mut added = Vec::new();
    for ours in xtask::codegen::crd::definitions().expect("generates") {
        let file = file_of(&ours);
        if OURS.contains(&file.as_str()) {
            continue;
        }
        let Some(theirs) = upstream(&file) else { return };
        compare(&theirs, &ours, file.trim_end_matches(".yaml"), &mut differences, &mut added);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(added.into_iter().collect::<BTreeSet<_>>(), additions());
}

#[test]
fn the_comparison_finds_differences() {
    let theirs = serde_json::json!({ "a": { "minimum": 1, "required": ["x", "y"], "description": "d" }, "b": [1],
        "c": { "enum": ["x"] }, "d": { "enum": ["x"] } });
    let ours = serde_json::json!({ "a": { "minimum": 2, "required": ["y", "x"], "new": {} },
        "c": { "enum": ["y", "x"] }, "d": { "enum": ["y"] } });
    let (mut differences, mut added) = (Vec::new(), Vec::new());
    compare(&theirs, &ours, "t", &mut differences, &mut added);
    assert_eq!(
        differences,
        ["t.a.minimum: 2, upstream has 1", "t.b: missing, upstream has [1]", "t.d.enum[0]: \"y\", upstream has \"x\""]
    );
    assert_eq!(added, ["t.a.new", "t.c.enum[y]"]);
}
