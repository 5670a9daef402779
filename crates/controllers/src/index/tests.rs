//! The index against changes in any order.

use super::*;
use crate::slim::SlimPod;
use serde_json::json;

fn pod(uid: &str, version: u32, phase: &str) -> SlimPod {
    serde_json::from_value(json!({
        "metadata": {"name": "j-w-0", "namespace": "ns", "uid": uid, "resourceVersion": version.to_string(),
            "annotations": {"volcano.sh/task-spec": "w", "volcano.sh/task-index": "0", "volcano.sh/job-version": "0"},
            "ownerReferences": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "job",
                "controller": true}]},
        "status": {"phase": phase},
    }))
    .unwrap()
}

fn state(pods: &JobPods) -> Option<(String, &'static str)> {
    pods.of("job").get("j-w-0").map(|facts| (facts.uid.clone(), facts.phase.as_str()))
}

#[test]
fn an_older_state_never_replaces_a_newer_one() {
    let (mut pods, mut touched) = (JobPods::default(), Vec::new());
    pods.put(pod("a", 7, "Running"), &mut touched);
    touched.clear();
    pods.put(pod("a", 5, "Pending"), &mut touched);
    assert_eq!(state(&pods), Some(("a".into(), "Running")));
    assert_eq!(touched, []);
}

#[test]
fn the_end_of_a_predecessor_leaves_the_successor() {
    let (mut pods, mut touched) = (JobPods::default(), Vec::new());
    pods.put(pod("a", 7, "Running"), &mut touched);
    pods.put(pod("b", 9, "Pending"), &mut touched);
    assert_eq!(pods.changed(Change::Deleted(pod("a", 8, "Running")), &mut touched).gone, []);
    assert_eq!(state(&pods), Some(("b".into(), "Pending")));
    let gone = pods.changed(Change::Deleted(pod("b", 10, "Pending")), &mut touched).gone;
    assert_eq!(gone.len(), 1);
    assert_eq!(state(&pods), None);
}

#[test]
fn what_a_new_list_lacks_is_gone() {
    let (mut pods, mut touched) = (JobPods::default(), Vec::new());
    pods.put(pod("a", 7, "Running"), &mut touched);
    let gone = pods.changed(Change::Replace(vec![pod("b", 12, "Pending")]), &mut touched).gone;
    assert_eq!(gone.iter().map(|gone| gone.facts.uid.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(state(&pods), Some(("b".into(), "Pending")));
}

#[test]
fn a_list_that_may_be_too_old_loses_no_pod() {
    let (mut pods, mut touched) = (JobPods::default(), Vec::new());
    pods.put(pod("a", 7, "Running"), &mut touched);
    let outcome = pods.changed(Change::Replace(Vec::new()), &mut touched);
    assert_eq!((outcome.gone.len(), outcome.doubtful.len()), (0, 1));
    assert_eq!(state(&pods), Some(("a".into(), "Running")), "we ask first");
    assert_eq!(pods.absent("job", &outcome.doubtful[0].pod).map(|gone| gone.facts.uid), Some("a".into()));
    assert_eq!(state(&pods), None);
}

#[test]
fn groups_are_counted_by_queue_and_touch_their_job() {
    let group = |version: u32, queue: &str| -> PodGroup {
        serde_json::from_value(json!({
            "metadata": {"name": "g", "namespace": "ns", "uid": "g1", "resourceVersion": version.to_string(),
                "ownerReferences": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "job",
                    "controller": true}]},
            "spec": {"queue": queue},
        }))
        .unwrap()
    };
    let (mut index, mut touched) = (Index::default(), Vec::new());
    index.group_changed(Change::Applied(group(1, "a")), &mut touched);
    assert!(touched.contains(&DirtyKey::Job(("ns".into(), "j".into()))));
    assert_eq!(index.groups_in("a").pending, 1);
    index.group_changed(Change::Applied(group(2, "b")), &mut touched);
    assert_eq!((index.groups_in("a").pending, index.groups_in("b").pending), (0, 1));
    index.group_changed(Change::Applied(group(1, "a")), &mut touched);
    assert_eq!(index.groups_in("b").pending, 1, "an older state is no news");
    touched.clear();
    index.group_changed(Change::Deleted(group(3, "b")), &mut touched);
    assert_eq!(index.groups_in("b").pending, 0);
    assert!(touched.contains(&DirtyKey::Queue("b".into())));
}

