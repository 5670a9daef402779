//! Which pods are bound, and which groups admitted, under limits of device classes, through whole cycles.

use crate::engine::tests::{Lab, group, pod};
use crate::facts::{Delta, DeviceClaimFacts, DeviceRequest, GroupFacts, GroupPhase, PodFacts, PodPhase, QueueFacts};

fn config(actions: &str, extra: &str) -> String {
    format!("actions: \"{actions}\"\ntiers:\n- plugins:\n  - name: gang\n  - name: capacity\n{extra}")
}

fn queue(lab: &mut Lab, name: &str, parent: &str, limits: &[(&str, i64)]) {
    lab.apply(Delta::QueueUpsert(QueueFacts {
        name: name.to_owned(),
        uid: name.to_owned(),
        parent: (!parent.is_empty()).then(|| parent.to_owned()),
        capability: limits.iter().map(|(class, count)| (format!("deviceclass/{class}"), *count)).collect(),
        ..QueueFacts::default()
    }));
}

/// A claim of so many devices of each class; 0 means all that match.
fn claim(lab: &mut Lab, name: &str, requests: &[(&str, u32)]) {
    let request = |(class, count): &(&str, u32)| DeviceRequest {
        class: (*class).to_owned(),
        count: *count,
        ..Default::default()
    };
    lab.apply(Delta::DeviceClaimUpsert(DeviceClaimFacts {
        namespace: "ns".into(),
        name: name.into(),
        requests: requests.iter().map(request).collect(),
        ..DeviceClaimFacts::default()
    }));
}

/// A group of one pod for each claim, which all have to start together.
fn gang(lab: &mut Lab, name: &str, queue: &str, phase: GroupPhase, claims: &[&str]) {
    let mut facts = GroupFacts { queue: queue.to_owned(), ..group(name, u32::try_from(claims.len()).unwrap()) };
    facts.status.phase = phase;
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
    for (index, claim) in claims.iter().enumerate() {
        lab.pod(claiming(name, u32::try_from(index).unwrap(), claim));
    }
}

fn claiming(group: &str, index: u32, claim: &str) -> PodFacts {
    let mut facts = pod(group, index, 1_000);
    facts.claims.devices = vec![claim.to_owned()];
    facts
}

type Requests = &'static [(&'static str, u32)];

