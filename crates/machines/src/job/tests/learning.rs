//! What runs teach the runs after them, and pods that no node is large enough for.

use pumice_api::batch::{Job, JobPhase as P};
use pumice_api::bus::Action;
use pumice_units::Quantity;
use serde_json::json;

use super::model::{Model, job};
use crate::job::LEARN_MEMORY;
use pumice_api::names::ON_OOM;

/// A run of `replicas` pods with a limit of 100Mi and a request of half of it.
fn run(number: i32, replicas: i32, annotations: &[(&str, &str)]) -> Job {
    let resources = json!({"limits": {"memory": "100Mi"}, "requests": {"memory": "50Mi"}});
    let container = json!({"name": "c", "command": ["fit", format!("--day={number}")], "resources": resources});
    let task = json!({"name": "w", "replicas": replicas, "template": {"spec": {"containers": [container]}}});
    let mut job = job(json!({"minAvailable": 1, "tasks": [task]}));
    job.metadata.name = Some("j".to_owned());
    job.metadata.generate_name = Some("train-".to_owned());
    job.metadata.uid = Some(format!("u{number}"));
    let rule = [(ON_OOM, "factor=2,ceiling=800Mi,tries=3")];
    let annotations = rule.iter().chain(annotations).map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
    job.metadata.annotations = Some(annotations.collect());
    job
}

/// What came of a run of pods that need so many MiB each.
fn play(run: Job, before: Option<&Model>, needs: &[i64]) -> Model {
    let mut model = Model::new(run);
    if let Some(before) = before {
        model.profiles = before.profiles.clone();
        model.now = before.now;
    }
    model.settle();
    model.admit();
    model.settle();
    for _ in 0..9 {
        model.admit();
        for (index, need) in needs.iter().enumerate().filter(|(_, need)| **need > 0) {
            let name = format!("j-w-{index}");
            if !model.pods.contains_key(&name) || model.has_ended(&name) {
                continue;
            }
            if model.limit(&name).parse::<Quantity>().unwrap() < Quantity::from_bytes(need << 20) {
                model.out_of_memory(&name);
            } else {
                model.pod(&name, "Succeeded");
            }
        }
        model.settle();
    }
    model
}

fn learned(model: &Model) -> Vec<(String, String)> {
    let all = model.profiles.values().flat_map(|profile| &profile.status.containers);
    let text = |amount: &Option<k8s_openapi::apimachinery::pkg::api::resource::Quantity>| amount.clone().unwrap().0;
    all.map(|one| (text(&one.memory), text(&one.killed))).collect()
}

fn told(model: &Model, reason: &str) -> Vec<String> {
    model.records.iter().filter(|record| record.0 == reason).map(|record| record.1.clone()).collect()
}

fn annotation(model: &Model, pod: &str, key: &str) -> Option<String> {
    model.pods[pod].metadata.annotations.clone().unwrap().get(key).cloned()
}

#[test]
fn the_next_run_starts_with_what_was_enough() {
    let first = play(run(1, 2, &[]), None, &[300, 90]);
    assert_eq!((first.phase(), learned(&first)), (P::Completed, vec![("400Mi".into(), "200Mi".into())]));
    let (name, profile) = first.profiles.iter().next().unwrap();
    assert_eq!((profile.spec.job.as_str(), profile.spec.command.as_str()), ("train", "fit --day"));
    assert_eq!(profile.status.runs, 1);
    let second = play(run(2, 2, &[]), Some(&first), &[0, 0]);
    assert_eq!(["j-w-0", "j-w-1"].map(|pod| second.limit(pod)), ["400Mi", "400Mi"]);
    let group = second.group.as_ref().unwrap();
    let minimum = group.spec.min_resources.clone().unwrap();
    assert_eq!(["memory", "limits.memory"].map(|name| minimum[name].0.as_str()), ["200Mi", "400Mi"]);
    assert_eq!(annotation(&second, "j-w-0", "pumice.sh/memory-learned").as_deref(), Some("c=400Mi"));
    assert!(!group.metadata.annotations.clone().unwrap().contains_key("pumice.sh/memory-start"));
    let message = format!(
        "task w: container c starts with 400Mi instead of 100Mi, learned from earlier runs (ResourceProfile {name})"
    );
    assert_eq!(told(&second, "MemoryLearned"), [message]);
    let second = play(run(3, 2, &[]), Some(&first), &[300, 90]);
    assert_eq!((second.phase(), second.job.status.memory_raises.len()), (P::Completed, 0));
    assert_eq!(second.profiles, first.profiles, "nothing was learned");
}

