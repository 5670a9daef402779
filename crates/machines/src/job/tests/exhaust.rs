//! Every state that a small job can come to, and every effect after which its controller can stop.
//!
//! A state is what is left when nothing more is to be done. From each, everything that can happen to the job happens once, to
//! one pod of each sort. Pods of a task that look alike are alike, and versions count from the job's own.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use pumice_api::batch::JobPhase as P;
use pumice_api::bus::{Action, Event};
use pumice_api::names;
use pumice_api::scheduling::PodGroupPhase;
use serde_json::{Value, json};

use super::laws;
use super::model::{Model, job};
use crate::job::restart::pause;
use crate::job::{JobPod, transition};

/// Something that happens to a job.
#[derive(Clone, Debug, PartialEq)]
enum Move {
    Pod(String, &'static str),
    Evict(String),
    Vanish(String),
    Refuse(String),
    OutOfMemory(String),
    Reap,
    Admit,
    GroupUnknown,
    Command(Action),
}

impl Move {
    /// How a table names it.
    fn name(&self) -> String {
        match self {
            Self::Pod(_, phase) => format!("a pod is {phase}"),
            Self::Evict(_) | Self::Vanish(_) => "a pod is deleted".to_owned(),
            Self::Refuse(_) => "a kubelet refuses a pod".to_owned(),
            Self::OutOfMemory(_) => "a pod is killed for memory".to_owned(),
            Self::Reap => "pods are gone".to_owned(),
            Self::Admit => "the group is admitted".to_owned(),
            Self::GroupUnknown => "the group is Unknown".to_owned(),
            Self::Command(action) => format!("Command {action}"),
        }
    }

    fn play(&self, model: &mut Model) {
        match self {
            Self::Pod(name, phase) => model.pod(name, phase),
            Self::Evict(name) => model.evict(name),
            Self::Vanish(name) => drop(model.pods.remove(name)),
            Self::Refuse(name) => model.refuse(name, "OutOfcpu"),
            Self::OutOfMemory(name) => model.out_of_memory(name),
            Self::Reap => model.reap(),
            Self::Admit => model.admit(),
            Self::GroupUnknown => model.group.as_mut().unwrap().status.phase = Some(PodGroupPhase::Unknown),
            Self::Command(_) => {}
        }
    }

