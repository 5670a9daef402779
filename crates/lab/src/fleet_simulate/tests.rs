//! Whole simulations: laws that hold for any, what Armada's own simulator is known to do, shares.

use std::collections::BTreeMap;
use std::path::PathBuf;

use proptest::prelude::*;
use pumice_ledger::JobId;
use pumice_testkit::shared_fixture;

use super::plan::Plan;
use super::run::job_of;
use super::*;

/// Four classes of falling patience, of which the last never makes room.
const CONFIG: &str = "scheduling:\n  priorityClasses:\n    first: {priority: 0, preemptible: true}\n    \
                      second: {priority: 2, preemptible: true}\n    urgent: {priority: 3}\n    \
                      armada-default: {priority: 3}\nsubmission:\n  defaultPriorityClassName: armada-default\n  \
                      allowedPriorityClassNames: [armada-default]\n";

fn simulation(clusters: &str, workload: &str, config: &str) -> Simulation {
    Simulation {
        clusters: Clusters::read(clusters, "clusters").unwrap_or_else(|error| panic!("{error}\n{clusters}")),
        workload: Workload::read(workload, "workload").unwrap_or_else(|error| panic!("{error}\n{workload}")),
        scheduling: Scheduling::read(config).unwrap_or_else(|error| panic!("{error}\n{config}")),
        seed: None,
        delays: Delays { grace_ms: 0, ..Delays::default() },
    }
}

/// Runs it, and sees that what must be true of any simulation whose jobs all fit is true of this one.
fn run(simulation: &Simulation) -> Outcome {
    let mut ends: BTreeMap<JobId, usize> = BTreeMap::new();
    let mut log = |entry: &Entry| {
        for job in entry.events.iter().filter_map(pumice_ledger::Event::ends) {
            *ends.entry(job).or_default() += 1;
        }
    };
    let outcome = simulation.run(&mut || Duration::ZERO, &mut log).unwrap();
    let (history, report) = (&outcome.history, &outcome.report);
    assert_eq!((report.succeeded, report.jobs), (simulation.workload.jobs(), history.jobs.len()), "{report:#?}");
    assert_eq!(ends.len(), report.jobs);
    assert!(ends.values().all(|times| *times == 1), "each ends once");
    assert!(report.makespan_s >= report.makespan_at_least_s, "{report:#?}");
    assert!(!report.cut_off);
    let plan = Plan::new(&simulation.workload, &simulation.scheduling, report.seed).unwrap();
    let mut ran = vec![0; report.jobs];
    for hold in history.holds.iter().filter(|hold| !hold.lost) {
        ran[hold.job] += hold.to_ms - hold.from_ms;
    }
    for (index, job) in history.jobs.iter().enumerate() {
        let (submitted, started) = (job.submitted_ms.unwrap(), job.started_ms.unwrap());
        let (ended, _) = job.ended.unwrap();
        assert!(submitted <= started && started + plan.run_ms[index] <= ended, "{job:?}");
        assert!(ran[index] >= plan.run_ms[index], "{job:?} ran for {}", ran[index]);
    }
    nothing_is_over(simulation, &plan, history);
    let again = simulation.run(&mut || Duration::ZERO, &mut |_| {}).unwrap();
    assert!(again == outcome, "the same again");
    outcome
}

/// No node ever holds more than it offers.
fn nothing_is_over(simulation: &Simulation, plan: &Plan, history: &History) {
    // Node, time, whether room is taken, job: what ends at a moment makes room at that moment.
    let mut changes: Vec<(usize, i64, bool, usize)> = Vec::new();
    for hold in &history.holds {
        changes.push((hold.node, hold.from_ms, true, hold.job));
        changes.push((hold.node, hold.to_ms, false, hold.job));
    }
    changes.sort_unstable();
    let mut held: BTreeMap<(usize, &str), i64> = BTreeMap::new();
    for (node, at, takes, job) in changes {
        let (_, shape) = &plan.shapes[plan.template_of(job).unwrap()];
        for (name, amount) in &shape.requests {
            let sum = held.entry((node, name)).or_default();
            *sum += if takes { *amount } else { -amount };
            let offered = simulation.clusters.nodes[node].facts.allocatable.get(name).copied().unwrap_or(0);
            assert!(*sum <= offered, "node {node} at {at} holds {sum} of {offered} {name}");
        }
    }
}

/// Clusters of one pool with so many nodes of 32 cores each.
fn clusters(nodes: &[u32]) -> String {
    let mut text = "clusters:\n".to_owned();
    for (index, nodes) in nodes.iter().enumerate() {
        text.push_str(&format!(
            "- name: c{index}\n  pool: p\n  nodeTemplates:\n  - {{number: {nodes}, totalResources: {{resources: {{cpu: 32, \
             memory: 256Gi}}}}}}\n"
        ));
    }
    text
}

