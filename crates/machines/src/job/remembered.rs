//! What a job must remember of pods that are gone, as annotations of the Job: the same on our definitions and on Volcano's,
//! which drop status fields that they don't know.
//!
//! Invariant: an annotation counts only for the job of its uid, so one that was copied with a manifest means nothing; what it
//! says is written before what it is derived from goes. Read at each step, written by `sync` and `restart`.

pub(super) mod index_counts;

use std::collections::BTreeMap;

use pumice_api::batch::Job;
use serde_json::{Map, Value, json};

use crate::job::plan::Effect;
use crate::job_object;
use crate::range_encoding::{RangeEncoding, TEXT_MAX};

/// Most numbers that a text is read for: a short one can speak of very many pods.
const NUMBERS_MAX: u64 = 1_000_000;

/// Numbers by task and index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Remembered {
    tasks: BTreeMap<String, BTreeMap<i32, i64>>,
}

impl Remembered {
    /// Reads an annotation; one of another job or, if a version is given, of another version says nothing.
    pub fn read(job: &Job, key: &str, version: Option<i32>) -> Self {
        Self::parse(job, job_object::annotation(job, key), version).unwrap_or_default()
    }

    fn parse(job: &Job, text: Option<&str>, version: Option<i32>) -> Option<Self> {
        let text = text.filter(|text| text.len() <= TEXT_MAX)?;
        let value: Value = serde_json::from_str(text).ok()?;
        let ours = value["uid"] == job_object::uid(job) && version.is_none_or(|version| value["version"] == version);
        if !ours {
            return None;
        }
        let tasks = value["tasks"].as_object()?;
        let read = |(task, runs): (&String, &Value)| Some((task.clone(), RangeEncoding::read(runs.as_str()?)?));
        let tasks: Vec<(String, RangeEncoding)> = tasks.iter().filter_map(read).collect();
        let numbers: u64 = tasks.iter().map(|(_, runs)| runs.len()).sum();
        if numbers > NUMBERS_MAX {
            return None;
        }
        Some(Self { tasks: tasks.into_iter().map(|(task, runs)| (task, runs.iter().collect())).collect() })
    }

    /// The change that makes the annotation say this, if it doesn't yet; `Err` if that would be too long.
    pub fn change(&self, job: &Job, key: &'static str, version: Option<i32>) -> Result<Option<Effect>, TooLong> {
        let tasks = self.tasks.iter().filter(|(_, numbers)| !numbers.is_empty());
        let tasks: Map<String, Value> =
            tasks.map(|(task, numbers)| (task.clone(), RangeEncoding::from(numbers).write().into())).collect();
        let mut all = json!({"uid": job_object::uid(job), "tasks": tasks});
        if let Some(version) = version {
            all["version"] = version.into();
        }
        let wanted = if self.is_empty() { None } else { Some(all.to_string()) };
        if wanted.as_ref().is_some_and(|text| text.len() > TEXT_MAX) {
            return Err(TooLong);
        }
        let same = wanted.as_deref() == job_object::annotation(job, key);
        Ok((!same).then_some(Effect::Annotate { key, value: wanted }))
    }

    pub fn of_task(&self, task: &str) -> impl Iterator<Item = (i32, i64)> {
        self.tasks.get(task).into_iter().flatten().map(|(index, number)| (*index, *number))
    }

    pub fn get(&self, task: &str, index: i32) -> Option<i64> {
        self.tasks.get(task)?.get(&index).copied()
    }

    pub fn set(&mut self, task: &str, index: i32, number: i64) {
        self.tasks.entry(task.to_owned()).or_default().insert(index, number);
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.values().all(BTreeMap::is_empty)
    }
}

/// An annotation has no room for what it is to remember.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_refused_and_what_is_hostile_is_nothing() {
        let mut job = Job::default();
        job.metadata.uid = Some("u".to_owned());
        let scattered = |count: i32| {
            let mut memory = Remembered::default();
            (0..count).for_each(|index| memory.set("w", index * 2, 1));
            memory
        };
        assert_eq!(scattered(20_000).change(&job, "key", None), Err(TooLong));
        let Ok(Some(Effect::Annotate { value: Some(text), .. })) = scattered(5_000).change(&job, "key", None) else {
            panic!("there is room for these");
        };
        let mut read = |text: String| {
            job.metadata.annotations = Some([("key".to_owned(), text)].into());
            Remembered::read(&job, "key", None)
        };
        assert_eq!(read(text), scattered(5_000));
        let many: Map<String, Value> = (0..500).map(|task| (format!("t{task}"), "0-999999".into())).collect();
        assert!(read(json!({"uid": "u", "tasks": many}).to_string()).is_empty());
        assert!(read(json!({"uid": "another", "tasks": {"w": "1"}}).to_string()).is_empty());
        assert!(read("[]".to_owned()).is_empty());
    }
}
