//! Images by their names, and what goes when.

use std::fs;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use pumice_images::digest::Digest;
use pumice_images::store::{
    Extent, Grant, ImageLayer, ImageRecord, LayerCompression, Limits, Origin, Store, StoreError,
};

use crate::archives::*;

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1000)
}

/// Puts an image of these layers, each of some bytes that its name makes, into the store.
fn put_image(store: &Store, name: &str, layers: &[&str], bytes: usize) -> ImageRecord {
    let manifest = format!("manifest of {name}");
    let config = format!("config of {name}");
    for text in [&manifest, &config] {
        store.put_small(&Digest::of(text.as_bytes()), text.as_bytes()).unwrap();
    }
    let layers: Vec<ImageLayer> = (layers.iter())
        .map(|layer| {
            let archive = tar(&[file("f", vec![layer.as_bytes()[0]; bytes])]);
            let diff_id = Digest::of(&archive);
            let packed = zstd(&archive);
            unpack(store, &packed, &diff_id).unwrap();
            ImageLayer {
                blob: Digest::of(&packed),
                size_bytes: packed.len() as u64,
                compression: LayerCompression::Zstd,
                diff_id,
                origins: vec![Origin::Public],
            }
        })
        .collect();
    let record = ImageRecord {
        name: name.to_owned(),
        target: Digest::of(manifest.as_bytes()),
        manifest: Digest::of(manifest.as_bytes()),
        config: Digest::of(config.as_bytes()),
        size_bytes: layers.iter().map(|layer| layer.size_bytes).sum(),
        layers,
        loaded: false,
        pulled_at: Timestamp::UNIX_EPOCH,
        used_at: Timestamp::UNIX_EPOCH,
        grants: vec![Grant { registry: "registry.example".to_owned(), repository: "a".to_owned(), credential: None }],
    };
    store.put_image(&record).unwrap();
    record
}

fn image_names(store: &Store) -> Vec<String> {
    store.images().unwrap().into_iter().map(|image| image.name).collect()
}

fn count(dir: &Path, folder: &str) -> usize {
    fs::read_dir(dir.join(folder)).unwrap().count()
}

#[test]
fn images_are_remembered_by_name() {
    on_its_own_disk(256, |dir| {
        let store = Store::open(dir, small_limits()).unwrap();
        let record = put_image(&store, "registry.example/a:1", &["x", "y"], 10);
        let odd = put_image(&store, "../../etc/passwd\0", &["x"], 10);
        let store = Store::open(dir, small_limits()).unwrap();
        assert_eq!(store.image("registry.example/a:1").unwrap(), Some(record.clone()));
        assert_eq!(store.image(&odd.name).unwrap(), Some(odd));
        assert_eq!(store.image("registry.example/a:2").unwrap(), None);
        let later = now();
        store.mark_used(&record.name, later).unwrap();
        assert_eq!(store.image(&record.name).unwrap().unwrap().used_at, later);
        store.change_image(&record.name, |image| image.grants.clear()).unwrap();
        assert_eq!(store.image(&record.name).unwrap().unwrap().grants, []);
        assert!(store.remove_image(&record.name).unwrap() && !store.remove_image(&record.name).unwrap());
        // An image without its content, or of more than is taken.
        store.prune(Extent::Unnamed, &|_| false, later).unwrap();
        assert!(matches!(store.put_image(&record), Err(StoreError::Missing { .. })));
        let limits = Limits { image_bytes_max: 5_000, ..small_limits() };
        let small = Store::open(dir, limits).unwrap();
        let image = put_image(&store, "large", &["x", "y", "z"], 1000);
        assert!(matches!(small.put_image(&image), Err(StoreError::ImageTooLarge { bytes: 7680, max: 5000 })));
    });
}

