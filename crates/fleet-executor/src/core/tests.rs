//! One case a rule: what happens, and what the executor then asks for and says.

use std::collections::BTreeMap;

use pumice_fleet_model::names::{former_pod_name, pod_name};
use pumice_wire::executor::{
    Acknowledge, Acknowledged, Errand, Lease, Leases, Redirect, RunCause, RunPhase, RunReport, Stop, StopKind, StopRun,
    Welcome, to_executor::Message,
};
use pumice_wire::kubernetes::PodSpec;
use serde_json::json;

use super::*;
use crate::facts::{Container, ContainerState, Kind, PodPhase};

mod creation;
mod cut_off;
mod volcano_job;

pub(super) const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;

pub(super) fn run(number: u8) -> RunId {
    format!("{:026}-1", number).parse().expect("parses")
}

pub(super) fn lease(id: RunId) -> Lease {
    let spec = json!({ "containers": [{ "name": "main", "image": "busybox" }] });
    Lease {
        run_id: id.to_string(),
        job_id: id.job.to_string(),
        queue: "q".to_owned(),
        job_set: "s".to_owned(),
        namespace: "n".to_owned(),
        node: "node-a".to_owned(),
        pod_spec: Some(PodSpec::from_json(&spec).expect("encodes")),
        ..Lease::default()
    }
}

pub(super) fn pod(id: RunId, uid: &str, phase: PodPhase, since: TimeMs) -> PodFacts {
    PodFacts {
        run: id,
        kind: Kind::Pod,
        queue: "q".to_owned(),
        namespace: "n".to_owned(),
        name: pod_name(id),
        uid: uid.to_owned(),
        version: "7".to_owned(),
        node: "node-a".to_owned(),
        phase,
        cut_off_ms: None,
        since,
        deletion: None,
        init_since: None,
        reason: String::new(),
        message: String::new(),
        containers: Vec::new(),
    }
}

/// What is said of a run before its number, where it is no pod.
fn of(kind: Kind) -> &'static str {
    match kind {
        Kind::Pod => "",
        Kind::Job => "job ",
    }
}

/// A core and what drives it: outputs become short lines.
struct Bench {
    core: Core,
    now: TimeMs,
    sequence: u64,
    session: u64,
    said: Vec<String>,
    reports: Vec<RunReport>,
}

impl Bench {
    fn with(settings: Settings) -> Self {
        let core = Core::new(settings).expect("patterns are good");
        let (said, reports) = (Vec::new(), Vec::new());
        let mut bench = Self { core, now: TimeMs(0), sequence: 0, session: 0, said, reports };
        bench.put(Input::Pods(Vec::new()));
        bench.connect();
        bench.said.clear();
        bench
    }

    fn new() -> Self {
        Self::with(Settings::default())
    }

    fn connect(&mut self) {
        self.session += 1;
        self.sequence = 0;
        self.put(Input::Connected { session: self.session });
    }

    fn put(&mut self, input: Input) -> &mut Self {
        for output in self.core.apply(self.now, input) {
            match output {
                Output::Create { run, objects } => {
                    self.said.push(format!("create {}{}", of(objects.kind), run.job.0));
                }
                Output::Delete { run, kind, how, uid, .. } => {
                    let uid = uid.unwrap_or_else(|| "-".to_owned());
                    self.said.push(format!("delete {}{} {uid} {how:?}", of(kind), run.job.0));
                }
                Output::Report(runs) => {
                    if runs.complete {
                        self.said.push("complete".to_owned());
                    }
                    for report in runs.reports {
                        let phase = RunPhase::try_from(report.phase).expect("a phase");
                        let job = report.run_id.parse::<RunId>().map_or(u128::MAX, |run| run.job.0);
                        self.said.push(format!("say {job} {phase:?}"));
                        self.reports.push(report);
                    }
                }
                Output::RunErrand(errand) => self.said.push(format!("errand {}", errand.errand_id)),
                Output::EndSession(end) => self.said.push(format!("end {end:?}")),
            }
        }
        self
    }

