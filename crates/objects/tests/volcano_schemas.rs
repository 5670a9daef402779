//! The published schemas of Volcano's kinds compile, and its own examples pass them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use pumice_objects::schema::Schema;
use serde_json::{Map, Value, json};

/// The fixtures beside the project, or `None` where they are not there and need not be.
fn fixtures() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/volcano");
    let must_exist = std::env::var_os("CI").is_some();
    assert!(folder.is_dir() || !must_exist, "{} is missing", folder.display());
    folder.is_dir().then_some(folder)
}

fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a readable folder").map(|entry| entry.expect("a readable entry").path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect();
    files.sort();
    files
}

fn schemas(folder: &Path) -> HashMap<(String, String), Schema> {
    let mut schemas = HashMap::new();
    for file in yaml_files(&folder.join("crds")) {
        let text = fs::read_to_string(&file).expect("a readable file");
        let definition: Value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        let spec = &definition["spec"];
        for version in spec["versions"].as_array().expect("versions") {
            let mut declared = version["schema"]["openAPIV3Schema"].clone();
            declared["properties"]["metadata"] =
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let schema =
                Schema::from_openapi(&declared, &Map::new()).unwrap_or_else(|error| panic!("{file:?}: {error}"));
            let api_version =
                format!("{}/{}", spec["group"].as_str().expect("a group"), version["name"].as_str().expect("a name"));
            schemas.insert((api_version, spec["names"]["kind"].as_str().expect("a kind").to_owned()), schema);
        }
    }
    schemas
}

#[test]
fn published_examples_pass_the_published_schemas() {
    let Some(folder) = fixtures() else { return };
    let schemas = schemas(&folder);
    assert!(schemas.len() >= 11, "{} schemas", schemas.len());
    let mut checked = 0;
    for file in yaml_files(&folder.join("examples")) {
        let text = fs::read_to_string(&file).unwrap();
        let Ok(documents) = serde_saphyr::from_multiple::<Value>(&text) else { continue };
        for mut document in documents {
            let key = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
            let Some(schema) = schemas.get(&(key("apiVersion"), key("kind"))) else { continue };
            let findings = schema.admit(&mut document);
            let errors: Vec<String> = findings.errors.iter().map(ToString::to_string).collect();
            assert_eq!(errors, [""; 0], "{}", file.display());
            checked += 1;
        }
    }
    assert!(checked >= 20, "only {checked} documents were checked");
}

#[test]
fn a_broken_job_is_told_as_upstream_does() {
    let Some(folder) = fixtures() else { return };
    let schemas = schemas(&folder);
    let job = &schemas[&("batch.volcano.sh/v1alpha1".to_owned(), "Job".to_owned())];
    let mut object = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {
            "minAvailable": -1,
            "tasks": [{
                "name": "Bad_Name",
                "replicas": 1,
                "template": {"spec": {"containers": [
                    {"name": "c", "image": "i", "resources": {"limits": {"cpu": "one"}}, "ports": [{"containerPort": "80"}]}
                ]}}
            }]
        }
    });
    let findings = job.admit(&mut object);
    let errors: Vec<String> = findings.errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "spec.minAvailable: Invalid value: -1: spec.minAvailable in body should be greater than or equal to 0",
            "spec.tasks[0].name: Invalid value: \"Bad_Name\": spec.tasks[0].name in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'",
            "spec.tasks[0].template.spec.containers[0].ports[0].containerPort: Invalid value: \"string\": spec.tasks[0].template.spec.containers[0].ports[0].containerPort in body must be of type integer: \"string\"",
            "spec.tasks[0].template.spec.containers[0].resources.limits.cpu: Invalid value: \"one\": spec.tasks[0].template.spec.containers[0].resources.limits.cpu in body should match '^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$'",
        ]
    );
    assert_eq!(object["spec"]["queue"], "default");
    assert_eq!(object["spec"]["maxRetry"], 3);
}
