//! Pods on simulated nodes, without an API server: the test plays it.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::simulated::order::{Container, Plan, Template};

fn at(ms: u64) -> Now {
    Now { ms, unix_seconds: 1000 + i64::try_from(ms / 1000).unwrap() }
}

fn shape() -> NodeShape {
    "cpu=2,memory=1Gi,pods=10".parse().unwrap()
}

fn fleet(nodes: u32) -> Fleet {
    Fleet::new(nodes, shape(), Faults::default(), at(0))
}

fn uid(index: u64) -> Uuid {
    Uuid::from_u128(0x7000_0000_0000_0000_u128 << 64 | u128::from(index))
}

fn plan(duration_ms: Option<u64>) -> Plan {
    Plan { duration_ms, stop_ms: 0, exit_code: 0, oom: false }
}

fn order(shape: &NodeShape, cpu: &str, plan: Plan) -> Order {
    let amounts = BTreeMap::from([("cpu".to_owned(), cpu.parse().unwrap())]);
    let containers = [Container { name: "main".into(), image: "i".into() }].into();
    Order {
        namespace: "default".into(),
        name: "pod".into(),
        template: Template { containers, request: shape.request(&amounts) },
        plan,
        conditions: "[]".into(),
    }
}

fn bound(index: u64) -> Glance {
    Glance { uid: uid(index), node: 0, phase: SeenPhase::Pending, leaving_ms: None }
}

fn see(fleet: &mut Fleet, glance: Glance, plan: Plan, now: Now) {
    fleet.see(&glance, |shape| order(shape, "1", plan), now);
}

/// Every call that is wanted, as phase and reason or `removed`; answered at once.
fn calls(fleet: &mut Fleet, outcome: Outcome, now: Now) -> Vec<String> {
    let mut made = Vec::new();
    let mut wanted = Vec::new();
    while let Some(call) = fleet.next_call() {
        wanted.push(call.uid);
        made.push(match call.what {
            What::Remove => "removed".to_owned(),
            What::Status(body) => {
                let body: Value = serde_json::from_slice(&body).unwrap();
                let status = &body["status"];
                let reason = status["reason"].as_str().map(|reason| format!(" {reason}")).unwrap_or_default();
                format!("{}{reason}", status["phase"].as_str().unwrap())
            }
        });
    }
    wanted.into_iter().for_each(|uid| fleet.answered(uid, outcome, now));
    made
}

fn done(fleet: &mut Fleet, now: Now) -> Vec<String> {
    fleet.pass(now);
    calls(fleet, Outcome::Done, now)
}

#[test]
fn a_pod_runs_for_its_duration_and_then_is_forgotten() {
    let mut fleet = fleet(1);
    see(&mut fleet, bound(1), plan(Some(30_000)), at(0));
    assert_eq!(done(&mut fleet, at(0)), ["Running"]);
    see(&mut fleet, Glance { phase: SeenPhase::Running { since_seconds: None }, ..bound(1) }, plan(None), at(5));
    assert_eq!(done(&mut fleet, at(29_999)), [] as [&str; 0]);
    assert_eq!(done(&mut fleet, at(30_000)), ["Succeeded"]);
    assert_eq!(fleet.counts().active, 0);
    see(&mut fleet, Glance { phase: SeenPhase::Over, ..bound(1) }, plan(None), at(30_001));
    assert_eq!((fleet.places.len(), fleet.next_wake()), (0, None));
    assert_eq!(fleet.used, [0, 0, 0]);
}

#[test]
fn after_an_outage_whoever_runs_is_told_again() {
    let mut fleet = fleet(1);
    see(&mut fleet, bound(1), plan(None), at(0));
    see(&mut fleet, bound(2), plan(Some(10)), at(0));
    assert_eq!(done(&mut fleet, at(0)), ["Running", "Running"]);
    assert_eq!(done(&mut fleet, at(10)), ["Succeeded"]);
    fleet.tell_again();
    assert_eq!(done(&mut fleet, at(11)), ["Running"], "not who has ended");
    assert_eq!(done(&mut fleet, at(12)), [] as [&str; 0], "once");
}

