//! Sums that groups declare beyond their pods: as drivers do, whose executors come when they run.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// The file that Volcano ships.
const VOLCANO: &str = "actions: enqueue, allocate, backfill\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n  \
                       - name: conformance\n- plugins:\n  - name: overcommit\n  - name: drf\n  - name: predicates\n  \
                       - name: proportion\n  - name: nodeorder\n  - name: binpack\n";
const CAPACITY: &str = "actions: enqueue, allocate, reclaim\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  \
                        - name: capacity\n";

const GANG: &str = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n";

impl Lab {
    /// An application that declares so much, and its driver.
    fn app(&mut self, name: &str, sum_milli: i64) {
        self.app_in("q", name, sum_milli);
    }

    fn app_in(&mut self, queue: &str, name: &str, sum_milli: i64) {
        let created = TimeMs(self.world.groups().count() as i64);
        self.apply(Delta::GroupUpsert(Box::new(GroupFacts {
            created,
            queue: queue.to_owned(),
            min_resources: Some(resources(sum_milli)),
            status: GroupStatus::default(),
            ..group(name, 1)
        })));
        self.new_pod(name, 0);
    }

    /// A driver of one core, or an executor of two.
    fn of_app(&self, name: &str, index: u32) -> PodFacts {
        PodFacts { created: self.now, ..pod(name, index, if index == 0 { 1_000 } else { 2_000 }) }
    }

    fn new_pod(&mut self, name: &str, index: u32) {
        self.pod(self.of_app(name, index));
    }

    fn becomes(&mut self, name: &str, index: u32, phase: PodPhase) {
        self.pod(PodFacts { node: Some("n0".into()), phase, ..self.of_app(name, index) });
    }

    /// Cycles until nothing more starts; gives what runs since.
    fn run(&mut self) -> Vec<String> {
        let mut started = Vec::new();
        for _ in 0..8 {
            for bind in self.cycle().binds {
                self.world.bind_result(&bind.uid, Ok(()), self.now);
                let (group, index) = bind.name.rsplit_once('-').unwrap();
                self.becomes(group, index.parse().unwrap(), PodPhase::Running);
                started.push(bind.name);
            }
        }
        started
    }
}

/// One node of three cores, and a queue that may have all of it.
fn labs() -> Vec<(&'static str, Lab)> {
    let with_queue = |name, mut lab: Lab| {
        lab.queue("q", &[("cpu", 3_000)]);
        (name, lab)
    };
    vec![
        with_queue("built in", Lab::new(&[3_000])),
        with_queue("Volcano's", Lab::of(VOLCANO, &[3_000])),
        with_queue("capacity", Lab::of(CAPACITY, &[3_000])),
    ]
}

#[test]
fn drivers_start_one_after_the_other_where_there_is_room_for_the_executors_of_one() {
    for (config, mut lab) in labs() {
        for name in ["s1", "s2"] {
            lab.app(name, 3_000);
        }
        assert_eq!(lab.run(), ["s1-0"], "{config}");
        assert_eq!((lab.phase("s1"), lab.phase("s2")), (GroupPhase::Running, GroupPhase::Pending), "{config}");
        lab.new_pod("s1", 1);
        assert_eq!(lab.run(), ["s1-1"], "{config}");
        (0..2).for_each(|index| lab.becomes("s1", index, PodPhase::Succeeded));
        assert_eq!(lab.run(), ["s2-0"], "{config}");
        lab.new_pod("s2", 1);
        assert_eq!(lab.run(), ["s2-1"], "{config}");
        assert_eq!((lab.phase("s1"), lab.phase("s2")), (GroupPhase::Completed, GroupPhase::Running), "{config}");
    }
}

