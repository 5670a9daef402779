//! Images out of files and into files.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use jiff::Timestamp;
use pumice_images::archive::{ArchiveError, Folder, from_root, load, save};
use pumice_images::config::ImageConfig;
use pumice_images::digest::Digest;
use pumice_images::manifest::machine;
use pumice_images::store::{Extent, ImageRecord, Store};
use serde_json::{Value, json};

use crate::archives::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn in_a_store(test: impl FnOnce(&Store, &Path) + Send) {
    on_its_own_disk(256, |dir| test(&Store::open(&dir.join("store"), small_limits()).unwrap(), dir));
}

fn config(layers: &[&[u8]]) -> Vec<u8> {
    let diff_ids: Vec<_> = layers.iter().map(|layer| Digest::of(layer)).collect();
    let rootfs = json!({"type": "layers", "diff_ids": diff_ids});
    let architecture = machine().architecture().to_string();
    json!({"os": "linux", "architecture": architecture, "config": {"Cmd": ["run"]}, "rootfs": rootfs})
        .to_string()
        .into()
}

/// What `docker save` writes before version 25: a folder for each layer, the second time a link.
fn of_old_docker(layers: &[&[u8]], tags: &Value) -> Vec<Item> {
    let config = config(layers);
    let name = format!("{}.json", Digest::of(&config).hex());
    let mut items = vec![file(&name, &config), file("repositories", "{}")];
    let mut names = Vec::new();
    for (at, layer) in layers.iter().enumerate() {
        let first = layers.iter().position(|other| other == layer).unwrap();
        let name = format!("layer{at}/layer.tar");
        items.push(folder(format!("layer{at}/")));
        items.push(if first == at { file(&name, layer) } else { link(&name, &format!("../layer{first}/layer.tar")) });
        names.push(name);
    }
    let list = json!([{"Config": name, "RepoTags": tags, "Layers": names}]);
    items.push(file("manifest.json", list.to_string()));
    items
}

fn link(name: &str, target: &str) -> Item {
    crate::archives::symlink(name, target)
}

fn blob(bytes: &[u8]) -> Item {
    file(format!("blobs/sha256/{}", Digest::of(bytes).hex()), bytes)
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": Digest::of(bytes), "size": bytes.len()})
}

