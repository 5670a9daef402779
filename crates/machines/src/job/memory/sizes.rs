//! The memory that the containers of a pod are made with: what the template says, or what was learned, raised.
//!
//! Invariant: amounts follow from the job alone, never lie below the template's, and never above the ceiling of the rule unless
//! the template's do. Without a rule they are the template's. Used wherever pods, or the sum of them, are made.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use pumice_api::batch::{Job, TaskSpec};
use pumice_units::Quantity;

use crate::job::memory;
use crate::job::memory::learning::Start;
use crate::job::memory::raises::Raises;
use crate::job::memory::scale_up::ScaleUp;

const MEMORY: &str = "memory";

/// How often each container of a pod was raised.
pub(in crate::job) type Level = Vec<(String, i64)>;

/// What pods of a job get beyond their template.
#[derive(Default)]
pub(in crate::job) struct Sizes {
    pub raises: Raises,
    pub start: Start,
}

/// What to write on a pod about its memory.
#[derive(Default)]
pub(in crate::job) struct Given {
    /// `<container>=<times>` of what was raised.
    pub raised: Option<String>,
    /// `<container>=<amount>` of what starts with more than the template says.
    pub learned: Option<String>,
}

impl Sizes {
    pub fn read(job: &Job) -> Self {
        Self { raises: Raises::read(job), start: Start::read(job) }
    }

    /// The level of a pod that is made now.
    pub fn level(&self, task: &str, index: i32) -> Level {
        let of =
            self.raises.of_task(task).filter_map(|(container, runs)| Some((container.to_owned(), runs.get(index)?)));
        of.collect()
    }

    /// The first `count` pods of a task by their levels, with how many of each there are.
    pub fn levels(&self, task: &str, count: i64) -> Vec<(Level, i64)> {
        let end = i32::try_from(count).unwrap_or(i32::MAX);
        let mut borders = BTreeSet::from([0, end.max(0)]);
        borders.extend(self.raises.of_task(task).flat_map(|(_, runs)| runs.borders()).filter(|border| *border < end));
        let pairs = borders.iter().zip(borders.iter().skip(1));
        pairs.map(|(first, next)| (self.level(task, *first), i64::from(next - first))).collect()
    }

    /// What a container of the template that has so much starts with.
    pub fn start_of(&self, task: &TaskSpec, container: &str, rule: &ScaleUp, bytes: i64) -> i64 {
        let learned = self.start.of(&task.name, container).unwrap_or(bytes);
        rule.ceiling().map_or(learned, |ceiling| learned.min(ceiling)).max(bytes)
    }

    /// Gives the containers of a pod of a level what they are to have.
    pub fn give(&self, job: &Job, task: &TaskSpec, level: &Level, spec: &mut PodSpec) -> Given {
        if level.is_empty() && !self.start.has(&task.name) {
            return Given::default();
        }
        let Some(rule) = memory::rule_of(job, task) else { return Given::default() };
        let (mut raised, mut learned) = (Vec::new(), Vec::new());
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            let Some(had) = decisive(container) else { continue };
            let start = self.start_of(task, &container.name, &rule, had);
            let times = level.iter().find(|(name, _)| *name == container.name).map(|(_, times)| *times);
            if start > had {
                learned.push(format!("{}={}", container.name, Quantity::from_bytes(start)));
            }
            raised.extend(times.map(|times| format!("{}={times}", container.name)));
            let Some(resources) = &mut container.resources else { continue };
            for list in [&mut resources.requests, &mut resources.limits].into_iter().flatten() {
                if let Some((amount, written)) = list.get_mut(MEMORY).and_then(|amount| Some((bytes(amount)?, amount)))
                {
                    let more = rule.raised(in_proportion(amount, had, start), times.unwrap_or(0));
                    if more > amount {
                        written.0 = Quantity::from_bytes(more).to_string();
                    }
                }
            }
        }
        let text = |parts: Vec<String>| (!parts.is_empty()).then(|| parts.join(","));
        Given { raised: text(raised), learned: text(learned) }
    }

    /// The template of pods of a level.
    pub fn template<'a>(&self, job: &Job, task: &'a TaskSpec, level: &Level) -> Cow<'a, PodTemplateSpec> {
        let mut template = Cow::Borrowed(&task.template);
        if (!level.is_empty() || self.start.has(&task.name))
            && let Some(spec) = &mut template.to_mut().spec
        {
            self.give(job, task, level, spec);
        }
        template
    }
}

/// Whether pods of a job may have been given more memory than their template says.
pub fn gets_more_memory(job: &Job) -> bool {
    let sizes = Sizes::read(job);
    job.spec.tasks.iter().any(|task| sizes.start.has(&task.name) || sizes.raises.of_task(&task.name).next().is_some())
}

/// A container of a task's template.
pub(in crate::job) fn container<'a>(task: &'a TaskSpec, name: &str) -> Option<&'a Container> {
    containers(task).find(|one| one.name == name)
}

/// All containers of a task's template.
pub(in crate::job) fn containers(task: &TaskSpec) -> impl Iterator<Item = &Container> {
    let spec = task.template.spec.iter();
    spec.flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()))
}

/// The amount that a container may not go beyond, else the one it asks for.
pub(in crate::job) fn decisive(container: &Container) -> Option<i64> {
    let resources = container.resources.as_ref()?;
    let memory = |list: &Option<BTreeMap<String, _>>| list.as_ref().and_then(|list| list.get(MEMORY)).and_then(bytes);
    memory(&resources.limits).or_else(|| memory(&resources.requests))
}

fn bytes(amount: &k8s_openapi::apimachinery::pkg::api::resource::Quantity) -> Option<i64> {
    amount.0.parse::<Quantity>().ok().map(Quantity::value).filter(|bytes| *bytes > 0)
}

/// An amount that grows as another one does, from `had` to `start`, rounded up to whole MiB.
fn in_proportion(amount: i64, had: i64, start: i64) -> i64 {
    const MEBI: i128 = 1 << 20;
    if amount == had || start <= had {
        return amount.max(if amount == had { start } else { amount });
    }
    let part = i128::from(had) * MEBI;
    let whole = (i128::from(amount) * i128::from(start) + part - 1) / part;
    // A request that lies above the limit can't be; if it is, it grows no further.
    i64::try_from(whole * MEBI).unwrap_or(i64::MAX).clamp(amount, start.max(amount))
}

/// Reads what [`Given::raised`] has written.
pub(in crate::job) fn read_level(text: Option<&str>) -> Level {
    let pairs = text.into_iter().flat_map(|text| text.split(',')).filter_map(|part| part.split_once('='));
    pairs.filter_map(|(container, times)| Some((container.to_owned(), times.parse().ok()?))).collect()
}
