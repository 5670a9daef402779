//! Backups: what was at a revision comes back, and the new life does not touch the old one's revisions.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use pumice_store::{
    BackupDecoder, BackupEncoder, BackupError, BackupFrame, BackupHeader, DirectoryLock, Expect, Key, Object, Options,
    RESTORE_SKIPS, Range, Restore, Snapshot, Store, WatchError, holds_store,
};

use crate::support::{block_on, create, delete, key, pod, put, value};

fn write(snapshot: &Snapshot) -> Vec<u8> {
    let header = BackupHeader {
        uid: snapshot.uid.to_string(),
        revision: snapshot.revision,
        created_seconds: 0,
        made_by: "test".to_owned(),
    };
    let mut out = Vec::new();
    let mut encoder = BackupEncoder::begin(&header, &mut out);
    snapshot.objects.iter().for_each(|object| encoder.object(object, &mut out));
    encoder.end(&mut out);
    out
}

fn restore(bytes: &[u8], directory: &Path) -> Result<u64, BackupError> {
    let mut decoder = BackupDecoder::default();
    let mut lock = Some(DirectoryLock::acquire(directory).unwrap());
    let mut restore = None;
    for piece in bytes.chunks(1000) {
        decoder.push(piece);
        while let Some(frame) = decoder.next_frame()? {
            match frame {
                BackupFrame::Header(header) => {
                    let lock = lock.take().unwrap();
                    restore = Some(Restore::begin(directory, lock, &header.uid, header.revision).unwrap());
                }
                BackupFrame::Object(object) => restore.as_mut().unwrap().put(object).unwrap(),
                BackupFrame::File { .. } | BackupFrame::End { .. } => {}
            }
        }
    }
    decoder.finish()?;
    Ok(restore.unwrap().finish().unwrap())
}

fn everything(store: &Store) -> BTreeMap<Key, Object> {
    let objects = store.resources().into_iter().flat_map(|resource| store.list(&resource, None).items);
    objects.map(|object| (object.key.clone(), Object::clone(&object))).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Backup,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..24_u8, any::<u8>()).prop_map(|(name, value)| Step::Put(name, value)),
        3 => (0..24_u8).prop_map(Step::Delete),
        1 => Just(Step::Backup),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Names of several resources and namespaces, volatile ones among them.
fn named(number: u8) -> Key {
    let resource = ["pods", "nodes", "events", "batch.volcano.sh/jobs"][usize::from(number % 4)];
    let namespace = if resource == "nodes" { "" } else { ["a", "b"][usize::from(number / 4 % 2)] };
    key(resource, namespace, &format!("n{}", number / 8))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn random_writes_come_back_as_they_were_at_the_revision(steps in steps()) {
        let directory = tempfile::tempdir().unwrap();
        let (backups, uid) = block_on(async {
            let store = Store::open(&directory.path().join("old"), Options::default()).unwrap();
            let mut backups = Vec::new();
            for step in steps.iter().chain([&Step::Backup]) {
                match step {
                    Step::Put(name, value) => {
                        let key = named(*name);
                        let expect = if store.get(&key).is_some() { Expect::Any } else { Expect::Absent };
                        store.apply(put(&key, &value.to_string(), expect)).await.unwrap();
                    }
                    Step::Delete(name) => {
                        let _ = store.apply(delete(&named(*name), Expect::Any)).await;
                    }
                    Step::Backup => backups.push((store.snapshot(), everything(&store), store.revision())),
                }
            }
            store.close().await.unwrap();
            (backups, store.uid().to_owned())
        });
        // Written when all is over: a snapshot is of its own moment.
        for (number, (snapshot, wanted, revision)) in backups.iter().enumerate().rev().take(3) {
            let restored = directory.path().join(number.to_string());
            std::fs::create_dir(&restored).unwrap();
            let first = restore(&write(snapshot), &restored).unwrap();
            prop_assert_eq!(first, revision + RESTORE_SKIPS);
            let store = Store::open(&restored, Options::default()).unwrap();
            prop_assert_eq!((store.uid(), store.revision()), (&*uid, first));
            prop_assert_eq!(&everything(&store), wanted);
            block_on(store.close()).unwrap();
        }
    }
}

