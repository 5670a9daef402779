//! Restarts by policy, and what survives a controller that stops in the middle.

use pumice_api::batch::JobPhase as P;
use pumice_api::scheduling::PodGroupPhase;
use serde_json::{Value, json};

use super::model::{Model, job, simple};

fn policies(list: Value) -> Value {
    json!({ "policies": list })
}

fn on(event: &str, action: &str) -> Value {
    policies(json!([{"event": event, "action": action}]))
}

#[test]
fn a_failed_pod_restarts_the_job_until_the_retries_are_used_up() {
    let mut model = Model::running(simple(2, on("PodFailed", "RestartJob")));
    for retry in 1..=2 {
        model.pod("j-w-1", "Failed");
        model.settle();
        assert_eq!((model.phase(), model.job.status.retry_count), (P::Pending, retry));
        assert_eq!(model.job.status.version, retry);
        assert!(model.pods.is_empty(), "every pod is made anew");
        assert_eq!(model.group.as_ref().unwrap().status.phase, None, "in line again");
        model.admit();
        model.settle();
        model.all_pods("Running");
        model.settle();
        assert_eq!(model.phase(), P::Running);
    }
    model.linger = true;
    model.pod("j-w-1", "Failed");
    model.settle();
    assert_eq!((model.phase(), model.job.status.retry_count), (P::Failed, 3));
    assert_eq!(model.job.status.state.reason, "RetriesExhausted");
    assert_eq!(model.counts(), [0, 0, 0, 1, 1]);
    model.reap();
    model.settle();
    assert_eq!(model.names(), ["j-w-1"], "the failed pod stays for inspection");
}

#[test]
fn a_retry_waits_until_the_old_names_are_gone() {
    let mut model = Model::running(simple(
        3,
        json!({"minAvailable": 1, "policies": [{"event": "PodFailed", "action": "RestartJob"}]}),
    ));
    model.linger = true;
    model.pod("j-w-0", "Failed");
    model.settle();
    // The failed one went at once, so one place is free, which is enough for minAvailable.
    assert_eq!(model.phase(), P::Pending);
    model.admit();
    model.settle();
    assert_eq!(model.names(), ["j-w-0", "j-w-1", "j-w-2"]);
    let old = model.uid("j-w-1");
    model.reap();
    model.settle();
    assert_ne!(model.uid("j-w-1"), old);
    assert_eq!(model.job.status.retry_count, 1, "the old pods are no evictions");
}

#[test]
fn restarts_of_some_pods_leave_the_others_and_the_group() {
    let spec = |action: &str| {
        job(json!({"minAvailable": 1, "plugins": {"svc": [], "ssh": []},
            "policies": [{"exitCode": 3, "action": action}],
            "tasks": [
                {"name": "a", "replicas": 4, "partitionPolicy": {"totalPartitions": 2, "partitionSize": 2}},
                {"name": "b", "replicas": 1}]}))
    };
    let cases = [
        ("RestartPod", vec!["j-a-2"]),
        ("RestartPartition", vec!["j-a-2", "j-a-3"]),
        ("RestartTask", vec!["j-a-0", "j-a-1", "j-a-2", "j-a-3"]),
    ];
    for (action, expected) in cases {
        let mut model = Model::running(spec(action));
        let before: Vec<(String, String)> =
            model.names().iter().map(|name| ((*name).to_owned(), model.uid(name))).collect();
        let group = model.group.clone();
        model.phases.clear();
        model.pod_exits("j-a-2", "Failed", 3);
        model.settle();
        let replaced: Vec<&str> =
            before.iter().filter(|(name, uid)| model.uid(name) != *uid).map(|(name, _)| name.as_str()).collect();
        assert_eq!(replaced, expected, "{action}");
        assert_eq!(model.group, group, "{action}");
        assert_eq!(model.applied.len(), 3, "{action}: hosts and keys stay");
        assert_eq!(model.job.status.retry_count, 1, "{action}");
        assert_eq!(model.job.status.version, 0, "{action}");
        assert_eq!(model.phases[..2], [P::Restarting, P::Pending], "{action}");
    }
}