#[test]
fn a_pod_without_a_duration_runs_until_it_is_deleted() {
    let mut fleet = fleet(1);
    see(&mut fleet, bound(1), plan(None), at(0));
    assert_eq!(done(&mut fleet, at(0)), ["Running"]);
    assert_eq!(fleet.next_wake(), None);
    see(&mut fleet, Glance { leaving_ms: Some(30_000), ..bound(1) }, plan(None), at(9));
    assert_eq!(done(&mut fleet, at(9)), ["removed"]);
    assert_eq!(fleet.used, [0, 0, 0], "what it used is free before its object is gone");
    fleet.gone(uid(1));
    assert_eq!(fleet.places.len(), 0);
}

#[test]
fn a_pod_may_take_its_time_to_stop_and_uses_the_node_until_then() {
    for (stop_ms, grace_ms, over) in [(5_000, 30_000, 5_000), (60_000, 30_000, 30_000), (5_000, 0, 0)] {
        let mut fleet = fleet(1);
        let plan = Plan { stop_ms, ..plan(None) };
        see(&mut fleet, bound(1), plan, at(0));
        done(&mut fleet, at(0));
        see(&mut fleet, Glance { leaving_ms: Some(grace_ms), ..bound(1) }, plan, at(0));
        if over > 0 {
            assert_eq!(done(&mut fleet, at(over - 1)), [] as [&str; 0]);
            assert_eq!(fleet.counts().active, 1);
        }
        assert_eq!(done(&mut fleet, at(over)), ["removed"]);
        assert_eq!(fleet.counts().active, 0);
    }
}

#[test]
fn a_node_refuses_what_is_over_its_rest_and_takes_it_once_there_is_room() {
    let mut fleet = fleet(2);
    for index in 1..=3 {
        see(&mut fleet, bound(index), plan(Some(10)), at(0));
    }
    see(&mut fleet, Glance { node: 1, ..bound(4) }, plan(None), at(0));
    let mut made = done(&mut fleet, at(0));
    made.sort();
    assert_eq!(made, ["Failed OutOfcpu", "Running", "Running", "Running"]);
    done(&mut fleet, at(10));
    see(&mut fleet, bound(5), plan(None), at(11));
    assert_eq!(done(&mut fleet, at(11)), ["Running"]);
    let counts = fleet.counts();
    assert_eq!((counts.admitted, counts.refused, counts.ended, counts.active), (4, 1, 2, 2));
}

#[test]
fn a_pod_too_short_to_be_seen_running_is_told_once() {
    let mut fleet = fleet(1);
    see(&mut fleet, bound(1), plan(Some(0)), at(0));
    assert_eq!(done(&mut fleet, at(0)), ["Succeeded"]);
}

#[test]
fn an_end_is_told_before_a_deleted_pod_is_removed() {
    let mut fleet = fleet(1);
    see(&mut fleet, bound(1), Plan { exit_code: 3, ..plan(Some(10)) }, at(0));
    done(&mut fleet, at(0));
    fleet.pass(at(10));
    see(&mut fleet, Glance { leaving_ms: Some(0), ..bound(1) }, plan(None), at(10));
    assert_eq!(done(&mut fleet, at(10)), ["Failed"]);
    assert_eq!(done(&mut fleet, at(10)), ["removed"]);
    assert_eq!(done(&mut fleet, at(10)), [] as [&str; 0]);
}

#[test]
fn a_call_that_failed_is_made_again_after_a_pause_with_the_latest_state() {
    let mut fleet = fleet(1);
    see(&mut fleet, bound(1), plan(Some(150)), at(0));
    assert_eq!(calls(&mut fleet, Outcome::Failed, at(0)), ["Running"]);
    assert_eq!(done(&mut fleet, at(99)), [] as [&str; 0]);
    fleet.pass(at(100));
    assert_eq!(calls(&mut fleet, Outcome::Failed, at(100)), ["Running"]);
    assert_eq!(done(&mut fleet, at(150)), [] as [&str; 0], "it ends, but the pause is not over");
    assert_eq!(done(&mut fleet, at(300)), ["Succeeded"]);
    assert_eq!(fleet.counts().failures, 2);
}

#[test]
fn only_one_call_about_a_pod_is_under_way() {
    let mut fleet = fleet(1);
    see(&mut fleet, bound(1), plan(Some(10)), at(0));
    assert!(fleet.next_call().is_some());
    fleet.pass(at(10));
    assert!(fleet.next_call().is_none());
    fleet.answered(uid(1), Outcome::Done, at(11));
    assert_eq!(done(&mut fleet, at(11)), ["Succeeded"]);
}