/// Nobody else is kept from its turn by a promise that is spent.
#[test]
fn the_next_driver_is_admitted_in_its_turn_once_the_executors_of_one_have_room() {
    let mut lab = Lab::new(&[3_000]);
    lab.queue("q", &[("cpu", 3_000)]);
    for name in ["s1", "s2"] {
        lab.app(name, 3_000);
    }
    lab.run();
    lab.now = lab.now.plus_ms(60_000);
    assert_eq!((lab.run(), lab.phase("s2")), (vec![], GroupPhase::Pending), "its executors may come");
    lab.new_pod("s1", 1);
    assert_eq!(lab.run(), ["s1-1"]);
    lab.now = lab.now.plus_ms(2_000);
    assert_eq!((lab.run(), lab.phase("s2")), (vec![], GroupPhase::Inqueue), "room is reserved for its driver");
}

#[test]
fn a_sum_that_was_held_once_is_spent() {
    for (config, mut lab) in labs() {
        lab.app("s1", 3_000);
        lab.run();
        lab.new_pod("s1", 1);
        lab.run();
        // The executor has done its work and is gone: what it held is free for others.
        lab.apply(Delta::TaskRemove("uid-s1-1".into()));
        lab.app("s2", 2_000);
        assert_eq!(lab.run(), ["s2-0"], "{config}");
    }
}

#[test]
fn what_ended_well_counts_as_held() {
    for (config, mut lab) in labs() {
        // Two executors, one after the other, are all that it wants.
        lab.app("s1", 5_000);
        assert_eq!(lab.phase("s1"), GroupPhase::Pending, "{config}: never on three cores");
        lab.app("s2", 3_000);
        lab.run();
        lab.new_pod("s2", 1);
        lab.run();
        lab.becomes("s2", 1, PodPhase::Succeeded);
        lab.app("s3", 2_000);
        assert_eq!(lab.run(), ["s3-0"], "{config}");
    }
}

#[test]
fn a_group_that_makes_no_pod_for_long_is_promised_nothing_more() {
    for (config, mut lab) in labs() {
        lab.app("s1", 3_000);
        lab.run();
        lab.app("s2", 2_000);
        assert_eq!(lab.run(), [""; 0], "{config}");
        lab.now = lab.now.plus_ms(599_000);
        assert_eq!(lab.run(), [""; 0], "{config}");
        lab.now = lab.now.plus_ms(1_000);
        assert_eq!(lab.run(), ["s2-0"], "{config}");
    }
}

#[test]
fn a_promise_lasts_as_long_as_a_pod_waits_for_it() {
    for (config, mut lab) in labs() {
        lab.app("s1", 3_000);
        lab.run();
        let node = Some("n0".into());
        lab.pod(PodFacts { mine: false, node, phase: PodPhase::Running, ..pod("other", 0, 2_000) });
        lab.new_pod("s1", 1);
        lab.now = lab.now.plus_ms(3_600_000);
        lab.run();
        lab.app("s2", 2_000);
        lab.apply(Delta::TaskRemove("uid-other-0".into()));
        assert_eq!(lab.run(), ["s1-1"], "{config}");
    }
}

#[test]
fn a_promise_outlives_the_scheduler_and_a_spent_one_is_not_given_again() {
    for (promised, started) in [(true, vec![]), (false, vec!["s2-0".to_owned()])] {
        let mut lab = Lab::new(&[3_000]);
        lab.queue("q", &[("cpu", 3_000)]);
        let condition = GroupCondition {
            kind: "ResourcesPromised".to_owned(),
            status: promised,
            reason: String::new(),
            message: String::new(),
        };
        let status = GroupStatus { phase: GroupPhase::Running, conditions: vec![condition], ..GroupStatus::default() };
        let min_resources = Some(resources(3_000));
        let facts = GroupFacts { queue: "q".to_owned(), min_resources, status, ..group("s1", 1) };
        lab.apply(Delta::GroupUpsert(Box::new(facts)));
        lab.becomes("s1", 0, PodPhase::Running);
        lab.app("s2", 2_000);
        assert_eq!(lab.run(), started);
    }
}