#[test]
fn an_interrupted_restart_is_counted_once() {
    for effects in 0..6 {
        let mut model = Model::running(simple(3, on("PodFailed", "RestartTask")));
        model.pod("j-w-0", "Failed");
        let plan = model.plan(None);
        assert_eq!(plan.stages.iter().flatten().count(), 5, "three marks, the status, an event");
        model.apply_effects(plan, effects);
        model.settle();
        assert_eq!((model.phase(), model.job.status.retry_count), (P::Pending, 1), "{effects}");
        assert_eq!(model.pods.len(), 3);
        assert!(model.pods.values().all(|pod| pod.status.is_none()), "all are new");
    }
}

#[test]
fn pods_that_fail_together_are_one_restart() {
    let mut model = Model::running(simple(4, on("PodFailed", "RestartPod")));
    let before: Vec<String> = (0..4).map(|index| model.uid(&format!("j-w-{index}"))).collect();
    for name in ["j-w-0", "j-w-2", "j-w-3"] {
        model.pod(name, "Failed");
    }
    model.phases.clear();
    model.settle();
    assert_eq!(model.job.status.retry_count, 1);
    assert_eq!(model.phases, [P::Restarting, P::Pending]);
    let kept: Vec<bool> = (0..4).map(|index| model.uid(&format!("j-w-{index}")) == before[index]).collect();
    assert_eq!(kept, [false, true, false, false]);
}

#[test]
fn targeted_restarts_of_different_kinds_are_one_restart() {
    let mut model = Model::running(job(json!({"minAvailable": 1, "tasks": [
        {"name": "a", "replicas": 2, "policies": [{"event": "PodFailed", "action": "RestartPod"}]},
        {"name": "b", "replicas": 2, "policies": [{"event": "PodFailed", "action": "RestartTask"}]},
        {"name": "c", "replicas": 1}]})));
    let (stays, other) = (model.uid("j-a-0"), model.uid("j-c-0"));
    model.pod("j-a-1", "Failed");
    model.pod("j-b-0", "Failed");
    model.settle();
    assert_eq!((model.phase(), model.job.status.retry_count), (P::Running, 1));
    assert_eq!((model.uid("j-a-0"), model.uid("j-c-0")), (stays, other));
    let new = |model: &Model, name: &str| model.pods[name].status.is_none();
    assert!(["j-a-1", "j-b-0", "j-b-1"].iter().all(|name| new(&model, name)));
}

#[test]
fn a_pod_that_fails_during_a_restart_joins_it() {
    let mut model = Model::running(simple(
        3,
        json!({"minAvailable": 1, "policies": [{"event": "PodFailed", "action": "RestartPod"}]}),
    ));
    model.linger = true;
    model.pod("j-w-0", "Failed");
    let plan = model.plan(None);
    model.apply(plan, usize::MAX);
    assert_eq!(model.phase(), P::Restarting);
    model.pod("j-w-1", "Failed");
    model.evict("j-w-2");
    model.settle();
    assert_eq!((model.phase(), model.job.status.retry_count), (P::Pending, 1));
    assert!(model.pods["j-w-1"].status.is_none(), "made anew");
    model.reap();
    model.settle();
    assert_eq!((model.phase(), model.job.status.retry_count), (P::Pending, 1));
}

#[test]
fn an_eviction_during_a_restart_joins_it() {
    for linger in [false, true] {
        let policy = json!([{"events": ["PodFailed", "PodEvicted"], "action": "RestartTask"}]);
        let mut model = Model::running(simple(3, policies(policy)));
        model.linger = linger;
        model.pod("j-w-0", "Failed");
        let plan = model.plan(None);
        model.apply(plan, usize::MAX);
        model.evict("j-w-2");
        model.settle();
        model.reap();
        model.settle();
        assert_eq!((model.phase(), model.job.status.retry_count), (P::Pending, 1));
        assert!(model.pods.len() == 3 && model.pods.values().all(|pod| pod.status.is_none()));
    }
}

