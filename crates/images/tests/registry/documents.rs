//! Manifests, indexes and configurations of every kind.

use pumice_images::manifest::{DOCKER_LIST, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST};
use serde_json::json;

use crate::image::{Image, Packed, index, tar};
use crate::machine::{Machine, content};
use crate::server::{Fault, Registry};

/// The platform of this machine as an index names it.
fn here() -> String {
    pumice_images::manifest::text(&pumice_images::manifest::machine())
}

#[tokio::test]
async fn layers_are_unpacked_however_they_are_packed() {
    let registry = Registry::start().await;
    for packed in [Packed::Plain, Packed::Gzip, Packed::Zstd] {
        let machine = Machine::new(&[&registry]);
        let image = Image::new(&[(Packed::Gzip, tar(&[("below", b"x")])), (packed, tar(&[("file", b"hello")]))]);
        registry.push("team/app", "1", &image);
        let pulled = machine.pull(&registry.name("team/app", "1")).await.unwrap();
        assert_eq!((content(&pulled).as_str(), pulled.layers.len()), ("hello", 2), "{packed:?}");
    }
}

#[tokio::test]
async fn dockers_kinds_are_images_like_ocis() {
    let registry = Registry::start().await;
    let machine = Machine::new(&[&registry]);
    let packed = Packed::Gzip.pack(&tar(&[("file", b"hello")]));
    let diff_id = pumice_images::digest::Digest::of(&tar(&[("file", b"hello")]));
    for kind in ["diff.tar.gzip", "foreign.diff.tar.gzip"] {
        let kind = format!("application/vnd.docker.image.rootfs.{kind}");
        let mut image = Image::of_parts(&[(kind.clone(), packed.clone())], std::slice::from_ref(&diff_id));
        image.change(|manifest| manifest["mediaType"] = json!(DOCKER_MANIFEST));
        image.kind = DOCKER_MANIFEST;
        registry.push("team/app", "1", &image);
        let list = index(&[(&here(), &image.manifest)]).as_slice().to_vec();
        let list =
            String::from_utf8(list).unwrap().replace(OCI_INDEX, DOCKER_LIST).replace(OCI_MANIFEST, DOCKER_MANIFEST);
        registry.push_manifest("team/app", "list", DOCKER_LIST, list.as_bytes());
        for tag in ["1", "list"] {
            assert_eq!(content(&machine.pull(&registry.name("team/app", tag)).await.unwrap()), "hello", "{kind} {tag}");
        }
    }
}

#[tokio::test]
async fn an_index_gives_the_image_for_this_machine() {
    let registry = Registry::start().await;
    let machine = Machine::new(&[&registry]);
    let (image, other) = (Image::small("here"), Image::small("there"));
    registry.push("team/app", "here", &image);
    registry.push("team/app", "there", &other);
    let attestation = json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST}).to_string();
    let entries = [
        ("unknown/unknown", attestation.as_bytes()),
        ("linux/riscv64", other.manifest.as_slice()),
        ("windows/amd64", &other.manifest),
        (&here(), &image.manifest),
        ("unknown/unknown", attestation.as_bytes()),
    ];
    let list = index(&entries);
    registry.push_manifest("team/app", "list", OCI_INDEX, &list);
    // Within another one, as deep as may be.
    let nested = |inner: &[u8]| {
        let text = String::from_utf8(index(&[(&here(), inner)])).unwrap();
        let (head, tail) =
            text.rsplit_once("\"mediaType\":\"application/vnd.oci.image.manifest").unwrap_or((&text, ""));
        if tail.is_empty() {
            text.into_bytes()
        } else {
            format!("{head}\"mediaType\":\"application/vnd.oci.image.index{tail}").into_bytes()
        }
    };
    let mut deep = list.clone();
    for depth in 1..=4 {
        deep = nested(&deep);
        registry.push_manifest("team/app", &format!("deep{depth}"), OCI_INDEX, &deep);
    }
    let pulled = machine.pull(&registry.name("team/app", "list")).await.unwrap();
    assert_eq!(content(&pulled), "here");
    let target = pumice_images::digest::Digest::of(&list).to_string();
    assert_eq!(pulled.id, registry.name("team/app", &target));
    assert_eq!(content(&machine.pull(&registry.name("team/app", "deep2")).await.unwrap()), "here");
    let failure = machine.failure(&registry.name("team/app", "deep4")).await;
    assert!(failure.contains("more than 3 deep"), "{failure}");
    let elsewhere = index(&entries[..3]);
    registry.push_manifest("team/app", "elsewhere", OCI_INDEX, &elsewhere);
    let failure = machine.failure(&registry.name("team/app", "elsewhere")).await;
    assert!(failure.contains(&format!("not for {}; it is for linux/riscv64, windows/amd64", here())), "{failure}");
    registry.push_manifest("team/app", "none", OCI_INDEX, &index(&[]));
    let failure = machine.failure(&registry.name("team/app", "none")).await;
    assert!(failure.contains("it is for no machine"), "{failure}");
}