#[test]
fn what_was_learned_is_raised_further_and_learned_anew() {
    let first = play(run(1, 1, &[]), None, &[150]);
    assert_eq!(learned(&first), [("200Mi".into(), "100Mi".into())]);
    let second = play(run(2, 1, &[]), Some(&first), &[700]);
    assert_eq!((second.phase(), second.limit("j-w-0")), (P::Completed, "800Mi"));
    assert_eq!(annotation(&second, "j-w-0", "pumice.sh/memory-raised").as_deref(), Some("c=2"));
    assert_eq!(learned(&second), [("800Mi".into(), "400Mi".into())]);
    assert_eq!(second.profiles.values().next().unwrap().status.runs, 2);
    let less = [(ON_OOM, "factor=2,ceiling=500Mi")];
    let third = play(run(3, 1, &less), Some(&second), &[0]);
    assert_eq!(third.limit("j-w-0"), "500Mi", "the ceiling holds for what was learned, too");
    let mut larger = run(4, 1, &[]);
    let template = larger.spec.tasks[0].template.spec.as_mut().unwrap();
    let limits = template.containers[0].resources.as_mut().unwrap().limits.as_mut().unwrap();
    limits.get_mut("memory").unwrap().0 = "900Mi".to_owned();
    let fourth = play(larger, Some(&second), &[0]);
    assert_eq!(
        (fourth.limit("j-w-0"), told(&fourth, "MemoryLearned").len()),
        ("900Mi", 0),
        "never less than asked for"
    );
}

#[test]
fn a_leak_teaches_nothing() {
    let leak = play(run(1, 2, &[]), None, &[9_000, 90]);
    assert_eq!((leak.phase(), leak.limit("j-w-0")), (P::Completed, "800Mi"), "one of two was enough");
    assert!(leak.profiles.is_empty());
    assert!(told(&leak, "MemoryNotRaised")[0].contains("it has all it may get, 800Mi"));
}

#[test]
fn one_outlier_in_twenty_is_not_learned() {
    let needs = |outliers: usize| (0..20).map(|index| if index < outliers { 300 } else { 50 }).collect::<Vec<i64>>();
    assert!(play(run(1, 20, &[]), None, &needs(1)).profiles.is_empty());
    assert_eq!(learned(&play(run(1, 20, &[]), None, &needs(2))), [("400Mi".into(), "200Mi".into())]);
}

#[test]
fn it_can_be_turned_off() {
    let first = play(run(1, 1, &[]), None, &[300]);
    let unlearned = play(run(2, 1, &[(LEARN_MEMORY, "off")]), Some(&first), &[700]);
    assert_eq!((unlearned.phase(), unlearned.limit("j-w-0")), (P::Completed, "800Mi"), "raises go on");
    assert_eq!(
        (annotation(&unlearned, "j-w-0", "pumice.sh/memory-raised").as_deref(), &unlearned.profiles),
        (Some("c=3"), &first.profiles)
    );
    let off = play(run(3, 1, &[(ON_OOM, "off")]), Some(&first), &[300]);
    assert_eq!((off.phase(), off.limit("j-w-0"), told(&off, "MemoryNotRaised").len()), (P::Failed, "100Mi", 0));
    let mut of_task = run(4, 1, &[(ON_OOM, "off")]);
    of_task.spec.tasks[0].policies =
        serde_json::from_value(json!([{"event": "OOMKilled", "action": "ScaleUpMemory"}])).unwrap();
    assert_eq!(play(of_task, None, &[300]).limit("j-w-0"), "100Mi", "a job that says off has no rule at all");
}

