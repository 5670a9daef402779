//! Recordings as traces, and what would have been under another configuration.

use std::path::Path;

use pumice_engine::{Bind, Config, Eviction, ObjectName, OwnerFacts, Plan, PodTemplate, QueueFacts};
use pumice_recording::segment::{self, Header, SegmentWriter};
use pumice_recording::{Flags, config_of};
use pumice_scheduler::plugins;
use pumice_scheduler::recorder::{RecordOptions, RecordSender, Recorder};

use super::super::whatif::{NoWhatIf, Other, WhatIf, what_if};
use super::*;

/// The first day of 2026.
const BEGIN: TimeMs = TimeMs(1_767_225_600_000);

fn conf(least: u32, most: u32) -> String {
    format!(
        "actions: enqueue, allocate, backfill\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: nodeorder\n    \
         arguments: {{leastrequested.weight: {least}, mostrequested.weight: {most}, balancedresource.weight: 0}}\n"
    )
}

fn at(seconds: i64) -> TimeMs {
    BEGIN.plus_ms(seconds * 1_000)
}

/// Writes down what happens, without a World: none is played.
struct Scribe(RecordSender);

impl Scribe {
    fn group(&mut self, name: &str, seconds: i64, pods: u32, cpu_milli: i64) {
        self.group_of("research", name, seconds, pods, cpu_milli);
    }

    fn group_of(&mut self, queue: &str, name: &str, seconds: i64, pods: u32, cpu_milli: i64) {
        let template =
            PodTemplate { requests: [("cpu".to_owned(), cpu_milli)].into(), ..PodTemplate::default() }.into();
        let owner = OwnerFacts { kind: "Job".to_owned(), name: name.to_owned(), uid: format!("job-{name}") };
        let tasks = vec![ShapeTask { role: "main".to_owned(), count: pods, template, ..ShapeTask::default() }];
        let facts = GroupFacts {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}").into(),
            queue: queue.to_owned(),
            min_member: pods,
            created: at(seconds),
            owner: Some(owner.clone()),
            run_profile: "p".to_owned(),
            ..GroupFacts::default()
        };
        self.0.deltas(vec![
            Delta::ShapeUpsert { owner_uid: owner.uid, tasks, ended: false },
            Delta::GroupUpsert(Box::new(facts)),
        ]);
    }

    fn pod(&mut self, name: &str, change: impl FnOnce(&mut PodFacts)) {
        let cpu_milli = if name.starts_with("big") { 4_000 } else { 1_000 };
        let mut facts = PodFacts {
            uid: format!("pod-{name}").into(),
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            mine: true,
            group: Some(name.to_owned()),
            template: PodTemplate { requests: [("cpu".to_owned(), cpu_milli)].into(), ..PodTemplate::default() }.into(),
            ..PodFacts::default()
        };
        change(&mut facts);
        self.0.deltas(vec![Delta::TaskUpsert(Box::new(facts))]);
    }

    fn bound(&mut self, name: &str, node: &str, seconds: i64) {
        self.pod(name, |_| {});
        let bind = Bind {
            uid: format!("pod-{name}").into(),
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            node: node.into(),
            group: ObjectName::new("ns", name),
            annotations: BTreeMap::new(),
            prebind: Vec::new(),
        };
        self.0.cycle(at(seconds), &Plan { binds: vec![bind], ..Plan::default() });
        self.pod(name, |facts| {
            (facts.node, facts.phase, facts.started) = (Some(node.into()), PodPhase::Running, Some(at(seconds)));
        });
    }

    fn ended(&mut self, name: &str, from: i64, to: i64) {
        self.pod(name, |facts| {
            (facts.node, facts.phase) = (Some("n0".into()), PodPhase::Succeeded);
            (facts.started, facts.ended) = (Some(at(from)), Some(at(to)));
        });
        self.0.cycle(at(to), &Plan::default());
        self.0.deltas(vec![Delta::TaskRemove(format!("pod-{name}").into())]);
    }
}

fn scribe(folder: &Path, writes: impl FnOnce(&mut Scribe)) -> Recorded {
    let (tape, written) = Recorder::of_world(RecordOptions::new(folder.to_owned()), plugins()).unwrap();
    let mut scribe = Scribe(tape);
    let flags = Flags { default_queue: "default".to_owned(), ..Flags::default() };
    scribe.0.begin(Beginning { config: Some(conf(10, 0)), flags, ..Beginning::default() });
    let queue = QueueFacts { name: "research".to_owned(), weight: 2, ..QueueFacts::default() };
    let node = |name: &str| {
        let allocatable = [("cpu".to_owned(), 4_000), ("pods".to_owned(), 110)].into();
        Delta::NodeUpsert(NodeFacts { name: name.into(), allocatable, ..NodeFacts::default() })
    };
    scribe.0.deltas(vec![
        Delta::QueueUpsert(queue),
        node("n0"),
        node("n1"),
        node("n2"),
        Delta::NodeRemove("n2".into()),
    ]);
    writes(&mut scribe);
    drop(scribe);
    written.blocking_recv().unwrap();
    read(&Recording::open(folder).unwrap(), Range::default()).unwrap()
}

