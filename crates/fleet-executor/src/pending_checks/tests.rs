//! Rules for pods that do not start, case by case.

use super::*;
use crate::facts::Container;

const UNPACK: &str = "Failed to pull image \"x\": failed to pull and unpack image";
const DAEMON: &str = "Failed to pull image \"x\": code = Unknown desc = Error response from daemon";

fn pod() -> PodFacts {
    PodFacts {
        run: "00000000000000000000000001-1".parse().expect("parses"),
        kind: Kind::Pod,
        queue: String::new(),
        namespace: String::new(),
        name: String::new(),
        uid: String::new(),
        version: String::new(),
        node: "a".to_owned(),
        phase: PodPhase::Pending,
        cut_off_ms: None,
        since: TimeMs(0),
        deletion: None,
        init_since: None,
        reason: String::new(),
        message: String::new(),
        containers: vec![Container { name: "main".to_owned(), state: ContainerState::Running }],
    }
}

fn waits(reason: &str) -> PodFacts {
    let state = ContainerState::Waiting { reason: reason.to_owned(), message: "m".to_owned() };
    PodFacts { containers: vec![Container { name: "main".to_owned(), state }], ..pod() }
}

/// After how many milliseconds what follows; nothing where nothing does within a day.
fn first(pod: &PodFacts, events: &[&str]) -> Option<(i64, Action)> {
    let checks = Checks::new(&PendingCheckRules::default()).expect("compiles");
    let event = |message: &&str| PodEvent { reason: "Failed".to_owned(), message: (*message).to_owned() };
    let events: Vec<PodEvent> = events.iter().map(event).collect();
    let times = [0, 1, 89, 90, 91, 299, 300, 301, 899, 900, 901, 86_400].map(|seconds| seconds * SECOND);
    let verdict = |at: i64| checks.verdict(pod, &events, TimeMs(at)).action;
    times.into_iter().map(|at| (at / SECOND, verdict(at))).find(|(_, action)| *action != Action::Wait)
}

#[test]
fn defaults_are_armadas() {
    use Action::{Fail, Retry};
    let init = PodFacts { init_since: Some(TimeMs(10)), ..pod() };
    let no_node = PodFacts { node: String::new(), containers: Vec::new(), ..pod() };
    let silent = PodFacts { containers: Vec::new(), ..pod() };
    let running = PodFacts { phase: PodPhase::Running, ..waits("CrashLoopBackOff") };
    let leaving = PodFacts { deletion: Some(TimeMs(0)), ..waits("InvalidImageName") };
    let unknown = PodFacts { phase: PodPhase::Unknown, ..waits("Other") };
    let cases: Vec<(PodFacts, &[&str], _)> = vec![
        (pod(), &[], None),
        (init, &[], Some((301, Fail))),
        (no_node, &["0/3 nodes are available"], Some((301, Retry))),
        (silent.clone(), &[], Some((301, Retry))),
        (silent, &["0/3 nodes are available"], None),
        (pod(), &[UNPACK], Some((90, Fail))),
        (pod(), &[DAEMON], Some((90, Fail))),
        (pod(), &["FailedMount"], Some((300, Retry))),
        (pod(), &["0/3 nodes are available"], None),
        (pod(), &["FailedMount", UNPACK], Some((90, Fail))),
        (waits("InvalidImageName"), &[], Some((0, Fail))),
        (waits("ImagePullBackOff"), &[], Some((900, Retry))),
        (waits("ErrImagePull"), &[], Some((900, Retry))),
        (waits("ErrImagePullX"), &[], Some((300, Retry))),
        (waits("ContainerCreating"), &[], Some((300, Retry))),
        (running, &[], None),
        (leaving, &[], None),
        (unknown, &[], Some((300, Retry))),
    ];
    for (pod, events, expected) in cases {
        assert_eq!(first(&pod, events), expected, "{pod:?} {events:?}");
    }
}

#[test]
fn the_worst_wins_and_says_why() {
    let checks = Checks::new(&PendingCheckRules::default()).expect("compiles");
    let event = PodEvent { reason: "FailedMount".to_owned(), message: "no volume".to_owned() };
    let verdict = checks.verdict(&waits("InvalidImageName"), &[event], TimeMs(10 * MINUTE));
    assert_eq!(verdict, Verdict::new(Action::Fail, "InvalidImageName", "container main waits: InvalidImageName: m"));
}

#[test]
fn refusals_are_sorted() {
    let checks = Checks::new(&PendingCheckRules::default()).expect("compiles");
    for (reason, message, fatal) in [
        ("Invalid", "", true),
        ("Forbidden", "", true),
        ("InternalError", "admission webhook \"a\" denied the request", true),
        ("NotFound", "namespaces \"a\" not found", true),
        ("NotFound", "priority class not found", false),
        ("TooManyRequests", "slow down", false),
    ] {
        assert_eq!(checks.is_fatal(reason, message), fatal, "{reason} {message}");
    }
}

#[test]
fn rules_are_read_and_wrong_patterns_refused() {
    let rules: PendingCheckRules = serde_json::from_str(
        r#"{ "nodeDeadlineMs": 5, "containers": [{ "pattern": "(", "graceMs": 1, "action": "Fail" }] }"#,
    )
    .expect("reads");
    assert_eq!((rules.node_deadline_ms, rules.events.len()), (5, 3));
    assert_eq!(Checks::new(&rules).expect_err("refuses").to_string(), "\"^(?:()$\" is no pattern");
}