#[test]
fn what_a_restart_deletes_is_never_missed() {
    // Pods that ended are gone as soon as they are deleted.
    let policy = json!([{"event": "PodFailed", "action": "RestartPod"}, {"event": "PodEvicted", "action": "AbortJob"}]);
    let mut model = Model::running(simple(3, policies(policy)));
    model.pod("j-w-0", "Failed");
    let plan = model.plan(None);
    model.apply(plan, usize::MAX);
    model.pod("j-w-1", "Failed");
    model.settle();
    assert_eq!((model.phase(), model.job.status.retry_count), (P::Pending, 1));
}

#[test]
fn an_interrupted_restart_of_several_pods_is_counted_once() {
    for effects in 0..6 {
        let mut model = Model::running(simple(4, on("PodFailed", "RestartPod")));
        model.pod("j-w-0", "Failed");
        model.pod("j-w-3", "Failed");
        let plan = model.plan(None);
        assert_eq!(plan.stages.iter().flatten().count(), 4, "two marks, the status, an event");
        model.apply_effects(plan, effects);
        model.settle();
        assert_eq!((model.phase(), model.job.status.retry_count), (P::Pending, 1), "{effects}");
        let new = model.pods.values().filter(|pod| pod.status.is_none()).count();
        assert_eq!((new, model.pods.len()), (2, 4), "{effects}");
    }
}

#[test]
fn evictions_are_seen_going_gone_and_after_the_fact() {
    let start = || Model::running(simple(3, on("PodEvicted", "RestartJob")));
    let mut going = start();
    going.linger = true;
    going.evict("j-w-1");
    going.settle();
    assert_eq!((going.phase(), going.job.status.retry_count), (P::Restarting, 1));
    going.reap();
    going.settle();
    assert_eq!((going.phase(), going.job.status.retry_count), (P::Pending, 1), "one eviction, one restart");

    let mut gone = start();
    gone.evict("j-w-1");
    gone.settle();
    assert_eq!((gone.phase(), gone.job.status.retry_count), (P::Pending, 1));

    let mut unseen = start();
    unseen.pods.remove("j-w-1");
    unseen.settle();
    assert_eq!((unseen.phase(), unseen.job.status.retry_count), (P::Pending, 1), "we were away when it went");
}

#[test]
fn an_evicted_pod_without_a_policy_is_made_again() {
    let mut model = Model::running(simple(3, json!({})));
    let old = model.uid("j-w-1");
    model.evict("j-w-1");
    model.settle();
    assert_ne!(model.uid("j-w-1"), old);
    assert_eq!(model.job.status.retry_count, 0);
}

#[test]
fn a_delayed_eviction_policy_gives_the_successor_time_to_run() {
    let list = json!([{"event": "PodEvicted", "action": "TerminateJob", "timeout": "5m"}]);
    let mut model = Model::running(simple(2, policies(list.clone())));
    model.evict("j-w-0");
    model.settle();
    assert_eq!(model.pods.len(), 2);
    assert_eq!(model.plan(None).wake_at.unwrap().duration_since(model.now).as_secs(), 300);
    let mut late = Model::running(simple(2, policies(list)));
    late.evict("j-w-0");
    late.settle();
    late.sleep(300);
    late.settle();
    assert_eq!(late.phase(), P::Terminated);
    model.all_pods("Running");
    model.settle();
    model.sleep(300);
    model.settle();
    assert_eq!(model.phase(), P::Running);
}

fn delayed() -> Value {
    policies(json!([{"event": "PodEvicted", "action": "TerminateJob", "timeout": "10m"}]))
}

/// What only this controller knows is gone.
fn failover(model: &mut Model) {
    model.evicted.clear();
}

#[test]
fn a_delay_of_an_eviction_that_nobody_saw_is_not_over() {
    let mut model = Model::running(simple(2, delayed()));
    model.pods.remove("j-w-1");
    model.settle();
    assert_eq!((model.phase(), model.pods.len()), (P::Pending, 2));
    model.sleep(590);
    model.settle();
    assert_eq!(model.phase(), P::Pending);
    model.sleep(20);
    model.settle();
    assert_eq!(model.phase(), P::Terminated);
}

