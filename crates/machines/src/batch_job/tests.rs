//! Jobs of a small cluster.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::workload::world::World;
use crate::workload::{INDEX, IndexFailures};

fn job(spec: Value) -> Job {
    let mut job = json!({"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "spec": {
        "parallelism": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}}});
    job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(job).unwrap()
}

struct Scene {
    world: World,
    job: Job,
    is_over: bool,
    wake_at: Option<Timestamp>,
}

impl Scene {
    fn new(spec: Value) -> Self {
        Self { world: World::new(), job: job(spec), is_over: false, wake_at: None }
    }

    /// Does what is wanted; `crash_after` leaves the rest of the changes of pods undone. Says whether anything was wanted.
    fn step(&mut self, crash_after: usize) -> bool {
        let seen = self.world.seen();
        let plan = step(&JobView { job: &self.job, pods: seen.iter().collect() }, self.world.now);
        let is_idle = plan.work.status.is_none() && plan.work.pods.is_empty();
        if let Some(status) = plan.work.status {
            self.job.status = Some(*status);
            let holds = seen.iter().any(|pod| pod.is_tracked);
            assert!(self.ended().is_none() || !holds, "it has ended, and its pods are held: {:?}", self.job.status);
        }
        plan.work.pods.into_iter().take(crash_after).for_each(|effect| self.world.apply(effect));
        self.is_over = plan.is_over;
        self.wake_at = plan.work.wake_at;
        !is_idle
    }

    fn settle(&mut self) {
        for _ in 0..30 {
            if !self.step(usize::MAX) {
                return;
            }
        }
        panic!("it does not settle: {:?}", self.job.status);
    }

    fn end(&mut self, code: i32) {
        let name = self.world.active()[0].clone();
        self.end_named(&name, code);
    }

    fn end_named(&mut self, name: &str, code: i32) {
        self.world.run(name);
        self.world.end(name, code);
        self.settle();
    }

    fn end_index(&mut self, index: u32, code: i32) {
        let pods = self.world.seen();
        let pod = pods.iter().find(|pod| pod.is_active() && pod.index == Some(index)).unwrap();
        self.end_named(&pod.name, code);
    }

    fn status(&self) -> JobStatus {
        self.job.status.clone().unwrap()
    }

    fn counts(&self) -> (i32, i32, i32) {
        let status = self.status();
        (status.active.unwrap_or(0), status.succeeded.unwrap_or(0), status.failed.unwrap_or(0))
    }

    fn ended(&self) -> Option<(String, String)> {
        let conditions = self.status().conditions.unwrap_or_default();
        let ended = conditions.into_iter().find(|one| matches!(one.type_.as_str(), COMPLETE | FAILED))?;
        Some((ended.type_, ended.reason.unwrap()))
    }

    fn active_indexes(&self) -> Vec<u32> {
        let mut indexes: Vec<u32> =
            self.world.seen().iter().filter(|pod| pod.is_active()).filter_map(|pod| pod.index).collect();
        indexes.sort_unstable();
        indexes
    }
}

fn reason(kind: &str, reason: &str) -> Option<(String, String)> {
    Some((kind.to_owned(), reason.to_owned()))
}

#[test]
fn a_job_is_complete_when_enough_pods_have_ended_well() {
    let mut scene = Scene::new(json!({"completions": 3, "parallelism": 2}));
    scene.settle();
    assert_eq!(scene.counts(), (2, 0, 0));
    scene.end(0);
    assert_eq!(scene.counts(), (2, 1, 0));
    scene.end(0);
    assert_eq!(scene.counts(), (1, 2, 0));
    scene.end(0);
    assert_eq!(scene.counts(), (0, 3, 0));
    assert_eq!(scene.ended(), reason(COMPLETE, "CompletionsReached"));
    let status = scene.status();
    assert!(status.completion_time.is_some() && status.start_time.is_some());
    let types: Vec<String> = status.conditions.unwrap().into_iter().map(|one| one.type_).collect();
    assert_eq!(types, ["SuccessCriteriaMet", COMPLETE]);
    assert!(scene.world.seen().iter().all(|pod| !pod.is_tracked), "nothing holds them");
    assert_eq!(scene.world.pods.len(), 3, "they stay to be looked at");
}

