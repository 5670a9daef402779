//! Opening, changing, closing and opening again.

use std::os::unix::fs::PermissionsExt;

use pumice_faulty_disk::FaultyDisk;
use pumice_store::{ApplyError, Change, Draft, Expect, KeyError, OpenError, Options, Store, WatchError};

use crate::support::{block_on, create, delete, draft, key, open_on, pod, put, value};

#[test]
fn a_restart_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("a").join("b");
    let store = Store::open(&data, Options::default()).unwrap();
    let uid = store.uid().to_owned();
    let (last, lease) = block_on(async {
        store.apply(create(&pod("a"), "1")).await.unwrap();
        store.apply(create(&pod("b"), "1")).await.unwrap();
        store.apply(delete(&pod("a"), Expect::Any)).await.unwrap();
        let key = key("coordination.k8s.io/leases", "nodes", "n");
        let lease = store.apply(create(&key, "1")).await.unwrap();
        store.close().await.unwrap();
        store.close().await.unwrap();
        (store.revision(), lease)
    });
    let mode = std::fs::metadata(data.join("store.redb")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let store = Store::open(&data, Options::default()).unwrap();
    assert_eq!(store.uid(), uid);
    assert_eq!(store.revision(), last);
    assert_eq!(store.get(&lease.key), Some(lease));
    assert_eq!(store.get(&pod("a")), None);
    assert_eq!(store.count("pods", Some("default")), 1);
    assert_eq!(store.resources().len(), 2);
    // A watch from the last revision goes on; an older one must list again.
    assert!(store.watch("pods", None, Some(last)).is_ok());
    let error = store.watch("pods", None, Some(last - 1)).unwrap_err();
    assert_eq!(error, WatchError::Expired { requested: last - 1, oldest: last });
    block_on(store.close()).unwrap();
}

#[test]
fn a_second_opener_is_refused_until_the_first_closes() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    let error = Store::open(dir.path(), Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Lock(_)), "{error}");
    block_on(store.close()).unwrap();
    let again = Store::open(dir.path(), Options::default()).unwrap();
    block_on(again.close()).unwrap();
}

#[test]
fn expectations_decide_and_say_what_is_there() {
    let store = Store::in_memory(Options::default()).unwrap();
    block_on(async {
        let first = store.apply(create(&pod("a"), "1")).await.unwrap();
        assert_eq!(value(&first), "1");
        let error = store.apply(create(&pod("a"), "2")).await.unwrap_err();
        assert!(matches!(error, ApplyError::AlreadyExists(found) if found == first));
        let second = store.apply(put(&pod("a"), "2", Expect::Revision(first.revision))).await.unwrap();
        let stale = put(&pod("a"), "3", Expect::Revision(first.revision));
        assert!(matches!(store.apply(stale).await, Err(ApplyError::Conflict(found)) if found == second));
        for expect in [Expect::Any, Expect::Revision(1), Expect::Absent] {
            let error = store.apply(delete(&pod("b"), expect)).await.unwrap_err();
            assert!(matches!(error, ApplyError::NotFound(key) if key == pod("b")));
        }
        let error = store.apply(put(&pod("b"), "1", Expect::Any)).await.unwrap_err();
        assert!(matches!(error, ApplyError::NotFound(_)));
        let last = store.apply(delete(&pod("a"), Expect::Revision(second.revision))).await.unwrap();
        assert!(last.revision > second.revision);
        assert_eq!(store.get(&pod("a")), None);
    });
}

#[test]
fn a_batch_sees_itself_and_is_all_or_nothing() {
    let store = Store::in_memory(Options::default()).unwrap();
    block_on(async {
        let before = store.revision();
        let batch = vec![create(&pod("a"), "1"), create(&pod("b"), "1"), create(&pod("a"), "2")];
        assert!(matches!(store.apply_all(batch).await, Err(ApplyError::AlreadyExists(_))));
        assert_eq!((store.count("pods", None), store.revision()), (0, before));

        let batch = vec![
            create(&pod("a"), "1"),
            put(&pod("a"), "2", Expect::Revision(before + 1)),
            delete(&pod("a"), Expect::Any),
            create(&pod("a"), "3"),
        ];
        let objects = store.apply_all(batch).await.unwrap();
        let revisions: Vec<u64> = objects.iter().map(|object| object.revision).collect();
        assert_eq!(revisions, [before + 1, before + 2, before + 3, before + 4]);
        assert_eq!(store.get(&pod("a")).map(|object| value(&object)).as_deref(), Some("3"));
        let mut watch = store.watch("pods", None, Some(before)).unwrap();
        for revision in revisions {
            assert_eq!(watch.next().await.unwrap().object.revision, revision);
        }
        assert!(store.apply_all(Vec::new()).await.unwrap().is_empty());
    });
}

