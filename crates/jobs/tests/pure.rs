//! What is rendered, listed, judged and explained, without a server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use k8s_openapi::api::core::v1::{Pod, Volume};
use pumice_api::batch::Job;
use pumice_jobs::exit_code::Exit;
use pumice_jobs::explain::why;
use pumice_jobs::job::list_columns::{self, Column};
use pumice_jobs::job::{JobEnd, JobRow, end_of, exit_of_end, exit_of_run, pod_failures};
use pumice_jobs::lifecycle::DesiredState;
use pumice_jobs::render::links::Link;
use pumice_jobs::render::{JobFlags, render};
use serde_json::{Value, json};

fn flags(command: &[&str]) -> JobFlags {
    JobFlags { command: command.iter().map(|s| (*s).to_owned()).collect(), ..JobFlags::default() }
}

fn job(spec: Value, status: Value) -> Job {
    serde_json::from_value(json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "j", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec, "status": status,
    }))
    .unwrap()
}

fn pod(name: &str, status: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": name}, "status": status})).unwrap()
}

fn ended(exit_code: i32, signal: Option<i32>, reason: &str, at: &str) -> Value {
    json!({"phase": "Failed", "containerStatuses": [{
        "name": "worker", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": exit_code, "signal": signal, "reason": reason, "finishedAt": at}},
    }]})
}

#[test]
fn the_smallest_job() {
    insta::assert_yaml_snapshot!(render(&flags(&["/usr/bin/My_Tool", "--x", "a b"])).unwrap());
}

#[test]
fn a_made_up_name_starts_with_a_letter() {
    for (program, front) in [("7z", "job-7z-"), ("/opt/x.y", "x-y-"), ("___", "job-")] {
        assert_eq!(render(&flags(&[program])).unwrap().metadata.generate_name.as_deref(), Some(front));
    }
}

#[test]
fn a_job_with_everything() {
    let flags = JobFlags {
        name: Some("train".into()),
        namespace: Some("team-a".into()),
        replicas: Some(3),
        cpu: Some("1500m".into()),
        memory: Some("2Gi".into()),
        queue: Some("research".into()),
        image: Some("python:3.13".into()),
        env: vec![("A".into(), "1".into()), ("B".into(), "$(A)".into()), ("A".into(), "2".into())],
        workdir: Some("/data".into()),
        min_available: Some(2),
        max_retry: Some(4),
        priority_class: Some("high".into()),
        ..flags(&["python", "train.py"])
    };
    insta::assert_yaml_snapshot!(render(&flags).unwrap());
}

#[test]
fn a_job_on_this_machine_works_in_its_own_directory() {
    let here =
        |workdir: &str| JobFlags { workdir: Some(workdir.into()), share_workdir: true, ..flags(&["./train.sh"]) };
    insta::assert_yaml_snapshot!(render(&here("/home/ann/model")).unwrap().spec.tasks[0].template.spec);
    let spec = render(&here("/")).unwrap().spec.tasks[0].template.spec.clone().unwrap();
    assert!(spec.volumes.is_none() && spec.containers[0].volume_mounts.is_none(), "the root is there anyway");
}

#[test]
fn where_links_of_the_directory_lead_is_shared_unless_a_flag_says_what_is_there() {
    let link = |target: &str, is_folder| Link { path: "x".into(), target: target.into(), is_folder };
    let flags = JobFlags {
        workdir: Some("/work".into()),
        share_workdir: true,
        linked: vec![link("/data/out", true), link("/data/log.txt", false), link("/other", true)],
        volumes: vec!["/elsewhere:/other".into()],
        ..flags(&["true"])
    };
    let spec = render(&flags).unwrap().spec.tasks[0].template.spec.clone().unwrap();
    let told = |volume: &Volume| {
        let host = volume.host_path.as_ref().unwrap();
        format!("{} {} {}", volume.name, host.path, host.type_.as_deref().unwrap_or("any"))
    };
    let volumes: Vec<String> = spec.volumes.unwrap().iter().map(told).collect();
    let wanted = ["workdir /work Directory", "volume-1 /elsewhere any", "workdir-0 /data/out Directory"];
    assert_eq!(volumes[..3], wanted);
    assert_eq!(volumes[3..], ["workdir-1 /data/log.txt File"]);
    let mounts: Vec<String> =
        spec.containers[0].volume_mounts.as_ref().unwrap().iter().map(|m| m.mount_path.clone()).collect();
    assert_eq!(mounts, ["/work", "/other", "/data/out", "/data/log.txt"]);
}