#[test]
fn its_status_says_what_is_kept_for_it() {
    let mut lab = Lab::new(&[3_000]);
    lab.queue("q", &[("cpu", 3_000)]);
    lab.app("s1", 3_000);
    let plan = lab.cycle();
    lab.world.bind_result(&plan.binds[0].uid, Ok(()), lab.now);
    lab.becomes("s1", 0, PodPhase::Running);
    let told = |plan: &Plan| -> Option<(bool, String)> {
        let conditions = &plan.groups.first()?.status.conditions;
        let one = conditions.iter().find(|condition| condition.kind == "ResourcesPromised")?;
        Some((one.status, one.message.clone()))
    };
    let kept = "of minResources 2 cpu are kept for pods that are not there yet".to_owned();
    assert_eq!(told(&lab.cycle()), Some((true, kept)));
    let why = lab.world.why("ns", "s1").unwrap().to_string();
    let says = "2 cpu are kept for pods of it that are not there yet, for another 10m if none is made";
    assert!(why.contains(says), "{why}");
    lab.becomes("s1", 1, PodPhase::Running);
    assert_eq!(told(&lab.cycle()), Some((false, String::new())));
}

#[test]
fn a_pod_does_not_admit_a_group_whose_sum_never_fits() {
    let mut lab = Lab::new(&[3_000]);
    lab.queue("q", &[]);
    lab.app("large", 4_000);
    assert_eq!(lab.run(), [""; 0]);
    assert_eq!(lab.phase("large"), GroupPhase::Pending);
    assert!(lab.why("large").starts_with("does not fit the cluster even when it is empty"), "{}", lab.why("large"));
    lab.app("fits", 3_000);
    assert_eq!(lab.run(), ["fits-0"], "and it holds up nobody");
}

impl Lab {
    /// A job of this one pod in any queue.
    fn single(&mut self, queue: &str, facts: PodFacts) {
        let created = TimeMs(self.world.groups().count() as i64);
        let name = facts.group.clone().unwrap();
        let group = GroupFacts { created, queue: queue.to_owned(), status: GroupStatus::default(), ..group(&name, 1) };
        self.apply(Delta::GroupUpsert(Box::new(group)));
        self.pod(PodFacts { created: self.now, ..facts });
    }
}

/// As before, with nothing that limits the queues. Not Volcano's: shares are hard there, and what waits in one queue
/// takes from the share of another.
fn labs_without_limits() -> Vec<(&'static str, Lab)> {
    let lab = |name, config| (name, Lab::of(config, &[3_000]));
    vec![("built in", Lab::new(&[3_000])), lab("capacity", CAPACITY), lab("gang", GANG)]
}

#[test]
fn drivers_of_different_queues_start_one_after_the_other_too() {
    for (config, mut lab) in labs_without_limits() {
        for (queue, name) in [("q1", "s1"), ("q2", "s2")] {
            lab.queue(queue, &[]);
            lab.app_in(queue, name, 3_000);
        }
        assert_eq!(lab.run(), ["s1-0"], "{config}");
        let why = lab.why("s2");
        assert!(why.contains("enough was admitted already: 3 of 3 cpu are promised, 3 asked for"), "{config}: {why}");
        lab.new_pod("s1", 1);
        assert_eq!(lab.run(), ["s1-1"], "{config}");
        (0..2).for_each(|index| lab.becomes("s1", index, PodPhase::Succeeded));
        assert_eq!(lab.run(), ["s2-0"], "{config}");
    }
}

#[test]
fn jobs_of_other_queues_leave_what_is_kept_free() {
    for (config, mut lab) in labs_without_limits() {
        for queue in ["q1", "q2"] {
            lab.queue(queue, &[]);
        }
        lab.app_in("q1", "s1", 3_000);
        assert_eq!(lab.run(), ["s1-0"], "{config}");
        lab.single("q2", pod("p", 0, 1_000));
        if config == "built in" {
            assert_eq!(lab.run(), ["p-0"], "a queue within its share may reclaim");
            continue;
        }
        assert_eq!(lab.run(), [""; 0], "{config}");
        lab.new_pod("s1", 1);
        assert_eq!(lab.run(), ["s1-1"], "{config}");
        (0..2).for_each(|index| lab.becomes("s1", index, PodPhase::Succeeded));
        assert_eq!(lab.run(), ["p-0"], "{config}");
    }
}

