//! A job from its creation to its end.

use pumice_api::batch::JobPhase as P;
use pumice_api::bus::Action;
use pumice_api::scheduling::PodGroupCondition;
use serde_json::json;

use super::model::{Model, job, simple};
use crate::job::{Effect, StatusChange};

#[test]
fn from_pending_to_completed() {
    let mut model = Model::new(simple(3, json!({"plugins": {"env": [], "svc": [], "ssh": []}, "queue": "q"})));
    model.settle();
    assert_eq!(model.phase(), P::Pending);
    assert!(model.pods.is_empty(), "no pod while the group is Pending");
    let group = model.group.as_ref().unwrap();
    assert_eq!(group.metadata.name.as_deref(), Some("j-u1"));
    assert_eq!((group.spec.min_member, group.spec.queue.as_str()), (3, "q"));
    let applied: Vec<&str> = model.applied.keys().map(|id| id.name.as_str()).collect();
    assert_eq!(applied, ["j-svc", "j-ssh", "j"]);

    model.admit();
    model.settle();
    assert_eq!(model.names(), ["j-w-0", "j-w-1", "j-w-2"]);
    assert_eq!((model.phase(), model.counts()), (P::Pending, [3, 0, 0, 0, 0]));

    model.pod("j-w-0", "Running");
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Pending, [2, 1, 0, 0, 0]));
    model.all_pods("Running");
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Running, [0, 3, 0, 0, 0]));

    model.sleep(30);
    model.all_pods("Succeeded");
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Completed, [0, 0, 3, 0, 0]));
    assert_eq!(model.job.status.task_status_count["w"].phase["Succeeded"], 3);
    assert_eq!(model.job.status.running_duration.as_deref(), Some("1m30s"));
    assert_eq!(model.group, None, "a finished job has no group");
    assert!(model.applied.is_empty(), "nor plugin objects");
    assert!(model.job.status.controlled_resources.is_empty());
    assert_eq!(model.pods.len(), 3, "its pods stay");
    assert_eq!(model.phases, [P::Pending, P::Running, P::Completed]);
    let conditions: Vec<P> = model.job.status.conditions.iter().map(|one| one.status.clone()).collect();
    assert_eq!(conditions, [P::Pending, P::Running, P::Completed]);
}

#[test]
fn the_first_plan_makes_the_group_and_a_status_that_may_wait_for_counts() {
    let model = Model::new(simple(1, json!({})));
    let plan = model.plan(None);
    let [stage] = plan.stages.as_slice() else { panic!("{plan:?}") };
    assert!(matches!(stage[0], Effect::CreateGroup(_)), "{stage:?}");
    assert!(matches!(stage[1], Effect::WriteStatus { change: StatusChange::Counts, .. }), "{stage:?}");
}

#[test]
fn the_entries_of_plugins_come_with_the_next_write_and_are_there_when_a_job_is_ended() {
    let plugins = json!({"plugins": {"svc": [], "ssh": []}});
    for started in [false, true] {
        let mut model = Model::new(simple(1, plugins.clone()));
        model.hold_counts = true;
        model.settle();
        model.admit();
        model.settle();
        assert!(!model.applied.is_empty() && model.job.status.controlled_resources.is_empty(), "a write for no news");
        if started {
            model.all_pods("Running");
            model.settle();
            assert_eq!(model.phase(), P::Running);
            assert_eq!(model.job.status.controlled_resources.len(), 2);
        }
        model.command(Action::AbortJob);
        model.settle();
        assert_eq!(model.phase(), P::Aborted);
        assert!(model.applied.is_empty(), "started: {started}");
        assert!(model.job.status.controlled_resources.is_empty(), "started: {started}");
    }
}

#[test]
fn counts_only_are_not_urgent() {
    let mut model = Model::running(simple(3, json!({"minAvailable": 1})));
    model.pod("j-w-0", "Succeeded");
    let plan = model.plan(None);
    assert!(matches!(plan.stages[0][0], Effect::WriteStatus { change: StatusChange::Counts, .. }), "{plan:?}");
}

#[test]
fn results_stay_when_the_pods_of_a_finished_job_go() {
    let mut model = Model::running(simple(3, json!({"minAvailable": 2})));
    model.all_pods("Succeeded");
    model.pod("j-w-2", "Failed");
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Completed, [0, 0, 2, 1, 0]));
    model.pods.clear();
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Completed, [0, 0, 2, 1, 0]));
}