#[test]
fn what_is_learned_meanwhile_changes_nothing() {
    let first = play(run(1, 1, &[]), None, &[300]);
    let mut model = play(run(2, 2, &[]), None, &[0, 0]);
    model.profiles = first.profiles.clone();
    model.pod("j-w-0", "Running");
    model.evict("j-w-1");
    model.settle();
    assert_eq!(model.limit("j-w-1"), "100Mi");
    model.command(Action::RestartJob);
    model.settle();
    model.admit();
    model.settle();
    assert_eq!(model.limit("j-w-0"), "100Mi", "also after a restart");
    let mut model = play(run(3, 1, &[]), Some(&first), &[0]);
    model.profiles.clear();
    model.prunes = true;
    model.command(Action::RestartJob);
    model.settle();
    model.admit();
    model.settle();
    assert_eq!(model.limit("j-w-0"), "400Mi", "nor is it forgotten");
    model.job.metadata.uid = Some("other".into());
    assert_eq!(play(model.job.clone(), None, &[0]).limit("j-w-0"), "100Mi", "a copied annotation means nothing");
}

#[test]
fn a_profile_of_other_runs_or_too_old_is_not_used() {
    let first = play(run(1, 1, &[]), None, &[300]);
    let mut other = run(2, 1, &[]);
    other.spec.tasks[0].template.spec.as_mut().unwrap().containers[0].command = Some(vec!["predict".to_owned()]);
    assert_eq!(play(other, Some(&first), &[0]).limit("j-w-0"), "100Mi");
    let mut forged = play(run(1, 1, &[]), None, &[300]);
    forged.profiles.values_mut().for_each(|profile| profile.spec.user = "bob".to_owned());
    assert_eq!(play(run(2, 1, &[]), Some(&forged), &[0]).limit("j-w-0"), "100Mi");
    let mut old = first;
    old.sleep(30 * 24 * 3600);
    assert_eq!(play(run(2, 1, &[]), Some(&old), &[0]).limit("j-w-0"), "100Mi");
}

#[test]
fn a_pod_that_no_node_is_large_enough_for_is_told_of_at_once() {
    let mut model = Model::running(run(1, 3, &[]));
    model.largest_node = Some(150 << 20);
    let reason = |model: &Model| (model.job.status.state.reason.clone(), model.job.status.state.message.clone());
    model.out_of_memory("j-w-1");
    model.settle();
    let message = "task w, pod 1 needs 100Mi of memory after being killed for memory, and the largest node has 90Mi: add a larger node, or lower the ceiling of the rule";
    assert_eq!(reason(&model), (String::new(), String::new()), "its request is 100Mi by now");
    model.largest_node = Some(90 << 20);
    model.settle();
    assert_eq!(reason(&model), ("MemoryExceedsNodes".into(), message.into()));
    assert_eq!((told(&model, "MemoryExceedsNodes"), model.phase()), (vec![message.to_owned()], P::Running));
    model.largest_node = Some(1 << 30);
    model.settle();
    assert_eq!(reason(&model), (String::new(), String::new()));
    model.largest_node = None;
    model.settle();
    assert_eq!(reason(&model), (String::new(), String::new()));
    let first = play(run(1, 1, &[]), None, &[700]);
    let mut second = Model::new(run(2, 2, &[]));
    (second.profiles, second.largest_node) = (first.profiles, Some(390 << 20));
    second.settle();
    assert!(told(&second, "MemoryExceedsNodes")[0].starts_with("task w, pods 0-1 need 400Mi of memory as learned"));
}

#[test]
fn hostile_annotations_are_nothing() {
    for text in ["[]", "{", r#"{"uid":"u1","tasks":3}"#, r#"{"uid":"u1","tasks":{"w":{"c":"-4Gi","x":[]}}}"#] {
        let model = play(run(1, 1, &[("pumice.sh/memory-start", text)]), None, &[0]);
        assert_eq!(model.limit("j-w-0"), "100Mi", "{text}");
    }
    let value = json!({"uid": "u1", "tasks": {"w": {"c": "1Ei"}}}).to_string();
    let model = play(run(1, 1, &[("pumice.sh/memory-start", &value)]), None, &[0]);
    assert_eq!(model.limit("j-w-0"), "800Mi", "the ceiling holds");
}
