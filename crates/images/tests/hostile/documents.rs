//! Manifests, indexes and configurations that mean harm.

use std::error::Error;

use pumice_images::config::ImageConfig;
use pumice_images::manifest::{self, Document};
use serde_json::{Value, json};

use crate::archives::text;

const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

fn descriptor(kind: &str, digest: &str, size: Value) -> Value {
    json!({"mediaType": kind, "digest": digest, "size": size})
}

fn manifest(layers: Vec<Value>) -> Value {
    let config = descriptor("application/vnd.oci.image.config.v1+json", DIGEST, json!(2));
    json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers})
}

fn index(manifests: Vec<Value>) -> Value {
    json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests})
}

fn config(fields: Value) -> Value {
    let here = manifest::machine();
    let rootfs = json!({"type": "layers", "diff_ids": [DIGEST]});
    json!({"os": "linux", "architecture": here.architecture().to_string(), "rootfs": rootfs, "config": fields})
}

/// What a document is refused with; none if it is taken.
fn refusal<T, E: Error>(read: Result<T, E>) -> Option<String> {
    read.err().map(|error| text(&error))
}

fn check(name: &str, refusal: Option<String>, words: &str) {
    let text = refusal.unwrap_or_else(|| panic!("{name}: not refused"));
    assert!(text.contains(words), "{name}: {text}");
    assert!(text.len() < 1000 && !text.contains('\x1b'), "{name}: {text}");
}

#[test]
fn manifests_and_indexes_are_refused_with_a_reason() {
    let layer = |kind: &str| descriptor(kind, DIGEST, json!(1));
    let of_digest = |digest: &str| manifest(vec![descriptor(LAYER, digest, json!(1))]);
    let of_size = |size: Value| manifest(vec![descriptor(LAYER, DIGEST, size)]);
    let both = {
        let mut both = manifest(vec![]);
        both["manifests"] = json!([]);
        both
    };
    let for_other = |os: &str| {
        let mut entry = descriptor(MANIFEST, DIGEST, json!(1));
        entry["platform"] = json!({"os": os, "architecture": "s390x"});
        index(vec![entry])
    };
    let rows = [
        ("digest of a path", of_digest("sha256:../../../../etc/passwd"), "is not one"),
        ("digest in capitals", of_digest(&DIGEST.to_uppercase()), ""),
        ("digest by another sum", of_digest(&format!("sha512:{}", "0".repeat(128))), "not a digest"),
        ("digest of nothing", of_digest(""), ""),
        ("size below zero", of_size(json!(-1)), "is not one"),
        ("size of text", of_size(json!("1")), "is not one"),
        ("size beyond numbers", of_size(json!(1e30)), "is not one"),
        ("too many layers", manifest(vec![layer(LAYER); 128]), "128 layers; 127"),
        ("a layer of no archive", manifest(vec![layer("text/html")]), "layers[0]"),
        ("an encrypted layer", manifest(vec![layer(&format!("{LAYER}+encrypted"))]), "+encrypted"),
        ("a manifest and an index", both, "of the kind"),
        ("of the first version", json!({"schemaVersion": 1, "fsLayers": []}), "of the kind"),
        ("a kind that is coloured", json!({"schemaVersion": 2, "mediaType": "\u{1b}[31m"}), "of the kind"),
        ("a list", json!([1, 2]), "is not one"),
        ("an index of nothing", index(vec![]), "it is for no machine"),
        ("an index for others", for_other("linux"), "linux/s390x"),
        ("an index of attestations", for_other("unknown"), "it is for no machine"),
    ];
    for (name, document, words) in rows {
        let bytes = serde_json::to_vec(&document).unwrap();
        check(name, refusal(manifest::read(&bytes, None)), words);
    }
    for (name, bytes, words) in [
        ("nothing", Vec::new(), "is not one"),
        ("half", b"{\"schemaVersion\": 2".to_vec(), "is not one"),
        ("no text", vec![0xff; 100], "is not one"),
        ("brackets", vec![b'['; 4 << 20], "is not one"),
        ("objects in objects", b"{\"a\":".repeat(500_000), "is not one"),
        ("megabytes", vec![b' '; (4 << 20) + 1], "4194304 are read"),
    ] {
        check(name, refusal(manifest::read(&bytes, Some(MANIFEST))), words);
    }
    // The good twin.
    let good = serde_json::to_vec(&manifest(vec![layer(LAYER)])).unwrap();
    assert!(matches!(manifest::read(&good, None), Ok(Document::Image(image)) if image.layers.len() == 1));
}

#[test]
fn configurations_are_refused_with_a_reason() {
    let with = |change: fn(&mut Value)| {
        let mut config = config(json!({}));
        change(&mut config);
        config
    };
    let rows = [
        ("for another machine", with(|config| config["architecture"] = json!("s390x")), "linux/s390x"),
        ("for another system", with(|config| config["os"] = json!("windows")), "windows/"),
        (
            "more layers than the manifest",
            with(|config| config["rootfs"]["diff_ids"] = json!([DIGEST, DIGEST])),
            "1 layers",
        ),
        ("a million layers", with(|config| config["rootfs"]["diff_ids"] = json!(vec![DIGEST; 10_000])), "1 layers"),
        ("a digest of a path", with(|config| config["rootfs"]["diff_ids"] = json!(["../../etc"])), "diff_ids[0]"),
        ("no layers", with(|config| config["rootfs"] = json!({})), "is not one"),
        ("a NUL in the command", config(json!({"Cmd": ["a\0b"]})), "config.Cmd[0]"),
        ("a NUL in the entry point", config(json!({"Entrypoint": ["a", "\0"]})), "config.Entrypoint[1]"),
        ("a NUL in a variable", config(json!({"Env": ["A=\0"]})), "config.Env"),
        ("a variable without a name", config(json!({"Env": ["=x"]})), "config.Env"),
        ("a NUL in the user", config(json!({"User": "a\0"})), "config.User"),
        ("a relative folder", config(json!({"WorkingDir": "../.."})), "config.WorkingDir"),
        ("a relative volume", config(json!({"Volumes": {"../../etc": {}}})), "config.Volumes"),
        ("a command that is a text", config(json!({"Cmd": "rm -rf /"})), "is not one"),
    ];
    for (name, document, words) in rows {
        let bytes = serde_json::to_vec(&document).unwrap();
        check(name, refusal(ImageConfig::read(&bytes, 1)), words);
    }
    let good = serde_json::to_vec(&config(json!({"Cmd": ["sh"]}))).unwrap();
    assert_eq!(ImageConfig::read(&good, 1).unwrap().cmd, ["sh"]);
}
