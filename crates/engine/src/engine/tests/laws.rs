//! Laws that hold for every sequence of events, checked on random ones.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::ids::{ClassId, GroupId, NodeId, TaskId};
use crate::policy::Policy;
use crate::search::finder::{Finder, Search};
use crate::world::groups::{GroupRow, ShapePart};
use crate::world::tables::Tables;
use crate::world::tasks::{TaskRow, TaskState};

/// A random event, small enough that names meet each other.
#[derive(Debug, Clone)]
pub(super) enum Event {
    Apply(Box<Delta>),
    Cycle,
    BindResult {
        pod: PodUid,
        fails: bool,
    },
    EvictResult {
        pod: PodUid,
        fails: bool,
    },
    /// Nothing happens for so long: fences fall, half gangs are taken back, backoffs end.
    Wait {
        seconds: i64,
    },
}

/// Everything that makes victims; worlds of an odd number of events run it, others what is shipped.
const ALL: &str = "actions: enqueue, allocate, preempt, reclaim, gangpreempt, gangreclaim, backfill, shuffle\ntiers:\n\
                   - plugins:\n  - name: priority\n  - name: gang\n    enablePreemptable: false\n    \
                   enableJobStarving: false\n  - name: conformance\n- plugins:\n  - name: predicates\n  \
                   - name: proportion\n  - name: nodeorder\n  - name: network-topology-aware\n";

fn some_node() -> impl Strategy<Value = Delta> {
    (0..4_u32, 0..4_i64, prop::bool::weighted(0.2), any::<bool>(), any::<bool>()).prop_map(
        |(name, cpu, cordoned, labelled, soft)| {
            let mut facts = node(&format!("n{name}"), cpu * 1_000);
            facts.unschedulable = cordoned;
            if labelled {
                facts.labels.insert("disk".to_owned(), "ssd".to_owned());
            }
            if soft {
                facts.taints.push(Taint {
                    key: "slow".to_owned(),
                    value: String::new(),
                    effect: TaintEffect::PreferNoSchedule,
                });
            }
            Delta::NodeUpsert(facts)
        },
    )
}

fn some_pod() -> impl Strategy<Value = Delta> {
    let shape = (0..4_i64, 0..2_u32, any::<bool>(), any::<bool>(), 0..2_u16);
    let standing = (proptest::option::of(0..4_u32), 0..4_u32, prop::bool::weighted(0.3), any::<bool>());
    let ends = (prop::bool::weighted(0.8), proptest::option::of(1..200_i64), 0..300_i64);
    (0..3_u32, 0..4_u32, shape, standing, ends).prop_map(|(group, index, shape, standing, ends)| {
        let (leaves, limit, since) = ends;
        let (cpu, role, selects, prefers, port) = shape;
        let (on, phase, terminating, mine) = standing;
        let mut facts = pod(&format!("g{group}"), index, cpu * 500);
        facts.role = format!("r{role}");
        facts.mine = mine || group > 0;
        facts.group = (group < 2).then(|| format!("g{group}"));
        facts.node = on.map(|node| format!("n{node}").into());
        facts.terminating = terminating && on.is_some();
        facts.preemptable = (!leaves).then_some(false);
        facts.template.time_limit_ms = limit.map(|limit| limit * 1_000);
        facts.started = (phase == 1).then(|| TimeMs(1_000_000 + since * 1_000));
        facts.phase = match (phase, on) {
            (1, Some(_)) => PodPhase::Running,
            (2, Some(_)) => PodPhase::Succeeded,
            _ => PodPhase::Pending,
        };
        if selects {
            facts.template.node_selector.insert("disk".to_owned(), "ssd".to_owned());
        }
        if prefers {
            let expressions =
                vec![Requirement { key: "disk".to_owned(), operator: Operator::Exists, values: Vec::new() }];
            let term = NodeTerm { expressions, fields: Vec::new() };
            facts.template.preferred_terms.push(PreferredTerm { weight: 10, term });
        }
        if port > 0 {
            facts.template.host_ports.push(HostPort { ip: String::new(), protocol: "TCP".to_owned(), port });
        }
        Delta::TaskUpsert(Box::new(facts))
    })
}

