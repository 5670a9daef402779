//! Grace: who gets the signal of a stop, how often, and how long they have then.

use pumice_shim::control::{self, Stop};
use pumice_shim::spec::RootKind;

use crate::harness::{TestPod, is_root};

/// Longer than any test may take: whatever ends sooner did not wait for it.
const LONG_GRACE_SECONDS: u64 = 3600;

/// A program that counts its signals, and takes a while after the first one to write down what it has.
const SAVES: &str = r#"n=0
trap 'n=$((n+1)); echo got TERM $n' TERM
echo ready
while [ $n = 0 ]; do sleep 0.02; done
for step in 1 2 3 4 5 6 7 8 9 10; do sleep 0.03; done
echo saved after $n"#;

/// `outer` in a pod, where it finds that program as `$SAVES`.
fn pod(outer: &str, namespaces: bool) -> TestPod {
    let mut pod = TestPod::sh(outer);
    pod.spec.containers[0].env.push(("SAVES".into(), SAVES.into()));
    if !namespaces {
        pod.spec.isolation.namespaces = false;
        pod.spec.isolation.root = RootKind::Host;
        pod.spec.cgroup = None;
    }
    pod
}

#[test]
fn who_outlives_a_shell_that_died_of_the_signal_has_its_grace() {
    if !is_root() {
        return;
    }
    for outer in [
        // The whole form of a script: a shell that knows nothing of signals, and what it runs.
        "sh -c \"$SAVES\"; echo not reached",
        "(sh -c 'sh -c \"$SAVES\"; true'); echo not reached",
        "sh -c \"$SAVES\" & wait; echo not reached",
        // In a group or a session of its own, where the shell would have had to pass the signal on.
        "setsid sh -c \"$SAVES\"; echo not reached",
        "setsid sh -c 'setsid sh -c \"$SAVES\"; true'; echo not reached",
    ] {
        for namespaces in [true, false] {
            let pod = pod(outer, namespaces);
            pod.start().log_contains("ready");
            control::request_stop(pod.path(), Stop { grace_seconds: LONG_GRACE_SECONDS }).unwrap();
            let exit = pod.exit();
            assert_eq!((exit.code, exit.signal), (143, Some(15)), "{outer}: the end is the first process's");
            // A shell says of its children that they were ended.
            let log = pod.log().replace("Terminated\n", "");
            assert_eq!(log, "ready\ngot TERM 1\nsaved after 1\n", "{outer}, namespaces: {namespaces}");
        }
    }
}

#[test]
fn who_outlives_a_shell_is_killed_when_the_grace_ends() {
    if !is_root() {
        return;
    }
    for namespaces in [true, false] {
        let pod = pod("sh -c \"trap '' TERM; echo ready; while :; do sleep 1; done\"; echo not reached", namespaces);
        pod.start().log_contains("ready");
        control::request_stop(pod.path(), Stop { grace_seconds: 1 }).unwrap();
        let exit = pod.exit();
        assert_eq!((exit.code, exit.signal), (143, Some(15)), "namespaces: {namespaces}");
    }
}

#[test]
fn a_first_process_that_exits_ends_the_pod_at_once() {
    if !is_root() {
        return;
    }
    let pod = pod("trap 'exit 4' TERM; sh -c \"trap '' TERM; echo ready; while :; do sleep 1; done\" & wait", true);
    pod.start().log_contains("ready");
    control::request_stop(pod.path(), Stop { grace_seconds: LONG_GRACE_SECONDS }).unwrap();
    assert_eq!(pod.exit().code, 4);
}

#[test]
fn a_signal_of_the_pods_own_is_no_stop() {
    if !is_root() {
        return;
    }
    // Process 1 passes it on, and the first process dies of it: nobody has given the others a grace.
    let pod =
        pod("sh -c \"trap '' TERM; echo ready; while :; do sleep 1; done\" & sleep 0.1; kill -TERM 1; wait", true);
    assert_eq!(pod.start().exit().code, 143);
}
