//! What may leave, and what does.

use std::time::Duration;

use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use pumice_api::batch::Job;
use pumice_api::flow::JobFlow;
use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn finished(ends: &[i64]) -> BTreeSet<Finished> {
    let one = |(place, second): (usize, &i64)| Finished { ended_at: at(*second), name: format!("j{place}").into() };
    ends.iter().enumerate().map(one).collect()
}

fn bounds(ttl: Option<u64>, count_max: Option<usize>) -> Bounds {
    Bounds { ttl: TimeBound(ttl.map(Duration::from_secs)), count_max: NumberBound(count_max) }
}

// INV-43
#[test]
fn what_is_too_old_or_too_much_leaves_oldest_first() {
    use Reason::{Age, Number};
    type Case = (&'static [i64], Option<u64>, Option<usize>, &'static [(i64, Reason)], Option<i64>);
    let cases: &[Case] = &[
        (&[], Some(10), Some(0), &[], None),
        (&[90, 80, 95], None, None, &[], None),
        (&[90, 80, 95], Some(10), None, &[(80, Age), (90, Age)], Some(105)),
        (&[90, 80, 95], Some(15), None, &[(80, Age)], Some(105)),
        (&[90, 80, 95], None, Some(1), &[(80, Number), (90, Number)], None),
        (&[90, 80, 95], Some(15), Some(1), &[(80, Age), (90, Number)], Some(110)),
        (&[90, 80, 95], Some(0), Some(9), &[(80, Age), (90, Age), (95, Age)], None),
        (&[90, 80, 95], None, Some(0), &[(80, Number), (90, Number), (95, Number)], None),
        // Somebody's clock is ahead.
        (&[500], Some(10), Some(1), &[], Some(510)),
        (&[500], Some(u64::MAX), Some(1), &[], None),
    ];
    for (ends, ttl, count_max, leaving, wake_at) in cases {
        let decision = decide(&finished(ends), bounds(*ttl, *count_max), at(100), 99);
        let left: Vec<_> = decision.leaving.iter().map(|(one, reason)| (one.ended_at.as_second(), *reason)).collect();
        assert_eq!((&left[..], decision.wake_at), (*leaving, wake_at.map(at)), "{ends:?} {ttl:?} {count_max:?}");
    }
    let decision = decide(&finished(&[1, 2, 3]), bounds(None, Some(0)), at(100), 2);
    assert_eq!((decision.leaving.len(), decision.wake_at), (2, None), "no more than asked for");
}

const HELD: &str = "stays";

fn class_of(kind: Kind, object: Value, around: Surroundings) -> &'static str {
    let work = match kind {
        Kind::Job => {
            let read: Job = serde_json::from_value(object).unwrap();
            let has_own_ttl = read.spec.ttl_seconds_after_finished.is_some();
            let records_results = !read.spec.tasks.is_empty();
            job(&read.metadata, JobTerms { has_own_ttl, records_results }, &read.status)
        }
        Kind::BatchJob => batch_job(&serde_json::from_value::<batch::Job>(object).unwrap()),
        Kind::JobFlow => {
            let read: JobFlow = serde_json::from_value(object).unwrap();
            flow(&read.metadata, &read.status)
        }
        Kind::Pod => {
            let read: Pod = serde_json::from_value(object).unwrap();
            pod(&read.metadata, &read.status.unwrap_or_default())
        }
    };
    match class(kind, &work, around) {
        None => HELD,
        Some(Class::Job | Class::BatchJob) => "job",
        Some(Class::JobWithResults) => "results",
        Some(Class::JobFlow) => "flow",
        Some(Class::Pod) => "pod",
        Some(Class::OwnedPod) => "owned",
    }
}

fn owned(kind: &str, api_version: &str) -> Value {
    json!({"ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": true}]})
}

