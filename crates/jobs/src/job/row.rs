//! What a list needs of a job.
//!
//! Invariant: it is read straight from the answer, without the pod templates: 100,000 jobs fit in little memory. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pumice_api::batch::{JobPhase, JobStatus};
use pumice_api::names::{DEFAULT_QUEUE, USER};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::job::{Counts, JobRef, state};

/// A job without its pod templates.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct JobRow {
    /// Which one it is.
    pub metadata: JobRowMetadata,
    /// What it asks for.
    pub spec: JobRowSpec,
    pub status: JobStatus,
    /// The whole object, where that was asked for.
    #[serde(skip)]
    pub whole: Option<Value>,
}

/// The part of a job's metadata that tells it from others.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct JobRowMetadata {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    /// Who submitted it; empty where nobody wrote that down.
    #[serde(rename = "annotations", deserialize_with = "user_in")]
    pub user: String,
    /// When it was made.
    pub creation_timestamp: Option<Time>,
}

/// The part of a job's spec that a list shows.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct JobRowSpec {
    /// Its queue; may be empty.
    pub queue: String,
    /// Its priority class; may be empty.
    pub priority_class_name: String,
    /// Pods that must be able to run together.
    pub min_available: i32,
    pub tasks: Vec<JobRowTask>,
}

/// The size of a task.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct JobRowTask {
    pub replicas: i32,
}

/// Annotations can be long; of them a list needs this one.
fn user_in<'de, D: Deserializer<'de>>(annotations: D) -> Result<String, D::Error> {
    let annotations = Option::<BTreeMap<String, String>>::deserialize(annotations)?;
    Ok(annotations.and_then(|mut all| all.remove(USER)).unwrap_or_default())
}

impl JobRow {
    /// The namespace and the name of the job, to ask for more of it.
    pub fn reference(&self) -> JobRef {
        JobRef { namespace: self.metadata.namespace.clone(), name: self.metadata.name.clone() }
    }

    /// Its phase, `None` before a controller has seen it.
    pub fn phase(&self) -> Option<&JobPhase> {
        self.status.state.phase.as_ref()
    }

    /// The word for its state.
    pub fn state(&self) -> &str {
        state::word(self.phase())
    }

    /// The queue of the job; `default` where its spec names none.
    pub fn queue(&self) -> &str {
        if self.spec.queue.is_empty() { DEFAULT_QUEUE } else { &self.spec.queue }
    }

    /// How many pods the job asks for, and how many are in which state.
    pub fn counts(&self) -> Counts {
        Counts::new(self.spec.tasks.iter().map(|task| task.replicas), &self.status)
    }

    /// Seconds since it was made.
    pub fn age_s(&self, now: Timestamp) -> Option<i64> {
        let made = self.metadata.creation_timestamp.as_ref()?;
        Some(now.as_second() - made.0.as_second())
    }

    /// Seconds that it has run, from when it was first running to its end; `None` if it never ran.
    pub fn runtime_s(&self, now: Timestamp) -> Option<i64> {
        let entered = |phase: &JobPhase| {
            let conditions = &self.status.conditions;
            let found = conditions.iter().find(|condition| condition.status == *phase)?;
            found.last_transition_time.as_ref().map(|time| time.0.as_second())
        };
        let began = entered(&JobPhase::Running)?;
        let rests = |phase: &&JobPhase| phase.is_finished() || **phase == JobPhase::Aborted;
        let until = self.phase().filter(rests).and_then(entered).unwrap_or_else(|| now.as_second());
        Some((until - began).max(0))
    }

    /// What decides which of two jobs is newer: the time, and within a second the uid, which our server makes in the order
    /// of time.
    pub fn birth(&self) -> (i64, &str) {
        let made = self.metadata.creation_timestamp.as_ref();
        (made.map_or(i64::MIN, |time| time.0.as_second()), &self.metadata.uid)
    }
}