    fn hear(&mut self, message: Message) -> &mut Self {
        self.sequence += 1;
        let message = Box::new(ToExecutor { sequence: self.sequence, message: Some(message) });
        self.put(Input::Message { session: self.session, message })
    }

    fn leases(&mut self, numbers: &[u8]) -> &mut Self {
        self.hear(Message::Leases(Leases { leases: numbers.iter().map(|number| lease(run(*number))).collect() }))
    }

    fn stop(&mut self, number: u8, kind: StopKind) -> &mut Self {
        let stop = StopRun { run_id: run(number).to_string(), reason: "told".to_owned(), kind: kind as i32 };
        self.hear(Message::Stop(Stop { runs: vec![stop] }))
    }

    fn acknowledge(&mut self, number: u8, phase: RunPhase) -> &mut Self {
        let known = Acknowledged { run_id: run(number).to_string(), phase: phase as i32 };
        self.hear(Message::Acknowledge(Acknowledge { runs: vec![known], seen: 0 }))
    }

    fn after(&mut self, ms: i64) -> &mut Self {
        self.now = self.now.plus(ms);
        self.put(Input::Tick)
    }

    fn pod(&mut self, number: u8, phase: PodPhase) -> &mut Self {
        let facts = pod(run(number), "u", phase, self.now);
        self.put(Input::Pod(Box::new(facts)))
    }

    /// Its pod turns out to be one that can never start.
    fn misnames_image(&mut self, number: u8) -> &mut Self {
        let state = ContainerState::Waiting { reason: "InvalidImageName".to_owned(), message: String::new() };
        let containers = vec![Container { name: "main".to_owned(), state }];
        let facts = PodFacts { containers, ..pod(run(number), "u", PodPhase::Pending, self.now) };
        self.put(Input::Pod(Box::new(facts)))
    }

    fn leaving_pod(&mut self, number: u8, phase: PodPhase, by: TimeMs) -> &mut Self {
        let facts = PodFacts { deletion: Some(by), ..pod(run(number), "u", phase, self.now) };
        self.put(Input::Pod(Box::new(facts)))
    }

    fn removed(&mut self, number: u8) -> &mut Self {
        self.put(Input::PodRemoved { run: run(number), uid: "u".to_owned() })
    }

    fn created(&mut self, number: u8) -> &mut Self {
        self.put(Input::Created { run: run(number), uid: "u".to_owned() })
    }

    fn refused(&mut self, number: u8, kind: RefusalKind) -> &mut Self {
        let refusal = Refusal { kind, reason: "Because".to_owned(), message: "why".to_owned() };
        self.put(Input::NotCreated { run: run(number), refusal })
    }

    fn deleted(&mut self, number: u8, answer: DeleteAnswer) -> &mut Self {
        self.put(Input::Deleted { run: run(number), answer })
    }

    /// A run whose pod is seen in this phase; what was said up to here is forgotten.
    fn at(&mut self, number: u8, phase: PodPhase) -> &mut Self {
        self.leases(&[number]).created(number).pod(number, phase).clear()
    }

    fn clear(&mut self) -> &mut Self {
        self.said.clear();
        self
    }

    /// What was said since the last look.
    #[track_caller]
    fn expect(&mut self, lines: &[&str]) -> &mut Self {
        assert_eq!(std::mem::take(&mut self.said), lines);
        self
    }

    fn last(&self) -> &RunReport {
        self.reports.last().expect("something was reported")
    }
}

#[test]
fn a_run_goes_from_its_lease_to_its_end() {
    let mut bench = Bench::new();
    bench.leases(&[1]).expect(&["create 1", "say 1 Leased"]);
    bench.created(1).expect(&["say 1 Pending"]);
    bench.pod(1, PodPhase::Pending).expect(&[]);
    bench.acknowledge(1, RunPhase::Pending).pod(1, PodPhase::Running).expect(&["say 1 Running"]);
    bench.pod(1, PodPhase::Pending).expect(&[]);
    bench.pod(1, PodPhase::Succeeded).expect(&["say 1 Succeeded"]);
    assert_eq!(bench.last().pod_uid, "u");
    assert_eq!(bench.last().node, "node-a");
}