/// An OCI layout of one image with these layers, all compressed.
fn layout(layers: &[&[u8]], annotations: &Value) -> Vec<Item> {
    let config = config(layers);
    let packed: Vec<_> = layers.iter().map(|layer| gzip(layer)).collect();
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    let manifest = json!({
        "schemaVersion": 2,
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": packed.iter().map(|layer| descriptor(kind, layer)).collect::<Vec<_>>(),
    });
    let manifest = manifest.to_string().into_bytes();
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    entry["annotations"] = annotations.clone();
    let mut items = vec![
        file("oci-layout", r#"{"imageLayoutVersion": "1.0.0"}"#),
        file("index.json", json!({"schemaVersion": 2, "manifests": [entry]}).to_string()),
        blob(&manifest),
        blob(&config),
    ];
    items.extend(packed.iter().map(|layer| blob(layer)));
    items
}

fn check(store: &Store, image: &ImageRecord, files: &[&[&str]]) {
    assert!(image.loaded && store.image(&image.name).unwrap().as_ref() == Some(image));
    let found: Vec<_> = image.layers.iter().map(|layer| names(&store.layer_dir(&layer.diff_id))).collect();
    assert_eq!(found, files);
    let bytes = store.manifest(&image.config).unwrap().unwrap();
    assert_eq!(ImageConfig::read(&bytes, image.layers.len()).unwrap().cmd, ["run"]);
}

#[test]
fn what_docker_saves_is_loaded_and_saved_and_loaded_again() {
    in_a_store(|store, dir| {
        let (a, b) = (tar(&[file("a", "1")]), tar(&[file("b", "2")]));
        let archive = tar(&of_old_docker(&[&a, &b, &a], &json!(["one:1", "registry.example/two"])));
        for archive in [archive.clone(), gzip(&archive), zstd(&archive)] {
            let images = load(store, &archive[..], None, NOW).unwrap();
            let found: Vec<_> = images.iter().map(|image| image.name.as_str()).collect();
            assert_eq!(found, ["docker.io/library/one:1", "registry.example/two:latest"]);
            for image in &images {
                check(store, image, &[&["a"], &["b"], &["a"]]);
            }
        }
        // What no image has is none of the store's.
        store.prune(Extent::Unnamed, &|_| false, NOW).unwrap();
        assert_eq!(fs::read_dir(dir.join("store/blobs")).unwrap().count(), 4);
        let images = store.images().unwrap();
        let mut saved = Vec::new();
        save(store, &images, &mut saved).unwrap();
        let mut again = Vec::new();
        save(store, &images, &mut again).unwrap();
        assert!(saved == again, "the same bytes each time");
        let other = Store::open(&dir.join("other"), small_limits()).unwrap();
        let loaded = load(&other, &saved[..], None, NOW).unwrap();
        assert_eq!(loaded, images);
        check(&other, &loaded[0], &[&["a"], &["b"], &["a"]]);
        // Docker's own way to read it is another.
        let without_index: Vec<u8> = {
            let mut archive = ::tar::Builder::new(Vec::new());
            for entry in ::tar::Archive::new(&saved[..]).entries().unwrap() {
                let mut entry = entry.unwrap();
                let (mut header, path) = (entry.header().clone(), entry.path().unwrap().into_owned());
                if path != Path::new("index.json") {
                    archive.append_data(&mut header, path, &mut entry).unwrap();
                }
            }
            archive.into_inner().unwrap()
        };
        let third = Store::open(&dir.join("third"), small_limits()).unwrap();
        for image in load(&third, &without_index[..], None, NOW).unwrap() {
            check(&third, &image, &[&["a"], &["b"], &["a"]]);
        }
    });
}

#[test]
fn layouts_are_loaded_by_the_name_that_they_or_the_caller_give() {
    in_a_store(|store, _| {
        let a = tar(&[file("a", "1")]);
        let full =
            json!({"io.containerd.image.name": "docker.io/library/app:1", "org.opencontainers.image.ref.name": "1"});
        for (annotations, name, expected) in [
            (full, None, "docker.io/library/app:1"),
            (json!({"org.opencontainers.image.ref.name": "localhost/app:2"}), None, "localhost/app:2"),
            (json!({"org.opencontainers.image.ref.name": "3"}), Some("app:3"), "docker.io/library/app:3"),
        ] {
            let images = load(store, &tar(&layout(&[&a], &annotations))[..], name, NOW).unwrap();
            assert_eq!(images.iter().map(|image| image.name.as_str()).collect::<Vec<_>>(), [expected]);
            check(store, &images[0], &[&["a"]]);
        }
        let error = load(store, &tar(&layout(&[&a], &json!({})))[..], None, NOW).unwrap_err();
        assert!(matches!(error, ArchiveError::NoName), "{error}");
    });
}

#[test]
fn archives_that_mean_harm_leave_nothing() {
    in_a_store(|store, dir| {
        fs::write(dir.join("secret"), "stays").unwrap();
        let a = tar(&[file("a", "1")]);
        let private = tar(&[file("private", "secret")]);
        let private_id = Digest::of(&private);
        let private = unpack(store, &gzip(&private), &private_id).unwrap();
        let name = json!({"io.containerd.image.name": "docker.io/library/app:1"});
        let old = |change: fn(&mut Vec<Item>)| {
            let mut items = of_old_docker(&[&tar(&[file("a", "1")])], &json!(["x"]));
            change(&mut items);
            tar(&items)
        };
        let list = |value: Value| {
            let mut items = of_old_docker(&[&a], &json!(["x"]));
            items.pop();
            items.push(file("manifest.json", value.to_string()));
            tar(&items)
        };
        let mut wrong_blob = layout(&[&a], &name);
        wrong_blob[4].data[20] ^= 1;
        let mut no_layer = layout(&[&a], &name);
        no_layer.pop();
        // Says to be made of a layer that the store has from somebody else.
        let thief = {
            let mut items = of_old_docker(&[&a], &json!(["x"]));
            let config = String::from_utf8(items[0].data.clone()).unwrap();
            items[0].data = config.replace(&Digest::of(&a).to_string(), &private_id.to_string()).into_bytes();
            tar(&items)
        };
        let bad_layer = tar(&[file("../evil", "")]);
        let rows: Vec<(&str, Vec<u8>, &str)> = vec![
            ("nothing", Vec::new(), "has no image"),
            ("a layer instead of an image", a.clone(), "has no image"),
            ("noise", vec![7; 5000], "wrong checksum"),
            ("half", old(|_| {})[..3000].to_vec(), "in the middle"),
            ("a name that goes up", old(|items| items.push(file("../../secret", "x"))), "`..`"),
            ("a list of another form", list(json!({"a": 1})), "not what it should be"),
            (
                "a file of the machine as the list",
                old(|items| {
                    items.pop();
                    items.push(link("manifest.json", "/etc/passwd"));
                }),
                "no file \"manifest.json\"",
            ),
            (
                "links in a circle",
                old(|items| {
                    items.pop();
                    items.push(link("manifest.json", "manifest.json"));
                }),
                "no file \"manifest.json\"",
            ),
            (
                "a file of the machine as configuration",
                list(json!([{"Config": "../../../../etc/passwd", "RepoTags": ["x"], "Layers": []}])),
                "no file",
            ),
            (
                "a file of the machine as layer",
                list(json!([{"Config": "manifest.json", "RepoTags": ["x"], "Layers": ["/etc/passwd"]}])),
                "no file",
            ),
            (
                "a list as configuration",
                list(json!([{"Config": "manifest.json", "RepoTags": ["x"], "Layers": []}])),
                "an image of the archive",
            ),
            (
                "too many layers",
                list(json!([{"Config": "manifest.json", "RepoTags": ["x"], "Layers": vec!["manifest.json"; 128]}])),
                "128 layers",
            ),
            ("a name that is none", tar(&of_old_docker(&[&a], &json!(["../../x"]))), "../../x"),
            ("no name", tar(&of_old_docker(&[&a], &Value::Null)), "--name"),
            (
                "megabytes of list",
                old(|items| items.last_mut().unwrap().data = vec![b' '; 5 << 20]),
                "4194304 are read",
            ),
            ("twenty thousand files", tar(&vec![file("x", ""); 20_001]), "more than 20000"),
            ("a blob of another content", tar(&wrong_blob), "another content"),
            ("no layer", tar(&no_layer), "no file"),
            ("a layer that goes up", tar(&of_old_docker(&[&bad_layer], &json!(["x"]))), "`..`"),
            ("another's layer", thief, "configuration says"),
            ("a bomb", gzip(&vec![0; 40 << 20]), ""),
        ];
        let limits = pumice_images::store::Limits { image_bytes_max: 30 << 20, ..small_limits() };
        let store = Store::open(&dir.join("store"), limits).unwrap();
        for (name, archive, words) in rows {
            let error = load(&store, &archive[..], None, NOW).expect_err(name);
            assert!(text(&error).contains(words), "{name}: {}", text(&error));
            assert_eq!(store.images().unwrap(), [], "{name}");
            store.prune(Extent::Unnamed, &|digest| *digest == private_id, NOW).unwrap();
            for empty in ["blobs", "partial", "leases", "locks"] {
                assert_eq!(names(&dir.join("store").join(empty)), [""; 0], "{name}");
            }
            assert_eq!(fs::read_dir(dir).unwrap().count(), 2, "{name}");
            // The good twin.
            let good = load(&store, &old(|_| {})[..], None, NOW).unwrap();
            store.remove_image(&good[0].name).unwrap();
        }
        assert!(private.join("private").exists());
    });
}

#[test]
fn a_folder_becomes_an_image() {
    in_a_store(|store, dir| {
        let root = dir.join("root");
        let deep = root.join(["long-name-of-a-folder"; 8].join("/"));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("n".repeat(200)), "deep").unwrap();
        fs::write(root.join("program"), "x").unwrap();
        fs::set_permissions(root.join("program"), fs::Permissions::from_mode(0o4755)).unwrap();
        fs::hard_link(root.join("program"), root.join("second")).unwrap();
        symlink("/etc/passwd", root.join("link")).unwrap();
        nix::unistd::mkfifo(&root.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        drop(std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap());
        fs::create_dir(root.join("left-out")).unwrap();
        fs::write(root.join("left-out/file"), "").unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o711)).unwrap();
        let mut big = fs::File::create(root.join("big")).unwrap();
        (0..300_000_u32).for_each(|number| big.write_all(&number.to_le_bytes()).unwrap());
        let folder = Folder { path: &root, name: "mine", without: &[root.join("left-out")] };
        let image = from_root(store, &folder, NOW).unwrap();
        assert_eq!(image.name, "docker.io/library/mine:latest");
        let layer = store.layer_dir(&image.layers[0].diff_id);
        let mut expected = names(&root);
        expected.retain(|name| name != "socket" && !name.starts_with("left-out"));
        assert_eq!(names(&layer), expected);
        for name in expected.iter().map(String::as_str).chain([""]) {
            let (here, there) =
                (root.join(name).symlink_metadata().unwrap(), layer.join(name).symlink_metadata().unwrap());
            let of = |found: &fs::Metadata| (found.mode(), found.uid(), found.gid(), found.mtime());
            assert_eq!(of(&here), of(&there), "{name}");
        }
        assert_eq!(fs::read(root.join("big")).unwrap(), fs::read(layer.join("big")).unwrap());
        assert_eq!(layer.join("second").metadata().unwrap().ino(), layer.join("program").metadata().unwrap().ino());
        assert_eq!(fs::read_link(layer.join("link")).unwrap(), Path::new("/etc/passwd"));
        // The same folder is the same layer.
        let again = from_root(store, &folder, NOW).unwrap();
        assert_eq!(again, image);
        let mut saved = Vec::new();
        save(store, &[image], &mut saved).unwrap();
        let other = Store::open(&dir.join("other"), small_limits()).unwrap();
        load(&other, &saved[..], Some("renamed:1"), NOW).unwrap();
        assert_eq!(other.images().unwrap()[0].name, "docker.io/library/renamed:1");
        fs::write(root.join(".wh.x"), "").unwrap();
        let error = from_root(store, &folder, NOW).unwrap_err();
        assert!(text(&error).contains(".wh."), "{}", text(&error));
    });
}
