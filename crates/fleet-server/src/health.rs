//! How a fleet does, as one of its servers sees it: what `pumice fleet doctor` asks for.
//!
//! Invariant: plain facts without a judgement, which [`crate::doctor`] makes of them; an older doctor reads a newer server's
//! and the other way round.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::database::DatabaseHealth;

/// The path under which it is told.
pub const PATH: &str = "/pumice/fleet/standing";

/// How a fleet does.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FleetHealth {
    pub release: String,
    /// The version of the protocol that it speaks with executors.
    pub format: u32,
    /// The server's clock, milliseconds since 1970.
    pub now_ms: i64,
    pub who: Asker,
    /// Since when this server leads; none where it does not.
    pub leads_since_ms: Option<i64>,
    /// The database, or what is wrong with it.
    pub database: DatabaseHealth,
    /// Why the database does not answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub database_error: String,
    /// Priority classes that jobs may have.
    pub priority_classes: BTreeSet<String>,
    /// What only the leader knows.
    pub leader: Option<Known>,
}

/// Who asks, as the server knows them: a doctor tells people so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Asker {
    pub name: String,
    pub groups: BTreeSet<String>,
    /// What the groups may do everywhere.
    pub permissions: BTreeSet<String>,
}

/// What only the leader knows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Known {
    /// Clusters of which there was ever an executor while this server led, or with runs.
    pub executors: Vec<ExecutorHealth>,
    /// Queues with jobs that wait and that nobody has made, with how many do.
    pub undefined: BTreeMap<String, usize>,
    /// Queues without any owner.
    pub ownerless: BTreeSet<String>,
    /// Queues with jobs that wait and that are cordoned, with how many do.
    pub cordoned: BTreeMap<String, usize>,
    /// Nodes that take new pods, by pool; a pool with runs and without nodes is among them.
    pub pools: BTreeMap<String, usize>,
    pub waiting: usize,
    /// Runs that were leased long ago and have no pod.
    pub stuck: Vec<Stuck>,
    /// After how many milliseconds runs of a silent cluster have failed; 0 = never.
    pub silent_max_ms: i64,
}

/// How the executor of a cluster is, as the leader knows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecutorHealth {
    pub name: String,
    /// It has a session.
    pub connected: bool,
    /// How long nothing was heard of it, milliseconds.
    pub silent_ms: i64,
    /// Its release, as far as it says.
    pub release: String,
    /// How far its clock is ahead of the server's, milliseconds, as far as it says.
    pub ahead_ms: Option<i64>,
    pub nodes: usize,
    /// Those that take new pods.
    pub open: usize,
}

/// Runs of a queue in a cluster that were leased long ago and still have no pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stuck {
    pub cluster: String,
    pub queue: String,
    pub runs: usize,
}
