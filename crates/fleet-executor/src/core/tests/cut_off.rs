//! Runs whose server does not answer any more: which are stopped, and how they end.

use super::*;

impl Bench {
    /// Leases that end when the server has not answered for a minute.
    fn passing_leases(&mut self, numbers: &[u8]) -> &mut Self {
        let passing = |number: &u8| Lease { cut_off_ms: 60_000, ..lease(run(*number)) };
        self.hear(Message::Leases(Leases { leases: numbers.iter().map(passing).collect() }))
    }

    /// A run with such a lease whose pod is seen in this phase.
    fn passing_at(&mut self, number: u8, phase: PodPhase) -> &mut Self {
        self.passing_leases(&[number]).created(number).pod(number, phase).clear()
    }

    /// The server answers, and has nothing to say.
    fn answered(&mut self) -> &mut Self {
        self.hear(Message::Acknowledge(Acknowledge::default()))
    }
}

#[test]
fn runs_are_cut_off_each_by_its_lease() {
    let mut bench = Bench::with(Settings { starts_max: 2, ..Settings::default() });
    bench.hear(Message::Welcome(Welcome { heartbeat_ms: 5000 }));
    assert_eq!(bench.core.heartbeat_ms(), 5000);
    bench.passing_at(1, PodPhase::Running).at(5, PodPhase::Running).acknowledge(5, RunPhase::Running);
    bench.passing_leases(&[2, 3, 4]).clear().put(Input::Disconnected);
    bench.after(MINUTE - 1).expect(&[]).after(1).expect(&["delete 1 u Graceful"]);
    bench.created(2).expect(&["delete 2 u Graceful"]).deleted(1, DeleteAnswer::Accepted).removed(1);
    bench.connect();
    bench.expect(&["complete", "say 1 Returned", "say 2 Pending", "say 3 Leased", "say 4 Returned", "say 5 Running"]);
    bench.refused(3, RefusalKind::Fatal).expect(&["say 3 Returned"]);
    bench.deleted(2, DeleteAnswer::Accepted).removed(2).expect(&["say 2 Returned"]);
    let report = bench.last();
    assert_eq!((report.reason.as_str(), report.run_attempted), ("CutOff", false));
    assert_eq!(report.message, "nothing was heard of the server for 1m0s");
    // The one without a time runs on, however long it takes.
    bench.put(Input::Disconnected).after(10_000 * MINUTE).expect(&[]);
}

#[test]
fn an_answer_keeps_runs_and_nothing_else_that_is_said_does() {
    let mut bench = Bench::new();
    bench.passing_at(1, PodPhase::Running).acknowledge(1, RunPhase::Running);
    for _ in 0..5 {
        bench.answered().after(MINUTE - 1).expect(&[]);
    }
    // Whoever does not hear this side may lease and stop all the same.
    bench.stop(9, StopKind::Unknown).expect(&["say 9 Gone"]);
    bench.after(1).expect(&["delete 1 u Graceful"]);
}

#[test]
fn what_an_earlier_executor_was_leased_is_cut_off_as_its_pod_says() {
    let mut bench = Bench {
        core: Core::new(Settings::default()).expect("patterns are good"),
        // It was silent before this one began, for how long nobody knows.
        now: TimeMs(1000 * MINUTE),
        sequence: 0,
        session: 0,
        said: Vec::new(),
        reports: Vec::new(),
    };
    let (passing, other) =
        (pod(run(1), "u", PodPhase::Running, TimeMs(0)), pod(run(2), "u", PodPhase::Running, TimeMs(0)));
    bench.put(Input::Pods(vec![PodFacts { cut_off_ms: Some(MINUTE), ..passing }, other]));
    bench.after(MINUTE - 1).expect(&[]).after(1).expect(&["delete 1 u Graceful"]);
    bench.deleted(1, DeleteAnswer::Accepted).removed(1).after(10_000 * MINUTE).expect(&[]);
    bench.connect();
    bench.expect(&["complete", "say 1 Returned", "say 2 Running"]);
}

#[test]
fn what_ended_before_it_was_cut_off_ended_as_it_did() {
    let mut bench = Bench::new();
    bench.passing_at(1, PodPhase::Running).passing_at(2, PodPhase::Running).put(Input::Disconnected).clear();
    bench.after(MINUTE / 2).pod(1, PodPhase::Succeeded).after(MINUTE).expect(&["delete 2 u Graceful"]);
    // What comes once it is stopped may be the stop's doing.
    bench.pod(2, PodPhase::Failed).removed(2);
    bench.connect();
    bench.expect(&["complete", "say 1 Succeeded", "say 2 Returned"]);
}

#[test]
fn a_failed_run_leaves_no_pod_to_start_while_it_is_cut_off() {
    let mut bench = Bench::new();
    bench.passing_at(1, PodPhase::Pending).misnames_image(1).after(SECOND).expect(&["say 1 Failed"]);
    bench.put(Input::Disconnected).after(MINUTE).expect(&["delete 1 u Graceful"]).removed(1);
    bench.connect();
    bench.expect(&["complete", "say 1 Failed"]);
}

#[test]
fn a_stuck_pod_that_is_cut_off_is_deleted_whether_it_moves_or_not() {
    let mut bench = Bench::new();
    bench.passing_at(1, PodPhase::Pending);
    for _ in 0..6 {
        bench.answered().after(MINUTE - 1);
    }
    bench.clear().deleted(1, DeleteAnswer::Failed).after(SECOND).expect(&["delete 1 u Graceful"]);
    bench.pod(1, PodPhase::Running).removed(1);
    assert_eq!((bench.last().reason.as_str(), bench.last().run_attempted), ("CutOff", false));
}

#[test]
fn a_stop_counts_more_than_being_cut_off() {
    for is_told_first in [true, false] {
        let mut bench = Bench::new();
        bench.passing_at(1, PodPhase::Running).acknowledge(1, RunPhase::Running);
        if is_told_first {
            bench.stop(1, StopKind::Cancelled);
        } else {
            bench.after(MINUTE);
        }
        bench.expect(&["delete 1 u Graceful"]).deleted(1, DeleteAnswer::Accepted);
        bench.leaving_pod(1, PodPhase::Running, TimeMs(10 * MINUTE));
        if is_told_first {
            bench.after(MINUTE).expect(&[]);
        } else {
            bench.stop(1, StopKind::Unknown).expect(&[]);
        }
        bench.removed(1).expect(&["say 1 Gone"]);
        assert_eq!(bench.last().message, "told");
    }
}