#[test]
fn jobs_that_come_at_once_leave_what_is_kept_free_together() {
    for config in [CAPACITY, GANG] {
        let mut lab = Lab::of(config, &[4_000]);
        for queue in ["q1", "q2"] {
            lab.queue(queue, &[]);
        }
        lab.app_in("q1", "s1", 3_000);
        assert_eq!(lab.run(), ["s1-0"], "{config}");
        for name in ["p1", "p2"] {
            lab.single("q2", pod(name, 0, 1_000));
        }
        assert_eq!(lab.run(), ["p1-0"], "{config}");
        lab.new_pod("s1", 1);
        assert_eq!(lab.run(), ["s1-1"], "{config}");
    }
}

/// Room is reserved for groups that are next.
const RESERVING: &str = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n\
                         configurations:\n- name: reservation\n  arguments: {after: 1s, ageBound: 60s}\n";
const RESERVING_CAPACITY: &str = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  \
                                  - name: capacity\nconfigurations:\n- name: reservation\n  \
                                  arguments: {after: 1s, ageBound: 60s}\n";
const RESERVING_OVERCOMMIT: &str = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  \
                                    - name: overcommit\n    arguments: {overcommit-factor: 1.6}\nconfigurations:\n\
                                    - name: reservation\n  arguments: {after: 1s, ageBound: 60s}\n";

/// A pod that its node ends after so many milliseconds, or never.
fn limited(name: &str, index: u32, cpu_milli: i64, limit_ms: Option<i64>) -> PodFacts {
    let facts = pod(name, index, cpu_milli);
    let template = PodTemplate { time_limit_ms: limit_ms, ..(*facts.template).clone() };
    PodFacts { template: template.into(), ..facts }
}

/// Its first one, and after so many seconds.
fn first_limited(name: &str, cpu_milli: i64, seconds: Option<i64>) -> PodFacts {
    limited(name, 0, cpu_milli, seconds.map(|seconds| seconds * 1_000))
}

impl Lab {
    /// What holds so much for 100 seconds from now on.
    fn occupied(&mut self, queue: &str, cpu_milli: i64) {
        let facts = first_limited("before", cpu_milli, Some(100));
        let node = Some("n0".into());
        let started = Some(self.now);
        self.apply(Delta::GroupUpsert(Box::new(GroupFacts {
            queue: queue.to_owned(),
            status: GroupStatus { phase: GroupPhase::Running, ..GroupStatus::default() },
            ..group("before", 1)
        })));
        self.pod(PodFacts { node, phase: PodPhase::Running, started, ..facts });
    }

    fn ended(&mut self, facts: PodFacts) {
        self.pod(PodFacts { node: Some("n0".into()), phase: PodPhase::Succeeded, ..facts });
    }
}

/// One node of four cores, and two queues that may have all of it.
fn that_reserves(config: &str) -> Lab {
    let mut lab = Lab::of(config, &[4_000]);
    for queue in ["q1", "q2"] {
        lab.queue(queue, &[("cpu", 4_000)]);
    }
    lab
}

/// The built-in configuration, where other queues would have a share, and one queue.
fn built_in() -> Lab {
    let mut lab = Lab::new(&[4_000]);
    lab.queue("q1", &[]);
    lab
}

