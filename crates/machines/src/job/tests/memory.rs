//! Pods killed for want of memory, and raises.

use pumice_api::batch::{JobPhase as P, MemoryRaise};
use pumice_api::bus::Action;
use pumice_api::names::{self, ON_OOM};
use serde_json::{Value, json};

use super::model::{Model, job};

/// A job of a task `w` of pods with a limit of 1Gi and a request of half of it.
fn spec(replicas: i32, extra: Value) -> Value {
    let resources = json!({"limits": {"memory": "1Gi", "cpu": "1"}, "requests": {"memory": "512Mi"}});
    let mut spec = json!({"minAvailable": 1, "tasks": [{"name": "w", "replicas": replicas, "template": {"spec": {
        "containers": [{"name": "c", "resources": resources}]}}}]});
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    spec
}

fn rule(scale_up: Value) -> Value {
    json!({"event": "OOMKilled", "action": "ScaleUpMemory", "scaleUp": scale_up})
}

fn running(replicas: i32, policies: Value) -> Model {
    Model::running(job(spec(replicas, json!({ "policies": policies }))))
}

fn told<'a>(model: &'a Model, reason: &str) -> Vec<&'a str> {
    let about = model.records.iter().filter(|record| record.0 == reason);
    about.map(|record| record.1.as_str()).collect()
}

#[test]
fn a_raise_before_the_first_status_is_that_of_a_pending_job() {
    let mut model = Model::new(job(spec(1, json!({"policies": [rule(json!({"factor": 1.5, "tries": 2}))]}))));
    model.hold_counts = true;
    model.settle();
    model.admit();
    model.settle();
    assert_eq!(model.job.status.state.phase, None, "it waits for the first counts");
    model.out_of_memory("j-w-0");
    model.settle();
    assert_eq!((model.job.status.state.phase.clone(), model.limit("j-w-0")), (Some(P::Pending), "1536Mi"));
}

#[test]
fn a_pod_is_made_again_with_more_and_the_others_stay() {
    let mut model = running(3, json!([rule(json!({"factor": 1.5, "tries": 2}))]));
    let stays = [model.uid("j-w-0"), model.uid("j-w-2")];
    model.out_of_memory("j-w-1");
    model.settle();
    assert_eq!((model.phase(), model.job.status.retry_count, model.job.status.version), (P::Running, 0, 0));
    assert_eq!(stays, [model.uid("j-w-0"), model.uid("j-w-2")]);
    assert_eq!(["j-w-0", "j-w-1"].map(|name| model.limit(name)), ["1Gi", "1536Mi"]);
    let requests =
        model.pods["j-w-1"].spec.as_ref().unwrap().containers[0].resources.clone().unwrap().requests.unwrap();
    assert_eq!(requests["memory"].0, "768Mi", "the request grows alike");
    let raise = MemoryRaise { task: "w".into(), container: "c".into(), indices: "1".into() };
    assert_eq!(model.job.status.memory_raises, [raise]);
    assert!(!model.job.metadata.annotations.clone().unwrap_or_default().contains_key(names::MEMORY_RAISES));
    assert_eq!(
        told(&model, "MemoryRaised"),
        [
            "task w, pod 1: container c was killed for memory and is started again with 1536Mi instead of 1Gi (try 1 of 2)"
        ]
    );
    let annotation = |name: &str, key: &str| model.pods[name].metadata.annotations.clone().unwrap().get(key).cloned();
    assert_eq!(annotation("j-w-1", "pumice.sh/memory-raised").as_deref(), Some("c=1"));
    assert_ne!(
        annotation("j-w-1", pumice_api::names::TEMPLATE_UID),
        annotation("j-w-0", pumice_api::names::TEMPLATE_UID)
    );
    model.all_pods("Succeeded");
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Completed, [0, 0, 3, 0, 0]));
}

