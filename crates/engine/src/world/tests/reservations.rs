//! Reservations: what is next and does not fit starts within its bound, and what delays nothing goes on meanwhile.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SECOND: i64 = 1_000;
/// As short as they are here, all of it happens in a few hundred cycles.
const SETTINGS: &str = "actions: enqueue, allocate, backfill\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n\
                        - plugins:\n  - name: predicates\n  - name: nodeorder\nconfigurations:\n- name: reservation\n  \
                        arguments: {after: 1s, ageBound: 60s}\n";
const OFF: &str = "actions: enqueue, allocate, backfill\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n\
                   - plugins:\n  - name: predicates\n  - name: nodeorder\nconfigurations:\n- name: reservation\n  \
                   arguments: {enable: false}\n";
const AGE_BOUND: i64 = 60 * SECOND;

/// A job as it is submitted.
#[derive(Debug, Clone)]
struct Work {
    name: String,
    queue: &'static str,
    namespace: &'static str,
    profile: &'static str,
    pods: u32,
    cpu_milli: i64,
    run_ms: i64,
    limit_ms: Option<i64>,
    priority_class: &'static str,
}

impl Work {
    fn new(name: &str, pods: u32, cpu_milli: i64, run_ms: i64) -> Self {
        Self {
            name: name.to_owned(),
            queue: "default",
            namespace: "ns",
            profile: "",
            pods,
            cpu_milli,
            run_ms,
            limit_ms: None,
            priority_class: "",
        }
    }

    fn limited(self) -> Self {
        Self { limit_ms: Some(self.run_ms), ..self }
    }
}

/// A cluster on which pods run as long as they are said to.
struct Farm {
    lab: Lab,
    works: BTreeMap<String, Work>,
    /// Pods that run, by their end.
    ends: BTreeMap<(i64, String), PodFacts>,
    pods: BTreeMap<String, PodFacts>,
    /// When each job's last pod of the minimum was bound.
    started: BTreeMap<String, i64>,
}

impl Farm {
    fn new(config: &str, nodes: &[i64]) -> Self {
        let lab = Lab::of(config, nodes);
        Self { lab, works: BTreeMap::new(), ends: BTreeMap::new(), pods: BTreeMap::new(), started: BTreeMap::new() }
    }

    fn now(&self) -> i64 {
        self.lab.now.0
    }

    fn submit(&mut self, work: &Work) {
        let facts = GroupFacts {
            namespace: work.namespace.to_owned(),
            queue: work.queue.to_owned(),
            created: self.lab.now,
            priority_class: work.priority_class.to_owned(),
            run_profile: work.profile.to_owned(),
            owner: Some(OwnerFacts { kind: "Job".into(), name: work.name.clone(), uid: format!("job-{}", work.name) }),
            status: GroupStatus::default(),
            ..group(&work.name, work.pods)
        };
        let tasks = vec![ShapeTask { role: String::new(), count: work.pods, template: self.template(work) }];
        self.lab.apply(Delta::ShapeUpsert { owner_uid: format!("job-{}", work.name), tasks, ended: false });
        self.lab.apply(Delta::GroupUpsert(Box::new(facts)));
        self.works.insert(work.name.clone(), work.clone());
    }

    fn template(&self, work: &Work) -> PodTemplate {
        PodTemplate { time_limit_ms: work.limit_ms, ..pod("", 0, work.cpu_milli).template }
    }

    /// One cycle and what comes of it at once: pods of what was admitted, starts of what was bound.
    fn cycle(&mut self) -> Plan {
        let plan = self.lab.cycle();
        for update in &plan.groups {
            self.lab.world.status_result(&update.namespace, &update.name, true);
        }
        for key in &plan.admitted {
            let work = self.works[key.split_once('/').unwrap().1].clone();
            for index in 0..work.pods {
                let facts = PodFacts {
                    namespace: work.namespace.to_owned(),
                    created: self.lab.now,
                    template: self.template(&work),
                    ..pod(&work.name, index, work.cpu_milli)
                };
                self.pods.insert(facts.uid.clone(), facts.clone());
                self.lab.pod(facts);
            }
        }
        for bind in &plan.binds {
            self.lab.world.bind_result(&bind.uid, Ok(()), self.lab.now);
            let pod = self.pods.remove(&bind.uid).unwrap();
            let name = pod.group.clone().unwrap();
            let started = Some(self.lab.now);
            let facts = PodFacts { node: Some(bind.node.clone()), phase: PodPhase::Running, started, ..pod };
            self.lab.pod(facts.clone());
            self.ends.insert((self.now() + self.works[&name].run_ms, bind.uid.clone()), facts);
            self.started.insert(name, self.now());
        }
        plan
    }