#[test]
fn what_ends_before_executors_have_room_may_use_what_is_kept_for_them() {
    for queue in ["q1", "q2"] {
        let that_reserve =
            [RESERVING, RESERVING_CAPACITY, RESERVING_OVERCOMMIT].map(|config| (config, that_reserves(config)));
        let built_in = (queue == "q1").then(|| ("built in", built_in()));
        for (config, mut lab) in that_reserve.into_iter().chain(built_in) {
            lab.occupied(if config == "built in" { "q1" } else { "q2" }, 2_000);
            lab.app_in("q1", "s1", 4_000);
            let begin = lab.now;
            if config == "built in" {
                // There the cluster is the limit of a queue, and its first group is admitted in its turn.
                assert_eq!(lab.run(), [""; 0]);
                lab.now = lab.now.plus_ms(1_000);
            }
            assert_eq!(lab.run(), ["s1-0"], "{config}");
            // One core is free, and three are asked for.
            lab.pod(PodFacts { created: lab.now, ..pod("s1", 1, 3_000) });
            for _ in 0..4 {
                assert_eq!(lab.run(), [""; 0], "{config}");
                lab.now = lab.now.plus_ms(1_000);
            }
            for (name, seconds) in [("endless", None), ("long", Some(99)), ("short", Some(90)), ("other", Some(90))] {
                lab.single(queue, first_limited(name, 1_000, seconds));
            }
            assert_eq!(lab.run(), ["short-0"], "{config} {queue}: {}", lab.why("short"));
            lab.ended(first_limited("short", 1_000, Some(90)));
            lab.now = begin.plus_ms(100_000);
            lab.ended(first_limited("before", 2_000, Some(100)));
            assert_eq!(lab.run().first().map(String::as_str), Some("s1-1"), "{config}: {}", lab.why("s1"));
        }
    }
}

#[test]
fn what_ends_before_a_driver_has_room_may_use_what_is_kept_for_its_executors() {
    for config in [RESERVING, RESERVING_CAPACITY] {
        let mut lab = that_reserves(config);
        lab.occupied("q2", 3_000);
        lab.apply(Delta::GroupUpsert(Box::new(GroupFacts {
            queue: "q1".to_owned(),
            min_resources: Some(resources(4_000)),
            status: GroupStatus::default(),
            ..group("s1", 1)
        })));
        lab.pod(PodFacts { created: lab.now, ..pod("s1", 0, 2_000) });
        for _ in 0..4 {
            assert_eq!(lab.run(), [""; 0], "{config}");
            lab.now = lab.now.plus_ms(1_000);
        }
        for (name, seconds) in [("endless", None), ("long", Some(99)), ("short", Some(90))] {
            lab.single("q2", first_limited(name, 1_000, seconds));
        }
        assert_eq!(lab.run(), ["short-0"], "{config}: {}", lab.why("short"));
    }
}

#[test]
fn a_pod_that_no_node_could_take_keeps_nothing_for_long() {
    for (config, mut lab) in labs() {
        lab.app("s1", 3_000);
        assert_eq!(lab.run(), ["s1-0"], "{config}");
        lab.pod(PodFacts { created: lab.now, ..pod("s1", 1, 4_000) });
        lab.app("s2", 2_000);
        assert_eq!(lab.run(), [""; 0], "{config}");
        lab.now = lab.now.plus_ms(600_000);
        assert_eq!(lab.run(), ["s2-0"], "{config}");
    }
}

/// Others come all the time, each small enough for what is free.
#[test]
fn a_group_that_declares_a_sum_is_not_passed_for_ever() {
    let mut lab = Lab::new(&[3_000]);
    lab.queue("q", &[("cpu", 3_000)]);
    let small = |lab: &mut Lab, number: usize| {
        let name = format!("j{number}");
        let facts =
            GroupFacts { queue: "q".to_owned(), created: lab.now, status: GroupStatus::default(), ..group(&name, 1) };
        lab.apply(Delta::GroupUpsert(Box::new(facts)));
        lab.new_pod(&name, 0);
    };
    (0..3).for_each(|number| small(&mut lab, number));
    assert_eq!(lab.run().len(), 3);
    lab.app("s", 3_000);
    let mut started = Vec::new();
    for number in 3..60 {
        lab.now = lab.now.plus_ms(1_000);
        let running: Vec<String> = (0..number).map(|number| format!("j{number}")).collect();
        let oldest = running
            .iter()
            .find(|name| lab.world.groups().any(|group| group.name == **name && group.phase == GroupPhase::Running));
        if let Some(oldest) = oldest.cloned() {
            lab.becomes(&oldest, 0, PodPhase::Succeeded);
        }
        small(&mut lab, number);
        let new = lab.run();
        if new.iter().any(|name| name == "s-0") {
            lab.new_pod("s", 1);
        }
        started.extend(new);
        if started.iter().any(|name| name == "s-1") {
            return;
        }
    }
    panic!("{started:?}: {}", lab.why("s"));
}