#[test]
fn pods_that_run_already_are_taken_over_where_they_are() {
    let mut fleet = fleet(1);
    // Started 10 s ago, of 30 s.
    let running = Glance { phase: SeenPhase::Running { since_seconds: Some(990) }, ..bound(1) };
    see(&mut fleet, running, plan(Some(30_000)), at(0));
    assert_eq!(done(&mut fleet, at(19_999)), [] as [&str; 0]);
    assert_eq!(done(&mut fleet, at(20_000)), ["Succeeded"]);
    // Ended, or deleted before it ran.
    see(&mut fleet, Glance { phase: SeenPhase::Over, ..bound(2) }, plan(None), at(20_000));
    see(&mut fleet, Glance { leaving_ms: Some(1), ..bound(3) }, plan(None), at(20_000));
    assert_eq!(done(&mut fleet, at(20_000)), ["removed"]);
}

#[test]
fn a_new_list_removes_the_rest() {
    let mut fleet = fleet(1);
    see(&mut fleet, bound(1), plan(None), at(0));
    see(&mut fleet, bound(2), plan(Some(50)), at(0));
    fleet.keep_only(&HashSet::from([uid(1)]));
    assert_eq!(done(&mut fleet, at(100)), ["Running"]);
    assert_eq!(fleet.counts().active, 1);
}

#[test]
fn faults_refuse_and_delay() {
    let faults = Faults { seed: 1, refused_per_million: 1_000_000, ..Faults::default() };
    let mut all = Fleet::new(1, shape(), faults, at(0));
    see(&mut all, bound(1), plan(None), at(0));
    assert_eq!(done(&mut all, at(0)), ["Failed UnexpectedAdmissionError"]);
    assert_eq!((all.counts().refused, all.counts().faults), (0, 1));
    let faults = Faults { start: Duration::from_secs(3600), ..Faults::default() };
    let mut slow = Fleet::new(1, shape(), faults, at(0));
    see(&mut slow, bound(1), plan(None), at(0));
    assert_eq!(done(&mut slow, at(10)), [] as [&str; 0]);
    assert_eq!(slow.counts().active, 1, "it holds its share while it starts");
    assert_eq!(done(&mut slow, at(3_600_000)), ["Running"]);
}

#[test]
fn pods_that_came_and_went_leave_nothing_behind() {
    let mut fleet = fleet(1000);
    let mut index = 0;
    for round in 0..20_u64 {
        let now = at(round * 1000);
        for node in 0..1000 {
            for _ in 0..2 {
                see(&mut fleet, Glance { node, ..bound(index) }, plan(Some(500)), now);
                index += 1;
            }
        }
        while let Some(call) = fleet.next_call() {
            fleet.answered(call.uid, Outcome::Done, now);
        }
        fleet.pass(at(round * 1000 + 500));
        while let Some(call) = fleet.next_call() {
            fleet.answered(call.uid, Outcome::Done, now);
            fleet.see(&Glance { phase: SeenPhase::Over, ..bound(0) }, |_| unreachable!(), now);
            fleet.gone(call.uid);
        }
    }
    assert_eq!((fleet.counts().admitted, fleet.counts().refused), (40_000, 0));
    assert_eq!((fleet.places.len(), fleet.entries.len(), fleet.wheel.len()), (0, 2000, 0));
    assert!(fleet.wanted.is_empty() && fleet.used.iter().all(|used| *used == 0));
}

#[test]
fn a_million_pods_fit_in_a_fraction_of_a_gibibyte() {
    let entry = size_of::<Option<Entry>>() + size_of::<(Uuid, u32)>() * 2;
    assert!(entry <= 280, "{entry} bytes a pod, without its name, conditions and timer");
}