#[test]
fn after_its_tries_the_other_policies_decide() {
    let policies = json!([rule(json!({"tries": 2})), {"event": "PodFailed", "action": "RestartJob"}]);
    let mut model = running(2, policies);
    for limit in ["2Gi", "4Gi"] {
        model.out_of_memory("j-w-0");
        model.settle();
        assert_eq!((model.limit("j-w-0"), model.job.status.retry_count), (limit, 0));
        model.pod("j-w-0", "Running");
        model.settle();
    }
    model.out_of_memory("j-w-1");
    model.settle();
    assert_eq!((model.limit("j-w-1"), model.job.status.retry_count), ("2Gi", 0), "each index has its own tries");
    model.out_of_memory("j-w-0");
    model.settle();
    assert_eq!(model.job.status.retry_count, 1);
    assert_eq!(
        told(&model, "MemoryNotRaised"),
        [
            "task w, pod 0: container c was killed for memory and gets no more: its memory was raised 2 times, as often as it may be; other policies decide"
        ]
    );
    model.admit();
    model.settle();
    assert_eq!(["j-w-0", "j-w-1"].map(|name| model.limit(name)), ["4Gi", "2Gi"], "a restart keeps what was learned");
}

#[test]
fn the_ceiling_is_reached_and_not_passed() {
    let mut model = running(1, json!([rule(json!({"step": "768Mi", "ceiling": "2Gi", "tries": 9}))]));
    for limit in ["1792Mi", "2Gi"] {
        model.out_of_memory("j-w-0");
        model.settle();
        assert_eq!(model.limit("j-w-0"), limit);
    }
    model.out_of_memory("j-w-0");
    model.settle();
    assert_eq!(
        (model.phase(), model.limit("j-w-0")),
        (P::Failed, "2Gi"),
        "nothing else is wanted, so the job has failed"
    );
    assert!(told(&model, "MemoryNotRaised")[0].contains("it has all it may get, 2Gi"));
}