#[test]
fn a_delayed_eviction_policy_survives_any_interruption() {
    for (seen, waits, effects) in
        (0..2).flat_map(|seen| (0..3).flat_map(move |waits| (0..6).map(move |k| (seen, waits, k))))
    {
        let mut model = Model::running(simple(2, delayed()));
        let evicted_at = model.now;
        match waits {
            1 => model.queue_exists = false,
            2 => model.group.as_mut().unwrap().status.phase = Some(PodGroupPhase::Pending),
            _ => {}
        }
        if seen == 1 {
            model.evict("j-w-1")
        } else {
            drop(model.pods.remove("j-w-1"))
        }
        let plan = model.plan(None);
        model.apply_effects(plan, effects);
        failover(&mut model);
        model.settle();
        failover(&mut model);
        model.sleep(60);
        model.queue_exists = true;
        model.admit();
        model.settle();
        let what = format!("{seen} {waits} {effects}");
        assert_eq!((model.phase(), model.pods.len()), (P::Pending, 2), "{what}");
        let at = model.pods["j-w-1"].metadata.annotations.as_ref().unwrap()[pumice_api::names::EVICTED_AT].clone();
        assert_eq!(at.parse::<jiff::Timestamp>().unwrap(), evicted_at, "{what}");
        let left = model.job.metadata.annotations.clone().unwrap_or_default();
        assert_eq!(left, std::collections::BTreeMap::new(), "{what}");
        model.sleep(560);
        model.settle();
        assert_eq!(model.phase(), P::Terminated, "{what}");
    }
}

#[test]
fn a_delayed_eviction_policy_falls_away_when_the_successor_runs() {
    let mut model = Model::running(simple(2, delayed()));
    model.group.as_mut().unwrap().status.phase = Some(PodGroupPhase::Pending);
    model.evict("j-w-1");
    model.settle();
    model.admit();
    model.settle();
    model.all_pods("Running");
    model.sleep(3600);
    model.settle();
    assert_eq!(model.phase(), P::Running);
}

#[test]
fn a_pod_that_pends_too_long_acts_only_with_a_timeout() {
    let list = json!([{"event": "PodPending", "action": "AbortJob", "timeout": "1h"}]);
    let mut model = Model::new(simple(1, policies(list)));
    model.settle();
    model.admit();
    model.settle();
    assert_eq!(model.phase(), P::Pending);
    model.sleep(3600);
    model.settle();
    assert_eq!(model.phase(), P::Aborted);
}

#[test]
fn a_completed_task_completes_the_job() {
    let mut model = Model::running(job(json!({"tasks": [
        {"name": "ps", "replicas": 1},
        {"name": "worker", "replicas": 2, "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}]}]})));
    model.pod("j-worker-0", "Succeeded");
    model.settle();
    assert_eq!(model.phase(), P::Running);
    model.pod("j-worker-1", "Succeeded");
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Completed, [0, 0, 2, 0, 0]));
    assert_eq!(model.names(), ["j-worker-0", "j-worker-1"]);
}

#[test]
fn containers_that_restart_too_often_fail_the_task() {
    let mut model = Model::running(simple(2, on("TaskFailed", "TerminateJob")));
    model.job.spec.tasks[0].max_retry = 4;
    model.restarted("j-w-0", 2);
    model.restarted("j-w-1", 1);
    model.settle();
    assert_eq!(model.phase(), P::Running);
    model.restarted("j-w-1", 2);
    model.settle();
    assert_eq!(model.phase(), P::Terminated);
}

#[test]
fn an_unknown_group_acts_also_after_a_restart() {
    let mut model = Model::running(simple(2, on("Unknown", "RestartJob")));
    for retry in 1..=2 {
        model.group.as_mut().unwrap().status.phase = Some(PodGroupPhase::Unknown);
        model.settle();
        assert_eq!(model.job.status.retry_count, retry);
        model.admit();
        model.settle();
        model.all_pods("Running");
        model.settle();
    }
}

#[test]
fn a_targeted_action_on_a_job_event_costs_nothing() {
    let mut model = Model::running(simple(2, on("Unknown", "RestartTask")));
    model.group.as_mut().unwrap().status.phase = Some(PodGroupPhase::Unknown);
    model.settle();
    assert_eq!((model.phase(), model.job.status.retry_count), (P::Running, 0));
    assert_eq!(model.records.last().unwrap().0, "ActionWithoutTarget");
}

#[test]
fn pods_of_an_older_version_raise_nothing() {
    let mut model =
        Model::running(simple(2, json!({"minAvailable": 1, "policies": [{"event": "*", "action": "RestartJob"}]})));
    model.job.status.version = 7;
    model.pod("j-w-0", "Failed");
    model.settle();
    assert_eq!((model.phase(), model.job.status.retry_count), (P::Running, 0));
}

#[test]
fn without_policies_failed_pods_stay_failed() {
    let mut model = Model::running(simple(3, json!({"minAvailable": 1})));
    model.pod("j-w-0", "Failed");
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Running, [0, 2, 0, 1, 0]));
    model.pod("j-w-1", "Succeeded");
    model.pod("j-w-2", "Failed");
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Completed, [0, 0, 1, 2, 0]));
}