#[test]
fn content_that_no_image_has_goes_and_the_rest_stays() {
    on_its_own_disk(256, |dir| {
        let store = Store::open(dir, small_limits()).unwrap();
        let first = put_image(&store, "a", &["shared", "x"], 10_000);
        let second = put_image(&store, "b", &["shared", "y"], 10_000);
        let prune = |in_use: &dyn Fn(&Digest) -> bool| store.prune(Extent::Unnamed, in_use, now()).unwrap();
        assert_eq!(prune(&|_| false), Default::default());
        store.remove_image("a").unwrap();
        // A pod runs in its upper layer yet.
        let in_use = first.layers[1].diff_id.clone();
        let pruned = prune(&|digest| *digest == in_use);
        assert_eq!((pruned.layers, pruned.blobs), (0, 3));
        assert!(store.has_layer(&first.layers[1].diff_id) && store.has_layer(&first.layers[0].diff_id));
        let pruned = prune(&|_| false);
        assert_eq!((pruned.layers, pruned.blobs, pruned.bytes), (1, 0, 16384));
        assert!(second.layers.iter().all(|layer| store.has_layer(&layer.diff_id) && store.has_blob(&layer.blob)));
        let pruned = store.prune(Extent::Unused, &|digest| *digest == second.manifest, now()).unwrap();
        assert_eq!(pruned, Default::default());
        let pruned = store.prune(Extent::Unused, &|_| false, now()).unwrap();
        assert_eq!(pruned.images, ["b"]);
        for folder in ["blobs", "layers", "images", "partial", "locks", "origins"] {
            assert_eq!(count(dir, folder), 0, "{folder}");
        }
    });
}

#[test]
fn what_a_pull_has_leased_stays_until_it_ends() {
    on_its_own_disk(256, |dir| {
        let store = Store::open(dir, small_limits()).unwrap();
        let other = Store::open(dir, small_limits()).unwrap();
        let digest = Digest::of(b"manifest");
        let lease = store.lease(std::slice::from_ref(&digest)).unwrap();
        store.put_small(&digest, b"manifest").unwrap();
        other.prune(Extent::Unused, &|_| false, now()).unwrap();
        assert!(store.has_blob(&digest));
        drop(lease);
        other.prune(Extent::Unused, &|_| false, now()).unwrap();
        assert!(!store.has_blob(&digest));
        // Of a process that was killed.
        fs::write(dir.join("leases/1-1"), format!("{digest}\n")).unwrap();
        store.put_small(&digest, b"manifest").unwrap();
        other.prune(Extent::Unnamed, &|_| false, now()).unwrap();
        assert!(!store.has_blob(&digest));
        assert_eq!(count(dir, "leases"), 0);
    });
}

#[test]
fn above_the_high_mark_images_go_until_the_low_one() {
    if !is_root() {
        return;
    }
    on_its_own_disk(20, |host| {
        let dir = host.join("store");
        let store = Store::open(&dir, small_limits()).unwrap();
        let hours = SignedDuration::from_hours;
        for (at, name) in ["used", "oldest", "loaded", "idle", "new", "young"].into_iter().enumerate() {
            let mut image = put_image(&store, name, &[name], 2 << 20);
            image.used_at = Timestamp::UNIX_EPOCH + hours(i64::try_from(at).unwrap());
            image.loaded = name == "loaded";
            if name == "young" {
                image.pulled_at = now() - SignedDuration::from_secs(60);
                image.used_at = Timestamp::UNIX_EPOCH;
            }
            store.put_image(&image).unwrap();
        }
        let used = store.image("used").unwrap().unwrap().manifest;
        let prune = || store.prune(Extent::Marks, &|digest| *digest == used, now()).unwrap();
        assert_eq!(prune().images, [""; 0], "12 of 20 MiB");
        fs::write(host.join("other"), vec![0; 11 << 19]).unwrap();
        let pruned = prune();
        assert_eq!(
            (pruned.images, pruned.bytes_above),
            (vec!["oldest".to_owned()], 0),
            "17.5 of 20 MiB; 16 are the low mark"
        );
        fs::write(host.join("another"), vec![0; 3 << 20]).unwrap();
        let pruned = prune();
        assert_eq!(pruned.images, ["idle", "new"]);
        assert_eq!(image_names(&store), ["loaded", "used", "young"]);
        fs::write(host.join("another"), vec![0; 6 << 20]).unwrap();
        let pruned = prune();
        assert!(pruned.images.is_empty() && pruned.bytes_above > 1 << 20, "{pruned:?}");
    });
}

#[test]
fn a_damaged_record_harms_no_other() {
    on_its_own_disk(256, |dir| {
        let store = Store::open(dir, small_limits()).unwrap();
        put_image(&store, "a", &["x"], 10);
        let damaged = dir.join("images").join(format!("{}.json", Digest::of(b"b").hex()));
        fs::write(&damaged, "{").unwrap();
        assert_eq!(image_names(&store), ["a"]);
        assert!(matches!(store.image("b"), Err(StoreError::Record { .. })));
        store.prune(Extent::Unnamed, &|_| false, now()).unwrap();
        assert!(!damaged.exists());
        assert_eq!(image_names(&store), ["a"]);
    });
}
