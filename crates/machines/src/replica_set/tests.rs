//! ReplicaSets of a small cluster.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::workload::world::World;

fn set(replicas: i32, extra: Value) -> ReplicaSet {
    let mut set = json!({"metadata": {"name": "r", "namespace": "n", "uid": "u", "generation": 1}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}}});
    set["spec"].as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    serde_json::from_value(set).unwrap()
}

/// Steps once and does what is wanted; says whether anything was.
fn step_in(world: &mut World, set: &mut ReplicaSet) -> bool {
    let seen = world.seen();
    let plan = step(&SetView { set, pods: seen.iter().collect(), refused: None }, world.now);
    let is_idle = plan.status.is_none() && plan.pods.is_empty();
    if let Some(status) = plan.status {
        set.status = Some(*status);
    }
    plan.pods.into_iter().for_each(|effect| world.apply(effect));
    !is_idle
}

fn settle(world: &mut World, set: &mut ReplicaSet) {
    for _ in 0..10 {
        if !step_in(world, set) {
            return;
        }
    }
    panic!("it does not settle: {set:?}");
}

#[test]
fn pods_follow_the_number_that_is_wanted() {
    let (mut world, mut set) = (World::new(), set(3, json!({"minReadySeconds": 10})));
    settle(&mut world, &mut set);
    assert_eq!(world.active().len(), 3);
    world.run_all();
    settle(&mut world, &mut set);
    let counts = |set: &ReplicaSet| {
        let status = set.status.clone().unwrap();
        (status.replicas, status.ready_replicas, status.available_replicas)
    };
    assert_eq!(counts(&set), (3, Some(3), None));
    let seen = world.seen();
    let plan = step(&SetView { set: &set, pods: seen.iter().collect(), refused: None }, world.now);
    assert!(plan.wake_at.is_some_and(|at| at > world.now), "it looks again when they count");
    world.pass(10);
    settle(&mut world, &mut set);
    assert_eq!(counts(&set), (3, Some(3), Some(3)));
    set.spec.as_mut().unwrap().replicas = Some(1);
    settle(&mut world, &mut set);
    assert_eq!(world.active().len(), 1);
    world.end_leaving();
    settle(&mut world, &mut set);
    assert_eq!(counts(&set), (1, Some(1), Some(1)));
}

#[test]
fn a_pod_that_is_relabelled_is_let_go_and_replaced() {
    let (mut world, mut set) = (World::new(), set(1, json!({})));
    settle(&mut world, &mut set);
    let name = world.active()[0].clone();
    world.pods.get_mut(&name).unwrap().metadata.labels = Some([("a".to_owned(), "other".to_owned())].into());
    settle(&mut world, &mut set);
    assert_eq!(world.pods.len(), 2);
    assert_eq!(world.pods[&name].metadata.owner_references, Some(vec![]));
    // And back: then there is one too many.
    world.pods.get_mut(&name).unwrap().metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    settle(&mut world, &mut set);
    assert_eq!(world.active().len(), 1);
}

#[test]
fn what_can_not_be_made_is_told_until_it_can() {
    let (mut world, mut set) = (World::new(), set(1, json!({})));
    let condition = |set: &ReplicaSet, plan: &WorkPlan<ReplicaSetStatus>| {
        let status = plan.status.as_deref().or(set.status.as_ref()).cloned().unwrap();
        status.conditions.map(|all| all[0].message.clone().unwrap())
    };
    let plan = step(&SetView { set: &set, pods: vec![], refused: Some("no room") }, world.now);
    assert_eq!(condition(&set, &plan), Some("no room".to_owned()));
    settle(&mut world, &mut set);
    let seen = world.seen();
    let plan = step(&SetView { set: &set, pods: seen.iter().collect(), refused: Some("no room") }, world.now);
    assert_eq!(condition(&set, &plan), None);
}

#[test]
fn pods_of_volcanos_jobs_are_never_made() {
    let labels = json!({"a": "b", "volcano.sh/job-name": "j"});
    let template = json!({"template": {"metadata": {"labels": labels}, "spec": {"containers": []}}});
    let plan = step(&SetView { set: &set(2, template), pods: vec![], refused: None }, World::new().now);
    assert_eq!((plan.pods.len(), plan.events.len()), (0, 1));
    assert!(plan.status.unwrap().conditions.unwrap()[0].message.as_ref().unwrap().contains("volcano.sh/job-name"));
}

#[derive(Clone, Debug)]
enum Happening {
    Step,
    Scale(i32),
    Run(usize),
    Fail(usize),
    Sweep,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => Just(Happening::Step),
        1 => (0..6_i32).prop_map(Happening::Scale),
        2 => (0..8_usize).prop_map(Happening::Run),
        1 => (0..8_usize).prop_map(Happening::Fail),
        2 => Just(Happening::Sweep),
    ]
}

proptest! {
    #[test]
    fn never_more_than_are_wanted_are_made(happenings in prop::collection::vec(happening(), 1..60)) {
        let (mut world, mut set) = (World::new(), set(2, json!({})));
        for happening in happenings {
            let pick = |world: &World, at: usize| world.active().get(at).cloned();
            match happening {
                Happening::Step => {
                    let before = world.active().len();
                    step_in(&mut world, &mut set);
                    let (wanted, after) = (set.spec.as_ref().unwrap().replicas.unwrap() as usize, world.active().len());
                    prop_assert_eq!(after, wanted);
                    prop_assert!(after <= before.max(wanted));
                }
                Happening::Scale(replicas) => set.spec.as_mut().unwrap().replicas = Some(replicas),
                Happening::Run(at) => if let Some(name) = pick(&world, at) { world.run(&name) },
                Happening::Fail(at) => if let Some(name) = pick(&world, at) { world.end(&name, 1) },
                Happening::Sweep => world.end_leaving(),
            }
        }
        settle(&mut world, &mut set);
        let status = set.status.clone().unwrap();
        prop_assert_eq!(status.replicas, set.spec.unwrap().replicas.unwrap());
        prop_assert!(status.ready_replicas.unwrap_or(0) <= status.replicas);
    }
}
