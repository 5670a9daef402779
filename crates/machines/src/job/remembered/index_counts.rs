//! What a job counts by pod index: numbers of its tasks, or of containers of its tasks.
//!
//! Invariant: numbers only grow, whoever says them. They stand in the status; Volcano's own definitions drop that part of it, so
//! what was written and is not there is then kept in an annotation, which counts only for the job of its uid. Neither is longer
//! than 32 KiB: when they would be, all pods of a task get the highest number of one of them. Used by `raises` and `retries`.

use std::collections::BTreeMap;

use pumice_api::batch::Job;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::job::plan::Effect;
use crate::job::remembered::TooLong;
use crate::job_object;
use crate::range_encoding::{RangeEncoding, TEXT_MAX};

/// Most entries that are read: tasks times containers.
pub(in crate::job) const ENTRIES_MAX: usize = 4096;
/// Bytes of an entry beside its texts.
const ENTRY: usize = 48;

/// Numbers by task and container, by index. What is counted of whole pods has no name for a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::job) struct IndexCounts {
    by_container: BTreeMap<(String, String), RangeEncoding>,
}

impl IndexCounts {
    /// Adds what a text says; numbers that are lower than those known change nothing.
    pub fn take_in(&mut self, task: &str, container: &str, indices: &str) {
        if let Some(runs) = RangeEncoding::read(indices) {
            self.raise(task, container, &runs);
        }
    }

    /// Adds numbers; those that are lower than those known change nothing.
    pub fn raise(&mut self, task: &str, container: &str, numbers: &RangeEncoding) {
        let known = self.by_container.entry((task.to_owned(), container.to_owned())).or_default();
        *known = known.highest(numbers);
    }

    /// The number at an index; 0 where there is none.
    pub fn times(&self, task: &str, container: &str, index: i32) -> i64 {
        if self.by_container.is_empty() {
            return 0;
        }
        let runs = self.by_container.get(&(task.to_owned(), container.to_owned()));
        runs.and_then(|runs| runs.get(index)).unwrap_or(0)
    }

    /// The containers of a task of which something was counted.
    pub fn of_task(&self, task: &str) -> impl Iterator<Item = (&str, &RangeEncoding)> {
        let all = self.by_container.iter().filter(move |((name, _), _)| name == task);
        all.map(|((_, container), runs)| (container.as_str(), runs))
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
        let one = |((task, container), runs): (&(String, String), &RangeEncoding)| {
            task.len() + container.len() + runs.write().len() + ENTRY
        };
        self.by_container.iter().map(one).sum()
    }

    /// All of it, ready to be written down.
    pub fn entries(&self) -> impl Iterator<Item = Counted<'_>> {
        let some = self.by_container.iter().filter(|(_, runs)| runs.runs() > 0);
        some.map(|((task, container), runs)| Counted { task, container, indices: runs.write() })
    }
}

/// The numbers of one container.
pub(in crate::job) struct Counted<'a> {
    pub task: &'a str,
    pub container: &'a str,
    /// Numbers by index, in the form of [`RangeEncoding`].
    pub indices: String,
}

/// Keeps entries under `member` of an annotation, where the status doesn't.
pub(in crate::job) fn annotate<T: Serialize>(job: &Job, key: &'static str, member: &str, entries: &[T]) -> Effect {
    let text = json!({"uid": job_object::uid(job), member: entries}).to_string();
    Effect::Annotate { key, value: Some(text) }
}

/// What [`annotate`] has kept of this very job.
pub(in crate::job) fn annotated<T: DeserializeOwned>(job: &Job, key: &str, member: &str) -> Vec<T> {
    let text = job_object::annotation(job, key);
    let text = text.filter(|text| text.len() <= 2 * TEXT_MAX);
    let Some(value) = text.and_then(|text| serde_json::from_str::<Value>(text).ok()) else { return Vec::new() };
    if value["uid"] != job_object::uid(job) {
        return Vec::new();
    }
    serde_json::from_value(value[member].clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(replicas: i32) -> Job {
        serde_json::from_value(json!({"metadata": {"name": "j", "uid": "u"},
            "spec": {"tasks": [{"name": "w", "replicas": replicas}]}}))
        .unwrap()
    }

    fn runs(indices: impl Iterator<Item = i32>, times: i64) -> RangeEncoding {
        RangeEncoding::from(&indices.map(|index| (index, times)).collect())
    }

    #[test]
    fn what_has_no_room_counts_for_the_whole_task() {
        let job = job(40_000);
        let mut tally = IndexCounts::default();
        tally.raise("w", "c", &runs((0..40_000).step_by(2), 1));
        tally.raise("w", "c", &runs(7..8, 3));
        tally.raise("w", "other", &runs(7..8, 1));
        let fitted = tally.fit(&job).unwrap();
        assert_eq!(fitted.times("w", "c", 1), 3, "the highest number counts for all");
        assert_eq!(fitted.times("w", "c", 39_999), 3);
        assert_eq!(
            (fitted.times("w", "other", 7), fitted.times("w", "other", 1)),
            (1, 0),
            "the others stay as they are"
        );
        assert!(fitted.entries().map(|one| one.indices.len()).sum::<usize>() < TEXT_MAX);
        let mut few = IndexCounts::default();
        few.raise("w", "c", &runs(0..100, 2));
        assert_eq!(few.clone().fit(&job), Ok(few));
    }

    #[test]
    fn there_is_an_end_to_what_fits() {
        let mut tally = IndexCounts::default();
        for task in 0..1000 {
            tally.raise(&format!("task-{task}"), "c", &runs(0..1, 1));
        }
        assert_eq!(tally.fit(&job(1)), Err(TooLong));
    }
}
