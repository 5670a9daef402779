//! How namespaces share a queue, and queues in strict order.

use super::*;

const FAIR: &str = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n- plugins:\n  - name: predicates\n";

fn config(arguments: &str) -> String {
    format!("{FAIR}configurations:\n- name: fairness\n  arguments: {arguments}\n")
}

/// Single pods of one core, each a group of its own that is admitted.
fn singles(lab: &mut Lab, namespace: &str, from: u32, count: u32, priority: &str) {
    for index in from..from + count {
        let name = format!("{namespace}{index}");
        let created = TimeMs(lab.world.groups().count() as i64);
        let priority_class = priority.to_owned();
        let facts = GroupFacts { namespace: namespace.to_owned(), created, priority_class, ..group(&name, 1) };
        lab.apply(Delta::GroupUpsert(Box::new(facts)));
        lab.pod(PodFacts { namespace: namespace.to_owned(), ..pod(&name, 0, 1_000) });
    }
}

fn weight(lab: &mut Lab, name: &str, weight: i64) {
    let labels = [].into();
    lab.apply(Delta::NamespaceUpsert { name: name.to_owned(), weight, labels, queue: None });
}

/// Binds per namespace, whose names have one letter.
fn shares(lab: &mut Lab, namespaces: &[&str]) -> Vec<usize> {
    let binds = lab.binds();
    namespaces.iter().map(|name| binds.iter().filter(|pod| pod.starts_with(name)).count()).collect()
}

/// T13: however many pods a user has queued, another's first one starts when the next one ends.
#[test]
fn a_newcomer_gets_the_next_room() {
    for mut lab in [Lab::of(&config("{namespaces: true}"), &[4_000]), Lab::new(&[4_000])] {
        singles(&mut lab, "a", 0, 200, "");
        assert_eq!(shares(&mut lab, &["a", "b"]), [4, 0]);
        singles(&mut lab, "b", 0, 1, "");
        assert_eq!(lab.binds(), [""; 0]);
        lab.apply(Delta::TaskRemove("uid-a2-0".into()));
        assert_eq!(lab.binds(), ["b0-0"]);
    }
}

#[test]
fn namespaces_share_by_weight() {
    for (weights, bound) in [([1, 1, 1], [4, 4, 4]), ([1, 2, 3], [2, 4, 6]), ([1, 1, 10], [1, 1, 10])] {
        let mut lab = Lab::of(&config("{namespaces: true}"), &[12_000]);
        for (name, value) in ["a", "b", "c"].into_iter().zip(weights) {
            weight(&mut lab, name, value);
            singles(&mut lab, name, 0, 20, "");
        }
        assert_eq!(shares(&mut lab, &["a", "b", "c"]), bound, "{weights:?}");
    }
}

/// How long pods run.
#[derive(Debug, Clone, Copy)]
enum Lengths {
    Equal,
    Random,
    Bimodal,
}

impl Lengths {
    /// In ticks, of the pod of this number.
    fn of(self, number: u64) -> u64 {
        let random = pumice_units::stable_hash(number.to_le_bytes()) >> 8;
        match self {
            Self::Equal => 2,
            Self::Random => 1 + random % 9,
            Self::Bimodal => [1, 12][usize::from(random.is_multiple_of(4))],
        }
    }
}

