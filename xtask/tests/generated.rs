//! Committed generated files are what the types say.

use std::path::Path;

use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

#[test]
fn committed_files_are_fresh() {
    let stale = xtask::codegen::stale(root()).expect("generates");
    assert_eq!(stale, Vec::<String>::new(), "run: cargo xtask codegen");
}

#[test]
fn generation_repeats_itself() {
    let first = xtask::codegen::outputs(root()).expect("generates");
    let second = xtask::codegen::outputs(root()).expect("generates");
    for (first, second) in first.iter().zip(&second) {
        assert!(first.content == second.content, "{} differs between two runs", first.path);
    }
}

#[test]
fn builtin_schemas_refer_only_to_each_other() {
    let text = std::fs::read_to_string(root().join("crates/apiserver/schemas/builtin.json")).expect("committed");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(references.len() > 100, "found {} references", references.len());
    for reference in references {
        let name = reference.strip_prefix("#/components/schemas/").expect("local reference");
        assert!(schemas.contains_key(name), "{reference}");
    }
    assert!(!text.contains("\"description\":\""), "descriptions are left out");
    assert!(schemas["io.k8s.api.core.v1.PodSpec"]["properties"].get("containers").is_some());
}

fn collect(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                references.push(reference.clone());
            }
            members.values().for_each(|member| collect(member, references));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        _ => {}
    }
}

#[test]
fn yaml_and_json_definitions_are_the_same() {
    for definition in pumice_api::crds::all() {
        let file = format!("{}_{}.yaml", definition["spec"]["group"], definition["spec"]["names"]["plural"]);
        let path = root().join(xtask::codegen::crd::FOLDER).join(file.replace('"', ""));
        let text = std::fs::read_to_string(&path).expect("committed");
        let yaml: Value = serde_saphyr::from_str(&text).expect("YAML");
        assert_eq!(yaml, definition, "{}", path.display());
    }
}