#[test]
fn without_an_amount_there_is_nothing_to_raise() {
    let mut plain = spec(1, json!({"policies": [rule(json!({}))]}));
    plain["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}});
    let mut model = Model::running(job(plain.clone()));
    model.out_of_memory("j-w-0");
    model.settle();
    assert_eq!(model.phase(), P::Failed);
    assert!(told(&model, "MemoryNotRaised")[0].contains("no memory limit or request"));
    plain["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"memory": "1G"}});
    let mut model = Model::running(job(plain));
    model.out_of_memory("j-w-0");
    model.settle();
    let requests =
        model.pods["j-w-0"].spec.as_ref().unwrap().containers[0].resources.clone().unwrap().requests.unwrap();
    assert_eq!(requests["memory"].0, "1908Mi", "a request alone is raised, to whole MiB");
}

#[test]
fn where_the_definitions_are_volcanos_an_annotation_says_both() {
    let mut wanted = job(spec(2, json!({})));
    wanted.metadata.annotations = Some([(ON_OOM.to_owned(), "factor=3,tries=2".to_owned())].into());
    let mut model = Model::new(wanted);
    model.prunes = true;
    model.settle();
    model.admit();
    model.settle();
    model.all_pods("Running");
    for limit in ["3Gi", "9Gi"] {
        model.out_of_memory("j-w-1");
        model.settle();
        assert_eq!((model.limit("j-w-1"), model.phase()), (limit, P::Running));
    }
    assert!(model.job.status.memory_raises.is_empty());
    let note = &model.job.metadata.annotations.as_ref().unwrap()[names::MEMORY_RAISES];
    assert_eq!(note, r#"{"raises":[{"container":"c","indices":"1:2","task":"w"}],"uid":"u1"}"#);
    let group = model.group.as_ref().unwrap().metadata.annotations.clone().unwrap();
    assert!(!group.contains_key(names::MEMORY_RAISES));
}

#[test]
fn nothing_is_lost_or_done_twice_wherever_the_controller_stops() {
    for prunes in [false, true] {
        for effects in 0..8 {
            let mut model =
                running(3, json!([rule(json!({"tries": 3})), {"event": "PodFailed", "action": "AbortJob"}]));
            model.prunes = prunes;
            model.linger = true;
            model.out_of_memory("j-w-0");
            model.out_of_memory("j-w-2");
            let plan = model.plan(None);
            model.apply_effects(plan, effects);
            // And once more, in the next plan.
            let plan = model.plan(None);
            model.apply_effects(plan, effects / 2);
            model.settle();
            model.reap();
            model.settle();
            assert_eq!((model.phase(), model.job.status.retry_count), (P::Running, 0), "{prunes} {effects}");
            assert_eq!(
                ["j-w-0", "j-w-1", "j-w-2"].map(|name| model.limit(name)),
                ["2Gi", "1Gi", "2Gi"],
                "{prunes} {effects}"
            );
            assert_eq!(model.job.status.memory_raises.is_empty(), prunes, "{effects}");
        }
    }
}

#[test]
fn the_rule_of_a_task_goes_before_the_jobs() {
    let cases: [(Value, &str, &str, &str); 6] = [
        (json!([]), "factor=4", "", "4Gi"),
        (json!([]), "factor=4", "factor=3", "4Gi"),
        (json!([rule(json!({"factor": 5}))]), "", "factor=3", "5Gi"),
        (json!([rule(json!({"factor": 5}))]), "nonsense", "", "5Gi"),
        (json!([{"event": "PodFailed", "action": "AbortJob"}]), "", "factor=3", "3Gi"),
        (json!([{"event": "*", "action": "AbortJob"}]), "", "factor=3", "3Gi"),
    ];
    for (policies, of_task, of_job, limit) in cases {
        let mut spec = spec(2, json!({}));
        spec["tasks"][0]["policies"] = policies.clone();
        if !of_task.is_empty() {
            spec["tasks"][0]["template"]["metadata"] = json!({"annotations": {ON_OOM: of_task}});
        }
        let mut job = job(spec);
        if !of_job.is_empty() {
            job.metadata.annotations = Some([(ON_OOM.to_owned(), of_job.to_owned())].into());
        }
        let mut model = Model::running(job);
        model.out_of_memory("j-w-1");
        model.settle();
        assert_eq!(model.limit("j-w-1"), limit, "{policies} {of_task} {of_job}");
    }
}

#[test]
fn other_actions_react_to_the_event_too() {
    let mut model = running(
        2,
        json!([{"event": "OOMKilled", "action": "RestartJob"}, {"event": "PodFailed", "action": "AbortJob"}]),
    );
    model.out_of_memory("j-w-1");
    model.settle();
    assert_eq!((model.job.status.retry_count, model.job.status.version), (1, 1), "it ranks before PodFailed");
    assert!(told(&model, "ExecuteAction")[0].contains("RestartJob: OOMKilled of task w, pod 1"));
    let mut model = running(2, json!([{"event": "OOMKilled", "action": "RestartPod"}]));
    let before = model.uid("j-w-0");
    model.out_of_memory("j-w-1");
    model.settle();
    assert_eq!((model.limit("j-w-1"), model.job.status.retry_count, before), ("1Gi", 1, model.uid("j-w-0")));
}

#[test]
fn a_container_that_the_kubelet_started_again_counts_unless_its_pod_succeeded() {
    let restarted =
        json!({"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:30Z"}});
    let play = |policies: Value, phase: &str| {
        let mut model = running(2, policies);
        model.pod("j-w-1", phase);
        model.container("j-w-1").last_state = serde_json::from_value(restarted.clone()).unwrap();
        model.settle();
        model
    };
    let raise = json!([rule(json!({}))]);
    assert_eq!(play(raise.clone(), "Running").limit("j-w-1"), "2Gi");
    assert_eq!(play(raise.clone(), "Succeeded").limit("j-w-1"), "1Gi");
    assert_eq!(play(raise, "Failed").limit("j-w-1"), "1Gi", "it failed of something else");
    let any = play(json!([{"event": "*", "action": "RestartJob"}]), "Running");
    assert_eq!(any.job.status.retry_count, 0, "a manifest made for Volcano means what it meant");
}

#[test]
fn raises_survive_suspends_and_join_restarts_of_others() {
    let mut model = running(3, json!([rule(json!({})), {"exitCode": 3, "action": "RestartPod"}]));
    model.linger = true;
    model.pod_exits("j-w-0", "Failed", 3);
    model.out_of_memory("j-w-1");
    model.settle();
    model.reap();
    model.settle();
    assert_eq!(model.job.status.retry_count, 1, "only the one that failed costs a retry");
    assert_eq!(["j-w-0", "j-w-1", "j-w-2"].map(|name| model.limit(name)), ["1Gi", "2Gi", "1Gi"]);
    model.all_pods("Running");
    model.settle();
    model.out_of_memory("j-w-2");
    model.command(Action::AbortJob);
    model.reap();
    model.settle();
    assert_eq!(model.phase(), P::Aborted);
    model.command(Action::ResumeJob);
    model.admit();
    model.settle();
    assert_eq!(["j-w-0", "j-w-1", "j-w-2"].map(|name| model.limit(name)), ["1Gi", "2Gi", "2Gi"]);
}

#[test]
fn pods_killed_together_are_told_of_together() {
    let mut model = running(9, json!([rule(json!({}))]));
    for index in [0, 1, 2, 3, 7] {
        model.out_of_memory(&format!("j-w-{index}"));
    }
    model.settle();
    assert_eq!(
        told(&model, "MemoryRaised"),
        [
            "task w, pods 0-3,7: container c was killed for memory and is started again with 2Gi instead of 1Gi (try 1 of 3)"
        ]
    );
    assert_eq!(model.job.status.memory_raises[0].indices, "0-3,7");
}

#[test]
fn the_group_asks_for_what_its_pods_get() {
    let minimum = |model: &Model| {
        let list = model.group.as_ref().unwrap().spec.min_resources.clone().unwrap();
        ["memory", "limits.memory", "cpu"].map(|name| list[name].0.clone())
    };
    let mut model = Model::running(job(spec(4, json!({"minAvailable": 3, "policies": [rule(json!({"factor": 3}))]}))));
    assert_eq!(minimum(&model), ["1536Mi", "3Gi", "3"]);
    model.out_of_memory("j-w-1");
    model.out_of_memory("j-w-3");
    model.settle();
    assert_eq!(minimum(&model), ["2560Mi", "5Gi", "3"], "of the first three pods, one was raised");
}

#[test]
fn each_container_is_raised_for_itself() {
    let containers = |names: &[&str]| -> Vec<Value> {
        names.iter().map(|name| json!({"name": name, "resources": {"limits": {"memory": "1Gi"}}})).collect()
    };
    let spec = json!({"policies": [rule(json!({}))], "tasks": [{"name": "w", "replicas": 1, "template": {"spec": {
        "initContainers": containers(&["load"]), "containers": containers(&["c", "side"])}}}]});
    let mut model = Model::running(job(spec));
    model.out_of_memory("j-w-0");
    let mut init = model.container("j-w-0").clone();
    init.name = "load".into();
    model.container("j-w-0").name = "side".into();
    model.settle();
    assert_eq!(model.limit("j-w-0"), "1Gi");
    let limits = |model: &Model| {
        let spec = model.pods["j-w-0"].spec.clone().unwrap();
        let all = spec.init_containers.unwrap().into_iter().chain(spec.containers);
        all.map(|one| one.resources.unwrap().limits.unwrap()["memory"].0.clone()).collect::<Vec<_>>()
    };
    assert_eq!(limits(&model), ["1Gi", "1Gi", "2Gi"]);
    model.out_of_memory("j-w-0");
    let status = model.pods.get_mut("j-w-0").unwrap().status.as_mut().unwrap();
    status.init_container_statuses = Some(vec![init]);
    status.container_statuses = None;
    model.settle();
    assert_eq!(limits(&model), ["2Gi", "1Gi", "2Gi"], "also one that runs before the others");
    assert_eq!(model.job.status.memory_raises.len(), 2);
}

#[test]
fn a_task_needs_as_many_successes_as_its_annotation_says() {
    let mut spec = spec(3, json!({}));
    spec["tasks"][0]["template"]["metadata"] = json!({"annotations": {"pumice.sh/min-success": "2"}});
    let mut model = Model::running(job(spec));
    model.pod("j-w-0", "Succeeded");
    model.settle();
    assert_eq!(model.phase(), P::Running);
    model.pod("j-w-1", "Succeeded");
    model.settle();
    assert_eq!(model.phase(), P::Completed);
}
