//! Golden cases of the schema walk: `cases/<name>/{schema,in}.json` gives `cases/<name>/out.snap`.

use std::fs;
use std::path::{Path, PathBuf};

use pumice_objects::schema::Schema;
use serde_json::{Map, Value, json};

fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn case_folders() -> Vec<PathBuf> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut folders: Vec<PathBuf> = fs::read_dir(cases)
        .expect("the folder of cases")
        .map(|entry| entry.expect("a readable entry").path())
        .collect();
    folders.sort();
    folders
}

#[test]
fn every_case_gives_its_golden_findings() {
    let folders = case_folders();
    assert!(folders.len() >= 7, "cases are missing");
    for folder in folders {
        let declared = read(&folder.join("schema.json"));
        let components = declared.get("components").and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
        let schema = Schema::from_openapi(&declared, &components).unwrap();
        let mut object = read(&folder.join("in.json"));
        let findings = schema.admit(&mut object);
        let out = json!({
            "object": object,
            "unknown": findings.unknown_fields,
            "errors": findings.errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(&folder);
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_json_snapshot!("out", out));

        // The separate steps see what the one walk saw.
        let mut stepped = read(&folder.join("in.json"));
        assert_eq!(schema.unknown_fields(&stepped), findings.unknown_fields, "{}", folder.display());
        let mut completed = stepped.clone();
        schema.complete(&mut completed);
        assert_eq!(completed, object, "{}", folder.display());
        schema.prune(&mut stepped);
        schema.apply_defaults(&mut stepped);
        assert_eq!(stepped, object, "{}", folder.display());
        assert_eq!(schema.validate(&mut stepped), findings.errors, "{}", folder.display());
    }
}