    fn command(&self) -> Option<&Action> {
        match self {
            Self::Command(action) => Some(action),
            _ => None,
        }
    }
}

/// What can happen next.
fn moves(model: &Model) -> Vec<Move> {
    let mut all = Vec::new();
    let mut sorts = BTreeSet::new();
    let mut leaving = false;
    for (name, pod) in &model.pods {
        let facts = JobPod::observe(pod).unwrap().facts;
        if facts.terminating_since.is_some() {
            leaving = true;
            continue;
        }
        if !sorts.insert((facts.task.clone(), sort(model, name))) {
            continue;
        }
        all.extend([Move::Evict(name.clone()), Move::Vanish(name.clone())]);
        if !facts.phase.is_finished() {
            let phases = ["Running", "Succeeded", "Failed"].into_iter().filter(|phase| *phase != facts.phase.as_str());
            all.extend(phases.map(|phase| Move::Pod(name.clone(), phase)));
            all.push(Move::Refuse(name.clone()));
            // Without a rule for it, it is one more way to fail.
            let rules = &model.job.spec.policies;
            if rules.iter().any(|rule| rule.event == Some(Event::OomKilled)) {
                all.push(Move::OutOfMemory(name.clone()));
            }
        }
    }
    all.extend(leaving.then_some(Move::Reap));
    match model.group.as_ref().map(|group| group.status.phase.as_ref()) {
        Some(None) => all.push(Move::Admit),
        Some(Some(PodGroupPhase::Inqueue)) => all.push(Move::GroupUnknown),
        _ => {}
    }
    let actions = [Action::AbortJob, Action::ResumeJob, Action::RestartJob, Action::CompleteJob, Action::TerminateJob];
    all.extend(actions.map(Move::Command));
    all
}

/// All that can matter of one pod.
fn sort(model: &Model, name: &str) -> String {
    let Some(pod) = model.pods.get(name) else { return String::new() };
    let facts = JobPod::observe(pod).unwrap().facts;
    let age = (model.job.status.version - facts.version).min(1);
    if facts.terminating_since.is_some() && !facts.phase.is_finished() {
        return format!("going {age} {}", facts.mark.is_some());
    }
    let mark = facts.mark.map(|mark| (mark.restart - model.job.status.retry_count).clamp(-1, 1));
    let memory = (facts.killed.is_empty(), facts.raised.first().map(|(_, times)| *times), facts.retried);
    format!(
        "{:?}{}{age}{mark:?}{:?}{memory:?}",
        facts.phase,
        facts.terminating_since.is_some(),
        facts.evicted_at.is_some()
    )
}

/// All that can matter of a state.
fn key(model: &Model) -> String {
    let status = &model.job.status;
    let annotations = model.job.metadata.annotations.clone().unwrap_or_default();
    let ended = annotations.get(names::ENDED_INDICES).map(|text| serde_json::from_str::<Value>(text).unwrap());
    let runs = |task: &str| {
        let text = ended.as_ref().and_then(|ended| ended["tasks"][task].as_str()).unwrap_or_default();
        crate::range_encoding::RangeEncoding::read(text).unwrap()
    };
    let mut text = format!(
        "{:?} {} {} {:?} {} {} {:?} {}",
        status.state.phase,
        status.state.reason,
        status.retry_count,
        model.counts(),
        status.controlled_resources.len(),
        model.applied.len(),
        model.group.as_ref().map(|group| group.status.phase.clone()),
        annotations.contains_key(names::EVICTED),
    );
    let raises = crate::job::memory::raises::Raises::read(&model.job);
    let retries = crate::job::retries::PodRetries::read(&model.job);
    let mut tasks = Vec::new();
    for task in &model.job.spec.tasks {
        let raised = |index| (raises.times(&task.name, "c", index), retries.times(&task.name, index));
        let runs = runs(&task.name);
        let mut slots: Vec<String> = (0..task.replicas)
            .map(|index| {
                let sort = sort(model, &format!("j-{}-{index}", task.name));
                format!("{sort}{:?}{:?}", runs.get(index), raised(index))
            })
            .collect();
        slots.sort();
        tasks.push(slots);
    }
    // The tasks are alike, too.
    tasks.sort();
    text += &format!("{tasks:?}");
    text
}

/// Changes of phase, and what made them.
type Edges = BTreeMap<(String, String), BTreeSet<String>>;

fn check(model: &Model, from: &P, what: &dyn Fn() -> String) {
    let mut before = from;
    for phase in &model.phases {
        assert!(before == phase || laws::legal(before, phase), "{before:?} -> {phase:?}: {}", what());
        before = phase;
    }
    let status = &model.job.status;
    assert!(model.counts().iter().all(|count| *count >= 0), "{:?}: {}", model.counts(), what());
    assert!(status.retry_count <= model.job.spec.max_retry, "{}", what());
    let running = |pod: &&k8s_openapi::api::core::v1::Pod| {
        let facts = JobPod::observe(pod).unwrap().facts;
        facts.phase == crate::job::PodPhase::Running && !facts.is_leaving()
    };
    assert_eq!(status.running as usize, model.pods.values().filter(running).count(), "{}", what());
    if model.phase().is_finished() {
        assert_eq!((status.pending, status.running), (0, 0), "{}", what());
        assert!(model.group.is_none(), "{}", what());
    }
}

/// Visits every state; gives how many there are.
fn explore(spec: Value, label: &str, crashes: bool, edges: &mut Edges) -> usize {
    let mut start = Model::new(job(spec));
    start.linger = true;
    start.job.metadata.annotations = Some([(pause::RETRY_BACKOFF.to_owned(), "0s".to_owned())].into());
    start.settle();
    let mut seen = HashSet::from([key(&start)]);
    let mut queue = VecDeque::from([start]);
    while let Some(model) = queue.pop_front() {
        let from = model.phase();
        for one in moves(&model) {
            let mut next = model.clone();
            next.phases.clear();
            next.records.clear();
            one.play(&mut next);
            let what = || format!("{label}: {one:?} in {}", key(&model));
            let mut whole = next.clone();
            finish(&mut whole, &one);
            check(&whole, &from, &what);
            let mut before = from.clone();
            for phase in whole.phases.iter().filter(|phase| **phase != from) {
                let edge = (before.as_str().to_owned(), phase.as_str().to_owned());
                let causes = edges.entry(edge).or_default();
                if !causes.contains(&one.name()) {
                    causes.insert(format!("{}{label}", one.name()));
                }
                before = phase.clone();
            }
            let after = key(&whole);
            if crashes {
                let plan = next.plan(one.command());
                for effects in 0..=plan.stages.iter().flatten().count() {
                    let mut stopped = next.clone();
                    stopped.apply_effects(plan.clone(), effects);
                    stopped.evicted.clear();
                    finish(&mut stopped, &one);
                    check(&stopped, &from, &what);
                    let ended = matches!(&one, Move::Evict(name) | Move::Vanish(name) if model.has_ended(name));
                    assert!(
                        ended || key(&stopped) == after,
                        "{effects} effects: {}\n{}\n{after}",
                        what(),
                        key(&stopped)
                    );
                }
            }
            if seen.insert(after) {
                queue.push_back(whole);
            }
        }
    }
    seen.len()
}

/// Comes to rest. A Command is there until it was carried out.
fn finish(model: &mut Model, one: &Move) {
    match one.command() {
        Some(action) => model.command(action.clone()),
        None => model.settle(),
    }
}

/// An event and the action on it.
type Rule = (&'static str, &'static str);

/// Each rule that can matter.
const RULES: &[Rule] = &[
    ("", ""),
    ("PodFailed", "RestartJob"),
    ("PodFailed", "RestartTask"),
    ("PodFailed", "RestartPod"),
    ("PodFailed", "AbortJob"),
    ("PodFailed", "CompleteJob"),
    ("PodEvicted", "RestartJob"),
    ("PodEvicted", "RestartPod"),
    ("PodEvicted", "TerminateJob"),
    ("TaskCompleted", "CompleteJob"),
    ("Unknown", "RestartJob"),
    ("*", "RestartTask"),
    ("OOMKilled", "ScaleUpMemory"),
    ("OOMKilled", "RestartJob"),
];

/// Jobs of these tasks, with each of the rules.
fn specs(replicas: &[i32], max_retry: i32, rules: &[Rule]) -> Vec<(Value, String)> {
    let template = json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "1Gi"}}}]}});
    let tasks: Vec<Value> = replicas
        .iter()
        .zip(["a", "b"])
        .map(|(replicas, name)| json!({"name": name, "replicas": replicas, "minAvailable": 1, "template": template}))
        .collect();
    let with = |(event, action): &Rule| {
        let scale_up = (*action == "ScaleUpMemory").then(|| json!({"tries": 1}));
        let rule = json!({"event": event, "action": action, "scaleUp": scale_up});
        let policies = if event.is_empty() { json!([]) } else { json!([rule]) };
        let label = if event.is_empty() { String::new() } else { format!(", rule {event}: {action}") };
        (json!({"maxRetry": max_retry, "minAvailable": tasks.len(), "policies": policies, "tasks": tasks}), label)
    };
    rules.iter().map(with).collect()
}

