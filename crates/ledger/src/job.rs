//! A job and its runs, as the ledger keeps them in memory: where they stand, and whether a run is away from home. Only jobs
//! that have not ended are kept.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::failure::Preemption;
use crate::ids::{Digest, NodeRef, PodRef, TimeMs};
use crate::interned::{GangIx, QueueIx, SetIx, ShapeIx};
use crate::memory::Grown;
use crate::volcano_job::NodePods;

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// It waits for a node.
    Queued,
    /// Its last run has to leave its node before it waits again.
    Leaving,
    /// A node is found for it.
    Leased,
    /// Its pod is made.
    Pending,
    Running,
}

impl Phase {
    /// It has a run that counts.
    pub fn has_run(self) -> bool {
        matches!(self, Phase::Leased | Phase::Pending | Phase::Running)
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RunPhase {
    /// Its cluster is to make the pod.
    Leased,
    /// The pod is made.
    Pending,
    Running,
    /// It does not count any more and has to leave its node.
    Stopping,
}

/// What somebody asked for, until it is done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PendingRequests {
    /// Who wants it to end, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<(String, String)>,
    /// Who wants it to make room, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempt: Option<(String, String)>,
}

impl PendingRequests {
    /// Something is to be decided of it.
    pub(crate) fn is_open(&self) -> bool {
        self.cancel.is_some() || self.preempt.is_some()
    }
}

/// A job that has not ended.
#[derive(Debug, Clone)]
pub struct Job {
    pub(crate) queue: QueueIx,
    pub(crate) set: SetIx,
    pub(crate) shape: ShapeIx,
    pub(crate) gang: Option<GangIx>,
    pub spec: Digest,
    /// Its place in the queue: lower first.
    pub priority: u32,
    /// When it was submitted.
    pub submitted: TimeMs,
    pub phase: Phase,
    /// A returned lease is not tried again.
    pub fail_fast: bool,
    /// Runs there were, the present one among them.
    pub attempts: u32,
    /// Returned runs that were tried.
    pub returned: u32,
    /// Failed runs that were tried again.
    pub failed: u32,
    /// What is asked of it.
    pub requests: Option<Box<PendingRequests>>,
    /// Nodes on which it was tried.
    pub avoid: Vec<NodeRef>,
    /// By how much memory it has grown since it was submitted.
    pub grown: Option<Box<Grown>>,
}

/// A run that holds room on a node.
#[derive(Debug, Clone)]
pub struct Run {
    pub(crate) queue: QueueIx,
    pub(crate) set: SetIx,
    pub(crate) shape: ShapeIx,
    /// Where. Of a Volcano job it names no node.
    pub at: NodeRef,
    /// Where a Volcano job's pods have room.
    pub places: Vec<NodePods>,
    /// The pool that the node is counted in.
    pub pool: String,
    /// How it is away from home, where it is.
    pub away: Option<Box<Away>>,
    /// How far it is.
    pub phase: RunPhase,
    /// Since when it is leased.
    pub leased: TimeMs,
    /// Since when it runs.
    pub running: Option<TimeMs>,
    pub pod: PodRef,
    /// Why it has to make room, where it has to.
    pub preempted: Option<Preemption>,
}

impl Run {
    /// Whether it holds room on that node of its cluster.
    pub fn is_on(&self, node: &str) -> bool {
        if self.places.is_empty() { self.at.node == node } else { self.places.iter().any(|place| place.node == node) }
    }
}

/// How a run is away from home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Away {
    /// Which of its class's ways it is, as the configuration had them.
    pub way: u32,
    /// The kinds of nodes that it may be on, as the configuration names them.
    pub node_types: Vec<String>,
    /// What its priority class's value is there.
    pub priority: i32,
    /// What its pod tolerates besides.
    pub tolerations: Vec<AwayToleration>,
}

/// A taint of nodes that are kept for others, as it is tolerated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwayToleration {
    pub key: String,
    /// Its value; none for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What it does, in Kubernetes' word; none for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

/// A run that ran and has ended, other than to make room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub queue: String,
    /// The pool in which it ran.
    pub pool: String,
    pub requests: BTreeMap<String, i64>,
    /// When it began to run.
    pub started: TimeMs,
    pub at: TimeMs,
}