#[test]
fn a_work_queue_is_done_when_one_has_found_nothing_more_and_all_have_ended() {
    let mut scene = Scene::new(json!({"parallelism": 3}));
    scene.settle();
    scene.end(0);
    assert_eq!(scene.counts(), (2, 1, 0), "no new one");
    assert_eq!(scene.ended(), None);
    scene.end(0);
    scene.end(0);
    assert_eq!(scene.ended(), reason(COMPLETE, "CompletionsReached"));
}

#[test]
fn failures_wait_and_are_limited() {
    let mut scene = Scene::new(json!({"completions": 1, "backoffLimit": 1}));
    scene.settle();
    scene.end(1);
    assert_eq!(scene.counts(), (0, 0, 1));
    assert_eq!(scene.wake_at, scene.world.now.checked_add(SignedDuration::from_secs(10)).ok());
    scene.world.pass(10);
    scene.settle();
    assert_eq!(scene.counts(), (1, 0, 1));
    scene.end(1);
    assert_eq!((scene.counts(), scene.ended()), ((0, 0, 2), reason(FAILED, "BackoffLimitExceeded")));
    assert!(scene.status().completion_time.is_none());
}

#[test]
fn a_failed_job_ends_its_other_pods_first() {
    let mut scene = Scene::new(json!({"completions": 3, "parallelism": 3, "backoffLimit": 0}));
    scene.settle();
    scene.world.run_all();
    scene.end(1);
    assert_eq!(scene.ended(), None, "two are on their way out");
    assert_eq!(scene.status().terminating, Some(2));
    scene.world.end_leaving();
    scene.settle();
    assert_eq!((scene.counts(), scene.ended()), ((0, 0, 3), reason(FAILED, "BackoffLimitExceeded")));
}

#[test]
fn the_deadline_ends_it() {
    let mut scene = Scene::new(json!({"completions": 1, "activeDeadlineSeconds": 60}));
    scene.settle();
    assert_eq!(scene.wake_at, scene.world.now.checked_add(SignedDuration::from_secs(60)).ok());
    scene.world.pass(60);
    scene.settle();
    assert_eq!(scene.ended(), reason(FAILED, "DeadlineExceeded"));
    assert!(scene.world.pods.is_empty());
}

#[test]
fn a_suspended_job_lets_its_pods_go_and_begins_anew() {
    let mut scene = Scene::new(json!({"completions": 2, "parallelism": 2, "suspend": true}));
    scene.settle();
    assert_eq!((scene.world.made, scene.status().start_time.is_some()), (0, false));
    let condition = |scene: &Scene| scene.status().conditions.unwrap()[0].clone();
    assert_eq!((condition(&scene).type_.as_str(), condition(&scene).status.as_str()), (SUSPENDED, "True"));
    let suspend = |scene: &mut Scene, yes: bool| {
        scene.job.spec.as_mut().unwrap().suspend = Some(yes);
        scene.settle();
    };
    suspend(&mut scene, false);
    assert_eq!((condition(&scene).status.as_str(), scene.counts()), ("False", (2, 0, 0)));
    scene.world.run_all();
    suspend(&mut scene, true);
    scene.world.end_leaving();
    scene.settle();
    assert_eq!((scene.world.pods.len(), scene.counts()), (0, (0, 0, 0)), "what was withdrawn does not count");
    suspend(&mut scene, false);
    scene.end(0);
    scene.end(0);
    assert_eq!(scene.ended(), reason(COMPLETE, "CompletionsReached"));
}

#[test]
fn each_index_succeeds_once() {
    let mut scene = Scene::new(json!({"completions": 4, "parallelism": 2, "completionMode": "Indexed"}));
    scene.settle();
    assert_eq!(scene.active_indexes(), [0, 1]);
    let pod = scene.world.pods.values().next().unwrap();
    assert_eq!(pod.spec.as_ref().unwrap().hostname.as_deref(), Some("j-0"));
    assert_eq!(pod.metadata.labels.as_ref().unwrap()[INDEX], "0");
    let env = pod.spec.as_ref().unwrap().containers[0].env.clone().unwrap();
    assert_eq!(env[0].name, "JOB_COMPLETION_INDEX");
    scene.end_index(1, 0);
    assert_eq!((scene.active_indexes(), scene.status().completed_indexes), (vec![0, 2], Some("1".to_owned())));
    scene.end_index(0, 1);
    scene.world.pass(10);
    scene.settle();
    assert_eq!(scene.active_indexes(), [0, 2], "the one that failed is made again");
    for index in [0, 2, 3] {
        scene.end_index(index, 0);
    }
    assert_eq!((scene.counts(), scene.status().completed_indexes), ((0, 4, 1), Some("0-3".to_owned())));
    assert_eq!(scene.ended(), reason(COMPLETE, "CompletionsReached"));
}