#[derive(Debug, Clone)]
enum Step {
    Bind { node: u32, duration_ms: Option<u64>, stop_ms: u64 },
    Delete(prop::sample::Index),
    Vanish(prop::sample::Index),
    Wait(u64),
    Calls { outcome: bool },
    Relist,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u32..2, prop::option::of(0_u64..300), 0_u64..100)
            .prop_map(|(node, duration_ms, stop_ms)| Step::Bind { node, duration_ms, stop_ms }),
        2 => any::<prop::sample::Index>().prop_map(Step::Delete),
        1 => any::<prop::sample::Index>().prop_map(Step::Vanish),
        4 => (0_u64..200).prop_map(Step::Wait),
        6 => any::<bool>().prop_map(|outcome| Step::Calls { outcome }),
        1 => Just(Step::Relist),
    ];
    prop::collection::vec(step, 0..80)
}

/// The API server as far as pods of the fleet go.
#[derive(Default)]
struct Server {
    pods: BTreeMap<Uuid, (Glance, Plan)>,
    next: u64,
}

impl Server {
    fn apply(&mut self, fleet: &mut Fleet, call: &Call, now: Now) {
        let Some((glance, plan)) = self.pods.get_mut(&call.uid) else { return };
        match &call.what {
            What::Remove => {
                assert!(glance.leaving_ms.is_some(), "only a deleted pod is removed");
                self.pods.remove(&call.uid);
                fleet.gone(call.uid);
            }
            What::Status(body) => {
                let text = String::from_utf8_lossy(body);
                assert_ne!(glance.phase, SeenPhase::Over, "nothing is told after the end");
                glance.phase = match text.contains("\"phase\":\"Running\"") {
                    true => SeenPhase::Running { since_seconds: None },
                    false => SeenPhase::Over,
                };
                see(fleet, *glance, *plan, now);
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_a_node_is_never_over_and_comes_to_rest_empty(steps in steps()) {
        let mut fleet = fleet(2);
        let mut server = Server::default();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Bind { node, duration_ms, stop_ms } => {
                    let plan = Plan { stop_ms, ..plan(duration_ms) };
                    let glance = Glance { node, ..bound(server.next) };
                    server.next += 1;
                    server.pods.insert(glance.uid, (glance, plan));
                    see(&mut fleet, glance, plan, at(now));
                }
                Step::Delete(index) if !server.pods.is_empty() => {
                    let uid = *index.get(&server.pods.keys().copied().collect::<Vec<_>>());
                    let (glance, plan) = server.pods.get_mut(&uid).unwrap();
                    glance.leaving_ms = Some(60);
                    see(&mut fleet, *glance, *plan, at(now));
                }
                Step::Vanish(index) if !server.pods.is_empty() => {
                    let uid = *index.get(&server.pods.keys().copied().collect::<Vec<_>>());
                    server.pods.remove(&uid);
                    fleet.gone(uid);
                }
                Step::Delete(_) | Step::Vanish(_) => {}
                Step::Wait(ms) => {
                    now += ms;
                    fleet.pass(at(now));
                }
                Step::Calls { outcome } => {
                    while let Some(call) = fleet.next_call() {
                        if outcome {
                            server.apply(&mut fleet, &call, at(now));
                        }
                        let outcome = if outcome { Outcome::Done } else { Outcome::Failed };
                        fleet.answered(call.uid, outcome, at(now));
                    }
                }
                Step::Relist => {
                    fleet.keep_only(&server.pods.keys().copied().collect());
                    server.pods.values().for_each(|(glance, plan)| see(&mut fleet, *glance, *plan, at(now)));
                }
            }
            for node in fleet.used.chunks(3) {
                prop_assert!(node[0] <= 2000 && node[2] <= 2, "{:?}", node);
            }
        }
        // All are deleted; the server answers well from now on.
        for (glance, plan) in server.pods.values_mut() {
            glance.leaving_ms = Some(60);
            see(&mut fleet, *glance, *plan, at(now));
        }
        for _ in 0..10_000 {
            while let Some(call) = fleet.next_call() {
                server.apply(&mut fleet, &call, at(now));
                fleet.answered(call.uid, Outcome::Done, at(now));
            }
            let Some(wake) = fleet.next_wake() else { break };
            now = now.max(wake);
            fleet.pass(at(now));
        }
        prop_assert!(server.pods.is_empty(), "left: {:?}", server.pods);
        prop_assert_eq!((fleet.places.len(), fleet.counts().active, fleet.wheel.len()), (0, 0, 0));
        prop_assert!(fleet.used.iter().all(|used| *used == 0));
    }
}