fn some_group() -> impl Strategy<Value = Delta> {
    let spec = TopologySpec { hard: true, highest_tier: Some(1), highest_tier_name: None };
    let soft = TopologySpec { hard: false, ..spec.clone() };
    let topology = prop_oneof![6 => Just(None), 1 => Just(Some(spec)), 1 => Just(Some(soft))];
    let deadline = proptest::option::weighted(0.2, 0..400_i64);
    let standing = (0..3_usize, topology, deadline);
    (0..2_u32, 0..4_u32, 0..2_u32, 0..3_u32, any::<bool>(), standing).prop_map(|group| {
        let (name, min, queue, role_min, pending, (priority, topology, deadline)) = group;
        let phase = if pending { GroupPhase::Pending } else { GroupPhase::Inqueue };
        Delta::GroupUpsert(Box::new(GroupFacts {
            queue: ["", "q"][queue as usize].to_owned(),
            priority_class: ["", "low", "high"][priority].to_owned(),
            topology,
            deadline: deadline.map(|deadline| TimeMs(1_000_000 + deadline * 1_000)),
            min_task_member: [("r0".to_owned(), role_min)].into(),
            owner: Some(OwnerFacts { kind: "Job".to_owned(), name: "j".to_owned(), uid: format!("job{name}") }),
            status: GroupStatus { phase, ..GroupStatus::default() },
            ..super::group(&format!("g{name}"), min)
        }))
    })
}

/// Two racks of any nodes, and a row of them.
fn some_hyper_node() -> impl Strategy<Value = Delta> {
    (0..3_usize, proptest::collection::vec(0..4_u32, 0..3), prop::bool::weighted(0.2)).prop_map(
        |(name, nodes, gone)| {
            let row = name == 2;
            let names = nodes.iter().map(|node| if row { format!("h{}", node % 2) } else { format!("n{node}") });
            let member = |name: String| HyperNodeMember { hyper_node: row, which: MemberKind::Exact(name) };
            let name = format!("h{name}");
            if gone {
                return Delta::HyperNodeRemove(name);
            }
            let (tier, members) = (if row { 2 } else { 1 }, names.map(member).collect());
            Delta::HyperNodeUpsert(HyperNodeFacts { name, tier, tier_name: String::new(), members })
        },
    )
}

fn some_queue() -> impl Strategy<Value = Delta> {
    let state = prop_oneof![4 => Just(QueueState::Open), 1 => Just(QueueState::Closing), 1 => Just(QueueState::Closed)];
    (proptest::option::of(0..4_i64), state, 0..4_i32).prop_map(|(cpu, state, weight)| {
        let capability = cpu.map(|cpu| ("cpu".to_owned(), cpu * 1_000)).into_iter().collect();
        Delta::QueueUpsert(QueueFacts { name: "q".to_owned(), capability, state, weight, ..QueueFacts::default() })
    })
}

fn some_shape() -> impl Strategy<Value = Delta> {
    let later = proptest::option::weighted(0.4, 1..3_u32);
    (0..2_u32, 0..4_u32, 0..4_i64, any::<bool>(), later).prop_map(|(job, count, cpu, ended, later)| {
        let template = PodTemplate { requests: resources(cpu * 500), ..PodTemplate::default() }.into();
        let first = ShapeTask { role: "r0".to_owned(), count, template, depends_on: None };
        let depends_on = Some(DependsOn { tasks: vec!["r0".to_owned()], any: false });
        let later = later.map(|count| ShapeTask { role: "r1".to_owned(), count, depends_on, ..first.clone() });
        let tasks = std::iter::once(first).chain(later).collect();
        Delta::ShapeUpsert { owner_uid: format!("job{job}"), tasks, ended }
    })
}

/// Nodes kept by name or by label, for a queue or for nobody, within the time that tests take.
fn some_window() -> impl Strategy<Value = Delta> {
    let nodes = proptest::collection::vec(0..4_u32, 0..3);
    let times = (0..200_i64, proptest::option::of(1..200_i64));
    (0..2_u32, nodes, any::<bool>(), times, any::<bool>(), prop::bool::weighted(0.2)).prop_map(
        |(name, nodes, labelled, (from, long), for_queue, gone)| {
            let name = format!("w{name}");
            if gone {
                return Delta::WindowRemove(name);
            }
            let ssd = Requirement { key: "disk".to_owned(), operator: Operator::In, values: vec!["ssd".to_owned()] };
            let from = TimeMs(1_000_000 + from * 1_000);
            Delta::WindowUpsert(WindowFacts {
                name,
                nodes: nodes.iter().map(|node| format!("n{node}").into()).collect(),
                selector: if labelled { vec![ssd] } else { Vec::new() },
                from,
                to: long.map(|long| from.plus_ms(long * 1_000)),
                queues: if for_queue { vec!["q".to_owned()] } else { Vec::new() },
                namespaces: Vec::new(),
            })
        },
    )
}