fn explore_all(replicas: &[i32], max_retry: i32, rules: &[Rule], crashes: bool) -> (usize, Edges) {
    let mut edges = Edges::new();
    let states =
        specs(replicas, max_retry, rules).into_iter().map(|(spec, label)| explore(spec, &label, crashes, &mut edges));
    (states.sum(), edges)
}

// INV-40
#[test]
fn one_pod_whatever_happens_and_wherever_the_controller_stops() {
    let (states, _) = explore_all(&[1], 2, RULES, true);
    assert!(states > 200, "{states}");
}

#[test]
fn two_tasks_whatever_happens_and_wherever_the_controller_stops() {
    let (states, _) = explore_all(&[1, 1], 2, &RULES[3..4], true);
    assert!(states > 40, "{states}");
}

#[test]
fn one_pod_at_a_time_of_two_whatever_happens_and_wherever_the_controller_stops() {
    for (mut spec, label) in specs(&[2], 2, &[RULES[0], RULES[1], RULES[3], RULES[7]]) {
        spec["tasks"][0]["maxParallel"] = 1.into();
        let states = explore(spec, &label, true, &mut Edges::new());
        assert!(states > 20, "{label}: {states}");
    }
}

#[test]
fn a_pod_with_a_retry_whatever_happens_and_wherever_the_controller_stops() {
    for (mut spec, label) in specs(&[1], 2, &[RULES[0], RULES[1], RULES[3], RULES[12]]) {
        spec["tasks"][0]["retries"] = 1.into();
        let states = explore(spec, &label, true, &mut Edges::new());
        assert!(states > 20, "{label}: {states}");
    }
}

