//! The extension points of scheduling, one plugin per file.
//!
//! A plugin overrides the points it cares about; `policy` decides in which order plugins are asked and how their
//! answers combine. A plugin holds its arguments and nothing else: all state is in `Tables`.

use std::cmp::Ordering;
use std::fmt::Debug;

use crate::config::PluginConfig;
use crate::facts::PodTemplate;
use crate::ids::{GroupId, NodeId, TaskId};
use crate::reasons::{Check, Reason};
use crate::world::classes::ClassRow;
use crate::world::nodes::NodeRow;
use crate::world::tables::Tables;

pub(crate) mod gang;
pub(crate) mod nodeorder;
pub(crate) mod predicates;
pub(crate) mod priority;

/// What counts for a gang's minimum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counting {
    /// Only pods that have room.
    Placed,
    /// Pending pods that ask for nothing, too: they find room wherever a node takes one more pod.
    WithBestEffort,
}

/// A score that is scaled to 0..100 over the nodes that can take the pod.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Preference {
    pub(crate) weight: i64,
    /// More is worse.
    pub(crate) reverse: bool,
    /// The unscaled value; depends on the node's facts only.
    pub(crate) raw: fn(&PodTemplate, &NodeRow) -> i64,
}

/// One plugin.
pub(crate) trait Plugin: Debug + Send + Sync {
    /// A check that depends on the node's facts only; asked again when they change.
    fn check_facts(&self, _template: &PodTemplate, _node: &NodeRow) -> Option<Check> {
        None
    }

    /// A check that depends on what runs on the node.
    fn check_use(&self, _template: &PodTemplate, _node: &NodeRow) -> Option<Check> {
        None
    }

    /// The part of a node's score that depends on its use.
    fn score(&self, _tables: &Tables, _class: &ClassRow, _node: NodeId) -> i64 {
        0
    }

    /// Scores that are scaled over the candidates.
    fn preferences(&self) -> Vec<Preference> {
        Vec::new()
    }

    /// Which group goes first.
    fn job_order(&self, _tables: &Tables, _left: GroupId, _right: GroupId) -> Ordering {
        Ordering::Equal
    }

    /// Which task of a group goes first.
    fn task_order(&self, _tables: &Tables, _left: TaskId, _right: TaskId) -> Ordering {
        Ordering::Equal
    }

    /// May what is placed of the group start?
    fn job_ready(&self, _tables: &Tables, _group: GroupId, _counting: Counting) -> bool {
        true
    }

    /// Has the group pods enough to be tried at all?
    fn job_valid(&self, _tables: &Tables, _group: GroupId) -> Option<Reason> {
        None
    }
}

/// What this version knows of a plugin's name.
pub(crate) enum Known {
    /// It is here, with these arguments.
    Implemented(&'static [&'static str]),
    /// Volcano has it; this version does not yet.
    NotYet,
    /// Nobody has it.
    Unknown,
}

/// Volcano's plugins that a later version brings.
const NOT_YET: &[&str] = &[
    "drf",
    "deviceshare",
    "conformance",
    "binpack",
    "resource-strategy-fit",
    "tdm",
    "overcommit",
    "sla",
    "task-topology",
    "numa-aware",
    "cdp",
    "rescheduling",
    "usage",
    "pdb",
    "nodegroup",
    "network-topology-aware",
    "proportion",
    "capacity",
    "extender",
    "resourcequota",
];

pub(crate) fn known(name: &str) -> Known {
    match name {
        "gang" | "priority" => Known::Implemented(&[]),
        "predicates" => Known::Implemented(predicates::ARGUMENTS),
        "nodeorder" => Known::Implemented(nodeorder::ARGUMENTS),
        _ if NOT_YET.contains(&name) => Known::NotYet,
        _ => Known::Unknown,
    }
}

/// The plugin of that name, where this version has it.
pub(crate) fn build(config: &PluginConfig) -> Option<Box<dyn Plugin>> {
    match config.name.as_str() {
        "gang" => Some(Box::new(gang::Gang)),
        "priority" => Some(Box::new(priority::Priority)),
        "predicates" => Some(Box::new(predicates::Predicates::new(config))),
        "nodeorder" => Some(Box::new(nodeorder::NodeOrder::new(config))),
        _ => None,
    }
}