#[test]
fn reports_are_repeated_until_they_are_acknowledged() {
    let mut bench = Bench::new();
    bench.at(1, PodPhase::Running).after(9 * SECOND).expect(&[]);
    bench.after(SECOND).expect(&["say 1 Running"]);
    bench.acknowledge(1, RunPhase::Pending).after(10 * SECOND).expect(&["say 1 Running"]);
    bench.acknowledge(1, RunPhase::Running).after(MINUTE).expect(&[]);
}

#[test]
fn what_was_taken_is_said_once_in_a_session() {
    let mut bench = Bench::with(Settings { starts_max: 0, ..Settings::default() });
    bench.leases(&[1]).expect(&["say 1 Leased"]).after(MINUTE).expect(&[]);
    bench.connect();
    bench.expect(&["complete", "say 1 Leased"]);
}

#[test]
fn a_new_session_is_told_everything_but_ends_that_are_known() {
    let mut bench = Bench::new();
    bench.at(1, PodPhase::Running).at(2, PodPhase::Succeeded).at(3, PodPhase::Succeeded);
    bench.acknowledge(1, RunPhase::Running).acknowledge(2, RunPhase::Succeeded).clear().put(Input::Disconnected);
    bench.after(MINUTE).expect(&[]);
    bench.connect();
    bench.expect(&["complete", "say 1 Running", "say 3 Succeeded"]);
}

#[test]
fn nothing_is_told_before_all_pods_were_seen() {
    let mut core = Core::new(Settings::default()).expect("patterns are good");
    assert_eq!(core.apply(TimeMs(0), Input::Connected { session: 1 }), []);
    let outputs = core.apply(TimeMs(0), Input::Pods(vec![pod(run(1), "u", PodPhase::Running, TimeMs(0))]));
    let [Output::Report(runs)] = outputs.as_slice() else { panic!("{outputs:?}") };
    assert!(runs.complete && runs.reports.len() == 1);
}

#[test]
fn a_restart_finds_its_runs_in_their_pods() {
    let mut bench = Bench::new();
    bench.pod(1, PodPhase::Running).expect(&["say 1 Running"]);
    bench.leaving_pod(2, PodPhase::Running, TimeMs(0)).expect(&["say 2 Running"]);
    bench.leases(&[1]).expect(&["say 1 Running"]);
}

#[test]
fn leases_of_another_session_and_repeats_are_not_taken() {
    let mut bench = Bench::new();
    let leases = |number| Message::Leases(Leases { leases: vec![lease(run(number))] });
    let message = |sequence, number| Box::new(ToExecutor { sequence, message: Some(leases(number)) });
    bench.put(Input::Message { session: 7, message: message(1, 1) }).expect(&[]);
    bench.leases(&[2]).clear().put(Input::Message { session: 1, message: message(1, 1) }).expect(&[]);
    bench.put(Input::Message { session: 1, message: message(3, 1) }).expect(&["end OutOfOrder"]);
    bench.put(Input::Message { session: 1, message: message(2, 1) }).expect(&[]);
    bench.connect();
    bench.put(Input::Disconnected).clear().put(Input::Message { session: 2, message: message(1, 1) }).expect(&[]);
}

#[test]
fn an_errand_is_run_once_and_changes_nothing() {
    let mut bench = Bench::new();
    let errand = || Message::Errand(Errand { errand_id: 7, ..Errand::default() });
    bench.hear(errand()).expect(&["errand 7"]);
    let again = Box::new(ToExecutor { sequence: 1, message: Some(errand()) });
    bench.put(Input::Message { session: 1, message: again }).expect(&[]);
    assert_eq!(bench.core.counts(), RunCounts::default());
}

#[test]
fn another_leader_ends_the_session() {
    let mut bench = Bench::new();
    let redirect = Message::Redirect(Redirect { address: "http://b".to_owned() });
    bench.hear(redirect).expect(&["end Redirect(\"http://b\")"]);
    bench.leases(&[1]).expect(&[]);
}

