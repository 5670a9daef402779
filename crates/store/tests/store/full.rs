//! A disk without room, and one that fails to sync: typed answers, nothing lost, and on it goes.

use pumice_faulty_disk::FaultyDisk;
use pumice_store::{ApplyError, Expect, Options};

use crate::support::{block_on, create, delete, key, open_on, pod, put, value};

// INV-55
#[test]
fn a_full_disk_refuses_writes_and_serves_reads_until_there_is_room() {
    let disk = FaultyDisk::default();
    let store = open_on(&disk, Options::default());
    block_on(async {
        let first = store.apply(create(&pod("a"), "1")).await.unwrap();
        let mut watch = store.watch("pods", None, None).unwrap();

        disk.set_full(true);
        for _ in 0..3 {
            let error = store.apply(put(&pod("a"), "2", Expect::Any)).await.unwrap_err();
            assert!(matches!(error, ApplyError::Full(_)), "{error}");
            let error = store.apply_all(vec![create(&pod("b"), "1"), delete(&pod("a"), Expect::Any)]).await;
            assert!(matches!(error, Err(ApplyError::Full(_))), "{error:?}");
        }
        // What can be judged without the disk is.
        let error = store.apply(create(&pod("a"), "2")).await.unwrap_err();
        assert!(matches!(error, ApplyError::AlreadyExists(_)), "{error}");
        assert_eq!(store.get(&pod("a")).as_deref(), Some(&*first));
        assert_eq!(store.list("pods", None).items.len(), 1);
        assert_eq!(store.revision(), first.revision);
        assert_eq!(watch.try_next().unwrap(), None);

        disk.set_full(false);
        let second = store.apply(put(&pod("a"), "2", Expect::Revision(first.revision))).await.unwrap();
        assert!(second.revision > first.revision);
        assert_eq!(watch.next().await.unwrap().object, second);
        store.close().await.unwrap();
    });
    let store = open_on(&disk, Options::default());
    assert_eq!(store.get(&pod("a")).map(|object| value(&object)).as_deref(), Some("2"));
    assert_eq!(store.get(&pod("b")), None);
    block_on(store.close()).unwrap();
}

// INV-3
/// After a failed sync the change may be on the disk although it was answered as failed: the next
/// commit must take it back.
#[test]
fn a_change_answered_as_failed_does_not_come_back() {
    let disk = FaultyDisk::default();
    let store = open_on(&disk, Options::default());
    block_on(async {
        store.apply(create(&pod("kept"), "1")).await.unwrap();
        store.apply(create(&pod("replaced"), "1")).await.unwrap();
        for change in
            [delete(&pod("kept"), Expect::Any), put(&pod("replaced"), "2", Expect::Any), create(&pod("ghost"), "1")]
        {
            disk.fail_syncs(1);
            let error = store.apply(change).await.unwrap_err();
            assert!(matches!(error, ApplyError::Write(_)), "{error}");
        }
        store.apply(create(&pod("other"), "1")).await.unwrap();
    });
    // No close: the power goes, and everything synced must be right by itself.
    let disk = disk.after_power_loss(1);
    let store = open_on(&disk, Options::default());
    let names = |store: &pumice_store::Store| -> Vec<(String, String)> {
        let items = store.list("pods", None).items;
        items.iter().map(|object| (object.key.name.to_string(), value(object))).collect()
    };
    let expected = [("kept", "1"), ("other", "1"), ("replaced", "1")];
    assert_eq!(names(&store), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    block_on(store.close()).unwrap();
}

// INV-3
/// A change answered as failed may be on the disk: no revision above it is shown while it may be, or a watch that goes on from
/// there after the power is back misses it.
#[test]
fn no_revision_is_shown_above_a_change_that_may_be_on_the_disk() {
    let lease = key("coordination.k8s.io/leases", "nodes", "n1");
    let mut found = 0;
    for seed in 0..20 {
        let disk = FaultyDisk::default();
        let store = open_on(&disk, Options::default());
        let (after, shown) = block_on(async {
            // Sets revisions aside, so that the next volatile change needs no write of its own.
            store.apply(create(&lease, "1")).await.unwrap();
            store.flush().await.unwrap();
            disk.fail_syncs(1);
            store.apply(create(&pod("ghost"), "1")).await.unwrap_err();
            disk.fail_syncs(1);
            let error = store.apply(put(&lease, "2", Expect::Any)).await.unwrap_err();
            assert!(matches!(error, ApplyError::Write(_)), "{error}");
            let (after, shown) = (disk.after_power_loss(seed), store.revision());
            // Where the power stays, the next write takes back what failed.
            store.apply(put(&lease, "3", Expect::Any)).await.unwrap();
            store.close().await.unwrap();
            (after, shown)
        });
        let store = open_on(&after, Options::default());
        if let Some(ghost) = store.get(&pod("ghost")) {
            assert!(ghost.revision > shown, "seed {seed}: at {}, and {shown} was shown", ghost.revision);
            found += 1;
        }
        block_on(store.close()).unwrap();
    }
    assert!(found > 0, "no failed change was ever on the disk");
}

#[test]
fn volatile_changes_wait_for_room_without_a_new_request() {
    let disk = FaultyDisk::default();
    let options = Options { volatile_delay: std::time::Duration::from_millis(1), ..Options::default() };
    let store = open_on(&disk, options);
    let lease = key("coordination.k8s.io/leases", "nodes", "n1");
    block_on(async {
        // Sets revisions aside, so that the next volatile change needs no write.
        store.apply(create(&lease, "1")).await.unwrap();
        store.flush().await.unwrap();
        disk.set_full(true);
        store.apply(put(&lease, "2", Expect::Any)).await.unwrap();
        let error = store.flush().await.unwrap_err();
        assert!(matches!(error, ApplyError::Full(_)), "{error}");
        assert_eq!(store.get(&lease).map(|object| value(&object)).as_deref(), Some("2"));
        disk.set_full(false);
        let before = disk.syncs();
        while disk.syncs() == before {
            tokio::task::yield_now().await;
        }
        store.close().await.unwrap();
    });
    let store = open_on(&disk.after_power_loss(3), Options::default());
    assert_eq!(store.get(&lease).map(|object| value(&object)).as_deref(), Some("2"));
    block_on(store.close()).unwrap();
}

/// Who must renew a Lease to go on does so for as long as a disk is likely to be full, however much is refused meanwhile.
#[test]
fn volatile_changes_go_on_however_many_others_are_refused() {
    let disk = FaultyDisk::default();
    let store = open_on(&disk, Options::default());
    let lease = key("coordination.k8s.io/leases", "scheduling", "leader");
    block_on(async {
        store.apply(create(&lease, "0")).await.unwrap();
        // The last commit before the disk is full has no volatile change, and may come at any time.
        store.apply(create(&pod("a"), "0")).await.unwrap();
        for round in 1..100 {
            store.apply(put(&pod("a"), &round.to_string(), Expect::Any)).await.unwrap();
        }
        disk.set_full(true);
        for round in 1..=10_000 {
            store.apply(put(&pod("a"), "refused", Expect::Any)).await.unwrap_err();
            if round % 1_000 == 0 {
                store.apply(put(&lease, &round.to_string(), Expect::Any)).await.unwrap();
            }
        }
        disk.set_full(false);
        store.close().await.unwrap();
    });
}