/// What is told, the limits, the pods' claims, and the pods that are bound.
type Case =
    (&'static str, &'static [(&'static str, i64)], &'static [(&'static str, Requests)], &'static [&'static str]);

#[test]
fn a_queue_takes_no_more_devices_of_a_class_than_it_may() {
    const ONE: Requests = &[("gpu", 1)];
    let cases: [Case; 9] = [
        ("one is enough", &[("gpu", 1)], &[("a", ONE), ("b", ONE)], &["p0-0"]),
        (
            "classes apart",
            &[("gpu", 1), ("nic", 1)],
            &[("a", ONE), ("b", ONE), ("c", &[("nic", 1)])],
            &["p0-0", "p2-0"],
        ),
        ("class without a limit", &[("gpu", 1)], &[("a", ONE), ("b", &[("nic", 100)])], &["p0-0", "p1-0"]),
        ("limit of zero", &[("gpu", 0)], &[("a", ONE), ("b", ONE)], &["p0-0", "p1-0"]),
        ("shared claim", &[("gpu", 1)], &[("a", ONE), ("a", ONE)], &["p0-0", "p1-0"]),
        ("all that match", &[("gpu", 1)], &[("a", &[("gpu", 0)]), ("b", ONE)], &["p0-0", "p1-0"]),
        ("first available", &[("gpu", 1)], &[("a", &[]), ("b", ONE)], &["p0-0", "p1-0"]),
        ("too many at once", &[("gpu", 2)], &[("a", &[("gpu", 3)]), ("b", ONE)], &["p1-0"]),
        ("two requests", &[("gpu", 2)], &[("a", &[("gpu", 1), ("gpu", 2)]), ("b", ONE)], &["p1-0"]),
    ];
    for (what, limits, claims, binds) in cases {
        for (enabled, extra) in
            [(true, ""), (false, "    arguments:\n      capacity.DynamicResourceAllocationEnable: false\n")]
        {
            let mut lab = Lab::of(&config("allocate", extra), &[100_000]);
            queue(&mut lab, "q", "", limits);
            for (index, (name, requests)) in claims.iter().enumerate() {
                claim(&mut lab, name, requests);
                gang(&mut lab, &format!("p{index}"), "q", GroupPhase::Inqueue, &[name]);
            }
            if enabled {
                assert_eq!(lab.binds(), binds, "{what}");
            } else {
                assert_eq!(lab.binds().len(), claims.len(), "{what}, turned off");
            }
        }
    }
}

#[test]
fn the_reason_has_the_numbers_and_a_gang_is_not_begun() {
    let mut lab = Lab::of(&config("allocate", ""), &[100_000]);
    queue(&mut lab, "q", "", &[("gpu", 3)]);
    for name in ["a", "b"] {
        claim(&mut lab, name, &[("gpu", 2)]);
    }
    gang(&mut lab, "g", "q", GroupPhase::Inqueue, &["a", "b"]);
    assert_eq!(lab.binds(), [""; 0]);
    let told = "queue q is at its deviceclass/gpu limit: 2 of 3 in use, 2 asked for (short by 1)";
    assert!(lab.why("g").contains(told), "{}", lab.why("g"));
    // What was tried and taken back counts no more, and a claim that shrinks asks for less.
    claim(&mut lab, "b", &[("gpu", 1)]);
    assert_eq!(lab.binds(), ["g-0", "g-1"]);
}

#[test]
fn what_pods_leave_or_take_along_to_another_queue_counts_there_no_more() {
    let mut lab = Lab::of(&config("allocate", ""), &[100_000]);
    for name in ["from", "to"] {
        queue(&mut lab, name, "", &[("gpu", 1)]);
    }
    for name in ["a", "b", "c"] {
        claim(&mut lab, name, &[("gpu", 1)]);
    }
    gang(&mut lab, "first", "from", GroupPhase::Inqueue, &["a"]);
    assert_eq!(lab.binds(), ["first-0"]);
    gang(&mut lab, "second", "from", GroupPhase::Inqueue, &["b"]);
    gang(&mut lab, "third", "to", GroupPhase::Inqueue, &["c"]);
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { queue: "to".to_owned(), ..group("first", 1) })));
    assert_eq!(lab.binds(), ["second-0"]);
    let done = PodFacts { phase: PodPhase::Succeeded, node: Some("n0".into()), ..claiming("first", 0, "a") };
    lab.pod(done);
    assert_eq!(lab.binds(), ["third-0"]);
}

#[test]
fn limits_above_bind_all_below_together() {
    let mut lab = Lab::of(&config("allocate", "    enableHierarchy: true\n"), &[100_000]);
    queue(&mut lab, "root", "", &[]);
    queue(&mut lab, "team", "root", &[("gpu", 2)]);
    for name in ["left", "right"] {
        queue(&mut lab, name, "team", &[]);
    }
    for (name, count) in [("a", 1), ("b", 1), ("c", 1), ("shared", 1)] {
        claim(&mut lab, name, &[("gpu", count)]);
    }
    gang(&mut lab, "one", "left", GroupPhase::Inqueue, &["shared"]);
    gang(&mut lab, "two", "right", GroupPhase::Inqueue, &["shared"]);
    assert_eq!(lab.binds(), ["one-0", "two-0"]);
    gang(&mut lab, "three", "left", GroupPhase::Inqueue, &["a"]);
    assert_eq!(lab.binds(), ["three-0"]);
    gang(&mut lab, "four", "right", GroupPhase::Inqueue, &["b"]);
    assert_eq!(lab.binds(), [""; 0]);
    let told = "queue team is at its deviceclass/gpu limit: 2 of 2 in use, 1 asked for (short by 1)";
    assert!(lab.why("four").contains(told), "{}", lab.why("four"));
}

#[test]
fn groups_are_admitted_as_far_as_the_devices_go() {
    let mut lab = Lab::of(&config("enqueue", ""), &[100_000]);
    queue(&mut lab, "q", "", &[("gpu", 2)]);
    for name in ["a", "b", "c"] {
        claim(&mut lab, name, &[("gpu", 1)]);
    }
    gang(&mut lab, "g0", "q", GroupPhase::Pending, &["a"]);
    gang(&mut lab, "g1", "q", GroupPhase::Pending, &["b"]);
    gang(&mut lab, "g2", "q", GroupPhase::Pending, &["c"]);
    gang(&mut lab, "g3", "q", GroupPhase::Pending, &["a"]);
    assert_eq!(lab.cycle().admitted, ["ns/g0", "ns/g1", "ns/g3"]);
    let told = "queue q is at its deviceclass/gpu limit: 2 of 2 in use, 1 asked for (short by 1)";
    assert!(lab.why("g2").contains(told), "{}", lab.why("g2"));
}
