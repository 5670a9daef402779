//! Why runs and jobs fail, and why runs make room.

use serde::{Deserialize, Serialize};

use crate::ids::JobId;

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerEnd {
    pub name: String,
    pub exit_code: i32,
    /// What it left behind.
    pub message: String,
    /// Kubernetes' word.
    pub reason: String,
}

/// What a failure comes down to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Cause {
    /// The program, or anything that has no word of its own.
    #[default]
    Error,
    /// The node put it out.
    Evicted,
    /// It took more memory than it may.
    Oom,
    /// It ran longer than it may.
    DeadlineExceeded,
    /// It can never run.
    Rejected,
}

/// The category of failures that are the fleet's own, and its subcategory of runs whose cluster was silent for too long.
pub(crate) const INTERNAL: &str = "internal";
pub(crate) const LEASE_EXPIRED: &str = "lease-expired";

/// Why a run or a job failed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Failure {
    /// For people.
    pub message: String,
    /// In one word.
    pub cause: Cause,
    /// Its category, such as `internal`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub category: String,
    /// Its subcategory, such as `max-runs-exceeded`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subcategory: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<ContainerEnd>,
}

impl Failure {
    /// Nothing was heard of the run's cluster for too long.
    pub fn is_of_silence(&self) -> bool {
        self.category == INTERNAL && self.subcategory == LEASE_EXPIRED
    }
}

/// Why a run had to make room.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Preemption {
    /// For people.
    pub reason: String,
    /// The job that gets the room, where one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beneficiary: Option<JobId>,
    /// Who asked, where a person did.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub requestor: String,
}
