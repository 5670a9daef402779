//! Flows from the first Job to the last.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pumice_api::batch::{Job, JobPhase};
use pumice_api::flow::{FlowPhase, JobFlow, JobTemplate};
use pumice_api::names;
use serde_json::{Value, json};

use super::{FlowEffect, FlowView, step};

/// What exists, and an API server that does what is asked.
struct World {
    flow: JobFlow,
    templates: BTreeMap<String, JobTemplate>,
    jobs: BTreeMap<String, Job>,
    warnings: Vec<String>,
    clock: i64,
    made: usize,
}

impl World {
    fn new(flows: Value, templates: &[&str]) -> Self {
        let flow = json!({
            "metadata": { "name": "f", "namespace": "team", "uid": "u", "annotations": { names::USER: "ann" } },
            "spec": { "flows": flows },
        });
        let template = |name: &&str| {
            let spec = json!({ "queue": "q", "minAvailable": 1, "maxRetry": 5, "plugins": { "env": [] } });
            let template = json!({ "metadata": { "name": name }, "spec": spec });
            ((*name).to_owned(), serde_json::from_value(template).unwrap())
        };
        Self {
            flow: serde_json::from_value(flow).unwrap(),
            templates: templates.iter().map(template).collect(),
            jobs: BTreeMap::new(),
            warnings: Vec::new(),
            clock: 1_000,
            made: 0,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.clock).unwrap()
    }

    /// Steps until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..20 {
            let view = FlowView {
                flow: &self.flow,
                templates: self.templates.iter().map(|(name, template)| (name.as_str(), template)).collect(),
                jobs: self.jobs.iter().map(|(name, job)| (name.as_str(), job)).collect(),
            };
            let effects = step(&view, self.now());
            let quiet = effects.iter().all(|effect| matches!(effect, FlowEffect::Warn { .. }));
            self.warnings.clear();
            for effect in effects {
                match effect {
                    FlowEffect::CreateJob(mut job) => {
                        self.made += 1;
                        let time = json!(self.now().to_string());
                        job.metadata.creation_timestamp = serde_json::from_value(time).unwrap();
                        job.metadata.uid = Some(format!("uid-{}", self.made));
                        let name = job.metadata.name.clone().unwrap();
                        assert!(self.jobs.insert(name.clone(), *job).is_none(), "{name} was there");
                    }
                    FlowEffect::DeleteJob { name, uid } => {
                        let job = self.jobs.remove(&name).unwrap();
                        assert_eq!(job.metadata.uid, Some(uid));
                    }
                    FlowEffect::WriteStatus(status) => self.flow.status = *status,
                    FlowEffect::Warn { message, .. } => self.warnings.push(message),
                }
            }
            if quiet {
                return;
            }
        }
        panic!("no end: {:?}", self.flow.status);
    }

    fn job(&mut self, name: &str, phase: JobPhase) {
        self.clock += 10;
        let now = json!(self.now().to_string());
        let job = self.jobs.get_mut(name).unwrap();
        if phase.is_finished() {
            job.status.running_duration = Some("10s".to_owned());
        }
        job.status.state.phase = Some(phase);
        job.status.state.last_transition_time = serde_json::from_value(now).unwrap();
        self.settle();
    }

    fn names(&self) -> Vec<&str> {
        self.jobs.keys().map(String::as_str).collect()
    }

    fn phase(&self) -> FlowPhase {
        self.flow.status.state.phase.clone().unwrap()
    }
}

fn chain() -> Value {
    json!([{ "name": "a" }, { "name": "b", "dependsOn": { "targets": ["a"] } }])
}

#[test]
fn each_job_is_made_when_its_targets_have_completed() {
    let mut world = World::new(chain(), &["a", "b"]);
    world.settle();
    assert_eq!((world.names(), world.phase()), (vec!["f-a"], FlowPhase::Pending));
    world.job("f-a", JobPhase::Running);
    assert_eq!((world.names(), world.phase()), (vec!["f-a"], FlowPhase::Running));
    world.job("f-a", JobPhase::Completed);
    assert_eq!((world.names(), world.phase()), (vec!["f-a", "f-b"], FlowPhase::Running));
    world.job("f-b", JobPhase::Running);
    world.job("f-b", JobPhase::Completed);
    assert_eq!(world.phase(), FlowPhase::Succeed);
    let status = &world.flow.status;
    assert_eq!(status.completed_jobs, ["f-a", "f-b"]);
    let course = &status.job_status_list[0];
    let states: Vec<_> = course.running_histories.iter().filter_map(|entry| entry.state.clone()).collect();
    assert_eq!(states, [JobPhase::Pending, JobPhase::Running, JobPhase::Completed]);
    assert_eq!(course.running_histories[0].end_timestamp, course.running_histories[1].start_timestamp);
    assert_eq!(course.end_timestamp.as_ref().unwrap().0, Timestamp::from_second(1_010).unwrap());
}

