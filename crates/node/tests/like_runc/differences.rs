//! What differs, and why.

use std::collections::BTreeMap;

use crate::{Properties, USERS};

/// Differences at most, of both lists.
const DIFFERENCES_MAX: usize = 10;

/// Properties that differ by intent, with the reason.
const EXPLAINED: [(&str, &str); 10] = [
    ("call.set_mempolicy", "memory policies are about a program's own memory, and `numactl` sets them"),
    (
        "end.container by-its-own-signal",
        "process 1 is the platform's, so that a program dies of a signal as it does outside of a container",
    ),
    (
        "group.devices.list",
        "no nodes of devices are made, not even of those that may be opened; tunnels are for who names them",
    ),
    ("groups", "a pod has groups of the controllers that limit it, and shares the others with its node"),
    ("mount./", "a device whose node lies in the root can't be opened"),
    ("mount./dev/shm", "programs may map code there; it may grow as the pod's memory may"),
    ("mount./etc/resolv.conf", "whom the pod asks for addresses is not for its programs to say"),
    ("mount./sys/fs/cgroup", "a pod does not see control groups"),
    ("process.numbers", "process 1 is the platform's: it passes signals on and reaps orphans"),
    ("process.oom_score_adj", "the kubelet weighs by classes of service; here each container has a limit of its own"),
];
/// Properties that differ and shall not, with what mends them.
const TO_MEND: [(&str, &str); 0] = [];

/// What differs, by the property: for each user that it differs for, a line with both values.
pub fn compare(ours: &[Properties], theirs: &[Properties]) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((ours, theirs), user) in ours.iter().zip(theirs).zip(USERS) {
        let names = ours.keys().chain(theirs.keys());
        let differing = names.filter(|name| ours.get(*name) != theirs.get(*name));
        for name in differing {
            let line = format!("user {user}: pod {:?}, runc {:?}", ours.get(name), theirs.get(name));
            let lines = found.entry(name.clone()).or_default();
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    found
}

/// Prints the differences, and fails unless they are those of the lists.
pub fn judge(found: &BTreeMap<String, Vec<String>>) {
    let listed: BTreeMap<_, _> = EXPLAINED.into_iter().chain(TO_MEND).collect();
    let mut failures = Vec::new();
    for (name, lines) in found {
        println!("{name}: {}", listed.get(name.as_str()).unwrap_or(&"not explained"));
        lines.iter().for_each(|line| println!("    {line}"));
        if !listed.contains_key(name.as_str()) {
            failures.push(format!("{name} differs: {lines:?}"));
        }
    }
    let gone = listed.keys().filter(|name| !found.contains_key(**name));
    failures.extend(gone.map(|name| format!("{name} is no difference any more: take it off the list")));
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(found.len() <= DIFFERENCES_MAX, "{} differences", found.len());
}