    /// Cycles until nothing is left to do now.
    fn settle(&mut self) {
        for _ in 0..20 {
            let plan = self.cycle();
            if plan.binds.is_empty() && plan.admitted.is_empty() {
                return;
            }
        }
        panic!("never quiet");
    }

    /// Goes on to `time`, and stops wherever something ends.
    fn until(&mut self, time: i64) {
        while self.now() < time {
            let end = self.ends.first_key_value().map(|((end, _), _)| *end).filter(|end| *end <= time);
            self.lab.now = TimeMs(end.unwrap_or(time).min(self.now() + SECOND).max(self.now() + 1));
            while let Some(entry) = self.ends.first_entry().filter(|entry| entry.key().0 <= self.lab.now.0) {
                let ((end, uid), facts) = entry.remove_entry();
                let facts = PodFacts { phase: PodPhase::Succeeded, ended: Some(TimeMs(end)), ..facts };
                let name = facts.group.clone().unwrap();
                self.lab.pod(facts);
                self.lab.apply(Delta::TaskRemove(uid));
                if !self.ends.values().any(|other| other.group.as_deref() == Some(&name)) {
                    self.forget(&name);
                }
            }
            self.settle();
        }
    }

    /// The job has ended, and is deleted.
    fn forget(&mut self, name: &str) {
        let namespace = self.works[name].namespace.to_owned();
        self.lab.apply(Delta::ShapeRemove { owner_uid: format!("job-{name}") });
        self.lab.apply(Delta::GroupRemove { namespace, name: name.to_owned(), uid: String::new() });
    }

    fn has_started(&self, name: &str) -> bool {
        self.started.contains_key(name)
    }
}

#[test]
fn small_jobs_pass_a_big_one_only_if_it_is_not_delayed() {
    let mut farm = Farm::new(SETTINGS, &[4_000, 4_000]);
    farm.submit(&Work::new("first", 1, 4_000, 100 * SECOND).limited());
    farm.settle();
    farm.submit(&Work::new("gang", 2, 4_000, 50 * SECOND).limited());
    farm.until(farm.now() + 3 * SECOND);
    assert!(!farm.has_started("gang"));
    let long = Work::new("long", 1, 4_000, 98 * SECOND).limited();
    let short = Work::new("short", 1, 4_000, 90 * SECOND).limited();
    farm.submit(&long);
    farm.submit(&short);
    farm.settle();
    assert_eq!((farm.has_started("long"), farm.has_started("short")), (false, true), "{}", farm.lab.why("long"));
    let begin = 1_000_000;
    farm.until(begin + 101 * SECOND);
    assert_eq!(farm.started.get("gang"), Some(&(begin + 100 * SECOND)));
    farm.until(begin + 160 * SECOND);
    assert!(farm.has_started("long"));
}

#[test]
fn what_a_big_one_does_not_need_is_free_for_all() {
    let mut farm = Farm::new(SETTINGS, &[4_000, 4_000, 4_000]);
    farm.submit(&Work::new("first", 2, 4_000, 100 * SECOND).limited());
    farm.settle();
    farm.submit(&Work::new("gang", 2, 4_000, 50 * SECOND).limited());
    farm.until(farm.now() + 3 * SECOND);
    farm.submit(&Work::new("endless", 1, 4_000, 1_000 * SECOND));
    farm.settle();
    assert!(farm.has_started("endless"), "{}", farm.lab.why("endless"));
    farm.until(1_000_000 + 101 * SECOND);
    assert_eq!(farm.started.get("gang"), Some(&(1_000_000 + 100 * SECOND)));
}

#[test]
fn where_no_end_is_known_nothing_is_kept() {
    let mut farm = Farm::new(SETTINGS, &[4_000, 4_000]);
    farm.submit(&Work::new("service", 1, 4_000, 100_000 * SECOND));
    farm.settle();
    farm.submit(&Work::new("gang", 2, 4_000, 50 * SECOND));
    farm.until(farm.now() + 200 * SECOND);
    farm.submit(&Work::new("other", 1, 4_000, 50 * SECOND));
    farm.settle();
    assert!(farm.has_started("other"), "{}", farm.lab.why("other"));
}