#[test]
fn min_success_ends_the_job_and_kills_the_rest() {
    let mut model = Model::running(simple(4, json!({"minSuccess": 2, "minAvailable": 1})));
    model.linger = true;
    model.pod("j-w-0", "Succeeded");
    model.pod("j-w-1", "Succeeded");
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Completed, [0, 0, 2, 0, 2]));
    model.reap();
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Completed, [0, 0, 2, 0, 0]));
    assert_eq!(model.names(), ["j-w-0", "j-w-1"]);
}

#[test]
fn suspend_and_resume_keep_what_has_ended_and_cost_no_retry() {
    let mut model = Model::running(simple(3, json!({"plugins": {"svc": []}})));
    model.linger = true;
    model.pod("j-w-0", "Succeeded");
    model.settle();
    model.command(Action::AbortJob);
    assert_eq!((model.phase(), model.counts()), (P::Aborting, [0, 0, 1, 0, 2]));
    assert_eq!(model.group, None);
    assert!(!model.applied.is_empty(), "pods that stop may still need the hosts");
    model.reap();
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Aborted, [0, 0, 1, 0, 0]));
    assert!(model.applied.is_empty());
    model.settle();

    let finished = model.uid("j-w-0");
    model.command(Action::ResumeJob);
    assert_eq!((model.phase(), model.counts()), (P::Pending, [0, 0, 1, 0, 0]));
    assert_eq!(model.job.status.retry_count, 0);
    assert!(model.group.is_some() && model.pods.len() == 1, "in line again");
    model.admit();
    model.settle();
    assert_eq!(model.names(), ["j-w-0", "j-w-1", "j-w-2"]);
    assert_eq!(model.uid("j-w-0"), finished);
    model.all_pods("Succeeded");
    model.settle();
    assert_eq!(model.phase(), P::Completed);
}

#[test]
fn resume_while_aborting_kills_what_still_runs() {
    let mut model = Model::running(simple(2, json!({})));
    model.linger = true;
    let plan = model.plan(Some(&Action::AbortJob));
    model.apply(plan, usize::MAX);
    model.command(Action::ResumeJob);
    assert_eq!(model.phase(), P::Restarting);
    assert_eq!(model.counts()[4], 2);
    model.reap();
    model.settle();
    assert_eq!((model.phase(), model.pods.len()), (P::Pending, 0));
}

#[test]
fn a_restarting_job_obeys_terminate() {
    let mut model = Model::running(simple(2, json!({})));
    model.linger = true;
    model.command(Action::RestartJob);
    assert_eq!(model.phase(), P::Restarting);
    model.command(Action::TerminateJob);
    assert_eq!(model.phase(), P::Terminating);
    model.reap();
    model.settle();
    assert_eq!((model.phase(), model.pods.len()), (P::Terminated, 0));
}

#[test]
fn scaling_takes_the_highest_and_adds_what_is_missing() {
    let mut model = Model::running(simple(4, json!({"minAvailable": 1, "plugins": {"svc": []}})));
    model.job.spec.tasks[0].replicas = 2;
    model.job.spec.tasks[0].min_available = Some(1);
    model.job.metadata.generation = Some(2);
    model.settle();
    assert_eq!(model.names(), ["j-w-0", "j-w-1"]);
    assert!(model.applied.values().all(|generation| *generation == 2), "the hosts follow");
    assert_eq!(model.group.as_ref().unwrap().spec.min_task_member["w"], 1);
    model.job.spec.tasks[0].replicas = 3;
    model.job.metadata.generation = Some(3);
    model.settle();
    assert_eq!(model.names(), ["j-w-0", "j-w-1", "j-w-2"]);
    assert_eq!(model.phase(), P::Running);
    assert_eq!(model.job.status.retry_count, 0);
}

fn scale(model: &mut Model, replicas: i32) {
    model.job.spec.tasks[0].replicas = replicas;
    model.job.metadata.generation = model.job.metadata.generation.map(|generation| generation + 1);
}

fn elastic() -> Model {
    let policies = json!([{"event": "PodEvicted", "action": "RestartJob"}]);
    Model::running(simple(
        10,
        json!({"minAvailable": 1, "policies": policies, "tasks": [{"name": "w", "replicas": 10, "minAvailable": 1}]}),
    ))
}

#[test]
fn a_job_scaled_up_again_while_pods_still_stop_is_not_restarted() {
    let mut model = elastic();
    model.linger = true;
    scale(&mut model, 4);
    model.settle();
    scale(&mut model, 8);
    model.settle();
    assert_eq!((model.phase(), model.job.status.retry_count), (P::Running, 0));
    model.reap();
    model.settle();
    assert_eq!((model.phase(), model.job.status.retry_count, model.pods.len()), (P::Running, 0, 8));
}

