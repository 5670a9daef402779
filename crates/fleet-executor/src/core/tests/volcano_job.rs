//! Runs that are Volcano jobs: the same rules, over a Job in place of a pod.

use super::*;
use pumice_fleet_model::submission::annotations::VOLCANO_JOB;

fn whole_lease(id: RunId) -> Lease {
    let job = json!({ "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "spec": { "tasks": [{ "name": "only", "replicas": 2, "template": { "spec": { "containers": [{ "name": "c" }] } } }] } });
    Lease {
        node: String::new(),
        pod_spec: None,
        annotations: [(VOLCANO_JOB.to_owned(), job.to_string())].into(),
        ..lease(id)
    }
}

fn job(number: u8, phase: PodPhase, since: TimeMs) -> PodFacts {
    PodFacts { kind: Kind::Job, node: String::new(), ..pod(run(number), "u", phase, since) }
}

fn member(number: u8, name: &str, exit_code: i32) -> PodFacts {
    let state = ContainerState::Ended { exit_code, reason: "Error".to_owned(), message: String::new() };
    PodFacts {
        name: format!("{}-{name}", pod_name(run(number))),
        uid: name.to_owned(),
        containers: vec![Container { name: "c".to_owned(), state }],
        ..pod(run(number), name, PodPhase::Failed, TimeMs(0))
    }
}

impl Bench {
    fn whole_leases(&mut self, numbers: &[u8]) -> &mut Self {
        let leases = numbers.iter().map(|number| whole_lease(run(*number))).collect();
        self.hear(Message::Leases(Leases { leases }))
    }

    fn job(&mut self, number: u8, phase: PodPhase) -> &mut Self {
        let facts = job(number, phase, self.now);
        self.put(Input::Pod(Box::new(facts)))
    }

    /// A run whose Job is made and seen in this phase.
    fn job_at(&mut self, number: u8, phase: PodPhase) -> &mut Self {
        self.whole_leases(&[number]).created(number).job(number, phase).clear()
    }
}

#[test]
fn a_whole_job_goes_from_its_lease_to_its_end() {
    let mut bench = Bench::new();
    bench.whole_leases(&[1]).expect(&["create job 1", "say 1 Leased"]);
    bench.created(1).expect(&["say 1 Pending"]);
    bench.job(1, PodPhase::Pending).job(1, PodPhase::Running).expect(&["say 1 Running"]);
    // It goes back where its Job restarts.
    bench.job(1, PodPhase::Pending).job(1, PodPhase::Running).expect(&[]);
    bench.job(1, PodPhase::Succeeded).expect(&["say 1 Succeeded"]);
    bench.acknowledge(1, RunPhase::Succeeded).after(4 * MINUTE).expect(&["delete job 1 u Graceful"]);
    bench.removed(1).after(SECOND).expect(&[]);
}

#[test]
fn a_failure_says_which_pods_failed_and_how() {
    let mut bench = Bench::new();
    bench.job_at(1, PodPhase::Running);
    for (name, code) in [("worker-0", 3), ("worker-1", 0), ("worker-0", 3)] {
        bench.put(Input::MemberFailed(Box::new(member(1, name, code))));
    }
    let message = "the Volcano Job is Failed".to_owned();
    let facts = PodFacts { message, reason: "Failed".to_owned(), ..job(1, PodPhase::Failed, TimeMs(0)) };
    bench.put(Input::Pod(Box::new(facts))).expect(&["say 1 Failed"]);
    let report = bench.reports.last().expect("a report").clone();
    let job = pod_name(run(1));
    let told = format!("the Volcano Job is Failed; pod {job}-worker-1: it failed; pod {job}-worker-0: ");
    assert_eq!(report.message, told + "container c ended with exit code 3 (Error)");
    assert_eq!(report.containers.iter().map(|one| one.exit_code).collect::<Vec<_>>(), [0, 3]);
    assert!(report.run_attempted);
}

#[test]
fn one_that_does_not_come_to_run_is_given_back_once_it_is_gone() {
    let mut bench = Bench::new();
    bench.job_at(1, PodPhase::Pending).acknowledge(1, RunPhase::Pending).after(14 * MINUTE).expect(&[]);
    bench.after(2 * MINUTE).expect(&["delete job 1 u IfVersion(\"7\")"]);
    bench.put(Input::Deleted { run: run(1), answer: DeleteAnswer::Accepted }).expect(&[]);
    bench.removed(1).expect(&["say 1 Returned"]);
    assert!(bench.reports.last().expect("a report").run_attempted, "another cluster is next");
}

#[test]
fn one_that_is_told_to_stop_is_gone_when_its_job_is() {
    let mut bench = Bench::new();
    bench.job_at(1, PodPhase::Running).stop(1, StopKind::Cancelled).expect(&["delete job 1 u Graceful"]);
    bench.job(1, PodPhase::Failed).expect(&[]);
    bench.removed(1).expect(&["say 1 Gone"]);
}

#[test]
fn jobs_and_pods_are_told_apart_where_all_of_a_kind_are_seen() {
    let mut bench = Bench::new();
    bench.job_at(1, PodPhase::Running).leases(&[2]).created(2).pod(2, PodPhase::Running).clear();
    bench.put(Input::Pods(vec![pod(run(2), "u", PodPhase::Running, TimeMs(0))])).expect(&[]);
    bench.put(Input::Jobs(vec![job(1, PodPhase::Running, TimeMs(0))])).expect(&[]);
    bench.put(Input::Pods(Vec::new())).expect(&["say 2 Gone"]);
    bench.put(Input::Jobs(Vec::new())).expect(&["say 1 Gone"]);
}

#[test]
fn the_next_executor_finds_them_and_removes_what_nobody_wants() {
    let mut bench = Bench::new();
    bench.put(Input::Jobs(vec![job(1, PodPhase::Running, TimeMs(0))])).expect(&["say 1 Running"]);
    bench.stop(1, StopKind::Unknown).expect(&["delete job 1 u Graceful"]);
}

#[test]
fn a_lease_whose_job_is_none_fails() {
    let mut bench = Bench::new();
    let mut lease = whole_lease(run(1));
    lease.annotations.insert(VOLCANO_JOB.to_owned(), "{}".to_owned());
    bench.hear(Message::Leases(Leases { leases: vec![lease] })).expect(&["say 1 Failed"]);
}