/// Two small jobs are spread over both nodes, so that the big one waits until the first of them ends.
fn spread(scribe: &mut Scribe) {
    for (name, seconds, node) in [("s1", 0, "n0"), ("s2", 1, "n1")] {
        scribe.group(name, seconds, 1, 1_000);
        scribe.bound(name, node, seconds);
    }
    scribe.group("big", 10, 1, 4_000);
    scribe.ended("s1", 0, 1_000);
    scribe.bound("big", "n0", 1_000);
    scribe.ended("s2", 1, 1_001);
    scribe.ended("big", 1_000, 1_100);
}

#[test]
fn a_recording_says_who_came_when_and_ran_how_long() {
    let folder = tempfile::tempdir().unwrap();
    let recorded = scribe(folder.path(), spread);
    let jobs: Vec<(&str, i64, i64)> =
        recorded.trace.jobs.iter().map(|job| (job.name.as_str(), job.submit_ms, job.run_ms)).collect();
    assert_eq!(jobs, [("s1", 0, 1_000_000), ("s2", 1_000, 1_000_000), ("big", 10_000, 100_000)]);
    let big = &recorded.trace.jobs[2];
    assert_eq!((big.pods, big.min, big.cpu_milli(), &*big.queue, &*big.user), (1, 1, 4_000, "research", "ns"));
    assert_eq!(recorded.trace.queues[&Arc::from("research")], 2);
    assert_eq!(recorded.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["n0", "n1"]);
    let history = recorded.history(&recorded.trace);
    let outcome = &history.outcomes[2];
    assert_eq!((outcome.started_ms, outcome.ended_ms), (Some(1_000_000), Some(1_100_000)));
    assert_eq!(history.holds.len(), 3);
    let notes: Vec<_> = recorded.trace.notes.iter().collect();
    assert_eq!(notes.len(), 2, "the World and the node that went: {notes:?}");
}

#[test]
fn what_never_ran_takes_as_long_as_its_like_and_what_was_evicted_ran_in_vain() {
    let folder = tempfile::tempdir().unwrap();
    let recorded = scribe(folder.path(), |scribe| {
        scribe.group("s1", 0, 1, 1_000);
        scribe.bound("s1", "n0", 0);
        scribe.group("victim", 1, 1, 1_000);
        scribe.bound("victim", "n1", 2);
        let eviction = Eviction {
            uid: "pod-victim".into(),
            namespace: "ns".to_owned(),
            name: "victim".to_owned(),
            node: "n1".into(),
            group: "ns/victim".into(),
            action: "preempt".to_owned(),
            beneficiary: None,
            running: true,
            lost_core_ms: 0,
            message: String::new(),
        };
        scribe.0.cycle(at(12), &Plan { evictions: vec![eviction], ..Plan::default() });
        scribe.0.deltas(vec![Delta::TaskRemove("pod-victim".into())]);
        scribe.group("wide", 20, 3, 1_000);
        scribe.ended("s1", 0, 60);
    });
    let jobs: Vec<(&str, u32, i64)> =
        recorded.trace.jobs.iter().map(|job| (job.name.as_str(), job.pods, job.run_ms)).collect();
    assert_eq!(jobs, [("s1", 1, 60_000), ("victim", 1, 60_000), ("wide", 3, 60_000)]);
    let history = recorded.history(&recorded.trace);
    assert_eq!((history.outcomes[1].evicted, history.outcomes[1].lost_core_ms), (1, 10_000_000));
    assert_eq!(history.outcomes[2].started_ms, None);
    let times = recorded.trace.notes.iter().find(|(what, _)| what.contains("as long as those like it"));
    assert_eq!(times.map(|(_, times)| times), Some(2));
}

#[test]
fn a_pod_on_a_node_that_nobody_told_of_counts_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let recorded = scribe(folder.path(), |scribe| {
        scribe.group("lost", 0, 1, 1_000);
        scribe.bound("lost", "n9", 1);
        scribe.pod("lost", |facts| {
            (facts.node, facts.phase) = (Some("n9".into()), PodPhase::Succeeded);
            (facts.started, facts.ended) = (Some(at(1)), Some(at(61)));
        });
        scribe.0.cycle(at(61), &Plan::default());
    });
    assert_eq!(recorded.history(&recorded.trace).outcomes[0].started_ms, Some(1_000));
    let outcome = instead(recorded, conf(10, 0), &[]).unwrap();
    assert_eq!(outcome.report.runs[1].figures.all.never_started, 0, "it runs on a node that is there");
}

