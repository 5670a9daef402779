//! Sums that groups declare beyond their pods: as drivers do, whose executors come when they run.

use super::*;

/// The file that Volcano ships.
const VOLCANO: &str = "actions: enqueue, allocate, backfill\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n  \
                       - name: conformance\n- plugins:\n  - name: overcommit\n  - name: drf\n  - name: predicates\n  \
                       - name: proportion\n  - name: nodeorder\n  - name: binpack\n";
const CAPACITY: &str = "actions: enqueue, allocate, reclaim\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  \
                        - name: capacity\n";

impl Lab {
    /// An application that declares so much, and its driver.
    fn app(&mut self, name: &str, sum_milli: i64) {
        let created = TimeMs(self.world.groups().count() as i64);
        self.apply(Delta::GroupUpsert(Box::new(GroupFacts {
            created,
            queue: "q".to_owned(),
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
        self.pod(PodFacts { node: Some("n0".to_owned()), phase, ..self.of_app(name, index) });
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

#[test]
fn a_sum_that_was_held_once_is_spent() {
    for (config, mut lab) in labs() {
        lab.app("s1", 3_000);
        lab.run();
        lab.new_pod("s1", 1);
        lab.run();
        // The executor has done its work and is gone: what it held is free for others.
        lab.apply(Delta::TaskRemove("uid-s1-1".to_owned()));
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
        let node = Some("n0".to_owned());
        lab.pod(PodFacts { mine: false, node, phase: PodPhase::Running, ..pod("other", 0, 2_000) });
        lab.new_pod("s1", 1);
        lab.now = lab.now.plus_ms(3_600_000);
        lab.run();
        lab.app("s2", 2_000);
        lab.apply(Delta::TaskRemove("uid-other-0".to_owned()));
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
