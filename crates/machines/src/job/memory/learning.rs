//! What a job starts with because earlier runs taught it, and what it teaches the runs after it.
//!
//! Invariant: what a job starts with is fixed once, before it has a group, in an annotation that counts for its uid only: the
//! same after a restart of the controllers, and on Volcano's definitions. Only pods that succeeded after a raise teach; what
//! is learned of a task was enough for 19 of 20 of its pods, so that one outlier does not make all of them large. Called
//! before a job's group is made, and when the job ends.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pumice_api::batch::{Job, JobPhase, TaskSpec};
use pumice_api::names::MEMORY_START;
use pumice_units::Quantity;
use serde_json::{Map, Value, json};

use crate::job::facts::PodPhase;
use crate::job::memory::scale_up::OFF;
use crate::job::memory::sizes::{self, Sizes};
use crate::job::plan::{Effect, Plan};
use crate::job::pod_counts::{PodCounts, TaskCensus};
use crate::job::{JobView, StepContext, memory};
use crate::job_object;
use crate::profile::key;
use crate::profile::{self, Learned, Lesson};
use crate::range_encoding::TEXT_MAX;

/// What containers started with because of it; annotation of a pod.
pub(in crate::job) const MEMORY_LEARNED: &str = "pumice.sh/memory-learned";
/// `off`: the job neither teaches nor uses what others taught; annotation of a Job.
pub const LEARN_MEMORY: &str = "pumice.sh/learn-memory";

/// Most amounts that are read.
const AMOUNTS_MAX: usize = 4096;
/// Of so many pods one may need more than what is learned.
const PODS_OF_ONE_OUTLIER: usize = 20;

/// Bytes of memory by task and container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::job) struct Start {
    by_task: BTreeMap<String, BTreeMap<String, i64>>,
}

impl Start {
    /// What a job starts with.
    pub fn read(job: &Job) -> Self {
        Self::parse(job).unwrap_or_default()
    }

    fn parse(job: &Job) -> Option<Self> {
        let text = job_object::annotation(job, MEMORY_START).filter(|text| text.len() <= TEXT_MAX)?;
        let value: Value = serde_json::from_str(text).ok()?;
        if value["uid"] != job_object::uid(job) {
            return None;
        }
        let tasks = value["tasks"].as_object()?;
        let mut start = Self::default();
        let amounts =
            tasks.iter().flat_map(|(task, of)| of.as_object().into_iter().flatten().map(move |one| (task, one)));
        for (task, (container, amount)) in amounts.take(AMOUNTS_MAX) {
            if let Some(bytes) = amount.as_str().and_then(|text| text.parse::<Quantity>().ok()).map(Quantity::value) {
                start.set(task, container, bytes);
            }
        }
        Some(start)
    }

    fn set(&mut self, task: &str, container: &str, bytes: i64) {
        self.by_task.entry(task.to_owned()).or_default().insert(container.to_owned(), bytes);
    }

    pub fn of(&self, task: &str, container: &str) -> Option<i64> {
        self.by_task.get(task)?.get(container).copied()
    }

    /// Whether anything was learned of a task.
    pub fn has(&self, task: &str) -> bool {
        self.by_task.contains_key(task)
    }

    fn write(&self, job: &Job) -> String {
        let amount = |(container, bytes): (&String, &i64)| {
            (container.clone(), Value::from(Quantity::from_bytes(*bytes).to_string()))
        };
        let of_task = |(task, of): (&String, &BTreeMap<String, i64>)| {
            (task.clone(), Value::Object(of.iter().map(amount).collect()))
        };
        let tasks: Map<String, Value> = self.by_task.iter().map(of_task).collect();
        json!({"uid": job_object::uid(job), "tasks": tasks}).to_string()
    }
}

fn learns(job: &Job) -> bool {
    job_object::annotation(job, LEARN_MEMORY) != Some(OFF)
}