/// Jobs of one pod that are yet to be admitted, always enough of each namespace; what each holds over time, in parts of
/// a thousand, from the second wave on.
fn shares_over_time(config: Config, cores: u32, weights: &[(&'static str, i64)], lengths: Lengths) -> Vec<u64> {
    const WAITING: usize = 40;
    const TICKS: u64 = 400;
    let mut lab = Lab::with(config, &[i64::from(cores) * 1_000]);
    weights.iter().for_each(|(name, value)| weight(&mut lab, name, *value));
    let (mut made, mut ends): (u64, Vec<(u64, PodUid, usize)>) = (0, Vec::new());
    let mut waiting = vec![0; weights.len()];
    let mut held = vec![0_u64; weights.len()];
    for tick in 0..TICKS {
        lab.now = lab.now.plus_ms(1_000);
        let (over, left): (Vec<_>, Vec<_>) = ends.into_iter().partition(|(end, ..)| *end <= tick);
        ends = left;
        for (_, uid, of) in over {
            let name = uid.trim_start_matches("uid-").trim_end_matches("-0").to_owned();
            lab.apply(Delta::TaskRemove(uid));
            let namespace = weights[of].0.to_owned();
            lab.apply(Delta::GroupRemove { namespace, name, uid: "".into() });
        }
        for (of, (namespace, _)) in weights.iter().enumerate() {
            while waiting[of] < WAITING {
                let name = format!("{namespace}{made}");
                let facts = GroupFacts {
                    namespace: (*namespace).to_owned(),
                    created: TimeMs(i64::try_from(made).unwrap()),
                    status: GroupStatus::default(),
                    ..group(&name, 1)
                };
                lab.apply(Delta::GroupUpsert(Box::new(facts)));
                lab.pod(PodFacts { namespace: (*namespace).to_owned(), ..pod(&name, 0, 1_000) });
                made += 1;
                waiting[of] += 1;
            }
        }
        for bind in (0..2).flat_map(|_| lab.cycle().binds).collect::<Vec<_>>() {
            let of = weights.iter().position(|(name, _)| bind.name.starts_with(name)).unwrap();
            let number = bind.name.trim_end_matches("-0")[1..].parse().unwrap();
            lab.world.bind_result(&bind.uid, Ok(()), lab.now);
            let facts =
                PodFacts { namespace: weights[of].0.to_owned(), ..pod(bind.name.trim_end_matches("-0"), 0, 1_000) };
            lab.pod(PodFacts { node: Some("n0".into()), phase: PodPhase::Running, ..facts });
            waiting[of] -= 1;
            ends.push((tick + lengths.of(number), bind.uid, of));
        }
        if tick > 12 {
            ends.iter().for_each(|(_, _, of)| held[*of] += 1);
        }
    }
    let all: u64 = held.iter().sum();
    held.iter().map(|held| held * 1_000 / all).collect()
}

/// Admission counts what it has just promised: where many pods end at once, it would give each namespace as much otherwise.
#[test]
fn namespaces_share_by_weight_where_jobs_of_one_pod_end_together() {
    let (named, _) = Config::parse(&config("{namespaces: true}")).unwrap();
    for config in [named, Config::default()] {
        for (cores, weights) in [(4, &[("a", 1), ("b", 3)][..]), (10, &[("a", 2), ("b", 3), ("c", 5)][..])] {
            for lengths in [Lengths::Equal, Lengths::Random, Lengths::Bimodal] {
                let all: i64 = weights.iter().map(|(_, weight)| weight).sum();
                let held = shares_over_time(config.clone(), cores, weights, lengths);
                for ((name, weight), held) in weights.iter().zip(&held) {
                    let deserved = weight * 1_000 / all;
                    let off = held.abs_diff(u64::try_from(deserved).unwrap());
                    assert!(off <= 30, "{name} has {held} of 1000 in place of {deserved}: {lengths:?} {weights:?}");
                }
            }
        }
    }
}

#[test]
fn a_file_that_says_nothing_of_it_orders_as_volcano_does() {
    let mut lab = Lab::of(FAIR, &[4_000]);
    singles(&mut lab, "a", 0, 20, "");
    singles(&mut lab, "b", 0, 20, "");
    assert_eq!(shares(&mut lab, &["a", "b"]), [4, 0]);
}

#[test]
fn priority_goes_before_shares() {
    let mut lab = Lab::of(&config("{namespaces: true}"), &[4_000]);
    lab.apply(Delta::PriorityClassUpsert { name: "urgent".to_owned(), value: 10, global_default: false });
    singles(&mut lab, "a", 0, 20, "");
    singles(&mut lab, "b", 0, 3, "urgent");
    assert_eq!(shares(&mut lab, &["a", "b"]), [1, 3]);
}

#[test]
fn past_use_counts_and_fades() {
    const DAY: i64 = 24 * 3_600_000;
    for (half_life, waited_days, bound) in
        [("", 1, [2, 2]), (", halfLife: 24h", 0, [1, 3]), (", halfLife: 24h", 60, [2, 2])]
    {
        let mut lab = Lab::of(&config(&format!("{{namespaces: true{half_life}}}")), &[4_000]);
        lab.cycle();
        singles(&mut lab, "a", 0, 4, "");
        assert_eq!(shares(&mut lab, &["a"]), [4]);
        lab.now = lab.now.plus_ms(DAY / 2);
        lab.cycle();
        for index in 0..4 {
            lab.apply(Delta::TaskRemove(format!("uid-a{index}-0").into()));
        }
        lab.cycle();
        lab.now = lab.now.plus_ms(waited_days * DAY);
        singles(&mut lab, "a", 4, 4, "");
        singles(&mut lab, "b", 0, 4, "");
        assert_eq!(shares(&mut lab, &["a", "b"]), bound, "{half_life} after {waited_days} days");
    }
}

/// Promises to one user don't keep another's first group from being admitted.
#[test]
fn the_first_group_of_a_namespace_is_admitted() {
    let mut lab = Lab::of(&config("{namespaces: true}"), &[4_000]);
    lab.queue("default", &[("cpu", 6_000)]);
    let submit = |lab: &mut Lab, namespace: &str, index: u32, cpu| {
        let created = TimeMs(lab.world.groups().count() as i64);
        lab.apply(Delta::GroupUpsert(Box::new(GroupFacts {
            namespace: namespace.to_owned(),
            created,
            min_resources: Some(resources(cpu)),
            status: GroupStatus::default(),
            ..group(&format!("{namespace}{index}"), 1)
        })));
    };
    lab.gang("running", 1, 0, 0);
    lab.pod(PodFacts { node: Some("n0".into()), phase: PodPhase::Running, ..pod("running", 0, 3_000) });
    submit(&mut lab, "a", 0, 3_000);
    assert_eq!(lab.cycle().admitted, ["a/a0"]);
    lab.pod(PodFacts { namespace: "a".to_owned(), ..pod("a0", 0, 3_000) });
    assert_eq!(lab.binds(), [""; 0]);
    for (namespace, index) in [("a", 1), ("b", 0), ("b", 1)] {
        submit(&mut lab, namespace, index, 2_000);
    }
    assert_eq!(lab.cycle().admitted, ["b/b0"]);
}

fn strict(lab: &mut Lab, order: &str) {
    let annotations = [("pumice.sh/queue-order".to_owned(), order.to_owned())].into();
    let name = "default".to_owned();
    lab.apply(Delta::QueueUpsert(QueueFacts { uid: name.clone(), name, annotations, ..QueueFacts::default() }));
}

#[test]
fn in_strict_order_nothing_passes_what_is_next() {
    for (arguments, order, bound) in [
        ("{}", "", vec!["late-0"]),
        ("{}", "strict", vec![]),
        ("{strict: true}", "", vec![]),
        ("{strict: true}", "fair", vec!["late-0"]),
        ("{namespaces: true}", "strict", vec![]),
    ] {
        let mut lab = Lab::of(&config(arguments), &[4_000]);
        strict(&mut lab, order);
        lab.gang("first", 1, 1, 2_000);
        lab.cycle();
        lab.gang("big", 1, 1, 4_000);
        lab.gang("late", 1, 1, 1_000);
        assert_eq!(lab.binds(), bound, "{arguments} {order}");
        if bound.is_empty() {
            assert_eq!(lab.why("late"), "queue default keeps strict order: ns/big is next and does not fit yet");
            lab.apply(Delta::TaskRemove("uid-first-0".into()));
            assert_eq!(lab.binds(), ["big-0"]);
        }
    }
}

/// K3 holds here, too: what can never start keeps nobody waiting.
#[test]
fn in_strict_order_the_impossible_is_passed() {
    let mut lab = Lab::of(&config("{strict: true}"), &[4_000]);
    lab.gang("never", 1, 1, 9_000);
    lab.gang("late", 1, 1, 1_000);
    assert_eq!(lab.binds(), ["late-0"]);
}

#[test]
fn in_strict_order_the_impossible_is_passed_without_a_minimum_too() {
    let mut lab = Lab::of(&config("{strict: true}"), &[4_000]);
    lab.gang("never", 0, 1, 9_000);
    lab.gang("late", 1, 1, 1_000);
    assert_eq!(lab.binds(), ["late-0"]);
}

#[test]
fn arguments_that_mean_nothing_are_refused() {
    for (arguments, good) in [
        ("{namespaces: true, halfLife: 168h, strict: false}", true),
        ("{namespaces: maybe}", false),
        ("{halfLife: 7}", false),
        ("{halfLife: -1h}", false),
        ("{halfLife: soon}", false),
    ] {
        assert_eq!(Config::parse(&config(arguments)).is_ok(), good, "{arguments}");
    }
}

const SHARES: &str =
    "actions: allocate, reclaim\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: proportion\n";

/// Three queues want all of 10 cores: each deserves 3.3, and the last core is of use to somebody.
#[test]
fn what_no_share_can_use_is_lent() {
    for (arguments, bound) in [("{}", 9), ("{lending: true}", 10)] {
        let mut lab =
            Lab::of(&format!("{SHARES}configurations:\n- name: fairness\n  arguments: {arguments}\n"), &[10_000]);
        for name in ["a", "b", "c"] {
            lab.queue(name, &[]);
            lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { queue: name.to_owned(), ..group(name, 1) })));
            (0..10).for_each(|index| lab.pod(pod(name, index, 1_000)));
        }
        assert_eq!(lab.binds().len(), bound, "{arguments}");
        assert!(lab.why("a").contains("holds its share of cpu"), "{}", lab.why("a"));
    }
}

