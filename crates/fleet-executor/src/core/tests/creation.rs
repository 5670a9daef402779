//! How pods are made: refusals, answers that do not come, and what is asked for again.

use super::*;

#[test]
fn only_so_many_pods_are_made_at_once() {
    let mut bench = Bench::with(Settings { starts_max: 2, ..Settings::default() });
    bench.leases(&[3, 1, 2, 4]);
    bench.expect(&["create 3", "create 1", "say 1 Leased", "say 2 Leased", "say 3 Leased", "say 4 Leased"]);
    bench.created(1).expect(&["create 2", "say 1 Pending"]);
    bench.stop(4, StopKind::Cancelled).expect(&["say 4 Gone"]).created(3).expect(&["say 3 Pending"]);
    bench.refused(2, RefusalKind::Refused).expect(&["say 2 Returned"]);
}

#[test]
fn refusals_fail_or_return_the_run() {
    let mut bench = Bench::new();
    bench.leases(&[1, 2]).clear().refused(1, RefusalKind::Fatal).expect(&["say 1 Failed"]);
    assert_eq!(bench.last().cause, RunCause::Rejected as i32);
    bench.refused(2, RefusalKind::Refused).expect(&["say 2 Returned"]);
    assert!(bench.last().run_attempted);
    assert_eq!((bench.last().reason.as_str(), bench.last().message.as_str()), ("Because", "why"));
}

#[test]
fn a_name_that_the_run_before_has_uses_up_no_try() {
    let mut bench = Bench::new();
    bench.leases(&[1]).clear().refused(1, RefusalKind::Taken).expect(&["say 1 Returned"]);
    assert!(!bench.last().run_attempted);
}

#[test]
fn a_pod_of_an_earlier_release_runs_on_and_is_deleted_by_its_name() {
    let former =
        |number| PodFacts { name: former_pod_name(run(number)), ..pod(run(number), "f", PodPhase::Running, TimeMs(0)) };
    let mut bench = Bench::new();
    bench.put(Input::Pods(vec![former(1)])).expect(&["say 1 Running"]);
    assert_eq!(bench.last().pod_name, former_pod_name(run(1)));
    bench.leases(&[1]).acknowledge(1, RunPhase::Running).clear().after(MINUTE).expect(&[]);
    bench.sequence += 1;
    let stop = StopRun { run_id: run(1).to_string(), reason: String::new(), kind: StopKind::Cancelled as i32 };
    let message = Message::Stop(Stop { runs: vec![stop] });
    let message = Box::new(ToExecutor { sequence: bench.sequence, message: Some(message) });
    let outputs = bench.core.apply(bench.now, Input::Message { session: bench.session, message });
    let [Output::Delete { name, uid: Some(uid), .. }] = outputs.as_slice() else { panic!("{outputs:?}") };
    assert_eq!((name, uid.as_str()), (&former_pod_name(run(1)), "f"));
}

#[test]
fn a_pod_that_an_earlier_release_asked_for_and_that_comes_too_late_goes() {
    let former = PodFacts { name: former_pod_name(run(1)), ..pod(run(1), "f", PodPhase::Running, TimeMs(0)) };
    let mut bench = Bench::new();
    bench.leases(&[1]).clear().put(Input::Pod(Box::new(former.clone()))).expect(&["delete 1 f Graceful"]);
    bench.deleted(1, DeleteAnswer::Accepted).created(1).pod(1, PodPhase::Running).clear();
    bench.put(Input::Pod(Box::new(former))).expect(&["delete 1 f Graceful"]);
    bench.put(Input::PodRemoved { run: run(1), uid: "f".to_owned() }).expect(&[]);
    bench.pod(1, PodPhase::Succeeded).expect(&["say 1 Succeeded"]);
}

#[test]
fn a_pod_that_may_have_been_made_is_removed_before_its_lease_goes_back() {
    let mut bench = Bench::new();
    bench.leases(&[1]).clear().refused(1, RefusalKind::Unclear).expect(&["delete 1 - Graceful"]);
    bench.deleted(1, DeleteAnswer::Failed).after(10 * SECOND).expect(&["delete 1 - Graceful"]);
    bench.deleted(1, DeleteAnswer::NotFound).expect(&["say 1 Returned"]);
    // One that comes nevertheless is removed, before and after the server knows.
    bench.pod(1, PodPhase::Pending).expect(&["delete 1 u Graceful"]).removed(1).expect(&[]);
    bench.acknowledge(1, RunPhase::Returned);
    bench.put(Input::Pod(Box::new(pod(run(1), "v", PodPhase::Running, TimeMs(0))))).expect(&["delete 1 v Graceful"]);
    bench.deleted(1, DeleteAnswer::NotFound).after(MINUTE).expect(&[]);
}

