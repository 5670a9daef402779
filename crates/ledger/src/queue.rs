//! Queues as people define them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::counters::{Counter, UsageKey};

/// Smallest priority factor of a queue: a queue that is not set has it, and 0 is refused.
pub const PRIORITY_FACTOR_MIN: f64 = 1.0;

/// What people said of a queue: its weight, who may use it, and its limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Queue {
    pub name: String,
    /// What its share is divided by: 1 or more, and larger means a smaller share.
    pub priority_factor: f64,
    /// Users who may do everything with it.
    pub user_owners: Vec<String>,
    /// Groups who may do everything with it.
    pub group_owners: Vec<String>,
    /// Who may do what.
    pub permissions: Vec<Permission>,
    /// What its jobs of a priority class may take at most.
    pub limits: BTreeMap<String, ClassLimit>,
    /// None of its jobs are started.
    pub cordoned: bool,
    pub labels: BTreeMap<String, String>,
    /// Names of retry policies, of which the first counts.
    pub retry_policies: Vec<String>,
    /// Runs on a cluster of which nothing was heard for so long are started elsewhere, though they may still run: at least
    /// once instead of at most once. 0 = never.
    pub rerun_after_ms: i64,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            name: String::new(),
            priority_factor: PRIORITY_FACTOR_MIN,
            user_owners: Vec::new(),
            group_owners: Vec::new(),
            permissions: Vec::new(),
            limits: BTreeMap::new(),
            cordoned: false,
            labels: BTreeMap::new(),
            retry_policies: Vec::new(),
            rerun_after_ms: 0,
        }
    }
}

/// What some may do with a queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Permission {
    pub subjects: Vec<Subject>,
    pub verbs: Vec<Verb>,
}

/// Who is meant by a permission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Whether a user or a group.
    pub kind: SubjectKind,
    pub name: String,
}

/// What a subject's name names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubjectKind {
    User,
    Group,
}

/// What may be done with a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    Submit,
    Cancel,
    Preempt,
    Reprioritize,
    Watch,
}

/// What jobs of one priority class may take of a pool, as a fraction of all there is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassLimit {
    /// In every pool, by resource.
    pub fraction: BTreeMap<String, f64>,
    /// In a pool, by resource; goes before the other.
    pub by_pool: BTreeMap<String, BTreeMap<String, f64>>,
}

/// A queue and how many jobs it has.
#[derive(Debug, Clone, Copy)]
pub struct QueueView<'l> {
    /// Its definition; jobs of a queue without one wait, and say so.
    pub definition: Option<&'l Queue>,
    pub name: &'l str,
    pub waiting: usize,
    /// Another one whenever a job comes to wait, ends to or has another place: while it is the same, so are those that
    /// wait and their order.
    pub version: u64,
    /// Jobs that have not ended.
    pub active: usize,
    /// Kinds of jobs that wait: those of one shape can't be told apart.
    pub shapes: usize,
    /// Jobs that wait, by priority class, since they were submitted.
    pub queued: &'l BTreeMap<String, Counter>,
    /// Runs that hold room, since they were leased.
    pub usage: &'l BTreeMap<UsageKey, Counter>,
}