#[test]
fn bad_flags_are_named() {
    let base = || flags(&["true"]);
    let cases = [
        ("no command", flags(&[])),
        ("empty command", flags(&[""])),
        ("name", JobFlags { name: Some("My Job".into()), ..base() }),
        ("name with a dot", JobFlags { name: Some("a.b".into()), ..base() }),
        ("name with a digit first", JobFlags { name: Some("7z".into()), ..base() }),
        ("long name", JobFlags { name: Some("x".repeat(46)), ..base() }),
        ("namespace", JobFlags { namespace: Some("a/b".into()), ..base() }),
        ("queue", JobFlags { queue: Some("Q".into()), ..base() }),
        ("no replicas", JobFlags { replicas: Some(0), ..base() }),
        ("replicas", JobFlags { replicas: Some(u32::MAX), ..base() }),
        ("min over replicas", JobFlags { min_available: Some(2), ..base() }),
        ("cpu", JobFlags { cpu: Some("lots".into()), ..base() }),
        ("negative cpu", JobFlags { cpu: Some("-1".into()), ..base() }),
        ("no memory", JobFlags { memory: Some("0".into()), ..base() }),
        ("workdir", JobFlags { workdir: Some("data".into()), ..base() }),
        ("env", JobFlags { env: vec![("".into(), "x".into())], ..base() }),
        ("retry", JobFlags { max_retry: Some(0), ..base() }),
    ];
    let text: String = cases.iter().map(|(name, flags)| format!("{name}: {}\n", render(flags).unwrap_err())).collect();
    insta::assert_snapshot!(text);
}

#[test]
fn exit_codes() {
    let tasks = json!({"tasks": [{"name": "t", "replicas": 4}]});
    let with = |key: &str, value: Value| {
        let mut spec = tasks.clone();
        spec[key] = value;
        spec
    };
    let phase = |phase: &str, succeeded: i32| json!({"state": {"phase": phase}, "succeeded": succeeded});
    let terminates = with("policies", json!([{"event": "PodFailed", "action": "TerminateJob"}]));
    let early = pod("b", ended(7, None, "Error", "2026-01-01T00:00:01Z"));
    let late = pod("a", ended(3, None, "Error", "2026-01-01T00:00:09Z"));
    let killed = pod("k", ended(137, Some(9), "OOMKilled", "2026-01-01T00:00:02Z"));
    let odd = pod("o", ended(-1, None, "", "2026-01-01T00:00:02Z"));
    let unstarted = |message: &str| {
        let mut status = ended(128, None, "StartError", "2026-01-01T00:00:02Z");
        status["containerStatuses"][0]["state"]["terminated"]["message"] = message.into();
        vec![pod("s", status)]
    };
    let evicted = pod("e", json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}));
    let fine = pod("f", json!({"phase": "Succeeded"}));
    for (name, job, pods, wait, run) in [
        ("completed", job(tasks.clone(), phase("Completed", 4)), vec![fine], 0, 0),
        ("completed with a failure", job(tasks.clone(), phase("Completed", 3)), vec![late.clone()], 0, 0),
        ("failed: the first pod's code", job(tasks.clone(), phase("Failed", 0)), vec![late, early.clone()], 1, 7),
        ("failed: signal", job(tasks.clone(), phase("Failed", 0)), vec![killed.clone()], 1, 137),
        ("failed: no code of a process", job(tasks.clone(), phase("Failed", 0)), vec![odd], 1, 255),
        (
            "failed: no such program",
            job(tasks.clone(), phase("Failed", 0)),
            unstarted("\"foo\": executable file not found in $PATH"),
            1,
            127,
        ),
        (
            "failed: no such file",
            job(tasks.clone(), phase("Failed", 0)),
            unstarted("can't run \"/x\": No such file or directory (os error 2)"),
            1,
            127,
        ),
        (
            "failed: no program",
            job(tasks.clone(), phase("Failed", 0)),
            unstarted("can't run \"/etc\": Permission denied (os error 13)"),
            1,
            126,
        ),
        (
            "failed: no mount",
            job(tasks.clone(), phase("Failed", 0)),
            unstarted("can't mount /data: No such file"),
            1,
            128,
        ),
        ("failed: no pod left", job(tasks.clone(), phase("Failed", 0)), vec![], 1, 1),
        ("failed: evicted", job(tasks.clone(), phase("Failed", 0)), vec![evicted], 1, 1),
        ("below minSuccess", job(with("minSuccess", json!(3)), phase("Failed", 2)), vec![], 9, 9),
        ("terminated by a person", job(tasks.clone(), phase("Terminated", 0)), vec![killed], 7, 7),
        ("terminated by policy", job(terminates, phase("Terminated", 0)), vec![early], 7, 7),
        ("suspended", job(tasks.clone(), phase("Aborted", 0)), vec![], 7, 7),
    ] {
        let end = end_of(&job).unwrap();
        assert_eq!(exit_of_end(&job, end).code(), wait, "wait: {name}");
        assert_eq!(exit_of_run(&job, end, &pod_failures(&pods)).code(), run, "run: {name}");
    }
    let deleted = job(tasks.clone(), json!({}));
    assert_eq!(end_of(&deleted), None);
    assert_eq!(exit_of_end(&deleted, JobEnd::Deleted), Exit::Cancelled);
}

