//! Raises of memory that a job remembers: how often each container of each pod index was given more.
//!
//! Invariant: a raise is in the status before its pod is made again, or in an annotation where the definitions are Volcano's.
//! What both say is read, the higher number counts, and no index ever has fewer raises than before; what has no room counts
//! for the whole task (`index_counts`). Read at each step, written by `memory`.

use std::collections::BTreeMap;

use pumice_api::batch::{Job, MemoryRaise};
use pumice_api::names::MEMORY_RAISES;

use crate::job::plan::Effect;
use crate::job::remembered::TooLong;
use crate::job::remembered::index_counts::{self, Counted, IndexCounts};
use crate::range_encoding::RangeEncoding;

/// Member of the annotation that holds the entries.
const RAISES: &str = "raises";

/// Numbers of raises, by task and container, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::job) struct Raises(IndexCounts);

impl Raises {
    /// All that a job remembers.
    pub fn read(job: &Job) -> Self {
        let mut all = IndexCounts::default();
        for raises in [&job.status.memory_raises, &index_counts::annotated::<MemoryRaise>(job, MEMORY_RAISES, RAISES)] {
            for raise in raises.iter().take(index_counts::ENTRIES_MAX) {
                all.take_in(&raise.task, &raise.container, &raise.indices);
            }
        }
        Self(all)
    }

    /// How often a container of the pod at an index was raised.
    pub fn times(&self, task: &str, container: &str, index: i32) -> i64 {
        self.0.times(task, container, index)
    }

    /// The containers of a task that were ever raised.
    pub fn of_task(&self, task: &str) -> impl Iterator<Item = (&str, &RangeEncoding)> {
        self.0.of_task(task)
    }

    /// Adds raises of one container; numbers that are lower than those known change nothing.
    pub fn raise(&mut self, task: &str, container: &str, times: &BTreeMap<i32, i64>) {
        self.0.raise(task, container, &RangeEncoding::from(times));
    }

    /// Shortens what is too long.
    pub fn fit(self, job: &Job) -> Result<Self, TooLong> {
        self.0.fit(job).map(Self)
    }

    /// As the status shows them.
    pub fn write(&self) -> Vec<MemoryRaise> {
        let one = |one: Counted<'_>| MemoryRaise {
            task: one.task.to_owned(),
            container: one.container.to_owned(),
            indices: one.indices,
        };
        self.0.entries().map(one).collect()
    }

    /// Keeps them where the status doesn't.
    pub fn annotate(&self, job: &Job) -> Effect {
        index_counts::annotate(job, MEMORY_RAISES, RAISES, &self.write())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn raised(indices: impl Iterator<Item = i32>, times: i64) -> Raises {
        let mut raises = Raises::default();
        raises.raise("w", "c", &indices.map(|index| (index, times)).collect());
        raises
    }

    #[test]
    fn status_and_annotation_are_read_and_the_higher_number_counts() {
        let mut job: Job = serde_json::from_value(json!({"metadata": {"name": "j", "uid": "u"},
            "spec": {"tasks": [{"name": "w", "replicas": 9}]}}))
        .unwrap();
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
}