/// What a run of the property below is made of.
#[derive(Debug, Clone)]
struct Story {
    /// Cores of each node.
    nodes: Vec<i64>,
    /// Whether queues have a limit of all cores.
    limited: bool,
    apps: Vec<App>,
    singles: Vec<Single>,
}

/// A job of one core.
#[derive(Debug, Clone, Copy)]
struct Single {
    queue: usize,
    /// The cycle in which it comes.
    comes: usize,
    /// How many cycles it runs.
    runs: usize,
    /// Whether it has a limit.
    limited: bool,
}

#[derive(Debug, Clone)]
struct App {
    queue: usize,
    comes: usize,
    executors: u32,
    /// Cycles from the driver's start to its executors.
    delay: usize,
    /// Cycles from when all of it runs to its end.
    runs: usize,
    /// Whether its executors leave before its driver.
    shrinks: bool,
}

fn some_story() -> impl Strategy<Value = Story> {
    let app = (0..3_usize, 0..12_usize, 1..6_u32, 0..4_usize, 1..5_usize, any::<bool>());
    let app = app.prop_map(|(queue, comes, executors, delay, runs, shrinks)| App {
        queue,
        comes,
        executors,
        delay,
        runs,
        shrinks,
    });
    let single = (0..3_usize, 0..30_usize, 1..6_usize, any::<bool>());
    let single = single.prop_map(|(queue, comes, runs, limited)| Single { queue, comes, runs, limited });
    let nodes = proptest::collection::vec(1..5_i64, 1..4);
    let (apps, singles) = (proptest::collection::vec(app, 1..7), proptest::collection::vec(single, 0..25));
    (nodes, any::<bool>(), apps, singles).prop_map(|(nodes, limited, apps, singles)| Story {
        nodes,
        limited,
        apps,
        singles,
    })
}

/// A story as it is played: which pods run, and since when.
struct Play<'a> {
    lab: Lab,
    story: &'a Story,
    /// By pod, since which cycle it runs; nothing once it has ended.
    running: BTreeMap<String, Option<usize>>,
    /// By app, since which cycle all of it runs.
    whole: BTreeMap<String, usize>,
    made: BTreeSet<String>,
    cycle: usize,
}

