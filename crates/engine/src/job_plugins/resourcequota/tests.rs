//! Cases of resourcequota.

use super::*;
use crate::engine::tests::{Lab, group, resources};
use crate::facts::{Delta, GroupFacts, GroupStatus};
use crate::resource_dims::Resources;

const CONFIG: &str = "actions: enqueue\ntiers:\n- plugins:\n  - name: gang\n  - name: resourcequota\n";

fn quota(lab: &mut Lab, namespace: &str, hard: &[(&str, i64)], used: &[(&str, i64)]) {
    let map =
        |pairs: &[(&str, i64)]| pairs.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect::<Resources>();
    let (namespace, name) = (namespace.to_owned(), "rq".to_owned());
    lab.apply(Delta::QuotaUpsert(QuotaFacts { namespace, name, hard: map(hard), used: map(used) }));
}

fn pending(lab: &mut Lab, name: &str, cpu: i64) {
    let min_resources = Some(resources(cpu));
    let created = TimeMs(lab.world.groups().count() as i64);
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts {
        created,
        min_resources,
        status: GroupStatus::default(),
        ..group(name, 1)
    })));
}

#[test]
fn every_quota_of_the_namespace_counts() {
    for (name, namespace, hard, used, admitted) in [
        ("no quota of the namespace", "other", &[("cpu", 0)][..], &[][..], 3),
        ("by its plain name", "ns", &[("cpu", 2_000)], &[], 2),
        ("by requests", "ns", &[("requests.cpu", 2_000)], &[], 2),
        ("beside what is used", "ns", &[("cpu", 2_000)], &[("cpu", 1_000)], 1),
        ("what is not known here", "ns", &[("limits.cpu", 0), ("count/pods", 0)], &[], 3),
        ("what is not asked for", "ns", &[("memory", 0)], &[], 3),
    ] {
        let mut lab = Lab::of(CONFIG, &[10_000]);
        quota(&mut lab, namespace, hard, used);
        for group in ["a", "b", "c"] {
            pending(&mut lab, group, 1_000);
        }
        assert_eq!(lab.cycle().admitted.len(), admitted, "{name}");
    }
}

/// Volcano forgets at the end of a session what it has admitted, until the pods are there.
#[test]
fn what_was_admitted_earlier_counts_until_its_pods_are_there() {
    let mut lab = Lab::of(CONFIG, &[10_000]);
    quota(&mut lab, "ns", &[("cpu", 1_000)], &[]);
    pending(&mut lab, "a", 1_000);
    assert_eq!(lab.cycle().admitted, ["ns/a"]);
    pending(&mut lab, "b", 1_000);
    assert_eq!(lab.cycle().admitted, [""; 0]);
    assert_eq!(lab.why("b").lines().next(), Some("quota rq leaves too little cpu: 1 of 1 used, 1 asked for"));
    // Its pod is made: from now on the quota itself counts it.
    lab.pod(crate::engine::tests::pod("a", 0, 1_000));
    quota(&mut lab, "ns", &[("cpu", 1_000)], &[("cpu", 1_000)]);
    assert_eq!(lab.cycle().admitted, [""; 0]);
    lab.apply(Delta::TaskRemove("uid-a-0".into()));
    lab.apply(Delta::GroupRemove { namespace: "ns".to_owned(), name: "a".to_owned(), uid: "".into() });
    quota(&mut lab, "ns", &[("cpu", 1_000)], &[]);
    assert_eq!(lab.cycle().admitted, ["ns/b"]);
}
