//! Manifests as users write them, good and bad.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::{Path, PathBuf};

use pumice_jobs::manifest::{self, Object};
use serde_json::json;

fn parse(text: &str) -> Vec<Object> {
    manifest::parse(text, "job.yaml").unwrap()
}

fn error(text: &str) -> String {
    manifest::parse(text, "job.yaml").unwrap_err().to_string()
}

fn fixtures(folder: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures").join(folder);
    match std::fs::read_dir(&dir) {
        Ok(entries) => {
            let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            paths.retain(|path| path.extension().is_some_and(|e| e == "yaml"));
            paths.sort();
            paths
        }
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "no fixtures in {}: {error}", dir.display());
            Vec::new()
        }
    }
}

#[test]
fn volcanos_examples_and_the_articles_are_read() {
    let mut summary = String::new();
    let paths = [fixtures("volcano/examples"), fixtures("articles")].concat();
    for path in &paths {
        let objects = manifest::read(path, std::io::empty()).unwrap_or_else(|e| panic!("{e}"));
        let kinds: Vec<_> = objects.iter().map(|o| o.body["kind"].as_str().unwrap()).collect();
        let name = path.file_name().unwrap().to_str().unwrap();
        summary.push_str(&format!("{name}: {}\n", kinds.join(" ")));
    }
    if !paths.is_empty() {
        insta::assert_snapshot!(summary);
    }
}

#[test]
fn many_documents_lists_and_comments() {
    let objects = parse(
        "# head\n---\napiVersion: v1\nkind: A\n---\n# nothing\n---\napiVersion: v1\nkind: List\nitems:\n\
         - {apiVersion: v1, kind: B}\n- {apiVersion: v1, kind: C}\n",
    );
    let found: Vec<_> = objects.iter().map(|o| (o.body["kind"].as_str().unwrap(), o.origin.as_str())).collect();
    assert_eq!(found, [("A", "job.yaml:2"), ("B", "job.yaml:7"), ("C", "job.yaml:7")]);
}

#[test]
fn words_of_yaml_1_1_stay_text_and_old_octals_are_octal() {
    let object = parse(
        "apiVersion: v1\nkind: A\nword: yes\nother: on\nno: off\nflag: true\nmode: 0644\nnew: 0o17\n\
         nine: 08a\nbig: 12345678901\nhalf: 0.5\nnothing: ~\nempty:\ntext: '1'\ntime: 12:30:45\n\
         date: 2024-01-01\nexp: 1e3\n",
    )
    .remove(0)
    .body;
    assert_eq!(
        object,
        json!({"apiVersion": "v1", "kind": "A", "word": "yes", "other": "on", "no": "off", "flag": true,
               "mode": 420, "new": 15, "nine": "08a", "big": 12_345_678_901_i64, "half": 0.5,
               "nothing": null, "empty": null, "text": "1", "time": "12:30:45", "date": "2024-01-01",
               "exp": 1000.0})
    );
}

#[test]
fn anchors_merges_and_block_text() {
    let object = parse(
        "apiVersion: v1\nkind: A\nbase: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\nscript: |\n  a\n  ---b\nlast: >-\n  one\n  two\n",
    )
    .remove(0)
    .body;
    assert_eq!(object["use"], json!({"x": 1, "y": 3}));
    assert_eq!(object["script"], "a\n---b\n");
    assert_eq!(object["last"], "one two");
}

#[test]
fn json_alone_many_and_flow_yaml() {
    let text = "{\"apiVersion\":\"v1\",\"kind\":\"A\"}\n{\"apiVersion\":\"v1\",\n\"kind\":\"B\"}";
    let origins: Vec<_> = parse(text).into_iter().map(|o| o.origin).collect();
    assert_eq!(origins, ["job.yaml:1", "job.yaml:2"]);
    assert_eq!(parse("{apiVersion: v1, kind: A}").len(), 1);
}

#[test]
fn errors_name_the_place() {
    let deep_flow = format!("apiVersion: v1\nkind: A\nx: {}", "[".repeat(20_000));
    let deep_block: String = (0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    let deep_json = format!("{{\"a\":{}", "[".repeat(20_000));
    let list_in_list = "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: []}]";
    let cases = [
        ("tab", "apiVersion: v1\nkind: A\nx:\n\ty: 1\n"),
        ("unclosed", "apiVersion: v1\nkind: A\nx: [1, 2\n"),
        ("colon", "apiVersion: v1\nkind: A\nx: y: z\n"),
        ("second document", "apiVersion: v1\nkind: A\n---\nx: 1\ny: \"open\n"),
        ("twice", "apiVersion: v1\nkind: A\nspec:\n  a: 1\n  b: 2\n  a: 3\n"),
        ("twice in the second", "apiVersion: v1\nkind: A\n---\nkind: B\nkind: C\n"),
        ("twice in JSON", "{\"apiVersion\": \"v1\",\n \"kind\": \"A\", \"kind\": \"B\"}"),
        ("cut JSON", "{\"apiVersion\": \"v1\","),
        ("deep flow", &deep_flow),
        ("deep block", &deep_block),
        ("deep JSON", &deep_json),
        ("empty", "# nothing\n"),
        ("no text", ""),
        ("a list", "- 1\n- 2\n"),
        ("a word", "hello\n"),
        ("no kind", "apiVersion: v1\nmetadata: {}\n"),
        ("odd kind", "apiVersion: v1\nkind: [A]\n"),
        ("odd metadata", "apiVersion: v1\nkind: A\nmetadata: x\n"),
        ("unknown alias", "apiVersion: v1\nkind: A\nx: *nobody\n"),
        ("list in list", list_in_list),
    ];
    let text: String = cases.iter().map(|(name, text)| format!("{name}: {}\n", error(text))).collect();
    insta::assert_snapshot!(text);
}

#[test]
fn ten_megabytes_are_refused_by_size() {
    let big = "x".repeat(10 << 20);
    let yaml = format!("apiVersion: v1\nkind: A\n---\napiVersion: v1\nkind: B\ndata: {big}\n");
    assert_eq!(error(&yaml), "job.yaml:3: too large: 10485794 bytes, an object may have 3 MiB");
    let json = json!({"apiVersion": "v1", "kind": "A", "data": big}).to_string();
    assert!(error(&json).contains("too large"), "{}", error(&json));
}

#[test]
fn aliases_cannot_blow_up() {
    let mut text = "apiVersion: v1\nkind: A\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let previous = level - 1;
        let items = vec![format!("*a{previous}"); 10].join(",");
        text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    assert!(manifest::parse(&text, "job.yaml").is_err());
}

#[test]
fn files_stdin_and_odd_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.yaml");
    let missing = manifest::read(&path, std::io::empty()).unwrap_err();
    assert_eq!(missing.to_string(), format!("cannot read {}", path.display()));
    std::fs::write(&path, b"a: \xff\n").unwrap();
    let odd = manifest::read(&path, std::io::empty()).unwrap_err().to_string();
    assert!(odd.ends_with("not UTF-8 text (byte 3)"), "{odd}");
    let objects = manifest::read(Path::new("-"), &b"\xef\xbb\xbfapiVersion: v1\nkind: A\n"[..]).unwrap();
    assert_eq!(objects[0].origin, "stdin:1");
}