#[test]
fn a_job_is_its_template_with_names_of_both_and_the_user() {
    let mut world = World::new(json!([{ "name": "a" }]), &["a"]);
    world.settle();
    let job = &world.jobs["f-a"];
    assert_eq!(job.spec, world.templates["a"].spec);
    let wanted = [(names::CREATED_BY_JOB_FLOW, "team.f"), (names::CREATED_BY_JOB_TEMPLATE, "team.a")];
    let wanted: BTreeMap<String, String> = wanted.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    assert_eq!(job.metadata.labels, Some(wanted.clone()));
    let mut annotations = wanted;
    annotations.insert(names::USER.to_owned(), "ann".to_owned());
    assert_eq!(job.metadata.annotations, Some(annotations));
    let owner = &job.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("JobFlow", "u", Some(true)));
}

#[test]
fn names_too_long_for_a_label_are_annotations_only() {
    let long = "x".repeat(70);
    let mut world = World::new(json!([{ "name": long }]), &[long.as_str()]);
    world.settle();
    let metadata = &world.jobs.values().next().unwrap().metadata;
    assert_eq!(metadata.labels.as_ref().unwrap()[names::CREATED_BY_JOB_TEMPLATE], "");
    assert_eq!(metadata.annotations.as_ref().unwrap()[names::CREATED_BY_JOB_TEMPLATE], format!("team.{long}"));
}

#[test]
fn a_patch_replaces_what_it_says() {
    let patch = json!({ "jobSpec": {
        "queue": "default", "maxRetry": 3, "minAvailable": 2, "minSuccess": 1, "plugins": { "ssh": [] },
        "tasks": [{ "name": "t", "replicas": 2 }],
    } });
    let mut world = World::new(json!([{ "name": "a", "patch": patch }]), &["a"]);
    world.settle();
    let spec = &world.jobs["f-a"].spec;
    // What the definition fills into a patch is not meant.
    assert_eq!((spec.queue.as_str(), spec.max_retry), ("q", 5));
    assert_eq!((spec.min_available, spec.min_success, spec.tasks.len()), (2, Some(1), 1));
    assert_eq!(spec.plugins.keys().collect::<Vec<_>>(), ["env", "ssh"]);
}

#[test]
fn a_failure_is_final_and_nothing_more_is_made() {
    for end in [JobPhase::Failed, JobPhase::Terminated] {
        let flows = json!([{ "name": "a" }, { "name": "b" }, { "name": "c", "dependsOn": { "targets": ["b"] } }]);
        let mut world = World::new(flows, &["a", "b", "c"]);
        world.settle();
        world.job("f-a", end);
        assert_eq!(world.phase(), FlowPhase::Failed);
        world.job("f-b", JobPhase::Completed);
        assert_eq!((world.names(), world.phase()), (vec!["f-a", "f-b"], FlowPhase::Failed));
        assert_eq!(world.flow.status.completed_jobs, ["f-b"], "what still runs is told");
    }
}

#[test]
fn a_template_that_is_missing_is_told_and_waited_for() {
    let mut world = World::new(json!([{ "name": "a" }]), &[]);
    world.settle();
    assert_eq!(world.warnings, ["job template a does not exist; create it and the flow goes on"]);
    world.templates.insert("a".to_owned(), JobTemplate::default());
    world.settle();
    assert_eq!((world.names(), world.warnings.len()), (vec!["f-a"], 0));
}

#[test]
fn a_job_that_completed_is_not_made_again_when_it_is_gone() {
    let mut world = World::new(chain(), &["a", "b"]);
    world.settle();
    world.job("f-a", JobPhase::Completed);
    world.jobs.remove("f-a");
    world.settle();
    assert_eq!(world.names(), ["f-b"]);
    world.job("f-b", JobPhase::Completed);
    assert_eq!((world.phase(), world.made), (FlowPhase::Succeed, 2));
}

#[test]
fn a_job_that_was_deleted_before_its_end_is_made_again() {
    let mut world = World::new(chain(), &["a", "b"]);
    world.settle();
    world.job("f-a", JobPhase::Running);
    world.jobs.remove("f-a");
    world.settle();
    assert_eq!((world.names(), world.made), (vec!["f-a"], 2));
}

#[test]
fn a_name_twice_is_one_job() {
    let mut world = World::new(json!([{ "name": "a" }, { "name": "a" }]), &["a"]);
    world.settle();
    world.job("f-a", JobPhase::Completed);
    assert_eq!((world.phase(), world.made), (FlowPhase::Succeed, 1));
}

