//! No number that anybody can write makes the engine panic, or a node or queue over.

use proptest::prelude::*;

use super::oracle::Setting;
use super::*;

fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![Just(i64::MIN), Just(-1), Just(0), Just(1), 0..5_000_i64, Just(1 << 48), Just(i64::MAX)]
}

fn count() -> impl Strategy<Value = u32> {
    prop_oneof![0..4_u32, Just(u32::MAX)]
}

fn named() -> impl Strategy<Value = Resources> {
    let names = ["cpu", "memory", "pods", "nvidia.com/gpu"].map(str::to_owned);
    proptest::collection::btree_map(proptest::sample::select(names.to_vec()), amount(), 0..4)
}

fn time() -> impl Strategy<Value = TimeMs> {
    amount().prop_map(TimeMs)
}

fn some_delta() -> impl Strategy<Value = Delta> {
    let node = (0..3_u32, named(), named()).prop_map(|(name, allocatable, capacity)| {
        Delta::NodeUpsert(NodeFacts { name: format!("n{name}").into(), allocatable, capacity, ..NodeFacts::default() })
    });
    let queue = (0..2_u32, named(), named(), named(), any::<(i32, i32)>(), time()).prop_map(|queue| {
        let (name, capability, deserved, guarantee, (weight, priority), created) = queue;
        let (name, parent) = (format!("q{name}"), (name == 1).then(|| "q0".to_owned()));
        let facts = QueueFacts {
            name,
            parent,
            capability,
            deserved,
            guarantee,
            weight,
            priority,
            created,
            ..QueueFacts::default()
        };
        Delta::QueueUpsert(facts)
    });
    let some = (0..3_u32, 0..2_u32, count(), count(), proptest::option::of(named()), time());
    let group = some.prop_map(|(name, queue, min, role_min, min_resources, created)| {
        Delta::GroupUpsert(Box::new(GroupFacts {
            queue: format!("q{queue}"),
            min_task_member: [("r".to_owned(), role_min)].into(),
            min_resources,
            created,
            priority_class: format!("p{queue}"),
            ..group(&format!("g{name}"), min)
        }))
    });
    let times = (time(), proptest::option::of(time()), proptest::option::of(amount()));
    let pod = (0..3_u32, 0..4_u32, named(), any::<i32>(), proptest::option::of(0..3_u32), times).prop_map(|some| {
        let (group, index, requests, priority, node, (created, started, grace_ms)) = some;
        let node = node.map(|node| format!("n{node}").into());
        let phase = if node.is_some() { PodPhase::Running } else { PodPhase::Pending };
        let template = PodTemplate { requests, priority, ..PodTemplate::default() }.into();
        let role = "r".to_owned();
        let pod = pod(&format!("g{group}"), index, 0);
        Delta::TaskUpsert(Box::new(PodFacts { node, phase, template, created, started, grace_ms, role, ..pod }))
    });
    let shape = (0..3_u32, count(), named()).prop_map(|(owner, count, requests)| {
        let template = PodTemplate { requests, ..PodTemplate::default() };
        let tasks = vec![ShapeTask { role: "r".to_owned(), count, template: template.into(), ..ShapeTask::default() }];
        Delta::ShapeUpsert { owner_uid: format!("g{owner}"), tasks, ended: false }
    });
    let class = (0..2_u32, any::<i32>()).prop_map(|(name, value)| Delta::PriorityClassUpsert {
        name: format!("p{name}"),
        value,
        global_default: false,
    });
    prop_oneof![3 => node, 2 => queue, 3 => group, 6 => pod, 1 => shape, 1 => class]
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn numbers_are_survived(
        deltas in proptest::collection::vec((some_delta(), prop::bool::weighted(0.3)), 0..40),
        setting in proptest::sample::select(Setting::ALL.to_vec()),
        now in time(),
    ) {
        let mut lab = Lab::with(setting.config(), &[]);
        for (delta, cycle) in deltas {
            lab.apply(delta);
            if cycle {
                lab.cycle();
            }
        }
        lab.now = now;
        lab.cycle();
        lab.now = TimeMs(i64::MAX);
        lab.cycle();
    }
}