fn some_delta() -> impl Strategy<Value = Delta> {
    let gone = (0..3_u32, 0..4_u32, 0..5_u32).prop_map(|(group, index, kind)| match kind {
        0 => Delta::NodeRemove(format!("n{index}").into()),
        1 => Delta::GroupRemove { namespace: "ns".to_owned(), name: format!("g{group}"), uid: "".into() },
        2 if index == 0 => Delta::QueueRemove("q".to_owned()),
        3 => Delta::ShapeRemove { owner_uid: format!("job{group}") },
        _ => Delta::TaskRemove(format!("uid-g{group}-{index}").into()),
    });
    prop_oneof![3 => some_node(), 8 => some_pod(), 3 => some_group(), 2 => some_shape(), 2 => gone, 1 => some_queue(), 1 => some_hyper_node(), 1 => some_window()]
}

pub(super) fn some_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => some_delta().prop_map(|delta| Event::Apply(Box::new(delta))),
        3 => Just(Event::Cycle),
        1 => (0..3_u32, 0..4_u32, any::<bool>())
            .prop_map(|(group, index, fails)| Event::BindResult { pod: format!("uid-g{group}-{index}").into(), fails }),
        1 => (0..3_u32, 0..4_u32, any::<bool>())
            .prop_map(|(group, index, fails)| Event::EvictResult { pod: format!("uid-g{group}-{index}").into(), fails }),
        1 => (1..120_i64).prop_map(|seconds| Event::Wait { seconds }),
    ]
}

fn empty(events: &[Event]) -> Lab {
    let mut lab = if events.len().is_multiple_of(2) { Lab::new(&[]) } else { Lab::of(ALL, &[]) };
    for (name, value) in [("low", 10), ("high", 100)] {
        lab.apply(Delta::PriorityClassUpsert { name: name.to_owned(), value, global_default: false });
    }
    lab
}

/// The events happen to a cluster that is full, with work of higher priority that waits.
pub(super) fn play(events: &[Event]) -> Lab {
    let mut lab = empty(events);
    for (index, cpu) in [2_000, 1_500, 1_000].into_iter().enumerate() {
        lab.apply(Delta::NodeUpsert(node(&format!("n{index}"), cpu)));
    }
    lab.queue("q", &[]);
    for (name, class, queue) in [("g0", "low", ""), ("g1", "high", "")] {
        let (priority_class, queue) = (class.to_owned(), queue.to_owned());
        lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { priority_class, queue, ..group(name, 1) })));
        for index in 0..4 {
            let node = (name == "g0").then(|| format!("n{}", index % 3).into());
            let phase = if node.is_some() { PodPhase::Running } else { PodPhase::Pending };
            lab.pod(PodFacts { node, phase, ..pod(name, index, 1_000) });
        }
    }
    go_on(lab, events)
}

fn go_on(mut lab: Lab, events: &[Event]) -> Lab {
    for event in events {
        drop(step(&mut lab, event));
    }
    lab
}

/// One event happens; a cycle gives its plan.
pub(super) fn step(lab: &mut Lab, event: &Event) -> Option<Plan> {
    lab.now = lab.now.plus_ms(400);
    match event {
        Event::Apply(delta) => lab.apply((**delta).clone()),
        // `Lab::cycle` lints the plan.
        Event::Cycle => return Some(lab.cycle()),
        Event::BindResult { pod, fails } => {
            lab.world.bind_result(pod, if *fails { Err("refused") } else { Ok(()) }, lab.now);
        }
        Event::EvictResult { pod, fails } => {
            lab.world.evict_result(pod, if *fails { Err("refused") } else { Ok(()) }, lab.now);
        }
        Event::Wait { seconds } => lab.now = lab.now.plus_ms(seconds * 1_000),
    }
    None
}