fn instead(recorded: Recorded, text: String, weights: &[(&str, i32)]) -> Result<WhatIf, NoWhatIf> {
    let before = config_of(&recorded.beginning, &plugins()).unwrap();
    let other = Beginning { config: Some(text), ..recorded.beginning.clone() };
    let config = config_of(&other, &plugins()).unwrap();
    let weights = weights.iter().map(|(queue, weight)| ((*queue).to_owned(), *weight)).collect();
    what_if("recording".to_owned(), recorded, before, Other { name: "new".to_owned(), config, weights }, plugins())
}

#[test]
fn a_changed_weight_shows_what_it_would_have_changed() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = instead(scribe(folder.path(), spread), conf(0, 10), &[]).unwrap();
    assert_eq!((outcome.earlier, outcome.later), (1, 0));
    let moved = &outcome.moved[0];
    assert_eq!((moved.job.as_str(), moved.queue.as_str(), moved.after_s), ("ns/big", "research", Some(0.0)));
    assert_eq!(moved.before_s, Some(990.0), "it waits for the first small one, as it did");
    let [recorded, same, new] = &outcome.report.runs[..] else { panic!("three runs") };
    assert_eq!(recorded.figures.all.wait_s.max, same.figures.all.wait_s.max, "the model tells what happened");
    assert!(new.figures.makespan_s < same.figures.makespan_s, "what starts earlier ends earlier");
    let text = outcome.table();
    assert!(text.contains("jobs from same conf to new: 1 start earlier, 0 later, 2 at the same time"), "{text}");
    assert!(text.contains("ns/big in research: waits 0 s instead of 990 s"), "{text}");
}

#[test]
fn a_queue_that_weighs_more_is_served_earlier() {
    let shares = "actions: enqueue, allocate, backfill\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: \
                  proportion\n";
    let folder = tempfile::tempdir().unwrap();
    let two_queues = |scribe: &mut Scribe| {
        let students = QueueFacts { name: "students".to_owned(), weight: 1, ..QueueFacts::default() };
        scribe.0.deltas(vec![Delta::QueueUpsert(students)]);
        scribe.group("s1", 0, 1, 1_000);
        scribe.bound("s1", "n0", 0);
        for index in 0..12 {
            scribe.group_of("research", &format!("r-{index}"), 1, 1, 1_000);
            scribe.group_of("students", &format!("s-{index}"), 2, 1, 1_000);
        }
        scribe.ended("s1", 0, 100);
    };
    let outcome = instead(scribe(folder.path(), two_queues), shares.to_owned(), &[]).unwrap();
    let waits = |outcome: &WhatIf, run: usize, queue: &str| {
        outcome.report.runs[run].figures.by_queue.iter().find(|(name, _)| **name == *queue).unwrap().1.wait_s.mean
    };
    let before = waits(&outcome, 2, "students");
    let recorded = scribe(tempfile::tempdir().unwrap().path(), two_queues);
    let heavier = instead(recorded, shares.to_owned(), &[("students", 9)]).unwrap();
    let after = waits(&heavier, 2, "students");
    assert!(after < before, "{after} {before}");
    assert!(waits(&heavier, 2, "research") > waits(&outcome, 2, "research"));
    let recorded = scribe(tempfile::tempdir().unwrap().path(), two_queues);
    let unknown = instead(recorded, shares.to_owned(), &[("staff", 9)]).unwrap_err();
    assert_eq!(unknown.to_string(), "the recording has no queue staff; it has research, students");
}

#[test]
fn the_same_configuration_moves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = instead(scribe(folder.path(), spread), conf(10, 0), &[]).unwrap();
    assert_eq!((outcome.earlier, outcome.later, outcome.moved.len()), (0, 0, 0));
    let none = scribe(tempfile::tempdir().unwrap().path(), |_| {});
    assert_eq!(instead(none, conf(10, 0), &[]), Err(NoWhatIf::NoJob));
}

#[test]
fn a_saved_world_tells_of_its_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(Config::default());
    for node in 0..4 {
        let allocatable = [("cpu".to_owned(), 4_000)].into();
        world.apply(&Delta::NodeUpsert(NodeFacts {
            name: format!("n{node}").into(),
            allocatable,
            ..NodeFacts::default()
        }));
    }
    let beginning = Beginning { version: "1".to_owned(), ..Beginning::default() };
    let header = Header { number: 2, continues: true, ..Header::default() };
    segment::write_start(&segment::start_path(folder.path(), 2), &header, &beginning, &world.save()).unwrap();
    SegmentWriter::create(&segment::path(folder.path(), 2), &header, u64::MAX).unwrap().close().unwrap();
    let trace = read(&Recording::open(folder.path()).unwrap(), Range::default()).unwrap();
    assert_eq!((trace.nodes.len(), trace.beginning.version.as_str()), (4, "1"), "the saved World tells of its nodes");
    assert!(trace.nodes.iter().all(|node| node.allocatable["cpu"] == 4_000));
}