#[test]
fn what_runs_taught_is_good_enough() {
    let mut farm = Farm::new(SETTINGS, &[4_000, 4_000]);
    for round in 0..3 {
        farm.submit(&Work { profile: "train", ..Work::new(&format!("train-{round}"), 1, 4_000, 40 * SECOND) });
        farm.until(farm.now() + 41 * SECOND);
    }
    let begin = farm.now();
    farm.submit(&Work { profile: "train", ..Work::new("train-3", 1, 4_000, 40 * SECOND) });
    farm.settle();
    farm.submit(&Work::new("gang", 2, 4_000, 50 * SECOND));
    farm.until(begin + 3 * SECOND);
    farm.submit(&Work { profile: "train", ..Work::new("train-4", 1, 4_000, 40 * SECOND) });
    farm.until(begin + 41 * SECOND);
    assert_eq!(farm.started.get("gang"), Some(&(begin + 40 * SECOND)), "{}", farm.lab.why("train-4"));
    assert!(!farm.has_started("train-4"));
}

#[test]
fn a_limit_of_the_queue_is_kept_as_well() {
    let mut farm = Farm::new(SETTINGS, &[4_000, 4_000, 4_000, 4_000]);
    farm.lab.queue("small", &[("cpu", 8_000)]);
    let small = |name: &str, pods, run: i64| Work { queue: "small", ..Work::new(name, pods, 4_000, run).limited() };
    farm.submit(&small("first", 1, 100 * SECOND));
    farm.settle();
    farm.submit(&small("gang", 2, 50 * SECOND));
    farm.until(farm.now() + 3 * SECOND);
    farm.submit(&small("long", 1, 98 * SECOND));
    farm.submit(&small("short", 1, 90 * SECOND));
    farm.until(1_000_000 + 101 * SECOND);
    assert!(farm.has_started("short"), "{}", farm.lab.why("short"));
    assert_eq!(farm.started.get("gang"), Some(&(1_000_000 + 100 * SECOND)), "{}", farm.lab.why("gang"));
}