/// Queues of weight 1 with one template each: name, number, cores, class, and other fields.
fn workload(queues: &[(&str, u32, u32, &str, &str)]) -> String {
    let mut text = "queues:\n".to_owned();
    for (name, number, cores, class, more) in queues {
        text.push_str(&format!(
            "- name: {name}\n  weight: 1\n  jobTemplates:\n  - {{number: {number}, jobSet: s, priorityClassName: {class}, \
             requirements: {{resourceRequirements: {{requests: {{cpu: {cores}, memory: {}Gi}}}}}}, runtimeDistribution: \
             {{minimum: 1m}}{more}}}\n",
            cores * 8
        ));
    }
    text
}

/// What Armada's tests of its simulator expect: who is preempted how often, and within how many minutes all is over.
#[test]
fn scenarios_of_armadas_simulator_end_in_time() {
    let late = ", earliestSubmitTime: 30s";
    for (name, nodes, queues, preempted, minutes) in [
        ("two in parallel", vec![2], vec![("A", 2, 32, "urgent", "")], vec![0], 5),
        ("two in sequence", vec![1], vec![("A", 2, 32, "urgent", "")], vec![0], 5),
        ("ten in sequence", vec![1], vec![("A", 10, 32, "urgent", "")], vec![0], 20),
        ("two clusters", vec![1, 1], vec![("A", 2, 32, "urgent", "")], vec![0], 5),
        (
            "preemption for balance",
            vec![2],
            vec![("A", 2, 32, "first", ""), ("B", 1, 32, "first", late)],
            vec![1, 0],
            5,
        ),
        (
            "no cascade",
            vec![1, 1, 1],
            vec![("B", 1, 32, "first", ""), ("C", 2, 32, "first", ""), ("A", 1, 32, "first", late)],
            vec![0, 1, 0],
            5,
        ),
        ("gangs in sequence", vec![8, 1], vec![("A", 16, 32, "urgent", ", gangCardinality: 8")], vec![0], 5),
        (
            "small and then large",
            vec![2],
            vec![("A", 64, 1, "first", ""), ("B", 2, 32, "first", ", earliestSubmitTime: 30m")],
            vec![0, 0],
            150,
        ),
    ] {
        let outcome = run(&simulation(&clusters(&nodes), &workload(&queues), CONFIG));
        let report = &outcome.report;
        let times: Vec<u64> = report.queues.iter().map(|queue| queue.preemptions).collect();
        assert_eq!(times, preempted, "{name}");
        assert!(report.makespan_s <= f64::from(minutes) * 60.0, "{name}: {}", report.makespan_s);
    }
}

/// With Armada the whole gang leaves; here it may be as few as are in the way.
#[test]
fn an_urgent_job_gets_the_room_of_a_gang() {
    let queues = [("A", 8, 32, "second", ", gangCardinality: 8"), ("B", 1, 32, "urgent", ", earliestSubmitTime: 30s")];
    let report = run(&simulation(&clusters(&[8]), &workload(&queues), CONFIG)).report;
    assert!((1..=8).contains(&report.queues[0].preemptions), "{report:#?}");
    assert_eq!(report.queues[1].preemptions, 0);
    assert!(report.makespan_s <= 300.0, "{}", report.makespan_s);
}

#[test]
fn a_template_waits_for_those_that_it_depends_on() {
    let text = "queues:\n- name: A\n  weight: 1\n  jobTemplates:\n\
                - {id: load, number: 2, repeat: {numTimes: 2, period: 10m}, runtimeDistribution: {minimum: 1m}}\n\
                - {number: 1, dependencies: [load], earliestSubmitTimeFromDependencyCompletion: 5m}\n\
                - {number: 1, dependencies: [load], earliestSubmitTime: 1h, repeat: {numTimes: 2, period: 1h}}\n";
    let text = text.replace("\n- {", "\n  - {");
    let outcome = run(&simulation(&clusters(&[1]), &text, CONFIG));
    let minutes: Vec<i64> = outcome.history.jobs.iter().map(|job| job.submitted_ms.unwrap() / 60_000).collect();
    // Four that others wait for, the last of which ends in the twelfth minute.
    assert_eq!(minutes, [0, 0, 10, 10, 16, 60, 120]);
}