// INV-43
#[test]
fn only_jobs_that_have_ended_and_that_nobody_needs_may_leave() {
    let alone = Surroundings::default();
    let awaited = Surroundings { is_awaited: true, ..alone };
    let in_phase =
        |phase: &str| json!({"status": {"state": {"phase": phase, "lastTransitionTime": "2026-01-01T00:00:00Z"}}});
    for phase in ["Completed", "Failed", "Terminated"] {
        assert_eq!(class_of(Kind::Job, in_phase(phase), alone), "job", "{phase}");
        assert_eq!(class_of(Kind::Job, in_phase(phase), awaited), HELD, "{phase}");
    }
    for phase in ["Pending", "Running", "Aborting", "Aborted", "Completing", "Terminating", "Restarting", "Strange"] {
        assert_eq!(class_of(Kind::Job, in_phase(phase), alone), HELD, "{phase}");
    }
    let with = |key: &str, value: Value| {
        let mut job = in_phase("Completed");
        job[key] = value;
        job
    };
    assert_eq!(class_of(Kind::Job, json!({}), alone), HELD, "nothing is known of it");
    assert_eq!(class_of(Kind::Job, with("spec", json!({"ttlSecondsAfterFinished": 0})), alone), HELD);
    let task = json!({"name": "w", "template": {"spec": {"containers": []}}});
    assert_eq!(class_of(Kind::Job, with("spec", json!({"tasks": [task]})), alone), "results");
    let leaving = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(class_of(Kind::Job, with("metadata", leaving), alone), HELD);
    for (kind, version) in
        [("JobFlow", "flow.volcano.sh/v1alpha1"), ("CronJob", "batch.volcano.sh/v1alpha1"), ("Any", "a/v1")]
    {
        assert_eq!(class_of(Kind::Job, with("metadata", owned(kind, version)), alone), HELD, "{kind}");
    }

    let batch = |kind: &str, status: &str, spec: Value| json!({"spec": spec, "status": {"conditions": [{"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let spec = json!({"template": {}});
    let with_ttl = json!({"template": {}, "ttlSecondsAfterFinished": 9});
    for (kind, status, spec, expected) in [
        ("Complete", "True", &spec, "job"),
        ("Failed", "True", &spec, "job"),
        ("Failed", "True", &with_ttl, HELD),
        ("Failed", "False", &spec, HELD),
        ("SuccessCriteriaMet", "True", &spec, HELD),
        ("Suspended", "True", &spec, HELD),
    ] {
        assert_eq!(class_of(Kind::BatchJob, batch(kind, status, spec.clone()), alone), expected, "{kind} {status}");
    }

    for (phase, expected) in
        [("Succeed", "flow"), ("Failed", "flow"), ("Running", HELD), ("Pending", HELD), ("Terminating", HELD)]
    {
        let flow = json!({"status": {"state": {"phase": phase}}});
        assert_eq!(class_of(Kind::JobFlow, flow, alone), expected, "{phase}");
    }
}

// INV-43
#[test]
fn pods_of_jobs_that_run_are_never_touched() {
    let known = |owner_ended| Surroundings { owner_ended, ..Surroundings::default() };
    let pod = |metadata: Value, phase: &str| json!({"metadata": metadata, "status": {"phase": phase}});
    for (kind, version, owner_ended, expected) in [
        ("Job", "batch.volcano.sh/v1alpha1", Some(false), HELD),
        ("Job", "batch.volcano.sh/v1alpha1", None, HELD),
        ("Job", "batch.volcano.sh/v1alpha1", Some(true), "owned"),
        ("Job", "batch/v1", Some(false), HELD),
        ("Job", "batch/v1", Some(true), "owned"),
        ("ReplicaSet", "apps/v1", None, "owned"),
        ("Job", "other.example/v1", None, "owned"),
    ] {
        let owned = owned(kind, version);
        assert_eq!(
            class_of(Kind::Pod, pod(owned.clone(), "Failed"), known(owner_ended)),
            expected,
            "{kind} {version} {owner_ended:?}"
        );
        assert_eq!(class_of(Kind::Pod, pod(owned, "Running"), known(owner_ended)), HELD);
    }
    for (phase, expected) in
        [("Succeeded", "pod"), ("Failed", "pod"), ("Running", HELD), ("Pending", HELD), ("Unknown", HELD)]
    {
        assert_eq!(class_of(Kind::Pod, pod(json!({}), phase), known(None)), expected, "{phase}");
    }
}

#[test]
fn ends_are_read_where_they_are_written() {
    let time = "2026-01-02T00:00:00Z";
    let created = json!({"creationTimestamp": "2026-01-01T00:00:00Z"});
    let end: Timestamp = time.parse().unwrap();
    let terminated = |at: &str| {
        json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 0, "finishedAt": at}}})
    };
    let status =
        json!({"phase": "Failed", "containerStatuses": [terminated(time), terminated("2026-01-01T12:00:00Z")]});
    let read: Pod = serde_json::from_value(json!({"metadata": created, "status": status})).unwrap();
    assert_eq!(pod(&read.metadata, &read.status.unwrap()).ended_at, Some(end));
    let refused: Pod = serde_json::from_value(json!({"metadata": created, "status": {"phase": "Failed"}})).unwrap();
    let made = "2026-01-01T00:00:00Z".parse().ok();
    assert_eq!(pod(&refused.metadata, &refused.status.unwrap()).ended_at, made);
    let flows = json!({"metadata": created, "status": {"state": {"phase": "Succeed"},
        "jobStatusList": [{"name": "a", "endTimestamp": time}, {"name": "b", "endTimestamp": "2026-01-01T12:00:00Z"}, {"name": "c"}]}});
    let read: JobFlow = serde_json::from_value(flows).unwrap();
    assert_eq!(flow(&read.metadata, &read.status).ended_at, Some(end));
    let waits: Job =
        serde_json::from_value(json!({"metadata": {"annotations": {"pumice.sh/after": "ok:a,any:b"}}})).unwrap();
    assert_eq!(job(&waits.metadata, JobTerms::default(), &waits.status).awaits, ["a", "b"]);
}

proptest! {
    #[test]
    fn what_is_left_keeps_to_the_bounds_and_nothing_goes_before_its_elders(
        ends in prop::collection::vec(0_i64..200, 0..40),
        ttl in prop::option::of(0_u64..150),
        count_max in prop::option::of(0_usize..30),
        leaving_max in 1_usize..8,
    ) {
        let mut left = finished(&ends);
        let bounds = bounds(ttl, count_max);
        let now = at(150);
        loop {
            let decision = decide(&left, bounds, now, leaving_max);
            prop_assert!(decision.leaving.len() <= leaving_max);
            if decision.leaving.is_empty() {
                prop_assert_eq!(decision.wake_at, left.first().and_then(|first| Some(first.ended_at + SignedDuration::try_from(bounds.ttl.0?).unwrap())));
                break;
            }
            for (one, reason) in decision.leaving {
                prop_assert_eq!(left.first(), Some(&one), "an elder stays");
                let too_many = count_max.is_some_and(|max| left.len() > max);
                let too_old = ttl.is_some_and(|ttl| one.ended_at.as_second() + ttl as i64 <= 150);
                let expected = if too_old { Some(Reason::Age) } else if too_many { Some(Reason::Number) } else { None };
                prop_assert_eq!(Some(reason), expected);
                left.remove(&one);
            }
        }
        prop_assert!(count_max.is_none_or(|max| left.len() <= max));
        prop_assert!(left.iter().all(|one| ttl.is_none_or(|ttl| one.ended_at.as_second() + ttl as i64 > 150)));
        // Nothing more than the bounds ask for.
        let by_age = ends.iter().filter(|end| ttl.is_some_and(|ttl| **end + ttl as i64 <= 150)).count();
        let by_number = count_max.map_or(0, |max| ends.len().saturating_sub(max));
        prop_assert_eq!(ends.len() - left.len(), by_age.max(by_number));
    }
}