#[test]
fn a_command_that_meets_an_interrupted_restart_is_not_lost() {
    let mut model = Model::running(simple(3, on("PodFailed", "RestartTask")));
    model.pod("j-w-2", "Failed");
    let plan = model.plan(None);
    model.apply(plan, 1);
    model.command(pumice_api::bus::Action::TerminateJob);
    assert_eq!((model.phase(), model.job.status.retry_count), (P::Terminated, 1));
}

#[test]
fn of_two_evictions_at_once_the_stronger_policy_is_not_lost() {
    let mut model = Model::running(job(json!({"minAvailable": 1, "tasks": [
        {"name": "a", "replicas": 2, "policies": [{"event": "PodEvicted", "action": "RestartPod"}]},
        {"name": "b", "replicas": 2, "policies": [{"event": "PodEvicted", "action": "AbortJob"}]}]})));
    model.evict("j-a-0");
    model.evict("j-a-1");
    model.evict("j-b-1");
    model.settle();
    assert_eq!((model.phase(), model.job.status.retry_count), (P::Aborted, 1), "and a-1 costs no retry of its own");
}

#[test]
fn a_pod_refused_by_a_kubelet_is_made_again_and_costs_nothing() {
    let mut model = Model::running(simple(2, json!({"policies": [{"event": "*", "action": "RestartJob"}]})));
    for (round, reason) in [(1, "OutOfcpu"), (2, "UnexpectedAdmissionError"), (3, "OutOfcpu"), (4, "NodeAffinity")] {
        model.linger = round == 4;
        let old = model.uid("j-w-1");
        model.refuse("j-w-1", reason);
        model.settle();
        model.reap();
        model.settle();
        assert_ne!(model.uid("j-w-1"), old);
        assert_eq!(
            (model.phase(), model.job.status.retry_count, model.job.status.failed),
            (P::Pending, 0, 0),
            "{reason}"
        );
    }
    let told: Vec<&str> = model.records.iter().filter(|one| one.0 == "PodRefused").map(|one| one.1.as_str()).collect();
    assert_eq!(told.len(), 3, "{told:?}");
}

#[test]
fn pods_that_nodes_go_on_refusing_are_made_again_ever_later() {
    let mut model = Model::running(simple(2, json!({})));
    model.watches_time = true;
    model.sleep(10);
    let refuse = |model: &mut Model, wait: i64| {
        let old = model.uid("j-w-1");
        model.refuse("j-w-1", "OutOfcpu");
        model.settle();
        if wait > 0 {
            assert_eq!(model.plan(None).wake_at.unwrap().duration_since(model.now).as_secs(), wait);
            model.sleep(wait - 1);
            model.settle();
            assert_eq!(model.uid("j-w-1"), old, "{wait}");
            model.sleep(1);
            model.settle();
        }
        assert_ne!(model.uid("j-w-1"), old, "{wait}");
    };
    // One that waited for longer than the pause is made again at once.
    for wait in [0, 2, 4, 8, 16, 32, 60, 60] {
        refuse(&mut model, wait);
    }
    model.sleep(3_600);
    refuse(&mut model, 0);
    refuse(&mut model, 60);
    model.pod("j-w-1", "Running");
    model.settle();
    assert!(!model.job.metadata.annotations.as_ref().unwrap().contains_key("pumice.sh/refused-indices"));
    model.pod("j-w-0", "Running");
    model.evict("j-w-1");
    model.settle();
    refuse(&mut model, 1);
    assert_eq!((model.job.status.retry_count, model.pods.len()), (0, 2));
}