/// Which phase each action leads to, and what leads from phase to phase, as a page of the docs.
fn page(edges: &Edges) -> String {
    let actions = [
        Action::RestartJob,
        Action::RestartTask,
        Action::RestartPod,
        Action::RestartPartition,
        Action::AbortJob,
        Action::TerminateJob,
        Action::CompleteJob,
        Action::ResumeJob,
        Action::SyncJob,
    ];
    let mut text = String::from(HEAD);
    text += &format!(
        "| Phase | {} |\n|---|{}\n",
        actions.each_ref().map(ToString::to_string).join(" | "),
        "---|".repeat(9)
    );
    for phase in PHASES {
        let cells = actions.each_ref().map(|action| means(&transition(phase, action)));
        text += &format!("| {} | {} |\n", phase.as_str(), cells.join(" | "));
    }
    text += MIDDLE;
    for from in PHASES {
        for to in PHASES {
            if let Some(causes) = edges.get(&(from.as_str().to_owned(), to.as_str().to_owned())) {
                // What happens without a rule needs none.
                let plain = |cause: &&str| cause.split_once(", rule").is_some_and(|(plain, _)| causes.contains(plain));
                let causes: Vec<&str> = causes.iter().map(String::as_str).filter(|cause| !plain(cause)).collect();
                text += &format!("| {} | {} | {} |\n", from.as_str(), to.as_str(), causes.join("<br>"));
            }
        }
    }
    text
}

const PHASES: &[P] = &[
    P::Pending,
    P::Running,
    P::Restarting,
    P::Aborting,
    P::Aborted,
    P::Terminating,
    P::Terminated,
    P::Completing,
    P::Completed,
    P::Failed,
];

const HEAD: &str = "\
# How a job goes from phase to phase

Written by a test of the Job machine (`cargo test --workspace --lib exhaust`; with `UPDATE_DOCS=1` it writes this page anew).

## What an action means in a phase

An action comes from a Command or from a lifecycle policy; without one, `SyncJob` is done.

- **sync**: make what exists agree with the spec, then look at the rules of the phase.
- **restart all**, **restart some**: on to Restarting, one retry more. On the last retry the job goes on to Failed.
- **kill →**: delete what is unfinished, on the way to that phase.
- **resume**: on to Restarting, without a retry; what has ended stays.
- **release**: delete what the restart takes away, then go back to Pending. More pods may join a restart of some pods.
- **settle**: delete what is unfinished, then go to the phase that this one ends in. A finished job stays as it is.

A Command that means no more than `SyncJob` does in its phase is taken away, and nothing else is done with it.

`ScaleUpMemory` is no column: [it makes one pod again](memory.md) and leaves the job in its phase, or lets it fall back to
Pending while too few pods run.

";

const MIDDLE: &str = "
## What leads from one phase to another

Found by visiting every state of a job of two pods with `maxRetry` 2, once without a rule and once with each of the rules named
here. No other change of phase is possible for it. What happens without a rule happens with one, too; of a change that passes
several phases at once each step is listed.

| From | To | By |
|---|---|---|
";

fn means(transition: &crate::job::Transition) -> String {
    use crate::job::Transition as T;
    match transition {
        T::Sync => "sync".to_owned(),
        T::RestartJob => "restart all".to_owned(),
        T::RestartTarget => "restart some".to_owned(),
        T::Kill(phase) => format!("kill → {}", phase.as_str()),
        T::Resume => "resume".to_owned(),
        T::Release => "release".to_owned(),
        T::Settle => "settle".to_owned(),
    }
}

#[test]
fn the_page_in_the_docs_says_what_the_machine_does() {
    let (_, edges) = explore_all(&[2], 2, RULES, false);
    let path = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/job-transitions.md");
    let fresh = page(&edges);
    #[allow(clippy::disallowed_methods, reason = "only this test writes the page")]
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == fresh, "docs/job-transitions.md is stale: run this test with UPDATE_DOCS=1");
}