#[test]
fn people_are_told_what_is_kept_and_for_whom() {
    let mut farm = Farm::new(SETTINGS, &[4_000, 4_000]);
    farm.submit(&Work::new("first", 1, 4_000, 100 * SECOND).limited());
    farm.settle();
    farm.submit(&Work::new("gang", 2, 4_000, 50 * SECOND).limited());
    farm.until(farm.now() + 3 * SECOND);
    farm.submit(&Work::new("long", 1, 4_000, 98 * SECOND).limited());
    farm.until(farm.now() + SECOND);
    insta::assert_snapshot!(farm.lab.why("gang"), @r"
    room for 1 of 2 pods; 0/2 nodes fit the next one: 2 insufficient cpu (short by 4)
    ├─ is next; expected to start in 1m 36s: room is reserved on 2 nodes (n0, n1)
    ├─ cpu: each pod asks for 4; node n0 comes nearest and lacks 4; in all 4 more cpu would be needed
    ├─ starts with at least 2 pods together: 0 placed, 2 waiting
    └─ expected to start in 1m 36s, between 29s and 4m 48s
    ");
    insta::assert_snapshot!(farm.lab.why("long"), @r"
    0/2 nodes fit 1 pod: 1 insufficient cpu (short by 4), 1 with room that is kept for others
    ├─ 1 node could take it, but room there is kept for ns/gang, expected to start in 1m 36s
    ├─ cpu: each pod asks for 4; node n0 comes nearest and lacks 4; in all 4 more cpu would be needed
    └─ expected to start in 1m 13s, between 22s and 3m 39s
    ");
    let expected = farm.lab.world.reasons("ns", "gang").unwrap().expected.unwrap();
    assert_eq!((expected.at, expected.promised), (TimeMs(1_100_000), false));
    farm.until(farm.now() + 61 * SECOND);
    assert!(farm.lab.why("gang").contains("is next and starts within 35s"), "{}", farm.lab.why("gang"));
    assert!(farm.lab.world.reasons("ns", "gang").unwrap().expected.unwrap().promised);
}

#[test]
fn without_reservations_a_stream_of_small_ones_starves_a_big_one() {
    let started = |config| {
        let mut farm = Farm::new(config, &[4_000, 4_000]);
        let begin = farm.now();
        stream(
            &mut farm,
            300,
            |index| (index == 5).then(|| Work::new("gang", 2, 4_000, 10 * SECOND).limited()),
            |index| Work::new(&format!("small-{index}"), 1, 4_000, (10 + index % 7) * SECOND).limited(),
        );
        farm.started.get("gang").map(|at| at - begin)
    };
    assert_eq!(started(OFF), None);
    assert!(
        started(SETTINGS).is_some_and(|wait| wait <= 5 * SECOND + AGE_BOUND + 20 * SECOND),
        "{:?}",
        started(SETTINGS)
    );
}

/// So many seconds with a new small job in each, and another one where there is one.
fn stream(farm: &mut Farm, seconds: i64, other: impl Fn(i64) -> Option<Work>, small: impl Fn(i64) -> Work) {
    for index in 0..seconds {
        farm.submit(&small(index));
        if let Some(work) = other(index) {
            farm.submit(&work);
        }
        farm.settle();
        farm.until(farm.now() + SECOND);
    }
}

proptest! {
    #![proptest_config(cases(16))]
    /// The bound of the architecture: age bound, and the longest limit of what ran on its nodes then.
    #[test]
    fn a_gang_that_needs_the_whole_cluster_starts_within_its_bound(
        nodes in 2..6_usize,
        cores in 1..5_i64,
        runs in proptest::collection::vec((1..40_i64, 1..4_i64, any::<bool>()), 8..40),
        arrival in 0..30_i64,
        own_queue in any::<bool>(),
    ) {
        let mut farm = Farm::new(SETTINGS, &vec![cores * 1_000; nodes]);
        farm.lab.queue("other", &[]);
        let longest = runs.iter().map(|(run, ..)| run * SECOND).max().unwrap();
        let queue = if own_queue { "other" } else { "default" };
        let gang = Work { queue, ..Work::new("gang", u32::try_from(nodes).unwrap(), cores * 1_000, 5 * SECOND).limited() };
        let begin = farm.now() + arrival * SECOND;
        let most = AGE_BOUND + longest + 5 * SECOND;
        let length = 3 * arrival + most / SECOND + 60;
        stream(&mut farm, length, |index| (index == arrival).then(|| gang.clone()), |index| {
            let (run, size, second_queue) = runs[usize::try_from(index).unwrap() % runs.len()];
            let queue = if second_queue { "other" } else { "default" };
            let work = Work::new(&format!("small-{index}"), 1, size.min(cores) * 1_000, run * SECOND).limited();
            Work { queue, ..work }
        });
        // Those that were there before it in its queue come before it.
        let before = farm.works.values().filter(|work| work.queue == queue && work.name != "gang");
        let before = before.filter(|work| work.name[6..].parse::<i64>().unwrap() <= arrival);
        let is_next = before.map(|work| farm.started.get(&work.name).copied().unwrap_or(i64::MAX)).max();
        let is_next = is_next.unwrap_or(begin).max(begin);
        prop_assume!(is_next + most <= farm.now());
        let waited = farm.started.get("gang").map(|at| at - is_next);
        prop_assert!(waited.is_some_and(|waited| waited <= most), "{waited:?} of {most}: {}", farm.lab.why("gang"));
    }
}

#[test]
fn a_deadline_orders_and_a_miss_is_told_at_once() {
    let mut farm = Farm::new(&SETTINGS.replace("  - name: gang\n", "  - name: deadline\n  - name: gang\n"), &[4_000]);
    for round in 0..2 {
        farm.submit(&Work { profile: "p", ..Work::new(&format!("p-{round}"), 1, 4_000, 40 * SECOND) });
        farm.until(farm.now() + 41 * SECOND);
    }
    let begin = farm.now();
    let work = |name: &str| Work { profile: "p", ..Work::new(name, 1, 4_000, 40 * SECOND) };
    farm.submit(&work("running"));
    farm.settle();
    farm.submit(&work("older"));
    farm.until(begin + SECOND);
    let mut due = |name: &str, seconds: i64| {
        farm.submit(&work(name));
        farm.lab.apply(Delta::GroupUpsert(Box::new(GroupFacts {
            created: farm.lab.now,
            run_profile: "p".into(),
            deadline: Some(TimeMs(begin + seconds * SECOND)),
            ..group(name, 1)
        })));
        let mut late = Vec::new();
        for _ in 0..5 {
            farm.lab.now = farm.lab.now.plus_ms(SECOND);
            late.extend(farm.cycle().late.into_iter().map(|late| late.name));
        }
        late
    };
    assert_eq!(due("in-time", 300), [""; 0]);
    assert_eq!(due("late", 60), ["late"], "it can't start before the one that runs has ended");
    assert!(farm.lab.why("late").contains("is expected to miss its deadline by "), "{}", farm.lab.why("late"));
    farm.until(begin + 42 * SECOND);
    assert!(farm.has_started("late") && !farm.has_started("older") && !farm.has_started("in-time"));
}

#[test]
fn what_came_of_earlier_guesses_is_saved_with_a_world() {
    let mut farm = Farm::new(SETTINGS, &[4_000]);
    let work = |name: &str| Work { profile: "p", ..Work::new(name, 1, 4_000, 40 * SECOND) };
    for round in 0..40 {
        farm.submit(&work(&format!("p-{round}")));
        farm.until(farm.now() + 25 * SECOND);
    }
    farm.lab.world.forget();
    let (config, registry) = (farm.lab.world.config.clone(), farm.lab.world.registry.clone());
    let mut loaded = World::load(config, registry, &farm.lab.world.save()).unwrap();
    assert_eq!(farm.lab.world.cycle(farm.lab.now), loaded.cycle(farm.lab.now));
    let expected = |world: &World| {
        let of = |round: i32| world.reasons("ns", &format!("p-{round}")).and_then(|reasons| reasons.expected);
        (0..40).map(of).collect::<Vec<_>>()
    };
    assert!(expected(&loaded).iter().flatten().count() > 3, "{:?}", expected(&loaded));
    assert_eq!(expected(&farm.lab.world), expected(&loaded));
}

#[test]
fn a_queue_and_a_node_say_how_they_stand() {
    let mut farm = Farm::new(SETTINGS, &[4_000, 4_000]);
    farm.submit(&Work::new("first", 1, 3_000, 100 * SECOND).limited());
    farm.submit(&Work::new("service", 1, 1_000, 100_000 * SECOND));
    farm.settle();
    farm.submit(&Work::new("gang", 2, 3_000, 50 * SECOND).limited());
    farm.until(farm.now() + 3 * SECOND);
    farm.submit(&Work::new("long", 1, 4_000, 98 * SECOND).limited());
    farm.settle();
    let world = &farm.lab.world;
    insta::assert_snapshot!(world.queue_why("default").unwrap(), @r"
    2 groups wait in queue default
    ├─ cpu: 4 in use
    ├─ pods: 2 in use
    ├─ the most room for one pod is on n0: 1 cpu, 64Gi memory
    ├─ room is reserved for ns/gang: expected to start in 1m 37s
    ├─ ns/gang: room for 1 of 2 pods; 0/2 nodes fit the next one: 2 insufficient cpu (short by 2)
    └─ ns/long: 0/2 nodes fit 1 pod: 2 insufficient cpu (short by 3)
    ");
    insta::assert_snapshot!(world.node_why("n0").unwrap(), @r"
    node n0 runs 1 pod
    ├─ cpu: 1 of 4 free
    ├─ memory: 64Gi of 64Gi free
    ├─ pods: 109 of 110 free
    ├─ held by ns/first: 3 cpu
    ├─ one more pod can have at most 1 cpu, 64Gi memory
    ├─ reserved for ns/gang, expected to start in 1m 37s
    └─ ns/first-0 is expected to end in 1m 37s
    ");
    insta::assert_snapshot!(world.node_why("n1").unwrap(), @r"
    node n1 runs 1 pod
    ├─ cpu: 3 of 4 free, 3 of it kept
    ├─ memory: 64Gi of 64Gi free
    ├─ pods: 109 of 110 free, 1 of it kept
    ├─ held by ns/service: 1 cpu
    ├─ one more pod can have at most 64Gi memory
    ├─ reserved for ns/gang, expected to start in 1m 37s
    └─ of 1 pod nothing tells the end
    ");
    assert!(world.queue_why("none").is_none() && world.node_why("none").is_none());
}
