//! Watches that go on after the power went.

use std::time::Duration;

use pumice_faulty_disk::FaultyDisk;
use pumice_store::{Expect, Options, WatchError};

use crate::support::{block_on, key, open_on, put};

const LEASES: &str = "coordination.k8s.io/leases";

/// A volatile change takes a revision from those set aside on disk. The last of them was the revision that the next start
/// began with, so who had seen that change could go on from it, and never heard that it was lost.
#[test]
fn a_watch_does_not_go_on_from_a_lost_change() {
    let disk = FaultyDisk::default();
    let options = Options { volatile_delay: Duration::from_secs(3_600), ..Options::default() };
    let store = open_on(&disk, options.clone());
    let mut restarts = 0;
    block_on(async {
        store.apply(put(&key(LEASES, "nodes", "n"), "0", Expect::Absent)).await.unwrap();
        let begun = disk.syncs();
        let mut value = 0;
        loop {
            value += 1;
            let lost = store.apply(put(&key(LEASES, "nodes", "n"), &value.to_string(), Expect::Any)).await.unwrap();
            if disk.syncs() > begun {
                break;
            }
            if value % 4096 != 0 {
                continue;
            }
            restarts += 1;
            let after = open_on(&disk.after_power_loss(0), options.clone());
            assert!(after.revision() >= lost.revision);
            let watch = after.watch(LEASES, None, Some(lost.revision));
            assert!(matches!(watch, Err(WatchError::Expired { .. })), "change {value} was lost, its watch goes on");
        }
    });
    assert!(restarts > 0, "no change was answered before it was durable");
}