/// All use and counts, worked out again from the tasks alone.
fn audit(tables: &Tables) {
    for node in tables.nodes.table.iter().map(|(id, _)| id) {
        let tasks = || tables.tasks.iter().filter(|(_, task)| task.node == Some(node)).map(|(_, task)| task);
        assert_eq!(tables.nodes.row(node).tasks.len(), tasks().count());
        for dim in (0..tables.dims.len()).map(crate::ids::DimId::from) {
            let used: i64 = tasks()
                .filter(|task| task.state.holds_node())
                .map(|task| tables.classes.row(task.class).demand.get(dim))
                .sum();
            assert_eq!(tables.nodes.used(node, dim), used, "{} of {}", tables.dims.name(dim), tables.node_name(node));
            let in_state = |state| {
                let tasks = tasks().filter(move |task| task.state == state);
                tasks.map(|task| tables.classes.row(task.class).demand.get(dim)).sum::<i64>()
            };
            assert_eq!(tables.nodes.releasing(node, dim), in_state(TaskState::Releasing));
            let promised = in_state(TaskState::Pipelined);
            let idle = tables.nodes.idle(node, dim);
            assert_eq!(tables.nodes.future_idle(node, dim), idle + in_state(TaskState::Releasing) - promised);
        }
    }
    audit_promises(tables);
    for (id, group) in tables.groups.table.iter() {
        use TaskState::{Binding, Bound, Failed, Pending, Pipelined, Releasing, Running, Succeeded, Unknown};
        for state in [Pending, Pipelined, Binding, Bound, Running, Releasing, Succeeded, Failed, Unknown] {
            let count = group.tasks.iter().filter(|task| tables.task(**task).state == state).count();
            assert_eq!(group.counts.get(state) as usize, count);
        }
        assert_eq!(group.counts.all() as usize, group.tasks.len());
        assert!(group.tasks.iter().all(|task| tables.task(*task).group == Some(id)));
        assert_eq!(group.counts.get(TaskState::Allocated), 0, "nothing undecided outlives a cycle");
        audit_minimum(tables, group);
    }
    for (id, queue) in tables.queues.table.iter() {
        let runs = |group: &GroupRow| {
            let admitted = matches!(group.phase, GroupPhase::Inqueue | GroupPhase::Running | GroupPhase::Unknown);
            admitted && !group.ended && !group.awaits_nodes
        };
        let admitted =
            tables.groups.table.iter().filter(|(_, group)| group.queue == id && group.known && !group.of_one);
        let admitted = admitted.filter(|(_, group)| runs(group)).count();
        assert_eq!(tables.groups.admitted_to(id) as usize, admitted, "{}", queue.name);
        let below = |group: &GroupId| {
            let of = tables.groups.row(*group).queue;
            of == id || tables.queues.row(of).ancestors.contains(&id)
        };
        let tasks = tables.tasks.iter().filter(|(_, task)| task.group.is_some_and(|group| below(&group)));
        let (mut allocated, mut releasing, mut pending) = (Vec::new(), Vec::new(), Vec::new());
        for (_, task) in tasks {
            let demand = &tables.classes.row(task.class).demand;
            match task.state {
                state if state.is_allocated() => demand.add_to(&mut allocated, 1),
                TaskState::Releasing | TaskState::Unknown => demand.add_to(&mut releasing, 1),
                TaskState::Pending => demand.add_to(&mut pending, 1),
                _ => {}
            }
        }
        for (sum, kept) in
            [(allocated, &queue.tree.allocated), (releasing, &queue.tree.releasing), (pending, &queue.tree.pending)]
        {
            assert_eq!(tables.dims.resources(&sum), tables.dims.resources(kept), "{}", queue.name);
        }
    }
}

/// What must start together is no more than what can be there.
fn audit_minimum(tables: &Tables, group: &GroupRow) {
    let parts = tables.parts_of(group).map_or(&[][..], |parts| parts.as_slice());
    let has_pods =
        |role: &str| group.tasks.iter().any(|task| *group.roles[tables.task(*task).role as usize].name == *role);
    let can_be = |part: &&ShapePart| part.depends_on.is_none() || has_pods(&part.role);
    let there: u32 = parts.iter().filter(can_be).map(|part| part.count).sum();
    let depends = parts.iter().any(|part| part.depends_on.is_some());
    assert_eq!(group.min_member, if depends { group.declared_min.min(there) } else { group.declared_min });
    for role in &group.roles {
        let waits = parts.iter().any(|part| part.role == role.name && !can_be(&part));
        assert_eq!(role.min, if waits { 0 } else { role.declared_min }, "{}", role.name);
    }
}

