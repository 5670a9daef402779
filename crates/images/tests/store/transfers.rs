//! Blobs on their way in.

use std::fs;

use pumice_images::digest::Digest;
use pumice_images::manifest::Blob;
use pumice_images::store::{Begun, Download, Limits, Origin, Store, StoreError, Unpacking};

use crate::archives::*;

fn blob(bytes: &[u8]) -> Blob {
    Blob { digest: Digest::of(bytes), size: bytes.len() as u64 }
}

fn begin(store: &Store, blob: &Blob) -> Download {
    match store.download(blob, &Origin::Public).unwrap() {
        Begun::Now(download) => *download,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_one_registry_began_with_is_not_anothers_to_go_on_with() {
    on_its_own_disk(256, |dir| {
        let store = Store::open(dir, small_limits()).unwrap();
        let blob = blob(b"good");
        let origins = [Origin::Registry("a".into()), Origin::Registry("b".into()), Origin::Public];
        let downloads = origins.clone().map(|origin| match store.download(&blob, &origin).unwrap() {
            Begun::Now(mut download) => {
                assert_eq!(download.length(), 0, "{origin:?}");
                download.append(b"goo").unwrap();
                download
            }
            other => panic!("{other:?}"),
        });
        // Nobody waits: what somebody is at is said.
        assert!(matches!(store.download(&blob, &origins[0]).unwrap(), Begun::Elsewhere { length: 3 }));
        let mut beside = store.download_beside(&blob, &origins[0]).unwrap();
        beside.append(b"good").unwrap();
        beside.finish().unwrap();
        assert_eq!(store.origins(&blob.digest).unwrap().into_iter().collect::<Vec<_>>(), [origins[0].clone()]);
        drop(store.download_beside(&blob, &origins[1]).unwrap());
        drop(downloads);
        assert_eq!(names(&dir.join("partial")).len(), 3, "nothing is left of those beside");
        assert!(matches!(store.download(&blob, &origins[1]).unwrap(), Begun::There));
        let other = Store::open(dir, small_limits()).unwrap();
        other.add_origin(&blob.digest, &origins[2]).unwrap();
        assert_eq!(store.origins(&blob.digest).unwrap().len(), 2);
        fs::write(dir.join("origins").join(format!("{}.json", blob.digest.hex())), "[").unwrap();
        assert!(store.origins(&blob.digest).unwrap().is_empty());
    });
}

#[test]
fn whether_a_layer_was_there_is_said() {
    on_its_own_disk(256, |dir| {
        let store = Store::open(dir, small_limits()).unwrap();
        let archive = tar(&[file("a", "x")]);
        let layer = pumice_images::manifest::Layer {
            blob: put(&store, &archive),
            compression: pumice_images::manifest::Compression::Plain,
        };
        assert_eq!(store.unpack(&layer, &Digest::of(&archive)).unwrap(), Unpacking::Done);
        assert_eq!(store.unpack(&layer, &Digest::of(&archive)).unwrap(), Unpacking::WasThere);
    });
}

#[test]
fn a_broken_download_is_gone_on_with() {
    on_its_own_disk(256, |dir| {
        let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let blob = blob(&bytes);
        let mut at = 0;
        for _ in 0..3 {
            let store = Store::open(dir, small_limits()).unwrap();
            let mut download = begin(&store, &blob);
            assert_eq!(download.length(), at as u64);
            download.append(&bytes[at..at + 100_001]).unwrap();
            at += 100_001;
        }
        let store = Store::open(dir, small_limits()).unwrap();
        let mut download = begin(&store, &blob);
        assert!(!store.has_blob(&blob.digest));
        download.append(&bytes[at..]).unwrap();
        download.finish().unwrap();
        assert!(matches!(store.download(&blob, &Origin::Public).unwrap(), Begun::There));
        assert_eq!(fs::read(dir.join("blobs").join(blob.digest.hex())).unwrap(), bytes);
        assert_eq!(fs::read_dir(dir.join("partial")).unwrap().count(), 0);
    });
}

#[test]
fn content_that_is_another_is_refused_and_the_right_one_taken() {
    on_its_own_disk(256, |dir| {
        let store = Store::open(dir, small_limits()).unwrap();
        let good = blob(b"good");
        let begin = || begin(&store, &good);
        let mut download = begin();
        download.append(b"evil").unwrap();
        let error = download.finish().unwrap_err();
        assert!(
            matches!(&error, StoreError::Digest { expected, found } if *expected == good.digest && *found == Digest::of(b"evil"))
        );
        let mut download = begin();
        assert_eq!(download.length(), 0, "nothing of it is left");
        assert!(matches!(download.append(b"goods"), Err(StoreError::TooLong { size: 4, .. })));
        download.append(b"go").unwrap();
        let error = download.finish().unwrap_err();
        assert!(matches!(error, StoreError::Incomplete { length: 2, size: 4, .. }), "{error}");
        let mut download = begin();
        assert_eq!(download.length(), 2);
        download.restart().unwrap();
        download.append(b"good").unwrap();
        download.finish().unwrap();
        assert!(store.has_blob(&good.digest));
        assert!(matches!(store.put_small(&Digest::of(b"a"), b"b"), Err(StoreError::Digest { .. })));
        assert!(!store.has_blob(&Digest::of(b"a")));
    });
}

#[test]
fn small_blobs_are_looked_at_again_when_they_are_read() {
    on_its_own_disk(256, |dir| {
        let store = Store::open(dir, small_limits()).unwrap();
        let digest = Digest::of(b"{}");
        assert_eq!(store.manifest(&digest).unwrap(), None);
        store.put_small(&digest, b"{}").unwrap();
        store.put_small(&digest, b"{}").unwrap();
        assert_eq!(store.manifest(&digest).unwrap().as_deref(), Some(&b"{}"[..]));
        fs::write(dir.join("blobs").join(digest.hex()), b"[]").unwrap();
        assert_eq!(store.manifest(&digest).unwrap(), None);
        store.put_small(&digest, b"{}").unwrap();
        assert!(store.manifest(&digest).unwrap().is_some());
    });
}

#[test]
fn a_blob_that_the_disk_damaged_is_removed_and_named() {
    on_its_own_disk(256, |dir| {
        let store = Store::open(dir, small_limits()).unwrap();
        let archive = tar(&[file("a", "x")]);
        let packed = gzip(&archive);
        let blob = put(&store, &packed);
        let path = dir.join("blobs").join(blob.digest.hex());
        let mut bytes = packed.clone();
        bytes[30] ^= 1;
        fs::write(&path, bytes).unwrap();
        let layer = pumice_images::manifest::Layer { blob, compression: pumice_images::manifest::Compression::Gzip };
        let error = store.unpack(&layer, &Digest::of(&archive)).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        assert!(!path.exists());
        assert!(matches!(store.unpack(&layer, &Digest::of(&archive)), Err(StoreError::Missing { .. })));
        unpack(&store, &packed, &Digest::of(&archive)).unwrap();
    });
}

#[test]
fn a_reserve_of_the_disk_stays_free() {
    if !is_root() {
        return;
    }
    on_its_own_disk(20, |host| {
        let limits = Limits { reserve_percent: 50, ..small_limits() };
        let store = Store::open(&host.join("store"), limits).unwrap();
        let error = store.download(&Blob { digest: Digest::of(b"x"), size: 11 << 20 }, &Origin::Public).unwrap_err();
        assert!(error.is_for_want_of_room(), "{error}");
        assert!(error.to_string().contains("pumice image prune"), "{error}");
        // Larger than what its blob says of it.
        let archive = tar(&[file("zeros", vec![0; 15 << 20])]);
        let error = unpack(&store, &zstd(&archive), &Digest::of(&archive)).unwrap_err();
        assert!(error.is_for_want_of_room(), "{error}");
        assert_eq!(fs::read_dir(host.join("store/partial")).unwrap().count(), 0);
        let archive = tar(&[file("zeros", vec![0; 5 << 20])]);
        unpack(&store, &zstd(&archive), &Digest::of(&archive)).unwrap();
    });
}

#[test]
fn a_full_disk_leaves_nothing_and_is_told_apart() {
    if !is_root() {
        return;
    }
    on_its_own_disk(10, |host| {
        let store = Store::open(&host.join("store"), small_limits()).unwrap();
        let archive = tar(&[file("a", "x"), file("zeros", vec![0; 15 << 20])]);
        let error = unpack(&store, &zstd(&archive), &Digest::of(&archive)).unwrap_err();
        assert!(error.is_for_want_of_room(), "{}", text(&error));
        assert!(text(&error).contains("the disk"), "{}", text(&error));
        assert_eq!(fs::read_dir(host.join("store/partial")).unwrap().count(), 0);
        let twin = tar(&[file("a", "x")]);
        unpack(&store, &zstd(&twin), &Digest::of(&twin)).unwrap();
    });
}