#[test]
fn pods_wait_for_their_cluster_and_leave_with_grace() {
    let text = format!("{}pendingDelayDistribution: {{minimum: 7s}}\n", clusters(&[1]));
    let queues = [("A", 1, 32, "first", ""), ("B", 1, 32, "urgent", ", earliestSubmitTime: 30s")];
    // Both in one queue.
    let workload = workload(&queues).replace("- name: B\n  weight: 1\n  jobTemplates:\n", "");
    let mut simulation = simulation(&text, &workload, CONFIG);
    simulation.delays.grace_ms = 20_000;
    let Outcome { history, report } = run(&simulation);
    let [first, urgent] = history.jobs.as_slice() else { panic!("two jobs") };
    assert_eq!((first.started_ms, first.preempted), (Some(7_000), 1));
    // Told to leave in the thirtieth second, gone in the fiftieth, and 7 seconds until the pod of the other runs.
    let started = urgent.started_ms.unwrap();
    assert!((57_000..60_000).contains(&started), "{started}");
    assert!((report.lost_core_hours - 32.0 * 50.0 / 3600.0).abs() < 32.0 * 3.0 / 3600.0, "{}", report.lost_core_hours);
}

#[test]
fn what_fits_nowhere_never_starts_and_what_waits_for_it_is_never_submitted() {
    let text = "queues:\n- name: A\n  weight: 1\n  jobTemplates:\n\
                  \x20 - {id: big, number: 2, requirements: {resourceRequirements: {requests: {cpu: 33}}}}\n\
                  \x20 - {number: 3, dependencies: [big]}\n  - {number: 1}\n";
    let outcome = simulation(&clusters(&[2]), text, CONFIG).run(&mut || Duration::ZERO, &mut |_| {}).unwrap();
    let report = &outcome.report;
    assert_eq!((report.never_started, report.never_submitted, report.succeeded), (2, 3, 1));
    assert_eq!(report.why_never.values().sum::<usize>(), 2);
    let why = report.why_never.keys().next().unwrap();
    assert!(why.contains("cpu"), "{why}");
}

#[test]
fn equal_queues_share_alike_and_unequal_ones_by_weight() {
    let runs = ", runtimeDistribution: {minimum: 3m, tailMean: 1m}}";
    let queue = |name| format!("- name: {name}\n  weight: 1\n  jobTemplates:\n  - {{number: {JOBS}{TEMPLATE}{runs}\n");
    const JOBS: usize = 200;
    const TEMPLATE: &str = ", requirements: {resourceRequirements: {requests: {cpu: 1, memory: 8Gi}}}";
    let even = format!("queues:\n{}{}", queue("A"), queue("B"));
    let uneven = even.replacen("weight: 1", "weight: 3", 1);
    for (text, weights) in [(even, [1.0, 1.0]), (uneven, [3.0, 1.0])] {
        let simulation = simulation(&clusters(&[5, 3]).replace("cpu: 32", "cpu: 4"), &text, CONFIG);
        let Outcome { history, .. } = run(&simulation);
        // From the first round until one of the queues has nothing more that waits.
        let last_lease = |jobs: std::ops::Range<usize>| {
            let of = history.holds.iter().filter(|hold| jobs.contains(&hold.job));
            of.map(|hold| hold.from_ms).max().unwrap()
        };
        let until = last_lease(0..JOBS).min(last_lease(JOBS..2 * JOBS));
        assert!(until > 600_000, "they share for a while");
        let mut changes: Vec<(i64, bool, usize)> = Vec::new();
        for hold in &history.holds {
            changes.push((hold.from_ms, true, hold.job / JOBS));
            changes.push((hold.to_ms, false, hold.job / JOBS));
        }
        changes.sort_unstable();
        let mut held = [0.0_f64; 2];
        let mut checked = 0;
        for moment in changes.chunk_by(|one, other| one.0 == other.0).filter(|moment| moment[0].0 < until) {
            for (_, takes, queue) in moment {
                held[*queue] += if *takes { 1.0 } else { -1.0 };
            }
            let apart = (held[0] / weights[0] - held[1] / weights[1]).abs();
            assert!(apart <= 4.0, "{held:?} at {} ms", moment[0].0);
            checked += 1;
        }
        assert!(checked > 100, "{checked}");
    }
}