#[test]
fn indexes_have_limits_of_their_own() {
    let spec = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 1,
        "backoffLimit": i32::MAX});
    let mut scene = Scene::new(spec);
    scene.settle();
    scene.end_index(1, 1);
    assert_eq!(scene.active_indexes(), [0, 2]);
    scene.world.pass(10);
    scene.settle();
    let again = scene.world.seen().into_iter().find(|pod| pod.is_active() && pod.index == Some(1)).unwrap();
    assert_eq!(again.index_failures, IndexFailures { counted: 1, ignored: 0 });
    scene.end_index(1, 1);
    assert_eq!(scene.status().failed_indexes.as_deref(), Some("1"));
    assert_eq!(scene.ended(), None, "the others go on");
    scene.end_index(0, 0);
    scene.end_index(2, 0);
    assert_eq!((scene.counts(), scene.ended()), ((0, 2, 2), reason(FAILED, "FailedIndexes")));
}

#[test]
fn rules_say_what_a_failure_means() {
    let rules = json!({"rules": [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42], "containerName": "c"}},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
    ]});
    let mut scene = Scene::new(json!({"completions": 1, "backoffLimit": 0, "podFailurePolicy": rules,
        "podReplacementPolicy": "Failed"}));
    scene.settle();
    scene.end(7);
    assert_eq!((scene.counts().2, scene.ended()), (0, None), "it does not count");
    scene.world.pass(10);
    scene.settle();
    scene.end(42);
    assert_eq!(scene.ended(), reason(FAILED, "PodFailurePolicy"));
    let message = scene.status().conditions.unwrap()[0].message.clone().unwrap();
    assert!(
        message.starts_with("Container c for pod n/j-")
            && message.ends_with("with exit code 42 matching FailJob rule at index 0"),
        "{message}"
    );
}

#[test]
fn a_policy_says_when_it_is_enough() {
    let policy = json!({"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]});
    let spec = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed", "successPolicy": policy});
    let mut scene = Scene::new(spec);
    scene.settle();
    scene.world.run_all();
    scene.end_index(2, 0);
    assert_eq!(scene.ended(), None);
    scene.end_index(1, 0);
    scene.world.end_leaving();
    scene.settle();
    assert_eq!((scene.counts(), scene.ended()), ((0, 2, 0), reason(COMPLETE, "SuccessPolicy")));
}

#[test]
fn a_pod_is_replaced_when_its_policy_says() {
    for (policy, made) in [("TerminatingOrFailed", 2), ("Failed", 1)] {
        let mut scene = Scene::new(json!({"completions": 1, "podReplacementPolicy": policy}));
        scene.settle();
        scene.world.run_all();
        let name = scene.world.active()[0].clone();
        let uid = scene.world.pods[&name].metadata.uid.clone().unwrap();
        scene.world.apply(PodEffect::Delete(crate::workload::PodName { name, uid }));
        scene.settle();
        assert_eq!(scene.world.made, made, "{policy}");
        scene.world.end_leaving();
        scene.settle();
        assert_eq!((scene.world.made, scene.counts()), (2, (1, 0, 1)), "{policy}");
    }
}

#[test]
fn it_goes_when_its_time_is_over() {
    let mut scene = Scene::new(json!({"completions": 1, "ttlSecondsAfterFinished": 30}));
    scene.settle();
    scene.end(0);
    assert!(!scene.is_over && scene.wake_at.is_some());
    scene.world.pass(30);
    scene.settle();
    assert!(scene.is_over);
}

#[test]
fn a_job_that_goes_holds_nothing() {
    let mut scene = Scene::new(json!({"completions": 1}));
    scene.settle();
    scene.job.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(scene.world.now));
    scene.settle();
    assert!(scene.world.seen().iter().all(|pod| !pod.is_tracked));
    scene.job = job(json!({"managedBy": "example.com/other"}));
    assert!(!scene.step(usize::MAX), "it is another's");
}

#[derive(Clone, Debug)]
enum Happening {
    Step(usize),
    End(usize, i32),
    Delete(usize),
    Sweep,
    Pass(i64),
    Parallelism(i32),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => (0..6_usize).prop_map(Happening::Step),
        4 => (0..6_usize, 0..3_i32).prop_map(|(at, code)| Happening::End(at, code)),
        1 => (0..6_usize).prop_map(Happening::Delete),
        2 => Just(Happening::Sweep),
        2 => (1..700_i64).prop_map(Happening::Pass),
        1 => (0..5_i32).prop_map(Happening::Parallelism),
    ]
}