/// Fences and evictions: those that the tables list are those there are.
fn audit_promises(tables: &Tables) {
    let listed = |wanted: &dyn Fn(&TaskRow) -> bool| -> BTreeSet<TaskId> {
        tables.tasks.iter().filter(|(_, task)| wanted(task)).map(|(id, _)| id).collect()
    };
    assert_eq!(tables.nominated, listed(&|task| task.state == TaskState::Pipelined));
    assert_eq!(tables.evicting, listed(&|task| task.evicting.is_some()));
    for (_, task) in tables.tasks.iter() {
        assert!(task.evicting.is_none() || task.state == TaskState::Releasing, "{} is {:?}", task.name, task.state);
        assert!(task.state != TaskState::Pipelined || task.node.is_some() && task.group.is_some());
    }
}

/// The best node by looking at all of them, with nothing cached.
fn best_by_scan(tables: &Tables, policy: &Policy, class: ClassId) -> Option<NodeId> {
    let row = tables.classes.row(class);
    let fits = |node: &NodeId| {
        policy.check_facts(tables, row, *node).is_none()
            && row.demand.iter().all(|(dim, amount)| {
                let free = tables.nodes.idle(*node, dim).min(tables.nodes.future_idle(*node, dim));
                amount <= free.saturating_sub(tables.nodes.reserved(*node, dim))
            })
            && policy.check_use(tables, row, *node).is_none()
    };
    let candidates: Vec<NodeId> = tables.nodes.ids().filter(fits).collect();
    let total = |node: &NodeId| {
        let scaled = policy.preferences().iter().map(|preference| {
            let raw = |node: &NodeId| (preference.raw)(&row.template, tables.nodes.row(*node));
            let max = candidates.iter().map(raw).max().unwrap_or(0);
            let score = if max == 0 { 0 } else { raw(node) * 100 / max };
            preference.weight * if preference.reverse { 100 - score } else { score }
        });
        policy.score(tables, row, *node) + scaled.sum::<i64>()
    };
    candidates.iter().copied().max_by_key(|node| (total(node), std::cmp::Reverse(*node)))
}