#[test]
fn an_answer_that_comes_after_the_end_brings_nothing_back() {
    let (mut index, mut touched) = (Index::default(), Vec::new());
    let job = |version: u32| -> Job {
        serde_json::from_value(json!({
            "metadata": {"name": "j", "namespace": "ns", "uid": "job", "resourceVersion": version.to_string()},
        }))
        .unwrap()
    };
    index.job_changed(Change::Applied(job(4)), &mut touched);
    index.job_answered(job(5), &mut touched);
    index.pods.answered(pod("a", 6, "Pending"), &mut touched);
    assert_eq!(state(&index.pods), Some(("a".into(), "Pending")), "an answer ahead of the watch counts");
    index.job_changed(Change::Deleted(job(9)), &mut touched);
    index.pods.changed(Change::Deleted(pod("a", 10, "Pending")), &mut touched);
    touched.clear();
    index.job_answered(job(8), &mut touched);
    index.pods.answered(pod("a", 7, "Running"), &mut touched);
    assert!(index.jobs.is_empty());
    assert_eq!(state(&index.pods), None);
    assert_eq!(touched, []);
}

/// Without admission pods of a task without a name were made, not known again, ended, and made again, for ever.
#[test]
fn tasks_have_names_also_where_no_admission_gave_them() {
    let (mut index, mut touched) = (Index::default(), Vec::new());
    let job: Job = serde_json::from_value(json!({
        "metadata": {"name": "j", "namespace": "ns", "uid": "job", "resourceVersion": "1"},
        "spec": {"tasks": [{"template": {}}, {"name": "w", "template": {}}, {"template": {}}]},
    }))
    .unwrap();
    index.job_changed(Change::Applied(job), &mut touched);
    let spec = &index.jobs[&("ns".into(), "j".into())].spec;
    assert_eq!(spec.tasks.iter().map(|task| task.name.as_str()).collect::<Vec<_>>(), ["default0", "w", "default2"]);
    assert_eq!(spec.scheduler_name, "volcano", "or nobody would place its pods");
}

#[test]
fn a_queue_that_changes_touches_its_children_wherever_they_move() {
    let queue = |name: &str, parent: &str, version: u32, state: &str| -> Queue {
        serde_json::from_value(json!({"metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()},
            "spec": {"parent": parent}, "status": {"state": state}}))
        .unwrap()
    };
    let mut index = Index::default();
    let mut change = |change: Change<Queue>| {
        let mut touched = Vec::new();
        index.queue_changed(change, &mut touched);
        let mut names: Vec<String> = touched
            .into_iter()
            .filter_map(|touched| if let DirtyKey::Queue(name) = touched { Some(name) } else { None })
            .collect();
        names.sort();
        names.dedup();
        names.join(" ")
    };
    let all = [queue("a", "root", 1, "Open"), queue("b", "root", 2, "Open"), queue("c", "a", 3, "Open")];
    change(Change::Replace(all.into()));
    assert_eq!(change(Change::Applied(queue("a", "root", 4, "Closed"))), "a c");
    assert_eq!(change(Change::Applied(queue("c", "b", 5, "Open"))), "c");
    assert_eq!(change(Change::Applied(queue("a", "root", 6, "Open"))), "a");
    assert_eq!(change(Change::Applied(queue("b", "root", 7, "Closed"))), "b c");
    assert_eq!(change(Change::Replace(vec![queue("b", "root", 7, "Closed")])), "a b c", "those that are gone, too");
    assert_eq!(change(Change::Deleted(queue("b", "root", 7, "Closed"))), "b");
}
