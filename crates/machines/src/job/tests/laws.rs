//! Laws that hold whatever happens, in any order, with any crash.

use proptest::prelude::*;
use pumice_api::batch::JobPhase as P;
use pumice_api::bus::Action;
use pumice_api::scheduling::PodGroupPhase;
use serde_json::json;

use super::model::{Model, job};

#[derive(Clone, Debug)]
enum Move {
    Pod(usize, &'static str),
    Evict(usize),
    Vanish(usize),
    Refuse(usize),
    OutOfMemory(usize),
    Reap,
    Admit,
    GroupUnknown,
    Command(Action),
    /// The controller carries out this many effects of a plan, then stops.
    Interrupted(usize),
    Sleep(i64),
    Scale(i32),
    Settle,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let phase = prop_oneof![Just("Running"), Just("Succeeded"), Just("Failed")];
    let action = prop_oneof![
        Just(Action::AbortJob),
        Just(Action::ResumeJob),
        Just(Action::RestartJob),
        Just(Action::CompleteJob),
        Just(Action::TerminateJob),
    ];
    let one = prop_oneof![
        6 => (0..6_usize, phase).prop_map(|(pod, phase)| Move::Pod(pod, phase)),
        1 => (0..6_usize).prop_map(Move::Evict),
        1 => (0..6_usize).prop_map(Move::Vanish),
        1 => (0..6_usize).prop_map(Move::Refuse),
        2 => (0..6_usize).prop_map(Move::OutOfMemory),
        3 => Just(Move::Reap),
        4 => Just(Move::Admit),
        1 => Just(Move::GroupUnknown),
        1 => action.prop_map(Move::Command),
        2 => (0..6_usize).prop_map(Move::Interrupted),
        1 => (1..400_i64).prop_map(Move::Sleep),
        1 => (0..4_i32).prop_map(Move::Scale),
        4 => Just(Move::Settle),
    ];
    prop::collection::vec(one, 1..40)
}

fn policies() -> impl Strategy<Value = serde_json::Value> {
    let event = prop_oneof![
        Just("*"),
        Just("PodFailed"),
        Just("PodEvicted"),
        Just("TaskCompleted"),
        Just("Unknown"),
        Just("PodPending"),
        Just("OOMKilled"),
    ];
    let action = prop_oneof![
        Just("RestartJob"),
        Just("RestartTask"),
        Just("RestartPod"),
        Just("RestartPartition"),
        Just("AbortJob"),
        Just("CompleteJob"),
        Just("TerminateJob"),
        Just("ScaleUpMemory"),
    ];
    let timeout = prop_oneof![Just(None), Just(Some("2m"))];
    let one = (event, action, timeout).prop_map(|(event, action, timeout)| match timeout {
        Some(timeout) => json!({"event": event, "action": action, "timeout": timeout}),
        None => json!({"event": event, "action": action}),
    });
    prop::collection::vec(one, 0..3).prop_map(serde_json::Value::from)
}

/// Replicas, minAvailable, minSuccess, maxParallel, retries, whether it depends on the first task, whether it is split.
type Drawn = (i32, i32, Option<i32>, Option<i32>, Option<i32>, Option<()>, bool);

/// Jobs of one to three tasks, with all that decides when they run and end.
fn specs() -> impl Strategy<Value = serde_json::Value> {
    let task = (
        0..4_i32,
        0..4_i32,
        prop::option::weighted(0.2, 1..3_i32),
        prop::option::weighted(0.3, 1..3_i32),
        prop::option::weighted(0.3, 0..3_i32),
        prop::option::weighted(0.2, Just(())),
        any::<bool>(),
    );
    let tasks = prop::collection::vec(task, 1..4).prop_map(|tasks| {
        let one = |(at, (replicas, least, success, parallel, retries, depends, split)): (usize, Drawn)| {
            let name = ["a", "b", "c"][at];
            let mut task = json!({"name": name, "replicas": replicas, "minAvailable": least.min(replicas),
                "template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "1Gi"}}}]}}});
            if let Some(success) = success {
                task["minSuccess"] = success.into();
            }
            if let Some(parallel) = parallel {
                task["maxParallel"] = parallel.max(least).into();
            }
            if let Some(retries) = retries {
                task["retries"] = retries.into();
            }
            if depends.is_some() && at > 0 {
                task["dependsOn"] = json!({"name": ["a"]});
            }
            if split && replicas == 2 {
                task["partitionPolicy"] = json!({"totalPartitions": 2, "partitionSize": 1});
            }
            task
        };
        tasks.into_iter().enumerate().map(one).collect::<Vec<_>>()
    });
    let plugins = prop_oneof![Just(json!({})), Just(json!({"svc": []}))];
    let success = prop::option::weighted(0.2, 1..4_i32);
    (tasks, policies(), 1..4_i32, 0..4_i32, success, plugins).prop_map(|(tasks, policies, retries, least, success, plugins)| {
        let replicas: i64 = tasks.iter().filter_map(|task| task["replicas"].as_i64()).sum();
        let mut spec = json!({"minAvailable": i64::from(least).min(replicas), "maxRetry": retries, "policies": policies,
            "plugins": plugins, "tasks": tasks});
        if let Some(success) = success {
            spec["minSuccess"] = success.into();
        }
        spec
    })
}

/// Edges of the graph of phases, several at a time when a model is settled in between.
pub(super) fn legal(from: &P, to: &P) -> bool {
    match from {
        P::Pending | P::Running => !matches!(to, P::Aborted | P::Terminated),
        P::Restarting => matches!(to, P::Pending | P::Failed | P::Aborting | P::Terminating | P::Completing),
        P::Aborting => matches!(to, P::Aborted | P::Restarting | P::Terminating),
        P::Aborted => matches!(to, P::Restarting | P::Terminating),
        P::Terminating => matches!(to, P::Terminated),
        P::Completing => matches!(to, P::Completed),
        _ => false,
    }
}

fn play(model: &mut Model, one: Move) {
    let nth = |model: &Model, index: usize| model.pods.keys().nth(index).cloned();
    match one {
        Move::Pod(index, phase) => {
            if let Some(name) = nth(model, index) {
                let ended = model.pods[&name].status.as_ref().and_then(|status| status.phase.clone());
                if !matches!(ended.as_deref(), Some("Succeeded" | "Failed")) {
                    model.pod(&name, phase);
                }
            }
        }
        Move::Evict(index) => {
            if let Some(name) = nth(model, index) {
                model.evict(&name);
            }
        }
        Move::Vanish(index) => {
            if let Some(name) = nth(model, index) {
                model.pods.remove(&name);
            }
        }
        Move::Refuse(index) => {
            if let Some(name) = nth(model, index).filter(|name| !model.has_ended(name)) {
                model.refuse(&name, "OutOfmemory");
            }
        }
        Move::OutOfMemory(index) => {
            if let Some(name) = nth(model, index).filter(|name| !model.has_ended(name)) {
                model.out_of_memory(&name);
            }
        }
        Move::Reap => model.reap(),
        Move::Admit => model.admit(),
        Move::GroupUnknown => {
            if let Some(group) = model.group.as_mut().filter(|group| group.status.phase.is_some()) {
                group.status.phase = Some(PodGroupPhase::Unknown);
            }
        }
        Move::Command(action) => model.command(action),
        Move::Interrupted(effects) => {
            let plan = model.plan(None);
            model.apply_effects(plan, effects);
            model.evicted.clear();
        }
        Move::Sleep(seconds) => model.sleep(seconds),
        Move::Scale(replicas) => {
            let spec = &mut model.job.spec;
            let Some(task) = spec.tasks.last_mut() else { return };
            task.replicas = replicas;
            task.min_available = task.min_available.map(|least| least.min(replicas));
            spec.min_available = spec.min_available.min(spec.tasks.iter().map(|task| task.replicas).sum());
            model.job.metadata.generation = model.job.metadata.generation.map(|generation| generation + 1);
        }
        Move::Settle => model.settle(),
    }
}

fn check(model: &Model, before: usize) -> Result<(), TestCaseError> {
    for pair in model.phases[before.saturating_sub(1)..].windows(2) {
        prop_assert!(legal(&pair[0], &pair[1]), "{:?} -> {:?}", pair[0], pair[1]);
    }
    prop_assert!(model.counts().iter().all(|count| *count >= 0), "{:?}", model.counts());
    prop_assert!(model.job.status.retry_count <= model.job.spec.max_retry);
    for name in model.pods.keys() {
        prop_assert!(["1Gi", "2Gi", "4Gi", "8Gi"].contains(&model.limit(name)), "three tries: {}", model.limit(name));
    }
    let retried = crate::job::retries::PodRetries::read(&model.job);
    for task in &model.job.spec.tasks {
        for index in 0..4 {
            let times = retried.times(&task.name, index);
            prop_assert!(times <= i64::from(task.retries.unwrap_or(0)), "{} {index}: {times}", task.name);
        }
    }
    let conditions = &model.job.status.conditions;
    for (index, condition) in conditions.iter().enumerate() {
        prop_assert!(!conditions[..index].iter().any(|other| other.status == condition.status));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    // INV-40, INV-41
    #[test]
    fn whatever_happens(moves in moves(), spec in specs(), linger in any::<bool>(), hold_counts in any::<bool>(),
        prunes in any::<bool>()) {
        let mut model = Model::new(job(spec));
        model.prunes = prunes;
        model.hold_counts = hold_counts;
        model.linger = linger;
        for one in moves {
            let before = model.phases.len();
            play(&mut model, one);
            check(&model, before)?;
        }
        // In the end everything is settled: a second look changes nothing.
        model.hold_counts = false;
        let before = model.phases.len();
        model.settle();
        check(&model, before)?;
        prop_assert!(model.plan(None).is_settled(), "{:?}", model.plan(None));
        let live = model.pods.values().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let phase_of = |pod: &k8s_openapi::api::core::v1::Pod| {
            pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_else(|| "Pending".into())
        };
        let wanted = |pod: &&k8s_openapi::api::core::v1::Pod| {
            let facts = crate::job::JobPod::observe(pod).unwrap().facts;
            model.job.spec.tasks.iter().any(|task| task.name == facts.task && facts.index < task.replicas)
        };
        let running = live.clone().filter(wanted).filter(|pod| phase_of(pod) == "Running").count();
        prop_assert_eq!(model.job.status.running as usize, running, "the counts are true");
        if model.phase().is_finished() {
            prop_assert!(live.clone().all(|pod| phase_of(pod) == "Succeeded" || phase_of(pod) == "Failed"));
            prop_assert!(model.group.is_none());
        }
    }
}