/// What another queue asks for and can never get keeps nobody from the room; a guarantee does.
#[test]
fn an_impossible_request_holds_no_share_back() {
    for (guarantee, bound) in [(0, 8), (3_000, 5)] {
        let mut lab =
            Lab::of(&format!("{SHARES}configurations:\n- name: fairness\n  arguments: {{lending: true}}\n"), &[8_000]);
        lab.queue("a", &[]);
        let facts = QueueFacts {
            name: "b".to_owned(),
            uid: "b".to_owned(),
            guarantee: resources(guarantee),
            ..QueueFacts::default()
        };
        lab.apply(Delta::QueueUpsert(facts));
        for (name, min, pods, cpu) in [("a", 1, 10, 1_000), ("b", 1, 2, 9_000)] {
            lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { queue: name.to_owned(), ..group(name, min) })));
            (0..pods).for_each(|index| lab.pod(pod(name, index, cpu)));
        }
        assert_eq!(lab.binds().len(), bound, "with {guarantee} guaranteed");
    }
}

/// Nobody asks to be admitted in the cycle after one that waits, and was promised something, has gone.
#[test]
fn a_reservation_gives_way_to_nobody_who_has_gone() {
    let mut lab = Lab::of(&config("{namespaces: true}"), &[1_000]);
    singles(&mut lab, "a", 0, 2, "");
    assert_eq!(lab.binds(), ["a0-0"]);
    lab.now = lab.now.plus_ms(2_000);
    lab.cycle();
    let facts =
        GroupFacts { namespace: "b".to_owned(), created: TimeMs(9), status: GroupStatus::default(), ..group("b0", 1) };
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
    lab.pod(PodFacts { namespace: "b".to_owned(), ..pod("b0", 0, 1_000) });
    for _ in 0..4 {
        assert_eq!(lab.binds(), [""; 0]);
        lab.now = lab.now.plus_ms(2_000);
    }
    let waits = lab.tables().groups.table.find("b/b0").unwrap();
    assert!(lab.tables().reservations.of(waits).is_some(), "it holds least");
    lab.apply(Delta::TaskRemove("uid-a1-0".into()));
    lab.apply(Delta::GroupRemove { namespace: "a".to_owned(), name: "a1".to_owned(), uid: "".into() });
    assert_eq!(lab.binds(), [""; 0]);
    lab.apply(Delta::TaskRemove("uid-a0-0".into()));
    assert_eq!(lab.binds(), ["b0-0"]);
}