impl Play<'_> {
    fn one_core(&self, name: &str, index: u32) -> PodFacts {
        let single = name.strip_prefix("one").map(|number| self.story.singles[number.parse::<usize>().unwrap()]);
        let limit = single.filter(|single| single.limited).map(|single| (single.runs as i64 + 1) * 1_000);
        PodFacts { created: self.lab.now, ..limited(name, index, 1_000, limit) }
    }

    fn ends(&mut self, name: &str, index: u32) {
        let node = Some("n0".into());
        let facts = PodFacts { node, phase: PodPhase::Succeeded, ..self.one_core(name, index) };
        self.lab.pod(facts);
        self.running.insert(format!("{name}-{index}"), None);
    }

    fn comes(&mut self, queues: usize) {
        for (number, app) in self.story.apps.iter().enumerate().filter(|(_, app)| app.comes == self.cycle) {
            let sum = 1_000 * (1 + i64::from(app.executors));
            self.lab.app_in(&format!("q{}", app.queue % queues), &format!("app{number}"), sum);
        }
        for (number, Single { queue, comes, .. }) in self.story.singles.iter().enumerate() {
            if *comes == self.cycle {
                let name = format!("one{number}");
                self.lab.single(&format!("q{}", queue % queues), self.one_core(&name, 0));
            }
        }
    }

    fn goes_on(&mut self) {
        for (number, app) in self.story.apps.iter().enumerate() {
            let name = format!("app{number}");
            let Some(driver) = self.running.get(&format!("{name}-0")).copied().flatten() else { continue };
            if self.cycle >= driver + app.delay && self.made.insert(name.clone()) {
                (1..=app.executors).for_each(|index| self.lab.pod(self.one_core(&name, index)));
            }
            let runs = |index: u32| self.running.get(&format!("{name}-{index}")).is_some_and(Option::is_some);
            let whole = (0..=app.executors).all(runs);
            let since = if whole { Some(*self.whole.entry(name.clone()).or_insert(self.cycle)) } else { None };
            let since = since.or_else(|| self.whole.get(&name).copied());
            let Some(age) = since.map(|since| self.cycle - since) else { continue };
            if app.shrinks && whole {
                (1..=app.executors).for_each(|index| self.ends(&name, index));
            }
            if age > app.runs {
                let first_left = if app.shrinks { app.executors } else { 0 };
                (0..=app.executors - first_left).for_each(|index| self.ends(&name, index));
            }
        }
        for (number, Single { runs, .. }) in self.story.singles.iter().enumerate() {
            let name = format!("one{number}");
            let since = self.running.get(&format!("{name}-0")).copied().flatten();
            if since.is_some_and(|since| self.cycle > since + runs) {
                self.ends(&name, 0);
            }
        }
    }

    fn starts(&mut self) {
        let plan = self.lab.cycle();
        assert_eq!(plan.evictions, []);
        for bind in plan.binds {
            self.lab.world.bind_result(&bind.uid, Ok(()), self.lab.now);
            let (name, index) = bind.name.rsplit_once('-').unwrap();
            let facts = self.one_core(name, index.parse().unwrap());
            let started = Some(self.lab.now);
            self.lab.pod(PodFacts { node: Some(bind.node), phase: PodPhase::Running, started, ..facts });
            self.running.insert(bind.name, Some(self.cycle));
        }
    }

    /// What is promised to applications that have begun, and not held all of it, fits the cluster.
    fn check(&self) {
        let begun = self.story.apps.iter().enumerate().filter(|(number, _)| {
            let name = format!("app{number}");
            !self.whole.contains_key(&name) && self.running.contains_key(&format!("{name}-0"))
        });
        let promised: i64 = begun.map(|(_, app)| 1 + i64::from(app.executors)).sum();
        assert!(promised <= self.story.nodes.iter().sum(), "cycle {}: {promised} are promised", self.cycle);
    }

    fn possible(&self) -> usize {
        let cores: i64 = self.story.nodes.iter().sum();
        let fits = |app: &&App| i64::from(app.executors) < cores;
        self.story.apps.iter().filter(fits).map(|app| 1 + app.executors as usize).sum::<usize>()
            + self.story.singles.len()
    }
}

proptest! {
    #![proptest_config(cases(16))]

    /// An application ends when all of it has run at a time; its executors come when its driver runs.
    #[test]
    fn whatever_declares_a_sum_that_fits_comes_to_its_end(story in some_story()) {
        for config in ["", VOLCANO, CAPACITY, GANG, RESERVING] {
            let nodes: Vec<i64> = story.nodes.iter().map(|cores| cores * 1_000).collect();
            let mut lab = if config.is_empty() { Lab::new(&nodes) } else { Lab::of(config, &nodes) };
            let all = story.nodes.iter().sum::<i64>() * 1_000;
            // Where queues have shares, one takes from another what that was promised beyond its share.
            let queues = if [CAPACITY, GANG, RESERVING].contains(&config) { 3 } else { 1 };
            for queue in 0..queues {
                let limit = [("cpu", all)];
                lab.queue(&format!("q{queue}"), if story.limited { &limit } else { &[] });
            }
            let (running, whole, made) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
            let mut play = Play { lab, story: &story, running, whole, made, cycle: 0 };
            let possible = play.possible();
            let ended = |play: &Play<'_>| play.running.values().filter(|since| since.is_none()).count();
            while ended(&play) < possible && play.cycle < 600 {
                play.comes(queues);
                play.goes_on();
                play.starts();
                play.check();
                play.lab.now = play.lab.now.plus_ms(1_000);
                play.cycle += 1;
            }
            prop_assert_eq!(ended(&play), possible, "{}: {:?}", config, play.running);
        }
    }
}