#[test]
fn a_run_that_ended_is_not_started_again() {
    let mut bench = Bench::new();
    bench.at(1, PodPhase::Succeeded).leases(&[1]).expect(&["say 1 Succeeded"]);
    bench.acknowledge(1, RunPhase::Succeeded).leases(&[1]).expect(&["say 1 Succeeded"]);
    bench.acknowledge(1, RunPhase::Succeeded).removed(1).expect(&[]);
    bench.leases(&[1]).expect(&["say 1 Gone"]);
    bench.acknowledge(1, RunPhase::Gone).leases(&[1]).expect(&["say 1 Gone"]);
}

#[test]
fn a_pod_that_others_delete_is_gone() {
    let mut bench = Bench::new();
    bench.at(1, PodPhase::Running).leaving_pod(1, PodPhase::Failed, TimeMs(30 * SECOND)).expect(&[]);
    bench.removed(1).expect(&["say 1 Gone"]);
    bench.at(2, PodPhase::Running).put(Input::Pods(Vec::new())).expect(&["say 2 Gone"]);
}

#[test]
fn a_pod_made_anew_by_others_is_not_the_runs() {
    let mut bench = Bench::new();
    bench.at(1, PodPhase::Running);
    bench.put(Input::Pod(Box::new(pod(run(1), "v", PodPhase::Running, TimeMs(0)))));
    bench.expect(&["delete 1 v Graceful", "say 1 Gone"]);
}

#[test]
fn a_pod_that_others_delete_and_that_does_not_go_has_failed() {
    let mut bench = Bench::new();
    bench.at(1, PodPhase::Running).leaving_pod(1, PodPhase::Running, TimeMs(30 * SECOND));
    bench.acknowledge(1, RunPhase::Running).after(59 * SECOND).expect(&[]);
    bench.after(SECOND).expect(&["say 1 Failed"]);
    assert_eq!(bench.last().reason, "StuckTerminating");
    bench.acknowledge(1, RunPhase::Failed).expect(&["delete 1 u Forced"]);
}

#[test]
fn a_stop_deletes_with_grace_then_by_force() {
    let mut bench = Bench::new();
    bench.at(1, PodPhase::Running).acknowledge(1, RunPhase::Running);
    bench.stop(1, StopKind::Preempted).expect(&["delete 1 u Graceful"]);
    bench.deleted(1, DeleteAnswer::Accepted).leaving_pod(1, PodPhase::Running, TimeMs(30 * SECOND)).expect(&[]);
    bench.after(59 * SECOND).expect(&[]).after(SECOND).expect(&["delete 1 u Forced"]);
    bench.deleted(1, DeleteAnswer::Failed).after(10 * SECOND).expect(&["delete 1 u Forced"]);
    bench.deleted(1, DeleteAnswer::Accepted).removed(1).expect(&["say 1 Gone"]);
    assert_eq!(bench.last().message, "told");
}

#[test]
fn a_stop_is_answered_with_gone_wherever_the_run_is() {
    // Nothing is known of it.
    Bench::new().stop(1, StopKind::Unknown).expect(&["say 1 Gone"]);
    // Not begun.
    let mut bench = Bench::with(Settings { starts_max: 0, ..Settings::default() });
    bench.leases(&[1]).clear().stop(1, StopKind::Cancelled).expect(&["say 1 Gone"]);
    // Being made.
    let mut bench = Bench::new();
    bench.leases(&[1]).clear().stop(1, StopKind::Cancelled).expect(&[]);
    bench.created(1).expect(&["delete 1 u Graceful", "say 1 Pending"]);
    bench.deleted(1, DeleteAnswer::NotFound).expect(&["say 1 Gone"]);
    // Refused meanwhile.
    let mut bench = Bench::new();
    bench.leases(&[1]).clear().stop(1, StopKind::Cancelled).refused(1, RefusalKind::Fatal).expect(&["say 1 Gone"]);
    // Ended meanwhile: a server that wants the end gets it, and one that does not know the run gets it as gone.
    let mut bench = Bench::new();
    bench.at(1, PodPhase::Succeeded).stop(1, StopKind::Cancelled).expect(&["say 1 Succeeded"]);
    bench.stop(1, StopKind::Unknown).expect(&["say 1 Gone"]);
    // What a pod says while it is stopped does not count.
    let mut bench = Bench::new();
    bench.at(1, PodPhase::Running).stop(1, StopKind::Cancelled).clear().pod(1, PodPhase::Succeeded).expect(&[]);
    bench.removed(1).expect(&["say 1 Gone"]);
}

