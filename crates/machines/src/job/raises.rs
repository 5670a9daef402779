//! Raises of memory that a job remembers: how often each container of each pod index was given more.
//!
//! Invariant: a raise is in the status before its pod is made again. Volcano's own definitions drop that part of the status; a
//! raise that was written and is not there is then kept in an annotation, which counts only for the job of its uid. What both
//! say is read, the higher number counts, and no index ever has fewer raises than before. Neither is longer than 32 KiB: when
//! they would be, all pods of a task count as raised. Read at each step, written by `oom`.

use std::collections::BTreeMap;

use pumice_api::batch::{Job, MemoryRaise};
use serde_json::{Value, json};

use super::index_runs::{IndexRuns, TEXT_MAX};
use super::memory::TooLong;
use super::plan::Effect;
use crate::job_object;

/// What the status would say, where Volcano's definitions drop it; annotation of a Job.
pub(super) const MEMORY_RAISES: &str = "pumice.sh/memory-raises";
/// Most entries that are read: tasks times containers.
const ENTRIES_MAX: usize = 4096;
/// Bytes of an entry beside its texts.
const ENTRY: usize = 48;

/// Numbers of raises, by task and container, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Raises {
    by_container: BTreeMap<(String, String), IndexRuns>,
}

impl Raises {
    /// All that a job remembers.
    pub fn read(job: &Job) -> Self {
        let mut all = Self::default();
        all.take_in(&job.status.memory_raises);
        all.take_in(&annotated(job).unwrap_or_default());
        all
    }

    fn take_in(&mut self, raises: &[MemoryRaise]) {
        for raise in raises.iter().take(ENTRIES_MAX) {
            let Some(runs) = IndexRuns::read(&raise.indices) else { continue };
            let known = self.by_container.entry((raise.task.clone(), raise.container.clone())).or_default();
            *known = known.highest(&runs);
        }
    }

    /// How often a container of the pod at an index was raised.
    pub fn times(&self, task: &str, container: &str, index: i32) -> i64 {
        if self.by_container.is_empty() {
            return 0;
        }
        let runs = self.by_container.get(&(task.to_owned(), container.to_owned()));
        runs.and_then(|runs| runs.get(index)).unwrap_or(0)
    }

    /// The containers of a task that were ever raised.
    pub fn of_task(&self, task: &str) -> impl Iterator<Item = (&str, &IndexRuns)> {
        let all = self.by_container.iter().filter(move |((name, _), _)| name == task);
        all.map(|((_, container), runs)| (container.as_str(), runs))
    }

    /// Adds raises of one container; numbers that are lower than those known change nothing.
    pub fn raise(&mut self, task: &str, container: &str, times: &BTreeMap<i32, i64>) {
        let known = self.by_container.entry((task.to_owned(), container.to_owned())).or_default();
        *known = known.highest(&IndexRuns::from(times));
    }

    /// Shortens what is too long: the longest list becomes one number for all pods of its task, until there is room.
    pub fn fit(mut self, job: &Job) -> Result<Self, TooLong> {
        while self.length() > TEXT_MAX {
            let several = self.by_container.iter_mut().filter(|(_, runs)| runs.runs() > 1);
            let Some(((task, _), runs)) = several.max_by_key(|(_, runs)| runs.runs()) else { return Err(TooLong) };
            let replicas = job.spec.tasks.iter().find(|one| one.name == *task).map_or(1, |one| one.replicas.max(1));
            *runs = runs.flattened(replicas - 1);
        }
        Ok(self)
    }

    fn length(&self) -> usize {
        let one = |((task, container), runs): (&(String, String), &IndexRuns)| {
            task.len() + container.len() + runs.write().len() + ENTRY
        };
        self.by_container.iter().map(one).sum()
    }

    /// As the status shows them.
    pub fn write(&self) -> Vec<MemoryRaise> {
        let some = self.by_container.iter().filter(|(_, runs)| runs.runs() > 0);
        some.map(|((task, container), runs)| MemoryRaise {
            task: task.clone(),
            container: container.clone(),
            indices: runs.write(),
        })
        .collect()
    }

    /// Keeps them where the status doesn't.
    pub fn annotate(&self, job: &Job) -> Effect {
        let text = json!({"uid": job_object::uid(job), "raises": self.write()}).to_string();
        Effect::Annotate { key: MEMORY_RAISES, value: Some(text) }
    }
}

fn annotated(job: &Job) -> Option<Vec<MemoryRaise>> {
    let text = job.metadata.annotations.as_ref()?.get(MEMORY_RAISES).filter(|text| text.len() <= 2 * TEXT_MAX)?;
    let value: Value = serde_json::from_str(text).ok()?;
    let ours = value["uid"] == job_object::uid(job);
    serde_json::from_value(value["raises"].clone()).ok().filter(|_| ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(replicas: i32) -> Job {
        serde_json::from_value(json!({"metadata": {"name": "j", "uid": "u"},
            "spec": {"tasks": [{"name": "w", "replicas": replicas}]}}))
        .unwrap()
    }

    fn raised(indices: impl Iterator<Item = i32>, times: i64) -> Raises {
        let mut raises = Raises::default();
        raises.raise("w", "c", &indices.map(|index| (index, times)).collect());
        raises
    }

    #[test]
    fn status_and_annotation_are_read_and_the_higher_number_counts() {
        let mut job = job(9);
        job.status.memory_raises = raised(0..4, 2).write();
        let Effect::Annotate { key, value } = raised(3..6, 1).annotate(&job) else { unreachable!() };
        job.metadata.annotations = Some([(key.to_owned(), value.unwrap())].into());
        let read = Raises::read(&job);
        let written = MemoryRaise { task: "w".into(), container: "c".into(), indices: "0-3:2,4-5".into() };
        assert_eq!(read.write(), [written]);
        assert_eq!([2, 3, 4, 6].map(|index| read.times("w", "c", index)), [2, 2, 1, 0]);
        assert_eq!(read.times("w", "other", 2), 0);
        job.metadata.uid = Some("another".into());
        assert_eq!(Raises::read(&job).times("w", "c", 4), 0, "a copied annotation means nothing");
    }

    #[test]
    fn what_has_no_room_counts_for_the_whole_task() {
        let job = job(40_000);
        let mut raises = raised((0..40_000).step_by(2), 1);
        raises.raise("w", "c", &[(7, 3)].into());
        raises.raise("w", "other", &[(7, 1)].into());
        let fitted = raises.fit(&job).unwrap();
        assert_eq!(fitted.times("w", "c", 1), 3, "the highest number counts for all");
        assert_eq!(fitted.times("w", "c", 39_999), 3);
        assert_eq!(
            (fitted.times("w", "other", 7), fitted.times("w", "other", 1)),
            (1, 0),
            "the others stay as they are"
        );
        assert!(serde_json::to_string(&fitted.write()).unwrap().len() < TEXT_MAX);
        let few = raised(0..100, 2);
        assert_eq!(few.clone().fit(&job), Ok(few));
    }

    #[test]
    fn there_is_an_end_to_what_fits() {
        let mut raises = Raises::default();
        for task in 0..1000 {
            raises.raise(&format!("task-{task}"), "c", &[(0, 1)].into());
        }
        assert_eq!(raises.fit(&job(1)), Err(TooLong));
    }
}
