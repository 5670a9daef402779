//! The format: what goes in comes out, equal content has equal roots, nothing damaged is given out.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use futures::executor::block_on;
use proptest::prelude::*;
use pumice_jobs::bundle::chunk::STORED_BYTES_MAX;
use pumice_jobs::bundle::tree::{
    ATTACHMENTS_MAX, INLINE_BYTES_MAX, KEY_BYTES_MAX, LEAF_BYTES_MAX, PIECE_BYTES_MAX, VALUE_BYTES_MAX,
};
use pumice_jobs::bundle::{Bundle, BundleError, BundleWriter, ChunkId, Memory, Name, Recorder, Status, Store};

use crate::support::{dump, entry, memory, pack, rows, slice, told};

/// Sizes around every bound, and small ones.
fn size() -> impl Strategy<Value = usize> {
    let around = |bound: usize| bound - 2..bound + 3;
    prop_oneof![
        8 => 0_usize..400,
        2 => around(INLINE_BYTES_MAX),
        1 => around(LEAF_BYTES_MAX),
        1 => around(PIECE_BYTES_MAX),
        1 => around(2 * PIECE_BYTES_MAX),
    ]
}

/// Bytes of a length that are like no others.
fn content(seed: usize, length: usize) -> Bytes {
    let mut state = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend(state.to_be_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn what_goes_in_comes_out(sizes in proptest::collection::vec(size(), 0..60), attached in size()) {
        let values: Vec<Bytes> = sizes.iter().enumerate().map(|(seed, size)| content(seed, *size)).collect();
        let blob = content(usize::MAX, attached);
        let attachments: &[(&str, &[u8])] = &[("function", &blob)];
        block_on(async {
            let store = memory();
            let packed = pack(store.clone(), values.clone(), attachments).await.unwrap();
            prop_assert_eq!(packed.records, values.len() as u64);
            let stored = store.objects();
            prop_assert!(stored.values().all(|bytes| bytes.len() <= STORED_BYTES_MAX));
            prop_assert!(packed.bytes >= stored.values().map(|bytes| bytes.len() as u64).sum());

            let bundle = Bundle::open(store.clone(), packed.root).await.unwrap();
            let all: Vec<_> = bundle.range(0..bundle.records()).try_collect().await.unwrap();
            prop_assert_eq!(all.len(), values.len());
            for (number, (record, value)) in all.iter().zip(&values).enumerate() {
                prop_assert_eq!(&record.value, value);
                prop_assert_eq!(&record.key, &number.to_string());
                prop_assert_eq!(record, &bundle.record(number as u64).await.unwrap());
            }
            let mut out = Vec::new();
            prop_assert_eq!(bundle.attachment("function", &mut out).await.unwrap(), attached as u64);
            prop_assert_eq!(&out, &blob);

            // Again, into the same place: nothing new.
            let again = pack(store.clone(), values, attachments).await.unwrap();
            prop_assert_eq!((again.root, again.reused_bytes), (packed.root, packed.bytes));
            prop_assert_eq!(store.objects(), stored);
            Ok(())
        })?;
    }

    #[test]
    fn no_bytes_make_it_panic(at in 0_usize..200, byte: u8, cut in 0_usize..200) {
        block_on(async {
            let store = memory();
            let packed = pack(store.clone(), [content(1, 10), content(2, 10)], &[("a", b"b")]).await.unwrap();
            let mut root = store.objects()[&Name::Chunk(packed.root)].to_vec();
            let at = at % root.len();
            root[at] = byte;
            root.truncate(root.len() - cut % root.len());
            let id = ChunkId::of(&root);
            store.create(Name::Chunk(id), root.into()).await.unwrap();
            if let Ok(bundle) = Bundle::open(store, id).await {
                let _ = bundle.range(0..bundle.records().min(9)).try_collect::<Vec<_>>().await;
                let _ = bundle.attachment("a", &mut Vec::new()).await;
            }
        });
    }
}

#[test]
fn a_hundred_megabytes_have_two_levels_of_index() {
    block_on(async {
        // Three of the largest values that stand in a leaf fill it.
        let records = 3 * 1025;
        let value = content(0, INLINE_BYTES_MAX);
        let store = memory();
        let packed = pack(store.clone(), std::iter::repeat_n(value.clone(), records), &[]).await.unwrap();
        let bundle = Bundle::open(store.clone(), packed.root).await.unwrap();
        for number in [0, 1, 3 * 1024 - 1, 3 * 1024, records as u64 - 1] {
            let record = bundle.record(number).await.unwrap();
            assert_eq!((record.key, record.value), (number.to_string(), value.clone()));
        }
        let keys = bundle.keys([5, 3074, 0]).await.unwrap();
        assert_eq!(keys, ["5", "3074", "0"]);
        match bundle.record(records as u64).await {
            Err(error @ BundleError::NoRecord { .. }) => {
                assert!(told(error).contains("it has 3075, counted from 0"));
            }
            other => panic!("{other:?}"),
        }
        // 1,025 leaves, two index nodes of the first level, one of the second, the root.
        assert_eq!(packed.chunks, 1025 + 2 + 1 + 1);
    });
}

#[test]
fn format_1_is_what_it_was() {
    block_on(async {
        let store = memory();
        let records = [Bytes::from_static(b"{\"alpha\":1}"), Bytes::from_static(b"{\"alpha\":2}")];
        let packed = pack(store.clone(), records, &[("function", b"pickled"), ("modules", b"")]).await.unwrap();
        let mut recorder = Recorder::open(store.clone(), slice(2), 1).await.unwrap();
        recorder.record(0, "0", Status::Succeeded, Bytes::from_static(b"0.5")).await.unwrap();
        recorder.record(1, "1", Status::Failed, Bytes::from_static(b"ValueError")).await.unwrap();
        recorder.flush().await.unwrap();
        insta::assert_snapshot!(format!("root {}\n{}", packed.root, dump(&store)));
    });
}

/// Large things are held by their ids: these change when anything about them does.
#[test]
fn roots_of_format_1_are_what_they_were() {
    block_on(async {
        let mut lines = String::new();
        for (name, sizes, attached) in [
            ("empty", vec![], 0),
            ("one leaf", vec![10; 100], 10),
            ("leaves", vec![1000; 2000], PIECE_BYTES_MAX),
            ("blobs", vec![INLINE_BYTES_MAX + 1, 3 * PIECE_BYTES_MAX], 2 * PIECE_BYTES_MAX + 1),
        ] {
            let records = sizes.iter().enumerate().map(|(seed, size)| content(seed, *size));
            let blob = content(7, attached);
            let packed = pack(memory(), records, &[("blob", &blob)]).await.unwrap();
            let _ = writeln!(lines, "{name}: {} in {} chunks of {} bytes", packed.root, packed.chunks, packed.bytes);
        }
        insta::assert_snapshot!(lines);
    });
}

/// Reads all there is to read.
async fn read_all(store: Arc<Memory>, root: ChunkId) -> Result<(), BundleError> {
    let bundle = Bundle::open(store, root).await?;
    bundle.range(0..bundle.records()).try_collect::<Vec<_>>().await?;
    for name in bundle.attachments().map(|(name, _)| name.to_owned()).collect::<Vec<_>>() {
        bundle.attachment(&name, &mut Vec::new()).await?;
    }
    Ok(())
}

// INV-45
#[test]
fn nothing_damaged_is_given_out() {
    block_on(async {
        let store = memory();
        let values =
            [content(1, 2 * PIECE_BYTES_MAX), content(2, LEAF_BYTES_MAX - 9), content(3, 9), content(4, 40_000)];
        let attached = content(5, PIECE_BYTES_MAX + 1);
        let pack = async || pack(store.clone(), values.clone(), &[("a", &attached)]).await;
        let packed = pack().await.unwrap();
        read_all(store.clone(), packed.root).await.unwrap();
        let stored = store.objects();
        assert!(stored.len() > 8, "each kind of chunk is there");
        let other = stored.values().next().unwrap().clone();
        for (name, bytes) in stored {
            let mut flipped = bytes.to_vec();
            *flipped.last_mut().unwrap() ^= 1;
            let swapped = if bytes == other { Bytes::new() } else { other.clone() };
            for damaged in [flipped.into(), swapped, bytes.slice(..bytes.len() - 1)] {
                store.damage(name.clone(), Some(damaged));
                let text = told(read_all(store.clone(), packed.root).await.unwrap_err());
                assert!(text.starts_with(&format!("{name} in memory is damaged")), "{text}");
                let text = told(pack().await.unwrap_err());
                assert!(text.contains("is damaged; delete it"), "{text}");
            }
            store.damage(name.clone(), None);
            let text = told(read_all(store.clone(), packed.root).await.unwrap_err());
            assert!(text.starts_with(&format!("{name} is missing in memory")), "{text}");
            store.damage(name, Some(bytes));
        }
        read_all(store, packed.root).await.unwrap();
    });
}

// INV-61
#[test]
fn a_newer_version_is_refused_as_such() {
    block_on(async {
        let store = memory();
        let packed = pack(store.clone(), [], &[]).await.unwrap();
        let mut root = store.objects()[&Name::Chunk(packed.root)].to_vec();
        root[4] = 2;
        let id = ChunkId::of(&root);
        store.create(Name::Chunk(id), root.into()).await.unwrap();
        let text = told(Bundle::open(store.clone(), id).await.unwrap_err());
        assert!(text.contains("version 2 of the format") && text.contains("newer pumice"), "{text}");

        let mut recorder = Recorder::open(store.clone(), slice(1), 1).await.unwrap();
        recorder.record(0, "0", Status::Succeeded, Bytes::new()).await.unwrap();
        recorder.flush().await.unwrap();
        let mut bytes = store.objects()[&entry(0)].to_vec();
        bytes[4] = 3;
        store.damage(entry(0), Some(bytes.into()));
        let text = told(Recorder::open(store, slice(1), 2).await.unwrap_err());
        assert!(text.contains("version 3 of the format"), "{text}");
    });
}

#[test]
fn what_is_too_large_is_refused_by_name() {
    block_on(async {
        let refused = async |key: &str, value: Bytes| {
            let mut writer = BundleWriter::new(memory());
            told(writer.record(key, value).await.unwrap_err())
        };
        let text = refused(&"k".repeat(KEY_BYTES_MAX as usize + 1), Bytes::new()).await;
        assert!(text.contains("record 0 (kkk") && text.contains("bytes of a key: 257, and at most 256"), "{text}");
        let text = refused("7", Bytes::from(vec![0; VALUE_BYTES_MAX as usize + 1])).await;
        assert!(text.contains("record 0 (7)") && text.contains("at most 67108864"), "{text}");

        let mut writer = BundleWriter::new(memory());
        for number in 0..ATTACHMENTS_MAX {
            writer.attach(&number.to_string(), &mut std::io::empty()).await.unwrap();
        }
        let text = told(writer.attach("more", &mut std::io::empty()).await.unwrap_err());
        assert!(text.contains("attachment more") && text.contains("at most 64"), "{text}");
        let mut writer = BundleWriter::new(memory());
        writer.attach("a", &mut std::io::empty()).await.unwrap();
        assert!(told(writer.attach("a", &mut std::io::empty()).await.unwrap_err()).contains("stands there twice"));
        assert!(rows(memory(), 3).await.iter().all(|row| row.outcome.is_none()));
    });
}