#[test]
fn a_stopped_pod_that_has_ended_but_is_held_back_is_gone() {
    let mut bench = Bench::new();
    bench.at(1, PodPhase::Running).acknowledge(1, RunPhase::Running).stop(1, StopKind::Cancelled);
    bench.deleted(1, DeleteAnswer::Accepted).leaving_pod(1, PodPhase::Failed, TimeMs(0)).clear();
    bench.after(30 * SECOND).expect(&["delete 1 u Forced", "say 1 Gone"]);
}

#[test]
fn a_pod_that_is_stuck_for_good_fails_and_is_deleted_once_that_is_known() {
    let mut bench = Bench::new();
    bench.at(1, PodPhase::Pending).misnames_image(1).after(SECOND).expect(&["say 1 Failed"]);
    bench.pod(1, PodPhase::Running).expect(&[]);
    bench.acknowledge(1, RunPhase::Failed).expect(&["delete 1 u Graceful"]).removed(1).after(MINUTE).expect(&[]);
}

#[test]
fn a_pod_that_is_stuck_for_now_is_deleted_as_it_was_and_its_lease_returned() {
    for (node, attempted) in [("", false), ("node-a", true)] {
        let mut bench = Bench::new();
        let facts = PodFacts { node: node.to_owned(), ..pod(run(1), "u", PodPhase::Pending, TimeMs(0)) };
        bench.at(1, PodPhase::Pending).put(Input::Pod(Box::new(facts))).acknowledge(1, RunPhase::Pending);
        bench.after(5 * MINUTE).expect(&[]).after(1).expect(&["delete 1 u IfVersion(\"7\")"]);
        bench.deleted(1, DeleteAnswer::Accepted).expect(&[]).removed(1).expect(&["say 1 Returned"]);
        assert_eq!(bench.last().run_attempted, attempted, "{node}");
    }
}

#[test]
fn a_stuck_pod_that_moves_is_let_go() {
    let mut bench = Bench::new();
    bench.at(1, PodPhase::Pending).acknowledge(1, RunPhase::Pending).after(5 * MINUTE + 1).clear();
    bench.pod(1, PodPhase::Running).deleted(1, DeleteAnswer::Changed).expect(&["say 1 Running"]);
    bench.acknowledge(1, RunPhase::Running).after(MINUTE).expect(&[]);
}

#[test]
fn a_stuck_pod_that_starts_while_it_is_deleted_has_failed() {
    let mut bench = Bench::new();
    bench.at(1, PodPhase::Pending).acknowledge(1, RunPhase::Pending).after(5 * MINUTE + 1).clear();
    bench.deleted(1, DeleteAnswer::Accepted).pod(1, PodPhase::Running).expect(&["say 1 Failed"]);
    bench.removed(1).acknowledge(1, RunPhase::Failed).after(MINUTE).expect(&[]);
}

#[test]
fn finished_pods_stay_for_a_while() {
    for (phase, told, minutes) in
        [(PodPhase::Succeeded, RunPhase::Succeeded, 3), (PodPhase::Failed, RunPhase::Failed, 10)]
    {
        let mut bench = Bench::new();
        bench.at(1, phase).after(20 * MINUTE).clear();
        bench.acknowledge(1, told).after(0).expect(&["delete 1 u Graceful"]);
        let mut bench = Bench::new();
        bench.at(1, phase).acknowledge(1, told).after(minutes * MINUTE - 1).expect(&[]);
        bench.after(1).expect(&["delete 1 u Graceful"]).deleted(1, DeleteAnswer::Accepted).removed(1);
        bench.after(MINUTE).expect(&[]);
        assert!(bench.core.runs.is_empty());
    }
}