#[test]
fn limits_are_answered_not_stored() {
    let options = Options { body_bytes_max: 100, batch_changes_max: 2, ..Options::default() };
    let store = Store::in_memory(options).unwrap();
    block_on(async {
        let big = Change::Put { key: pod("a"), draft: Draft::new(vec![b'x'; 90], ""), expect: Expect::Absent };
        assert!(matches!(store.apply(big).await, Err(ApplyError::BodyTooLarge { limit: 100, .. })));
        let many = ["a", "b", "c"].map(|name| create(&pod(name), "1")).to_vec();
        let error = store.apply_all(many).await.unwrap_err();
        assert!(matches!(error, ApplyError::BatchTooLarge { changes: 3, limit: 2 }));
        let bad = Change::Put { key: pod("a\0b"), draft: draft("1"), expect: Expect::Absent };
        assert!(matches!(store.apply(bad).await, Err(ApplyError::Key(KeyError::HasNul { .. }))));
        assert_eq!(store.count("pods", None), 0);
    });
}

#[test]
fn after_close_changes_are_refused_and_watches_end() {
    let store = Store::in_memory(Options::default()).unwrap();
    block_on(async {
        store.apply(create(&pod("a"), "1")).await.unwrap();
        let mut watch = store.watch("pods", None, None).unwrap();
        let (end, closed) = tokio::join!(watch.next(), store.close());
        closed.unwrap();
        assert_eq!(end, Err(WatchError::Closed));
        assert!(matches!(store.apply(create(&pod("b"), "1")).await, Err(ApplyError::Closed)));
        assert!(matches!(store.watch("pods", None, None), Err(WatchError::Closed)));
        assert_eq!(store.count("pods", None), 1);
    });
}

/// The last handle to go ends the store as a close does, only without telling when.
#[test]
fn an_abandoned_store_frees_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    let mut watch = store.watch("pods", None, None).unwrap();
    let lease = key("coordination.k8s.io/leases", "nodes", "n");
    block_on(async {
        store.apply(create(&lease, "1")).await.unwrap();
        drop(store);
        assert_eq!(watch.next().await, Err(WatchError::Closed));
    });
    let store = loop {
        match Store::open(dir.path(), Options::default()) {
            Ok(store) => break store,
            Err(OpenError::Lock(_)) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    assert!(store.get(&lease).is_some());
    block_on(store.close()).unwrap();
}

/// Fifty callers at once must not cost fifty syncs.
#[test]
fn concurrent_changes_share_a_commit() {
    let disk = FaultyDisk::default();
    let store = open_on(&disk, Options::default());
    let before = disk.syncs();
    block_on(async {
        let keys: Vec<_> = (0..50).map(|number| pod(&format!("p{number}"))).collect();
        let mut tasks = tokio::task::JoinSet::new();
        for key in keys {
            let store = store.clone();
            tasks.spawn(async move { store.apply(create(&key, "1")).await.map(|object| object.revision) });
        }
        let mut revisions: Vec<u64> = tasks.join_all().await.into_iter().map(Result::unwrap).collect();
        revisions.sort_unstable();
        revisions.dedup();
        assert_eq!(revisions.len(), 50);
    });
    assert!(disk.syncs() - before < 25, "{} syncs", disk.syncs() - before);
    block_on(store.close()).unwrap();
}

#[test]
fn volatile_changes_need_no_sync_of_their_own() {
    let disk = FaultyDisk::default();
    let options = Options { volatile_delay: std::time::Duration::from_secs(3600), ..Options::default() };
    let store = open_on(&disk, options);
    let lease = key("coordination.k8s.io/leases", "nodes", "n");
    let seen = block_on(async {
        store.apply(create(&lease, "0")).await.unwrap();
        let before = disk.syncs();
        for number in 1..100 {
            store.apply(put(&lease, &number.to_string(), Expect::Any)).await.unwrap();
        }
        assert_eq!(disk.syncs(), before);
        store.revision()
    });
    // The power goes: the lease is stale, but its revisions are never given out again.
    let store = open_on(&disk.after_power_loss(0), Options::default());
    assert!(store.revision() >= seen);
    block_on(store.close()).unwrap();
}