#[test]
fn jobs_are_deleted_after_success_if_so_wished() {
    for (policy, left) in [("delete", 0), ("retain", 1)] {
        let mut world = World::new(json!([{ "name": "a" }]), &["a"]);
        world.flow.spec.job_retain_policy = Some(policy.into());
        world.settle();
        world.job("f-a", JobPhase::Completed);
        assert_eq!((world.phase(), world.jobs.len(), world.made), (FlowPhase::Succeed, left, 1), "{policy}");
        assert_eq!(world.flow.status.completed_jobs, ["f-a"]);
    }
}

#[test]
fn a_probe_of_a_task_lets_a_job_start_before_its_target_completes() {
    let probe = json!({ "taskStatusList": [{ "taskName": "server", "phase": "Running" }] });
    let flows = json!([{ "name": "a" }, { "name": "b", "dependsOn": { "targets": ["a"], "probe": probe } }]);
    let mut world = World::new(flows, &["a", "b"]);
    world.settle();
    world.job("f-a", JobPhase::Running);
    assert_eq!(world.names(), ["f-a"]);
    let counts = json!({ "server": { "phase": { "Running": 1 } } });
    world.jobs.get_mut("f-a").unwrap().status.task_status_count = serde_json::from_value(counts).unwrap();
    world.settle();
    assert_eq!(world.names(), ["f-a", "f-b"]);
}

#[test]
fn what_only_the_network_tells_waits_for_the_end() {
    let probe = json!({ "tcpSocketList": [{ "taskName": "server", "port": 80 }] });
    let flows = json!([{ "name": "a" }, { "name": "b", "dependsOn": { "targets": ["a"], "probe": probe } }]);
    let mut world = World::new(flows, &["a", "b"]);
    world.settle();
    world.job("f-a", JobPhase::Running);
    assert_eq!(world.names(), ["f-a"]);
    world.job("f-a", JobPhase::Completed);
    assert_eq!(world.names(), ["f-a", "f-b"]);
}

#[test]
fn an_empty_flow_waits_and_one_that_goes_away_is_left_alone() {
    let mut world = World::new(json!([]), &[]);
    world.settle();
    assert_eq!(world.phase(), FlowPhase::Pending);
    let mut world = World::new(chain(), &["a", "b"]);
    world.flow.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap();
    world.settle();
    assert_eq!(world.made, 0);
}

#[test]
fn a_job_that_fails_is_made_again_as_often_as_is_said() {
    for by_field in [true, false] {
        let mut world = match by_field {
            true => World::new(
                json!([{ "name": "a", "retries": 2 }, { "name": "b", "dependsOn": { "targets": ["a"] } }]),
                &["a", "b"],
            ),
            false => World::new(chain(), &["a", "b"]),
        };
        if !by_field {
            let annotations = world.flow.metadata.annotations.get_or_insert_default();
            annotations.insert(names::FLOW_RETRIES.to_owned(), "b=1, a=2".to_owned());
        }
        world.settle();
        for made in [2, 3] {
            world.job("f-a", JobPhase::Running);
            world.job("f-a", JobPhase::Failed);
            assert_eq!((world.names(), world.made, world.phase()), (vec!["f-a"], made, FlowPhase::Running));
            assert_eq!(world.jobs["f-a"].status.state.phase, None, "a new one");
        }
        let mut ends_well = World {
            flow: world.flow.clone(),
            jobs: world.jobs.clone(),
            templates: world.templates.clone(),
            warnings: Vec::new(),
            ..world
        };
        ends_well.job("f-a", JobPhase::Completed);
        assert_eq!(ends_well.names(), ["f-a", "f-b"], "by field: {by_field}");
    }
}

#[test]
fn when_its_retries_are_used_up_the_flow_has_failed() {
    let mut world = World::new(json!([{ "name": "a", "retries": 1 }]), &["a"]);
    world.settle();
    for _ in 0..2 {
        world.job("f-a", JobPhase::Running);
        world.job("f-a", JobPhase::Failed);
    }
    assert_eq!((world.phase(), world.made), (FlowPhase::Failed, 2));
    assert_eq!(world.names(), ["f-a"], "the last one stays for inspection");
    assert_eq!(world.flow.status.failed_jobs, ["f-a"]);
}

#[test]
fn what_was_terminated_is_not_made_again() {
    let mut world = World::new(json!([{ "name": "a", "retries": 5 }]), &["a"]);
    world.settle();
    world.job("f-a", JobPhase::Terminated);
    assert_eq!((world.phase(), world.made), (FlowPhase::Failed, 1));
}