#[test]
fn policies_that_terminate_keep_the_pods_code() {
    let job = job(
        json!({"tasks": [{"replicas": 1, "policies": [{"event": "PodFailed", "action": "TerminateJob"}]}]}),
        json!({"state": {"phase": "Terminated"}}),
    );
    let failures = pod_failures(&[pod("a", ended(5, None, "Error", "2026-01-01T00:00:01Z"))]);
    assert_eq!(exit_of_run(&job, JobEnd::Terminated, &failures), Exit::Own(5));
}

#[test]
fn failures_read_well() {
    let pods = [
        pod("a", ended(3, None, "Error", "2026-01-01T00:00:01Z")),
        pod("b", ended(137, Some(9), "OOMKilled", "2026-01-01T00:00:02Z")),
        pod("c", json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"})),
        pod("d", {
            let mut late = ended(143, Some(15), "Error", "2026-01-01T00:00:03Z");
            late["reason"] = "DeadlineExceeded".into();
            late
        }),
        pod("s", ended(128, None, "StartError", "2026-01-01T00:00:04Z")),
    ];
    let failures = pod_failures(&pods);
    let sentences: Vec<_> = failures.iter().map(|failure| failure.sentence()).collect();
    let with_log: Vec<_> = failures.iter().filter(|failure| failure.has_log()).map(|failure| &*failure.pod).collect();
    assert_eq!(with_log, ["a", "b", "d"], "what never ran has none");
    assert_eq!(
        sentences,
        [
            "pod a ended with exit code 3",
            "pod b was killed for memory",
            "pod d was ended: it ran longer than it may (--timeout)",
            "pod s did not start: ",
            "pod c ended with exit code 1 (Evicted): low on memory",
        ]
    );
}

#[test]
fn exit_codes_are_a_contract() {
    let all = [
        (Exit::Success, 0),
        (Exit::JobFailed, 1),
        (Exit::Usage, 2),
        (Exit::NotFound, 3),
        (Exit::Denied, 4),
        (Exit::Unreachable, 5),
        (Exit::Conflict, 6),
        (Exit::Cancelled, 7),
        (Exit::TimedOut, 8),
        (Exit::Partly, 9),
        (Exit::Interrupted, 130),
        (Exit::Own(42), 42),
    ];
    for (exit, code) in all {
        assert_eq!(exit.code(), code);
    }
}

#[test]
fn tables() {
    let now = "2026-01-01T00:05:30Z".parse().unwrap();
    let summary = |name: &str, made: &str, spec: Value, status: Value| {
        json!({"metadata": {"name": name, "namespace": "n", "uid": format!("u-{name}"), "creationTimestamp": made},
               "spec": spec, "status": status})
    };
    let entered = |phase: &str, at: &str| json!({"status": phase, "lastTransitionTime": at});
    let mut jobs: Vec<JobRow> = serde_json::from_value(json!([
        summary("fresh", "2026-01-01T00:05:00Z", json!({"tasks": [{"replicas": 4}]}), json!({})),
        summary(
            "sweep",
            "2026-01-01T00:00:00Z",
            json!({"queue": "research", "minAvailable": 2, "tasks": [{"replicas": 100000}, {"replicas": 1}]}),
            json!({"state": {"phase": "Running"}, "succeeded": 71240, "running": 9, "failed": 2, "retryCount": 1,
                   "conditions": [entered("Pending", "2026-01-01T00:00:01Z"), entered("Running", "2026-01-01T00:01:00Z")]}),
        ),
        summary(
            "done",
            "2026-01-01T00:02:00Z",
            json!({"priorityClassName": "high", "tasks": [{"replicas": 1}]}),
            json!({"state": {"phase": "Completed"}, "succeeded": 1,
                   "conditions": [entered("Running", "2026-01-01T00:02:01Z"), entered("Completed", "2026-01-01T00:02:41Z")]}),
        ),
    ]))
    .unwrap();
    let all = [Column::SHOWN, Column::WIDE].concat();
    let mut texts = vec![
        list_columns::table(&jobs, Column::SHOWN, now).render(false),
        list_columns::table(&jobs, &all, now).render(false),
        list_columns::table(&[], Column::SHOWN, now).render(false),
        list_columns::csv(&jobs, Column::CSV, now),
    ];
    use list_columns::Order;
    for order in [Order::Age, Order::Name, Order::State, Order::Queue, Order::Progress, Order::Runtime] {
        list_columns::sort(&mut jobs, order, now);
        let names: Vec<&str> = jobs.iter().map(|job| job.metadata.name.as_str()).collect();
        texts.push(format!("{order:?}: {}", names.join(" ")));
    }
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn reasons_from_objects() {
    let waiting = job(json!({"tasks": [{"replicas": 2}]}), json!({"state": {"phase": "Pending"}}));
    let running = job(json!({"tasks": [{"replicas": 2}]}), json!({"state": {"phase": "Running"}}));
    let group = |phase: &str| {
        json!({"status": {"phase": phase, "conditions": [
            {"type": "Scheduled", "status": "True", "reason": "tasks in gang are ready to be scheduled"},
            {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources",
             "message": "2/2 tasks in gang unschedulable: 1 Insufficient cpu"},
        ]}})
    };
    let unplaced = pod(
        "j-t-0",
        json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: cpu"}]}),
    );
    let text = |why: why::Why| format!("{}: {}", why.stage, why.text);
    assert_eq!(text(why::explain(&running, None, &[])), "Running: the job does not wait: it is Running");
    assert_eq!(text(why::explain(&waiting, None, &[])), "New: the job controller has not made the job's group yet");
    assert_eq!(text(why::explain(&waiting, Some(&json!({})), &[])), "Pending: the job waits to be let into its queue");
    let state =
        json!({"state": {"phase": "Pending", "reason": "WaitsForJobs", "message": "waits for job a to succeed"}});
    let after = job(json!({}), state);
    assert_eq!(text(why::explain(&after, None, &[])), "WaitsForJobs: waits for job a to succeed");
    let why = why::explain(&waiting, Some(&group("Inqueue")), &[unplaced]);
    assert_eq!(
        text(why.clone()),
        "Inqueue: 2/2 tasks in gang unschedulable: 1 Insufficient cpu\npod j-t-0: 0/1 nodes: cpu"
    );
    assert_eq!(why.reasons.len(), 2);
    assert_eq!(why.one_line().lines().count(), 1);
}

#[test]
fn the_commands_that_are_given() {
    let commands = [DesiredState::Cancel, DesiredState::Suspend, DesiredState::Resume]
        .map(|wish| wish.command(&job(json!({}), json!({}))));
    insta::assert_yaml_snapshot!(commands);
}

#[test]
fn why_is_painted_by_what_a_line_says() {
    let text = "0/2 nodes fit 2 pods\n├─ memory: held by ns/a\n├─ could start now\n│  ├─ in queue b\n│  └─ with minAvailable ≤ 1\n\
                └─ expected to start in 2h\n";
    let painted = why::Why { text: text.to_owned(), ..why::Why::default() }.painted();
    insta::assert_snapshot!(painted.replace('\u{1b}', "^"), @r"
    ^[33m0/2 nodes fit 2 pods^[0m
    ^[2m├─ ^[0mmemory: held by ns/a
    ^[2m├─ ^[0m^[32mcould start now^[0m
    ^[2m│  ├─ ^[0m^[32min queue b^[0m
    ^[2m│  └─ ^[0m^[32mwith minAvailable ≤ 1^[0m
    ^[2m└─ ^[0mexpected to start in 2h
    ");
}

#[test]
fn what_the_server_structures_is_passed_on() {
    let told = json!({
        "stage": "Allocate", "text": "t", "reasons": [], "line": {"queue": "q", "ahead": 1, "waiting": 2},
        "could": [{"change": "queue", "queue": "b"}],
    });
    let why: why::Why = serde_json::from_value(told.clone()).unwrap();
    assert_eq!(why.more["could"], told["could"]);
    assert_eq!(serde_json::to_value(&why).unwrap(), told);
}