#[test]
fn pools_are_used_side_by_side_and_taints_keep_off() {
    let text = "clusters:\n- name: a\n  pool: x\n  nodeTemplates:\n  - {number: 1, totalResources: {resources: {cpu: 4}}}\n\
                - name: b\n  pool: y\n  nodeTemplates:\n  - {number: 1, labels: {kind: big}, taints: [{key: own, effect: \
                NoSchedule}], totalResources: {resources: {cpu: 4}}}\n  - {number: 1, totalResources: {resources: {cpu: 4}}}\n";
    let jobs = "queues:\n- name: A\n  weight: 1\n  jobTemplates:\n\
                \x20 - {number: 12, runtimeDistribution: {minimum: 1m}, requirements: {resourceRequirements: {requests: \
                {cpu: 1}}}}\n\
                \x20 - {number: 4, runtimeDistribution: {minimum: 1m}, requirements: {resourceRequirements: {requests: \
                {cpu: 1}}, nodeSelector: {kind: big}, tolerations: [{key: own, operator: Exists}]}}\n";
    let Outcome { history, report } = run(&simulation(text, jobs, CONFIG));
    assert_eq!((report.pools, report.cluster_count, report.nodes), (2, 2, 3));
    for hold in &history.holds {
        assert_eq!(hold.node == 1, hold.job >= 12, "{hold:?}");
    }
    let nodes: std::collections::BTreeSet<usize> = history.holds.iter().map(|hold| hold.node).collect();
    assert_eq!(nodes.len(), 3);
}

#[test]
fn a_seed_draws_other_times_and_an_unknown_class_is_named() {
    let queues = [("A", 5, 1, "first", "")];
    let text = workload(&queues).replace("{minimum: 1m}", "{minimum: 1m, tailMean: 10m}");
    let mut simulation = simulation(&clusters(&[1]), &text, CONFIG);
    let first = run(&simulation);
    simulation.seed = Some(2);
    assert_ne!(run(&simulation).report.makespan_s, first.report.makespan_s);
    simulation.scheduling.classes.remove("first");
    let error = simulation.run(&mut || Duration::ZERO, &mut |_| {}).unwrap_err().to_string();
    let told =
        "queues[0].jobTemplates[0].priorityClassName: there is no priority class \"first\"; there are armada-default";
    assert!(error.starts_with(told), "{error}");
}

#[test]
fn ids_say_which_job_it_is() {
    assert_eq!(job_of(JobId::new(pumice_ledger::TimeMs(run::EPOCH_MS), 77)), 77);
}

/// Every specification below a folder.
fn files(folder: PathBuf) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        files.extend(if path.is_dir() { self::files(path) } else { vec![path] });
    }
    files.sort();
    files
}

#[test]
fn every_specification_of_armadas_simulator_runs_to_its_end() {
    let Some(folder) = shared_fixture("armada/internal/scheduler/simulator/testdata") else { return };
    let text = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
    let mut configs: Vec<String> = files(folder.join("configs")).iter().map(text).collect();
    configs.push("{}".to_owned());
    let (clusters, workloads) = (files(folder.join("clusters")), files(folder.join("workloads")));
    assert!(clusters.len() >= 2 && workloads.len() >= 5);
    for cluster in &clusters {
        for workload in &workloads {
            for config in &configs {
                let simulation = simulation(&text(cluster), &text(workload), config);
                let report = run(&simulation).report;
                // There is room for all at once.
                assert!(report.makespan_s < report.makespan_at_least_s + 2.0, "{workload:?}: {report:#?}");
                assert_eq!(report.preemptions, 0, "{workload:?}");
            }
        }
    }
}

/// A workload of jobs that all fit on nodes of four cores, two in each of two clusters.
fn any_workload() -> impl Strategy<Value = String> {
    let class = prop_oneof![Just("first"), Just("second"), Just("urgent")];
    let template = (1_u32..6, 1_u32..5, class, 0_u32..300, 0_u32..200, any::<bool>(), 0_u32..2).prop_map(
        |(number, cores, class, at, runs, is_gang, repeats)| {
            let (number, gang) = if is_gang { (number * 2, ", gangCardinality: 2") } else { (number, "") };
            let repeat = format!(", repeat: {{numTimes: {}, period: 50s}}", repeats + 1);
            format!(
                "  - {{number: {number}, priorityClassName: {class}, earliestSubmitTime: {at}s{gang}{repeat}, \
                 runtimeDistribution: {{minimum: {runs}s, tailMean: 20s}}, requirements: {{resourceRequirements: \
                 {{requests: {{cpu: {cores}}}}}}}}}\n"
            )
        },
    );
    let queue = (1_u32..4, prop::collection::vec(template, 1..3));
    prop::collection::vec(queue, 1..4).prop_map(|queues| {
        let mut text = "queues:\n".to_owned();
        for (index, (weight, templates)) in queues.into_iter().enumerate() {
            text.push_str(&format!("- name: q{index}\n  weight: {weight}\n  jobTemplates:\n{}", templates.concat()));
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn the_laws_hold_for_any_workload_that_fits(text in any_workload(), grace_ms in 0_i64..40_000) {
        let mut simulation = simulation(&clusters(&[2, 2]).replace("cpu: 32", "cpu: 4"), &text, CONFIG);
        simulation.delays.grace_ms = grace_ms;
        run(&simulation);
    }
}