// INV-2
#[test]
fn watchers_and_pages_of_the_old_life_must_list_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("old"), Options::default()).unwrap();
    let (bytes, late) = block_on(async {
        store.apply(create(&pod("a"), "1")).await.unwrap();
        let bytes = write(&store.snapshot());
        // The old life goes on for a while.
        let late = store.apply(put(&pod("a"), "2", Expect::Any)).await.unwrap().revision;
        store.close().await.unwrap();
        (bytes, late)
    });
    let restored = directory.path().join("new");
    std::fs::create_dir(&restored).unwrap();
    let first = restore(&bytes, &restored).unwrap();
    let store = Store::open(&restored, Options::default()).unwrap();
    for old in [1, late - 1, late, late + 1_000_000_000] {
        for resource in ["pods", "never-seen"] {
            let error = store.watch(resource, None, Some(old)).unwrap_err();
            assert_eq!(error, WatchError::Expired { requested: old, oldest: first }, "{resource}");
        }
        let range = Range { revision: Some(old), ..Range::default() };
        assert!(matches!(store.page("pods", range, 10), Err(WatchError::Expired { .. })), "{old}");
    }
    block_on(async {
        let found = store.get(&pod("a")).unwrap();
        assert_eq!(value(&found), "1");
        // Who knows the object of the old life is refused, who knows this one is not.
        assert!(store.apply(put(&pod("a"), "3", Expect::Revision(late))).await.is_err());
        let next = store.apply(put(&pod("a"), "3", Expect::Revision(found.revision))).await.unwrap();
        assert_eq!(next.revision, first + 1);
        store.close().await.unwrap();
    });
}

#[test]
fn a_restore_that_breaks_off_leaves_no_store() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = block_on(async {
        let store = Store::in_memory(Options::default()).unwrap();
        for number in 0..50 {
            store.apply(create(&pod(&number.to_string()), "1")).await.unwrap();
        }
        write(&store.snapshot())
    });
    assert!(restore(&bytes[..bytes.len() - 1], directory.path()).is_err());
    assert!(!holds_store(directory.path()));
    restore(&bytes, directory.path()).unwrap();
    assert!(holds_store(directory.path()));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(directory.path().join("store.redb")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let names = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["lock", "store.redb"]);
}

/// `cargo test --workspace --release --test store -- --ignored --nocapture figures`
#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_methods)] // it is about time
fn figures_of_a_large_backup() {
    const PODS: usize = 100_000;
    let body = format!("\"{}\"", "x".repeat(4_000));
    let store = Store::in_memory(Options::default()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        for chunk in (0..PODS).collect::<Vec<_>>().chunks(5_000) {
            let changes = chunk.iter().map(|number| create(&pod(&number.to_string()), &body)).collect();
            store.apply_all(changes).await.unwrap();
        }
    });
    // A writer that never rests: its longest wait is what a backup costs others.
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (busy, ended) = (store.clone(), stop.clone());
    let writer = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut waits: Vec<Duration> = Vec::new();
        while !ended.load(std::sync::atomic::Ordering::Relaxed) {
            let begun = Instant::now();
            runtime.block_on(busy.apply(put(&pod("7"), "1", Expect::Any))).unwrap();
            waits.push(begun.elapsed());
        }
        waits.sort_unstable();
        waits
    });
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    let snapshot = store.snapshot();
    let copied = begun.elapsed();
    let bytes = write(&snapshot);
    let written = begun.elapsed();
    std::thread::sleep(Duration::from_millis(100));
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let waits = writer.join().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    restore(&bytes, directory.path()).unwrap();
    println!(
        "{PODS} pods: the list copied in {copied:?}, encoded in {:?}, {} MB; writes meanwhile: {} at {:?} in the middle, \
         {:?} at most; restored in {:?}",
        written - copied,
        bytes.len() >> 20,
        waits.len(),
        waits[waits.len() / 2],
        waits[waits.len() - 1],
        begun.elapsed()
    );
}