#[test]
fn a_clock_that_goes_wrong_keeps_no_refused_pod() {
    let mut model = Model::running(simple(1, json!({})));
    model.watches_time = true;
    let old = model.uid("j-w-0");
    model.sleep(-3_600);
    model.refuse("j-w-0", "OutOfcpu");
    model.settle();
    assert_ne!(model.uid("j-w-0"), old);
}

#[test]
fn a_refused_pod_keeps_no_job_from_ending_or_restarting() {
    let mut model = Model::running(simple(2, on("PodFailed", "RestartPod")));
    model.refuse("j-w-1", "OutOfcpu");
    model.pod("j-w-0", "Failed");
    model.settle();
    assert_eq!((model.phase(), model.job.status.retry_count, model.pods.len()), (P::Pending, 1, 2));
    model.all_pods("Running");
    model.settle();
    model.refuse("j-w-1", "OutOfcpu");
    model.command(pumice_api::bus::Action::TerminateJob);
    assert_eq!((model.phase(), model.pods.len()), (P::Terminated, 0));
}

#[test]
fn further_retries_wait_by_the_times_in_the_job() {
    let mut model = Model::running(simple(2, on("PodFailed", "RestartJob")));
    model.job.spec.max_retry = 5;
    model.watches_time = true;
    for wait in [0, 10, 20, 40] {
        model.pod("j-w-1", "Failed");
        model.settle();
        if wait > 0 {
            assert_eq!(model.phase(), P::Restarting, "{wait}");
            assert!(model.pods.is_empty(), "what holds resources is gone at once");
            assert_eq!(model.plan(None).wake_at.unwrap().duration_since(model.now).as_secs(), wait);
            model.sleep(wait - 1);
            model.settle();
            assert_eq!(model.phase(), P::Restarting, "{wait}");
            model.sleep(1);
            model.settle();
        }
        assert_eq!(model.phase(), P::Pending, "{wait}");
        model.admit();
        model.settle();
        model.all_pods("Running");
        model.settle();
    }
    model.pod("j-w-1", "Failed");
    model.settle();
    assert_eq!(model.phase(), P::Failed, "the end waits for nothing");
}

#[test]
fn a_resumed_job_does_not_wait() {
    let mut model = Model::running(simple(2, on("PodFailed", "RestartJob")));
    model.watches_time = true;
    model.job.status.retry_count = 2;
    model.command(pumice_api::bus::Action::AbortJob);
    model.command(pumice_api::bus::Action::ResumeJob);
    assert_eq!(model.phase(), P::Pending);
}

fn update(model: &mut Model) {
    model.job.spec.min_available = 1;
    model.job.metadata.generation = model.job.metadata.generation.map(|generation| generation + 1);
}

#[test]
fn an_update_acts_once_by_a_rule_that_names_it() {
    let mut model = Model::running(simple(2, on("JobUpdated", "RestartJob")));
    update(&mut model);
    model.settle();
    assert_eq!((model.phase(), model.job.status.retry_count), (P::Pending, 1));
    model.admit();
    model.settle();
    model.all_pods("Running");
    model.settle();
    assert_eq!((model.phase(), model.job.status.retry_count), (P::Running, 1));

    let mut any = Model::running(simple(2, on("*", "RestartJob")));
    update(&mut any);
    any.settle();
    assert_eq!(any.job.status.retry_count, 0, "Volcano never raises it, so no rule for all events expects it");
    assert!(any.job.status.controlled_resources.is_empty());
}

#[test]
fn a_delay_counts_from_the_update() {
    let list = json!([{"event": "JobUpdated", "action": "TerminateJob", "timeout": "5m"}]);
    let mut model = Model::running(simple(2, policies(list)));
    model.sleep(1000);
    update(&mut model);
    model.settle();
    assert_eq!(model.phase(), P::Running);
    model.sleep(299);
    model.settle();
    assert_eq!(model.phase(), P::Running);
    model.sleep(1);
    model.settle();
    assert_eq!(model.phase(), P::Terminated);
}