proptest! {
    #![proptest_config(cases(192))]

    // INV-15
    #[test]
    fn sums_follow_the_tasks_and_plans_are_clean(events in proptest::collection::vec(some_event(), 0..60)) {
        audit(&play(&events).world.tables);
    }

    // INV-14
    #[test]
    fn equal_events_give_equal_worlds(events in proptest::collection::vec(some_event(), 0..40)) {
        let (mut one, mut other) = (play(&events), play(&events));
        prop_assert_eq!(one.world.digest(), other.world.digest());
        prop_assert_eq!(one.cycle(), other.cycle());
    }

    // INV-14
    /// What is kept between cycles to be quick must not be what is decided by.
    #[test]
    fn losing_the_caches_changes_no_decision(events in proptest::collection::vec(some_event(), 0..60)) {
        let (mut one, mut other) = (play(&events), play(&events));
        other.world.finder = Finder::default();
        other.world.pending_index = crate::search::pending::PendingIndex::default();
        let (plan, again) = (one.cycle(), other.cycle());
        prop_assert_eq!(plan.binds, again.binds);
        prop_assert_eq!(plan.evictions, again.evictions);
        prop_assert_eq!(plan.pipelined, again.pipelined);
        prop_assert_eq!(plan.admitted, again.admitted);
        prop_assert_eq!(one.world.digest(), other.world.digest());
    }

    // INV-14
    #[test]
    fn deltas_are_idempotent(events in proptest::collection::vec(some_event(), 0..40), delta in some_delta()) {
        let mut lab = play(&events);
        lab.apply(delta.clone());
        let once = lab.cycle().binds.len();
        let before: usize = lab.world.groups().count();
        lab.apply(delta);
        audit(&lab.world.tables);
        prop_assert_eq!(lab.world.groups().count(), before);
        prop_assert!(once <= 16);
    }

    #[test]
    fn the_order_of_first_sights_changes_no_totals(
        mut deltas in proptest::collection::vec(some_delta().prop_filter("sights", |delta| matches!(delta,
            Delta::NodeUpsert(_) | Delta::TaskUpsert(_) | Delta::GroupUpsert(_) | Delta::QueueUpsert(_))), 0..20),
        seed in any::<prop::sample::Index>(),
    ) {
        // One sight of each object, in two orders.
        let key = |delta: &Delta| match delta {
            Delta::NodeUpsert(facts) => format!("node {}", facts.name),
            Delta::TaskUpsert(facts) => format!("pod {}", facts.uid),
            Delta::GroupUpsert(facts) => format!("group {}", facts.name),
            Delta::QueueUpsert(facts) => format!("queue {}", facts.name),
            _ => String::new(),
        };
        deltas.sort_by_key(key);
        deltas.dedup_by_key(|delta| key(delta));
        let count = deltas.len().max(1);
        let forward: Vec<Event> = deltas.iter().cloned().map(Box::new).map(Event::Apply).collect();
        let turn = seed.index(count).min(deltas.len());
        deltas.rotate_left(turn);
        deltas.reverse();
        let backward: Vec<Event> = deltas.into_iter().map(Box::new).map(Event::Apply).collect();
        let totals = |events: &[Event]| {
            let lab = go_on(empty(events), events);
            audit(&lab.world.tables);
            let tables = &lab.world.tables;
            let mut nodes: Vec<_> = tables.nodes.table.iter().map(|(id, row)| {
                let amounts = ["cpu", "memory", "pods"].map(|name| {
                    let dim = tables.dims.lookup(name).expect("always there");
                    (tables.nodes.allocatable(id, dim), tables.nodes.used(id, dim))
                });
                (row.name.clone(), row.known, amounts, row.ports.clone())
            }).collect();
            nodes.sort();
            let mut groups: Vec<_> = tables.groups.table.iter()
                .map(|(_, row)| (row.key(), row.counts.all(), row.pending(), format!("{:?}", row.phase))).collect();
            groups.sort();
            (nodes, groups)
        };
        prop_assert_eq!(totals(&forward), totals(&backward));
    }

    // INV-17
    #[test]
    fn a_rollback_restores_the_world_exactly(
        events in proptest::collection::vec(some_event(), 0..40),
        moves in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..7_u32), 1..30),
        nested in any::<prop::sample::Index>(),
    ) {
        let mut lab = play(&events);
        let before = lab.world.digest();
        let tables = &mut lab.world.tables;
        tables.begin();
        let outer = tables.savepoint();
        let mut inner = None;
        for (at, (which, place, kind)) in moves.iter().enumerate() {
            if at == nested.index(moves.len()) {
                inner = Some((tables.savepoint(), tables.digest()));
            }
            disturb(tables, which, place, *kind);
        }
        if let Some((savepoint, digest)) = inner {
            tables.rollback(savepoint);
            prop_assert_eq!(tables.digest(), digest);
        }
        tables.rollback(outer);
        tables.commit();
        prop_assert_eq!(lab.world.digest(), before);
        audit(&lab.world.tables);
    }

    // INV-21
    #[test]
    fn the_index_finds_what_a_scan_finds(
        events in proptest::collection::vec(some_event(), 0..50),
        moves in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..7_u32), 0..12),
    ) {
        let mut lab = play(&events);
        let World { tables, policy, finder, .. } = &mut lab.world;
        tables.begin();
        let mut check = |tables: &Tables| {
            for class in tables.tasks.iter().map(|(_, task)| task.class) {
                let scanned = best_by_scan(tables, policy, class);
                assert_eq!(finder.best(tables, policy, Search::of_class(class)), scanned);
                assert_eq!(Finder::default().best(tables, policy, Search::of_class(class)), scanned);
            }
        };
        let savepoint = tables.savepoint();
        for (which, place, kind) in &moves {
            disturb(tables, which, place, *kind);
            check(tables);
        }
        tables.rollback(savepoint);
        check(tables);
    }
}

/// Some mutation that a cycle could make.
fn disturb(tables: &mut Tables, which: &prop::sample::Index, place: &prop::sample::Index, kind: u32) {
    let tasks: Vec<TaskId> = tables.tasks.iter().map(|(id, _)| id).collect();
    let nodes: Vec<NodeId> = tables.nodes.table.iter().map(|(id, _)| id).collect();
    let groups: Vec<crate::ids::GroupId> = tables.groups.table.iter().map(|(id, _)| id).collect();
    if let (false, false) = (tasks.is_empty(), nodes.is_empty()) {
        let (task, node) = (tasks[which.index(tasks.len())], nodes[place.index(nodes.len())]);
        match kind {
            0 => tables.move_task(task, TaskState::Allocated, Some(node)),
            1 => tables.move_task(task, TaskState::Binding, Some(node)),
            2 => tables.move_task(task, TaskState::Pending, None),
            5 if tables.task(task).state.holds_node() => tables.evict(task),
            6 => tables.move_task(task, TaskState::Pipelined, Some(node)),
            _ => tables.hold(tables.task(task).class, node),
        }
    }
    if kind == 4 && !groups.is_empty() {
        tables.set_phase(groups[which.index(groups.len())], GroupPhase::Running);
    }
}