#[tokio::test]
async fn an_index_that_leads_to_itself_ends() {
    let registry = Registry::start().await;
    let machine = Machine::new(&[&registry]);
    // No digest can be its own: the registry gives the index for any.
    let looping = index(&[(&here(), b"x")]);
    registry.spoil("GET", "/manifests/", usize::MAX, Fault::Answer(200, vec![], looping));
    registry.push("team/app", "1", &Image::small("hello"));
    let failure = machine.failure(&registry.name("team/app", "1")).await;
    assert!(failure.contains("gives") && failure.contains(&registry.host), "{failure}");
    assert!(registry.requests().len() <= 2);
}

#[tokio::test]
async fn a_configuration_for_another_machine_is_refused() {
    let registry = Registry::start().await;
    let machine = Machine::new(&[&registry]);
    let mut image = Image::small("hello");
    let mut config: serde_json::Value = serde_json::from_slice(&image.config).unwrap();
    config["architecture"] = json!("s390x");
    image.config = config.to_string().into_bytes();
    let described = crate::image::descriptor("application/vnd.oci.image.config.v1+json", &image.config);
    image.change(|manifest| manifest["config"] = described);
    registry.push("team/app", "1", &image);
    let failure = machine.failure(&registry.name("team/app", "1")).await;
    assert!(failure.contains(&format!("the image is for linux/s390x, and this machine is {}", here())), "{failure}");
    assert_eq!(registry.count("GET", &image.layer_path()), 0, "its layers are not fetched");
}

#[tokio::test]
async fn what_is_no_image_is_named() {
    let image = Image::small("hello");
    let schema_1 =
        json!({"schemaVersion": 1, "name": "x", "fsLayers": [{"blobSum": "sha256:00"}], "history": []}).to_string();
    let chart = {
        let mut chart = image.clone();
        chart.change(|manifest| {
            manifest["layers"][0]["mediaType"] = json!("application/vnd.cncf.helm.chart.content.v1.tar+gzip")
        });
        chart.manifest
    };
    let bad_digest = {
        let mut bad = image.clone();
        bad.change(|manifest| manifest["layers"][0]["digest"] = json!("sha256:../../etc"));
        bad.manifest
    };
    let many = {
        let mut many = image.clone();
        many.change(|manifest| {
            let layer = manifest["layers"][0].clone();
            manifest["layers"] = json!(vec![layer; 128]);
        });
        many.manifest
    };
    let sizes = {
        let mut sizes = image.clone();
        sizes.change(|manifest| manifest["layers"][0]["size"] = json!(u64::from(u32::MAX) << 24));
        sizes.manifest
    };
    let large = format!("{}{}", " ".repeat(5 << 20), "{}");
    let cases: [(&str, &[u8], &str); 13] = [
        ("application/vnd.docker.distribution.manifest.v1+prettyjws", schema_1.as_bytes(), "push the image again"),
        ("application/json", schema_1.as_bytes(), "push the image again"),
        (OCI_MANIFEST, schema_1.as_bytes(), "is not one"),
        (OCI_MANIFEST, &chart, "layers[0] of the manifest is of the kind \"application/vnd.cncf.helm"),
        (OCI_MANIFEST, &bad_digest, "the manifest"),
        (OCI_MANIFEST, &many, "128 layers"),
        (OCI_MANIFEST, &sizes, "bytes free"),
        (OCI_MANIFEST, large.as_bytes(), "answers with more than 4194304 bytes"),
        (OCI_MANIFEST, b"", "is not one"),
        (OCI_MANIFEST, b"null", "is not one"),
        (OCI_MANIFEST, b"<html>please log in</html>", "is not one"),
        (OCI_MANIFEST, &[0xff; 100], "is not one"),
        ("text/html", b"{}", "text/html"),
    ];
    for (kind, manifest, expected) in cases {
        let registry = Registry::start().await;
        let machine = Machine::new(&[&registry]);
        registry.push("team/app", "good", &image);
        registry.push_manifest("team/app", "1", kind, manifest);
        let failure = machine.failure(&registry.name("team/app", "1")).await;
        let shown = String::from_utf8_lossy(&manifest[..manifest.len().min(60)]);
        assert!(failure.contains(expected) && failure.contains(&registry.host), "{kind} {shown}: {failure}");
        assert!(failure.len() < 1000, "{failure}");
        assert!(machine.is_empty());
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let registry = Registry::start().await;
    registry.push_manifest("team/app", "1", OCI_MANIFEST, deep.as_bytes());
    let failure = Machine::new(&[&registry]).failure(&registry.name("team/app", "1")).await;
    assert!(failure.contains("is not one"), "{failure}");
}