#[test]
fn a_pod_is_asked_for_again_until_the_cluster_answers() {
    let mut bench = Bench::new();
    bench.leases(&[1, 2, 3]).clear();
    for number in [1, 2, 3] {
        bench.refused(number, RefusalKind::Unanswered).expect(&[]);
    }
    // It was made after all, as the watch tells or the answer to the next try; who is to stop is not asked for again.
    bench.pod(1, PodPhase::Running).expect(&["say 1 Running"]);
    bench.stop(3, StopKind::Cancelled).expect(&["delete 3 - Graceful"]);
    bench.after(SECOND).expect(&["create 2"]);
    bench.refused(2, RefusalKind::Unanswered).after(SECOND).expect(&["create 2"]);
    bench.created(2).expect(&["say 2 Pending"]);
    bench.deleted(3, DeleteAnswer::NotFound).expect(&["say 3 Gone"]);
    bench.after(MINUTE).clear().removed(2).expect(&["say 2 Gone"]);
}

#[test]
fn a_pod_that_was_deleted_while_it_was_asked_for_again_ends_its_run_with_the_next_one() {
    let asked_again = || {
        let mut bench = Bench::new();
        bench.leases(&[1]).clear().refused(1, RefusalKind::Unanswered).after(SECOND).expect(&["create 1"]);
        bench
    };
    let next = || Input::Created { run: run(1), uid: "v".to_owned() };
    // The first was seen: what may come after it goes before its run is said to be over.
    let mut bench = asked_again();
    bench.pod(1, PodPhase::Running).removed(1).expect(&["say 1 Running"]);
    bench.put(next()).expect(&["delete 1 v Graceful"]);
    bench.deleted(1, DeleteAnswer::NotFound).expect(&["say 1 Gone"]);
    // The same without an answer that tells.
    for kind in [RefusalKind::Unanswered, RefusalKind::Unclear] {
        let mut bench = asked_again();
        bench.pod(1, PodPhase::Running).removed(1).clear();
        bench.refused(1, kind).expect(&["delete 1 - Graceful"]).after(SECOND).expect(&[]);
        bench.deleted(1, DeleteAnswer::NotFound).expect(&["say 1 Gone"]);
    }
    let mut bench = asked_again();
    bench.refused(1, RefusalKind::Unanswered).pod(1, PodPhase::Running).expect(&["say 1 Running"]);
    bench.removed(1).expect(&["delete 1 - Graceful"]);
    bench.deleted(1, DeleteAnswer::NotFound).expect(&["say 1 Gone"]);
    // None came.
    let mut bench = asked_again();
    bench.removed(1).expect(&[]).refused(1, RefusalKind::Refused).expect(&["say 1 Gone"]);
    // It ended well, and only then was deleted.
    let mut bench = asked_again();
    bench.pod(1, PodPhase::Succeeded).expect(&["say 1 Succeeded"]).removed(1);
    bench.put(next()).expect(&["delete 1 v Graceful"]);
    // The first was never seen: the watch, which is behind, does not count.
    let mut bench = asked_again();
    bench.put(next()).expect(&["say 1 Pending"]).pod(1, PodPhase::Running).removed(1).expect(&[]);
    bench.put(Input::Pod(Box::new(pod(run(1), "v", PodPhase::Running, TimeMs(0))))).expect(&["say 1 Running"]);
}

#[test]
fn a_refusal_after_no_answer_does_not_say_that_there_is_no_pod() {
    let mut bench = Bench::new();
    bench.leases(&[1]).clear().refused(1, RefusalKind::Unanswered).after(SECOND).expect(&["create 1"]);
    bench.refused(1, RefusalKind::Refused).expect(&["delete 1 - Graceful"]);
    bench.deleted(1, DeleteAnswer::NotFound).expect(&["say 1 Returned"]);
}

#[test]
fn the_watch_counts_more_than_the_answer() {
    let mut bench = Bench::new();
    bench.leases(&[1, 2]).clear().pod(1, PodPhase::Running).refused(1, RefusalKind::Unclear).expect(&["say 1 Running"]);
    bench.pod(2, PodPhase::Running).removed(2).created(2).expect(&["say 2 Running", "say 2 Gone"]);
}

#[test]
fn a_lease_that_nothing_can_be_made_of_fails() {
    let mut bench = Bench::new();
    let broken = Lease { pod_spec: Some(PodSpec::from_raw(vec![0x0a, 0x05, 1])), ..lease(run(1)) };
    let empty = Lease { pod_spec: None, ..lease(run(2)) };
    let nameless = Lease { run_id: "x".to_owned(), ..lease(run(3)) };
    bench.hear(Message::Leases(Leases { leases: vec![broken, empty, nameless] }));
    bench.expect(&[&format!("say {} Gone", u128::MAX), "say 1 Failed", "say 2 Failed"]);
    assert_eq!(bench.last().cause, RunCause::Rejected as i32);
}

#[test]
fn a_pod_that_was_made_and_never_seen_is_looked_for() {
    let mut bench = Bench::new();
    bench.leases(&[1]).created(1).acknowledge(1, RunPhase::Pending).clear().after(15 * MINUTE).expect(&[]);
    bench.after(1).expect(&["delete 1 u Graceful"]).deleted(1, DeleteAnswer::NotFound).expect(&["say 1 Gone"]);
}