impl StepContext<'_> {
    /// Fixes what the job starts with, if something was learned and the job has not begun.
    pub(in crate::job) fn start_as_learned(&self) -> Option<Plan> {
        let JobView { job, group, pods, .. } = self.view;
        let begins = group.is_none() && pods.is_empty() && (job.status.version, job.status.retry_count) == (0, 0);
        if !begins || !learns(job) || self.view.profiles.is_empty() || Start::parse(job).is_some() {
            return None;
        }
        let (mut start, mut told) = (Start::default(), Vec::new());
        for task in &job.spec.tasks {
            of_task(self.view, task, self.now, &mut start, &mut told);
        }
        let text = Some(start.write(job)).filter(|text| !told.is_empty() && text.len() <= TEXT_MAX)?;
        Some(Plan::stages(vec![vec![Effect::Annotate { key: MEMORY_START, value: Some(text) }], told]))
    }
}

fn of_task(view: &JobView<'_>, task: &TaskSpec, now: Timestamp, start: &mut Start, told: &mut Vec<Effect>) {
    let Some(rule) = memory::rule_of(view.job, task) else { return };
    let runs = key::of(view.job, task);
    let name = key::profile_name(&runs);
    let Some(profile) = view.profiles.get(&name).filter(|profile| profile.spec == runs) else { return };
    for (container, learned) in profile::amounts(&profile.status, now) {
        let Some(had) = sizes::container(task, &container).and_then(sizes::decisive) else { continue };
        let bytes = rule.ceiling().map_or(learned, |ceiling| learned.min(ceiling));
        if bytes > had {
            start.set(&task.name, &container, bytes);
            let (bytes, had) = (Quantity::from_bytes(bytes), Quantity::from_bytes(had));
            told.push(Effect::normal(
                "MemoryLearned",
                format!("task {}: container {container} starts with {bytes} instead of {had}, learned from earlier runs (ResourceProfile {name})", task.name),
            ));
        }
    }
}

/// Adds what a job that ends by this plan teaches.
pub(in crate::job) fn teach(view: &JobView<'_>, pod_counts: &PodCounts<'_>, phase: &JobPhase, plan: &mut Plan) {
    let ends = |effect: &Effect| matches!(effect, Effect::WriteStatus { status, .. } if status.state.phase.as_ref().is_some_and(JobPhase::is_finished));
    if phase.is_finished() || !learns(view.job) || !plan.stages.iter().flatten().any(ends) {
        return;
    }
    let sizes = Sizes::read(view.job);
    let lessons = pod_counts.tasks.iter().filter_map(|task| lesson(view.job, task, &sizes));
    let lessons: Vec<Effect> = lessons.map(|lesson| Effect::Learn(Box::new(lesson))).collect();
    if !lessons.is_empty() {
        plan.stages.push(lessons);
    }
}

/// What the pods of a task that succeeded teach, if any of them was raised.
fn lesson(job: &Job, task: &TaskCensus<'_>, sizes: &Sizes) -> Option<Lesson> {
    let rule = memory::rule_of(job, task.spec)?;
    let well = |index: &i32| {
        let of_pod = task.slots.get(index).filter(|pod| !pod.is_leaving()).map(|pod| pod.phase);
        of_pod.or_else(|| task.ended.get(index).copied()) == Some(PodPhase::Succeeded)
    };
    let mut containers = BTreeMap::new();
    for (container, runs) in sizes.raises.of_task(&task.spec.name) {
        let Some(had) = sizes::container(task.spec, container).and_then(sizes::decisive) else { continue };
        let start = sizes.start_of(task.spec, container, &rule, had);
        let mut times: Vec<i64> =
            (0..task.spec.replicas.max(0)).filter(well).map(|index| runs.get(index).unwrap_or(0)).collect();
        times.sort_unstable();
        // The outliers are the last ones.
        let enough = times.len().checked_sub(1 + times.len() / PODS_OF_ONE_OUTLIER).and_then(|place| times.get(place));
        if let Some(enough) = enough.filter(|enough| **enough > 0) {
            let learned = Learned { enough: rule.raised(start, *enough), killed: rule.raised(start, enough - 1) };
            containers.insert(container.to_owned(), learned);
        }
    }
    if containers.is_empty() {
        return None;
    }
    let runs = key::of(job, task.spec);
    Some(Lesson { name: key::profile_name(&runs), runs, containers })
}