#[test]
fn of_too_many_finished_pods_the_oldest_of_the_largest_queue_go() {
    let mut bench = Bench::with(Settings { finished_max: 2, ..Settings::default() });
    for (number, queue) in [(1, "small"), (2, "large"), (3, "large"), (4, "large")] {
        bench.now = bench.now.plus(1);
        let facts = pod(run(number), "u", PodPhase::Succeeded, bench.now);
        bench.put(Input::Pod(Box::new(PodFacts { queue: queue.to_owned(), ..facts })));
        bench.acknowledge(number, RunPhase::Succeeded);
    }
    bench.clear().after(1).expect(&["delete 2 u Graceful", "delete 3 u Graceful"]);
}

#[test]
fn failures_have_causes_and_their_containers() {
    let ended = |exit_code, reason: &str| Container {
        name: "main".to_owned(),
        state: ContainerState::Ended { exit_code, reason: reason.to_owned(), message: "m".to_owned() },
    };
    for (reason, container, cause) in [
        ("Evicted", ended(1, ""), RunCause::Evicted),
        ("DeadlineExceeded", ended(137, "OOMKilled"), RunCause::DeadlineExceeded),
        ("", ended(137, "OOMKilled"), RunCause::OutOfMemory),
        ("", ended(2, "Error"), RunCause::Error),
    ] {
        let mut bench = Bench::new();
        let facts = pod(run(1), "u", PodPhase::Failed, TimeMs(5));
        bench.put(Input::Pod(Box::new(PodFacts { reason: reason.to_owned(), containers: vec![container], ..facts })));
        let report = bench.last();
        assert_eq!((report.phase, report.cause), (RunPhase::Failed as i32, cause as i32));
        assert_eq!((report.time_ms, report.containers[0].message.as_str()), (5, "m"));
        // The pod itself says nothing of what went wrong.
        assert!(report.message.starts_with("container main ended with exit code "), "{}", report.message);
    }
}

#[test]
fn a_failure_is_of_a_category_and_tells_a_hint() {
    let rules = json!({ "enabled": true, "defaultCategory": "other", "categories": [{
        "name": "oom", "action": "Delete",
        "rules": [{ "onConditions": ["OOMKilled"], "subcategory": "main", "hint": "Ask for more memory." }],
    }] });
    let error_categories = serde_json::from_value(rules).expect("rules");
    let mut bench = Bench::with(Settings { error_categories, ..Settings::default() });
    let fails = |bench: &mut Bench, number, reason: &str| {
        let state = ContainerState::Ended { exit_code: 137, reason: reason.to_owned(), message: String::new() };
        let containers = vec![Container { name: "main".to_owned(), state }];
        let facts = pod(run(number), "u", PodPhase::Failed, bench.now);
        bench.put(Input::Pod(Box::new(PodFacts { containers, message: "it failed".to_owned(), ..facts })));
    };
    fails(&mut bench, 1, "OOMKilled");
    let said = |report: &RunReport| [&report.category, &report.subcategory, &report.message].map(String::clone);
    assert_eq!(said(bench.last()), ["oom", "main", "it failed\n\nAsk for more memory."]);
    bench.clear().after(11 * SECOND);
    assert_eq!(said(bench.last()), ["oom", "main", "it failed\n\nAsk for more memory."], "said again it is the same");
    bench.clear().acknowledge(1, RunPhase::Failed).after(1).expect(&["delete 1 u Graceful"]);
    fails(&mut bench, 2, "Error");
    assert_eq!(said(bench.last()), ["other", "", "it failed"]);
    bench.clear().acknowledge(2, RunPhase::Failed).after(1).expect(&[]);
}

#[test]
fn addresses_are_told_with_the_run() {
    let mut bench = Bench::new();
    let addresses = BTreeMap::from([(80, "host:31000".to_owned())]);
    bench.at(1, PodPhase::Running).acknowledge(1, RunPhase::Running);
    bench.put(Input::Addresses { run: run(1), addresses: addresses.clone() }).expect(&["say 1 Running"]);
    assert_eq!(bench.last().ingress_addresses, addresses);
    bench.put(Input::Addresses { run: run(1), addresses }).expect(&[]);
}