fn lawful(indexed: bool, happenings: Vec<Happening>) -> Result<(), TestCaseError> {
    let mode = if indexed { "Indexed" } else { "NonIndexed" };
    let mut scene = Scene::new(json!({"completions": 5, "parallelism": 3, "completionMode": mode, "backoffLimit": 8}));
    let mut before = JobStatus::default();
    let mut successes: BTreeMap<String, Option<u32>> = BTreeMap::new();
    let mut failures: BTreeSet<String> = BTreeSet::new();
    for happening in happenings {
        let pick = |scene: &Scene, at: usize| scene.world.active().get(at).cloned();
        match happening {
            Happening::Step(crash_after) => {
                let active = scene.world.active().len();
                scene.step(crash_after);
                let most = usize::try_from(scene.job.spec.as_ref().unwrap().parallelism.unwrap()).unwrap();
                prop_assert!(scene.world.active().len() <= active.max(most));
            }
            Happening::End(at, code) => {
                if let Some(name) = pick(&scene, at) {
                    scene.world.run(&name);
                    let pod = scene.world.seen().into_iter().find(|pod| pod.name == name).unwrap();
                    scene.world.end(&name, code);
                    if pod.is_tracked && code == 0 {
                        successes.insert(pod.uid, pod.index);
                    } else if pod.is_tracked {
                        failures.insert(pod.uid);
                    }
                }
            }
            Happening::Delete(at) => {
                if let Some(name) = pick(&scene, at) {
                    let pod = scene.world.seen().into_iter().find(|pod| pod.name == name).unwrap();
                    if pod.is_tracked {
                        failures.insert(pod.uid.clone());
                    }
                    scene.world.apply(PodEffect::Delete(pod.id()));
                }
            }
            Happening::Sweep => scene.world.end_leaving(),
            Happening::Pass(seconds) => scene.world.pass(seconds),
            Happening::Parallelism(pods) => scene.job.spec.as_mut().unwrap().parallelism = Some(pods),
        }
        let Some(status) = scene.job.status.clone() else { continue };
        prop_assert!(status.succeeded >= before.succeeded && status.failed >= before.failed, "{before:?} {status:?}");
        prop_assert!(status.failed.unwrap_or(0) >= 0);
        if Verdict::recorded(&status).is_none() {
            // Every failure was seen by us, and counted at most once.
            prop_assert!(status.failed.unwrap_or(0) as usize <= failures.len(), "{status:?} {failures:?}");
        }
        let distinct: BTreeSet<Option<u32>> = successes.values().copied().collect();
        let most = if indexed { distinct.len() } else { successes.len() };
        prop_assert!(status.succeeded.unwrap_or(0) as usize <= most, "{status:?} {successes:?}");
        before = status;
    }
    // Left alone it comes to rest, with everything counted.
    for _ in 0..400 {
        if outcome(&scene.job).is_some() {
            break;
        }
        scene.job.spec.as_mut().unwrap().parallelism = Some(3);
        scene.step(usize::MAX);
        scene.world.end_leaving();
        scene.world.pass(60);
        let seen = scene.world.seen();
        if let Some(pod) = seen.iter().find(|pod| pod.is_active()) {
            scene.world.run(&pod.name);
            scene.world.end(&pod.name, 0);
        }
    }
    prop_assert!(outcome(&scene.job).is_some(), "{:?}", scene.job.status);
    if outcome(&scene.job) == Some(true) {
        let status = scene.status();
        prop_assert!(status.succeeded >= Some(5), "{status:?}");
        let uncounted = status.uncounted_terminated_pods.unwrap_or_default();
        prop_assert!(uncounted.failed.is_none() && uncounted.succeeded.is_none());
    }
    Ok(())
}

proptest! {
    // INV-42
    #[test]
    fn counts_only_grow_and_every_end_counts_once(happenings in prop::collection::vec(happening(), 1..60)) {
        lawful(false, happenings)?;
    }

    #[test]
    fn so_do_those_of_indexes(happenings in prop::collection::vec(happening(), 1..60)) {
        lawful(true, happenings)?;
    }
}