#[test]
fn pods_that_a_smaller_job_lost_are_not_missed_by_a_larger_one() {
    for effects in 0..16 {
        let mut model = elastic();
        model.hold_counts = true;
        scale(&mut model, 5);
        let plan = model.plan(None);
        model.apply_effects(plan, effects);
        scale(&mut model, 8);
        model.settle();
        assert_eq!((model.phase(), model.job.status.retry_count), (P::Running, 0), "{effects}");
        assert_eq!(model.pods.len(), 8);
    }
}

#[test]
fn the_group_follows_the_minimum() {
    let mut model = Model::running(simple(
        4,
        json!({"tasks": [{"name": "w", "replicas": 4, "minAvailable": 4,
        "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]}}}]}),
    ));
    let resources = |model: &Model| {
        let list = model.group.as_ref().unwrap().spec.min_resources.clone().unwrap();
        list.into_iter().map(|(name, amount)| format!("{name}={}", amount.0)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(resources(&model), "count/pods=4 cpu=2 pods=4 requests.cpu=2");
    model.job.spec.min_available = 1;
    model.job.spec.tasks[0].min_available = Some(1);
    model.settle();
    assert_eq!(resources(&model), "count/pods=1 cpu=500m pods=1 requests.cpu=500m");
    assert_eq!(model.group.as_ref().unwrap().spec.min_member, 1);
}

#[test]
fn the_group_gets_no_annotations_that_are_about_the_job() {
    let mut job = simple(1, json!({}));
    let all = [("kubectl.kubernetes.io/last-applied-configuration", "{}"), ("team", "a")];
    job.metadata.annotations = Some(all.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let mut model = Model::new(job);
    model.settle();
    let annotations = model.group.unwrap().metadata.annotations.unwrap();
    assert_eq!(annotations.keys().collect::<Vec<_>>(), ["team", pumice_api::names::JOB_VERSION]);
}

#[test]
fn a_dependent_task_waits() {
    let mut model = Model::new(job(json!({"minAvailable": 1, "tasks": [
        {"name": "a", "replicas": 1},
        {"name": "b", "replicas": 2, "dependsOn": {"name": ["a"]}},
        {"name": "c", "replicas": 1, "dependsOn": {"name": ["a", "b"], "iteration": "any"}},
        {"name": "d", "replicas": 1, "dependsOn": {"name": ["nobody"]}},
    ]})));
    model.settle();
    model.admit();
    model.settle();
    assert_eq!(model.names(), ["j-a-0"]);
    model.pod("j-a-0", "Running");
    model.settle();
    assert_eq!(model.names(), ["j-a-0", "j-b-0", "j-b-1", "j-c-0"]);
}

#[test]
fn a_missing_claim_makes_the_job_wait_not_fail() {
    let mut model = Model::new(simple(
        1,
        json!({"volumes": [
            {"mountPath": "/in", "volumeClaimName": "data"},
            {"mountPath": "/out", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}},
            {"mountPath": "/tmp2"},
        ]}),
    ));
    model.settle();
    assert_eq!((model.phase(), &model.group), (P::Pending, &None));
    assert_eq!(model.records, [("PVCError", "claim data does not exist; create it and the job goes on".to_owned())]);
    model.claims.insert("data".into());
    model.settle();
    model.admit();
    model.settle();
    assert_eq!(model.claims.len(), 2, "{:?}", model.claims);
    let volumes = model.pods["j-w-0"].spec.clone().unwrap().volumes.unwrap();
    assert_eq!(volumes.len(), 3);
    assert!(volumes[2].empty_dir.is_some());
    assert_eq!(model.job.status.controlled_resources["volume-pvc-data"], "data");
}

#[test]
fn what_we_can_not_honour_is_said_and_waited_for() {
    let mut model = Model::new(simple(1, json!({"plugins": {"mystery": []}})));
    model.settle();
    assert_eq!(model.records[0].0, "PluginError");
    assert_eq!((model.phase(), &model.group), (P::Pending, &None));
    let mut model = Model::new(simple(1, json!({"queue": "nowhere"})));
    model.queue_exists = false;
    model.settle();
    assert_eq!(model.records[0].0, "PodGroupError");
    let mut model = Model::new(simple(i32::MAX, json!({})));
    model.settle();
    assert_eq!(model.records[0].0, "JobStatusError");
    for (plugins, pods, told) in [
        (json!({}), 100_000, None),
        (json!({"env": []}), 100_001, Some("JobStatusError")),
        (json!({"svc": []}), 2_000, None),
        (json!({"ssh": [], "svc": []}), 2_001, Some("PluginError")),
    ] {
        let mut model = Model::new(simple(pods, json!({"plugins": plugins})));
        model.settle();
        assert_eq!(model.records.first().map(|record| record.0), told, "{pods}");
        assert_eq!(model.group.is_some(), told.is_none(), "{pods}");
    }
    let mut model = Model::new(simple(1, json!({})));
    model.job.status.state.phase = Some(P::Other("Dreaming".into()));
    assert!(model.plan(None).is_settled());
}

#[test]
fn why_the_group_waits_is_told() {
    let mut model = Model::new(simple(1, json!({})));
    model.settle();
    model.group.as_mut().unwrap().status.conditions = vec![PodGroupCondition {
        type_: Some("Unschedulable".into()),
        status: "True".into(),
        message: "queue resource quota insufficient".into(),
        ..PodGroupCondition::default()
    }];
    model.settle();
    let expected = "PodGroup ns:j unschedulable, reason: queue resource quota insufficient";
    assert_eq!(model.records, [("PodGroupPending", expected.to_owned())]);
}

#[test]
fn a_finished_job_is_deleted_when_its_time_is_over() {
    let mut model = Model::running(simple(1, json!({"ttlSecondsAfterFinished": 60, "plugins": {"svc": []}})));
    model.all_pods("Succeeded");
    model.settle();
    let wake_at = model.plan(None).wake_at.unwrap();
    assert_eq!(wake_at.duration_since(model.now).as_secs(), 60);
    assert_eq!(model.job.metadata.deletion_timestamp, None);
    model.sleep(60);
    model.settle();
    assert!(model.job.metadata.deletion_timestamp.is_some());
}

#[test]
fn a_job_that_is_being_deleted_is_left_to_the_garbage_collector() {
    let mut model = Model::new(simple(1, json!({})));
    model.job.metadata.deletion_timestamp = model.job.metadata.creation_timestamp.clone();
    assert_eq!(model.plan(None).stages, Vec::<Vec<Effect>>::new());
}

#[test]
fn pods_that_end_before_they_are_seen_to_run_end_the_job_by_one_write() {
    let mut model = Model::new(simple(2, json!({})));
    model.settle();
    model.admit();
    model.settle();
    model.all_pods("Succeeded");
    let plan = model.plan(None);
    let [stage] = plan.stages.as_slice() else { panic!("{plan:?}") };
    let [Effect::WriteStatus { status, change: StatusChange::Decision | StatusChange::Phase }] = stage.as_slice()
    else {
        panic!("{stage:?}")
    };
    assert_eq!(status.state.phase, Some(P::Completed));
    let conditions: Vec<P> = status.conditions.iter().map(|one| one.status.clone()).collect();
    assert_eq!(conditions, [P::Pending, P::Running, P::Completed]);
}

/// However soon they are gone: who waits to see them terminate reads it here.
#[test]
fn the_write_of_a_phase_counts_the_pods_that_go_as_terminating() {
    let cases = [
        (Action::RestartJob, P::Restarting, [0, 0, 0, 0, 3]),
        (Action::AbortJob, P::Aborting, [0, 0, 1, 0, 2]),
        (Action::TerminateJob, P::Terminating, [0, 0, 1, 0, 2]),
        (Action::CompleteJob, P::Completing, [0, 0, 1, 0, 2]),
    ];
    for (action, phase, counts) in cases {
        let mut model = Model::running(simple(3, json!({"minAvailable": 1})));
        model.pod("j-w-0", "Succeeded");
        model.settle();
        let plan = model.plan(Some(&action));
        let written = plan.stages.iter().flatten().find_map(|effect| match effect {
            Effect::WriteStatus { status, change: StatusChange::Phase } => Some(status),
            _ => None,
        });
        let told = written.map(|status| {
            let counts = [status.pending, status.running, status.succeeded, status.failed, status.terminating];
            (status.state.phase.clone().unwrap(), counts)
        });
        assert_eq!(told, Some((phase, counts)), "{action:?}");
        let by_task: i32 = written.unwrap().task_status_count.values().flat_map(|task| task.phase.values()).sum();
        assert_eq!(by_task, counts[2], "{action:?}");
    }
    // The last restart is none, and the job's end takes what runs away.
    let mut model = Model::running(simple(3, json!({"minAvailable": 1, "maxRetry": 1})));
    model.linger = true;
    model.command(Action::RestartJob);
    assert_eq!((model.phase(), model.counts()), (P::Failed, [0, 0, 0, 0, 3]));
}

#[test]
fn the_group_follows_the_job_into_another_queue() {
    let mut model = Model::new(simple(1, json!({"queue": "q"})));
    model.settle();
    model.job.spec.queue = "r".to_owned();
    model.settle();
    assert_eq!(model.group.unwrap().spec.queue, "r");
}
