//! Pods as facts, case by case.

use serde_json::{Value, json};

use super::*;

const RUN: &str = "00000000000000000000000001-2";

fn read(change: impl FnOnce(&mut Value)) -> Option<PodFacts> {
    let mut pod = json!({
        "metadata": {
            "name": "armada-00000000000000000000000001-1", "namespace": "n", "uid": "u", "resourceVersion": "9",
            "creationTimestamp": "1970-01-01T00:00:01Z",
            "labels": { "armada_job_run_id": RUN, "armada_queue_id": "q" },
        },
        "spec": { "nodeName": "a", "containers": [] },
        "status": {
            "phase": "Pending",
            "conditions": [
                { "type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:00:02Z" }],
        },
    });
    change(&mut pod);
    PodFacts::of(&serde_json::from_value(pod).expect("a pod"))
}

#[test]
fn a_pod_is_read() {
    let facts = read(|_| {}).expect("of a run");
    assert_eq!(facts.run.to_string(), RUN);
    assert_eq!((facts.queue.as_str(), facts.namespace.as_str(), facts.uid.as_str()), ("q", "n", "u"));
    assert_eq!((facts.node.as_str(), facts.version.as_str()), ("a", "9"));
    assert_eq!((facts.phase, facts.since, facts.deletion), (PodPhase::Pending, TimeMs(2000), None));
    let facts = read(|pod| pod["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:09Z"));
    assert_eq!(facts.expect("of a run").deletion, Some(TimeMs(9000)));
}

#[test]
fn a_cut_off_is_read_where_it_is_one() {
    for (text, cut_off_ms) in [("150000", Some(150_000)), ("0", None), ("-1", None), ("5m", None), ("", None)] {
        let facts = read(|pod| pod["metadata"]["annotations"] = json!({ "pumice.sh/cut-off-ms": text }));
        assert_eq!(facts.expect("of a run").cut_off_ms, cut_off_ms, "{text:?}");
    }
    assert_eq!(read(|_| {}).expect("of a run").cut_off_ms, None);
}

#[test]
fn pods_of_others_are_none() {
    assert_eq!(read(|pod| pod["metadata"]["labels"] = json!({})), None);
    assert_eq!(read(|pod| pod["metadata"]["labels"]["armada_job_run_id"] = json!("x")), None);
    assert_eq!(read(|pod| pod["metadata"]["name"] = json!("copy")), None);
    assert_eq!(read(|pod| pod["metadata"]["name"] = json!("armada-00000000000000000000000001-3")), None);
}

#[test]
fn a_pod_of_an_earlier_release_is_the_runs_that_its_label_says() {
    let name = format!("armada-{RUN}");
    let facts = read(|pod| pod["metadata"]["name"] = json!(name)).expect("of a run");
    assert_eq!((facts.run.to_string().as_str(), facts.name), (RUN, name.clone()));
    // The next attempt's pod has the same name now.
    let next = "00000000000000000000000001-3";
    let facts = read(|pod| {
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["labels"]["armada_job_run_id"] = json!(next);
    });
    assert_eq!(facts.expect("of a run").run.to_string(), next);
}

#[test]
fn containers_and_times_are_read() {
    let facts = read(|pod| {
        pod["status"]["initContainerStatuses"] = json!([
            { "name": "i", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": { "running": { "startedAt": "1970-01-01T00:00:05Z" } } }]);
        pod["status"]["containerStatuses"] = json!([
            { "name": "w", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": { "waiting": { "reason": "PodInitializing" } } },
            { "name": "e", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": { "terminated": {
                "exitCode": 3, "reason": "Error", "finishedAt": "1970-01-01T00:00:07Z" } } }]);
    });
    let facts = facts.expect("of a run");
    assert_eq!((facts.since, facts.init_since), (TimeMs(7000), Some(TimeMs(5000))));
    let states: Vec<_> = facts.containers.into_iter().map(|one| one.state).collect();
    let waiting = ContainerState::Waiting { reason: "PodInitializing".to_owned(), message: String::new() };
    let ended = ContainerState::Ended { exit_code: 3, reason: "Error".to_owned(), message: String::new() };
    assert_eq!(states, [ContainerState::Running, waiting, ended]);
}

#[test]
fn init_containers_that_are_through_or_stay_are_no_wait() {
    for (state, started) in [
        (json!({ "terminated": { "exitCode": 0, "startedAt": "1970-01-01T00:00:05Z" } }), false),
        (json!({ "running": { "startedAt": "1970-01-01T00:00:05Z" } }), true),
    ] {
        let facts = read(|pod| {
            pod["status"]["initContainerStatuses"] = json!([{ "name": "i", "image": "", "imageID": "", "ready": true,
                "restartCount": 0, "started": started, "state": state }]);
        });
        assert_eq!(facts.expect("of a run").init_since, None, "{state}");
    }
}
