//! A World that was saved and loaded goes on as the one it was.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::laws::{Event, play, some_event, step};
use super::*;

/// Events whose pods are tied to others besides: apart by host, spread over zones, with claims for volumes and devices;
/// and what those are about.
pub(super) fn tied_event() -> impl Strategy<Value = Event> {
    let tied = (some_event(), 0..6_u32).prop_map(|(event, tie)| match event {
        Event::Apply(delta) => Event::Apply(Box::new(match *delta {
            Delta::TaskUpsert(facts) => Delta::TaskUpsert(Box::new(tie_pod(*facts, tie))),
            Delta::NodeUpsert(mut facts) => {
                facts.labels.insert("zone".to_owned(), format!("z{}", tie % 2));
                facts.images.insert("image".to_owned(), i64::from(tie) << 27);
                Delta::NodeUpsert(facts)
            }
            other => other,
        })),
        other => other,
    });
    let claim = |name: u32, bound: bool| {
        let (namespace, name) = ("ns".to_owned(), format!("claim-{name}"));
        let volume = if bound { "volume".to_owned() } else { String::new() };
        let facts = VolumeClaimFacts { namespace, name, volume, bound, bytes: 1 << 20, ..VolumeClaimFacts::default() };
        Event::Apply(Box::new(Delta::VolumeClaimUpsert(facts)))
    };
    let volume = |name: u32| {
        let facts = VolumeFacts { name: format!("volume-{name}"), bytes: 1 << 30, ..VolumeFacts::default() };
        Event::Apply(Box::new(Delta::VolumeUpsert(facts)))
    };
    let weight = |weight: i64, labelled: bool| {
        let labels = if labelled { [("team".to_owned(), "a".to_owned())].into() } else { BTreeMap::new() };
        let delta = Delta::NamespaceUpsert { name: "ns".to_owned(), weight, labels, queue: None };
        Event::Apply(Box::new(delta))
    };
    prop_oneof![
        12 => tied,
        1 => (0..2_u32, any::<bool>()).prop_map(move |(name, bound)| claim(name, bound)),
        1 => (0..2_u32).prop_map(volume),
        1 => (1..4_i64, any::<bool>()).prop_map(move |(heavy, labelled)| weight(heavy, labelled)),
    ]
}

fn tie_pod(mut facts: PodFacts, tie: u32) -> PodFacts {
    facts.labels.insert("app".to_owned(), format!("app-{}", tie % 2));
    let requirement =
        Requirement { key: "app".to_owned(), operator: Operator::In, values: vec![format!("app-{}", tie % 2)] };
    let labels = Some(LabelSelector { requirements: vec![requirement] });
    let pods = PodSelector { namespaces: vec!["ns".to_owned()], labels, ..PodSelector::default() };
    let term = |key: &str| PodTerm { pods: pods.clone(), topology_key: key.to_owned() };
    let inter_pod = &mut facts.template.inter_pod;
    match tie {
        1 => inter_pod.anti_affinity.push(term("zone")),
        2 => inter_pod.affinity.push(term("zone")),
        3 => inter_pod.preferred.push(PreferredPodTerm { weight: 50, term: term("zone") }),
        4 => inter_pod.spread.push(SpreadConstraint {
            term: term("zone"),
            max_skew: 1,
            hard: true,
            ..SpreadConstraint::default()
        }),
        5 => facts.claims.volumes.push("claim-0".to_owned()),
        _ => facts.template.images.push("image".to_owned()),
    }
    facts
}

/// The same world, through its bytes.
fn again(lab: &mut Lab) -> Lab {
    let saved = lab.world.save();
    lab.world.forget();
    let world = World::load(lab.world.config.clone(), lab.world.registry.clone(), &saved).unwrap();
    assert!(world.save() == saved, "nothing is lost, and equal worlds have equal bytes");
    assert_eq!(world.digest(), lab.world.digest());
    Lab { world, now: lab.now }
}

/// Both get the same and are to decide the same.
fn together(mut one: Lab, mut other: Lab, events: &[Event]) {
    for event in events {
        let (plan, same) = (step(&mut one, event), step(&mut other, event));
        assert_eq!(plan, same, "after {event:?}");
        assert_eq!(one.world.digest(), other.world.digest(), "after {event:?}");
    }
    assert!(one.world.save() == other.world.save(), "also in what they would tell");
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn a_loaded_world_goes_on_as_the_saved_one(
        before in proptest::collection::vec(tied_event(), 0..60),
        after in proptest::collection::vec(tied_event(), 1..60),
    ) {
        let mut lab = play(&before);
        let loaded = again(&mut lab);
        together(lab, loaded, &after);
    }

    #[test]
    fn any_bytes_give_an_error_or_a_world(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in any::<usize>()) {
        let load = |bytes: &[u8]| World::load(Config::default(), crate::plugin::Registry::default(), bytes).is_ok();
        prop_assert!(!load(&bytes));
        let mut saved = play(&[]).world.save();
        let at = at % saved.len();
        let _ = load(&saved[..at]);
        prop_assert!(!load(&saved[..at]), "cut off");
        saved[at] ^= bytes.first().copied().unwrap_or(1);
        let _ = load(&saved);
        saved.push(0);
        let _ = load(&saved);
    }
}

#[test]
fn what_follows_a_world_is_refused() {
    let mut saved = play(&[]).world.save();
    saved.push(0);
    let loaded = World::load(Config::default(), crate::plugin::Registry::default(), &saved);
    assert_eq!(loaded.map(drop), Err(LoadError::Rest { bytes: 1 }));
}

#[test]
fn another_versions_rows_are_named() {
    let mut saved = World::new(Config::default()).save();
    saved[0] ^= 1;
    let loaded = World::load(Config::default(), crate::plugin::Registry::default(), &saved);
    assert_eq!(loaded.map(drop), Err(LoadError::Row { row: "Tables" }));
}
