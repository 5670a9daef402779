//! The scheduler's configuration, in Volcano's terms. A `Config` is valid by construction: `parse` refuses what
//! Volcano refuses. Read by `Policy` and by the cycle.

use std::collections::BTreeMap;

use pumice_units::GoDuration;
use thiserror::Error;

pub(crate) mod autoscaling;
mod decode;
pub(crate) mod fairness;
pub(crate) mod promise;
pub(crate) mod reservation;
mod switches;

pub(crate) use autoscaling::Autoscaling;
pub(crate) use decode::{Fault, Field};
pub(crate) use fairness::Fairness;
pub(crate) use reservation::Reserving;
pub use switches::{Switch, Switches};

/// What a scheduling cycle does, in order, and with which plugins.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The actions of a cycle, in order.
    pub actions: Vec<Action>,
    /// Plugins by tier.
    pub tiers: Vec<Vec<PluginConfig>>,
    /// Arguments of actions, by name.
    pub configurations: BTreeMap<String, BTreeMap<String, Argument>>,
    /// Where the use of machines is measured; the engine itself does not ask.
    pub metrics: Option<MetricsSource>,
    /// The queue of groups that name none.
    pub default_queue: String,
    /// Which nodes are this scheduler's, where it shares them with others. Set by the shell, not by the file.
    pub sharding: Option<Sharding>,
    /// Where there is neither a volume nor a storage class the nodes meet claims by themselves, as one machine does by
    /// folders. Off, a claim without a volume keeps its pods waiting. Set by the shell, not by the file.
    pub nodes_meet_claims: bool,
    /// Pods are told why they wait. Set by the shell, not by the file.
    pub tells_pods: bool,
    /// Who makes a pod leave makes its whole group leave. Off, a group may lose pods one by one, as in Volcano. Set by the
    /// shell, not by the file.
    pub gangs_leave_whole: bool,
    /// Of queues that stand alike the one goes first whose next group asks for most. Off, the older one does, as in Volcano. Set
    /// by the shell, not by the file.
    pub large_first: bool,
}

/// A kind of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsKind {
    /// Prometheus, by its query API.
    Prometheus,
    /// Kubernetes' custom metrics API before Prometheus.
    PrometheusAdaptor,
    /// Elasticsearch, as metricbeat fills it.
    Elasticsearch,
}

/// Where the use of machines is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsSource {
    pub kind: MetricsKind,
    pub address: String,
    /// How often it is asked.
    pub interval_ms: i64,
    /// Its certificate is not looked at.
    pub insecure: bool,
    /// Everything else of the section, such as `elasticsearch.index`.
    pub others: BTreeMap<String, String>,
}

/// How a scheduler keeps to its NodeShard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharding {
    /// It uses no other node; else its own ones first.
    pub hard: bool,
    pub name: String,
}

/// One plugin of a tier.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginConfig {
    pub name: String,
    /// Where it has a say.
    pub switches: Switches,
    pub arguments: BTreeMap<String, Argument>,
}

/// Arguments that a plugin can't work with.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("argument {argument} {wanted}")]
pub struct ArgumentError {
    pub argument: String,
    /// What it must be: `must be a duration such as 10m`.
    pub wanted: String,
}

/// An argument as the file has it. Volcano's getters are strict about types: a quoted number is no number.
#[derive(Debug, Clone, PartialEq)]
pub enum Argument {
    Null,
    Bool(bool),
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    Text(String),
    List(Vec<Argument>),
    Map(BTreeMap<String, Argument>),
}

impl Argument {
    /// A duration of zero or more as text, such as `10m`.
    pub(crate) fn as_millis(&self) -> Option<i64> {
        let Self::Text(text) = self else { return None };
        text.parse::<GoDuration>().ok().map(GoDuration::as_millis).filter(|time| *time >= 0)
    }
}

/// Longest time that an argument may name: a day.
const SECONDS_MAX: i64 = 86_400;

/// A step of the cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Admits groups: Pending to Inqueue.
    Enqueue,
    /// Places gangs, then what they have beyond their minimum.
    Allocate,
    /// Places pods that ask for nothing.
    Backfill,
    /// Makes room for starving groups at the cost of others of their queue.
    Preempt,
    /// Makes room for starving groups at the cost of other queues.
    Reclaim,
    /// Makes room for starving gangs at the cost of gangs of their queue.
    GangPreempt,
    /// Makes room for starving gangs at the cost of gangs of other queues.
    GangReclaim,
    /// Moves pods that plugins say are better off elsewhere.
    Shuffle,
}

impl Action {
    /// The action of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "enqueue" => Some(Self::Enqueue),
            "allocate" => Some(Self::Allocate),
            "backfill" => Some(Self::Backfill),
            "preempt" => Some(Self::Preempt),
            "reclaim" => Some(Self::Reclaim),
            "gangpreempt" => Some(Self::GangPreempt),
            "gangreclaim" => Some(Self::GangReclaim),
            "shuffle" => Some(Self::Shuffle),
            _ => None,
        }
    }
}

impl Default for Config {
    /// What is shipped: Volcano's plugins, with preempt and reclaim, shares that are soft, and namespaces that share
    /// their queue. The deciding tier for preempt is the first (priority, conformance), for reclaim the second
    /// (conformance, proportion).
    fn default() -> Self {
        let plugin = |name: &str, off: &[Switch]| {
            let mut switches = Switches::default();
            off.iter().for_each(|switch| switches.set(*switch, false));
            PluginConfig { name: name.to_owned(), switches, arguments: BTreeMap::new() }
        };
        let (preempt, reclaim) = (Switch::Preemptable, Switch::Reclaimable);
        Self {
            actions: vec![Action::Enqueue, Action::Allocate, Action::Preempt, Action::Reclaim, Action::Backfill],
            tiers: vec![
                vec![
                    plugin("priority", &[]),
                    plugin("deadline", &[]),
                    plugin("gang", &[preempt, reclaim, Switch::JobStarving]),
                    plugin("conformance", &[reclaim]),
                ],
                vec![
                    plugin("conformance", &[preempt]),
                    plugin("drf", &[preempt]),
                    plugin("predicates", &[]),
                    plugin("proportion", &[]),
                    plugin("nodeorder", &[]),
                ],
            ],
            configurations: [fairness::shipped()].into(),
            metrics: None,
            default_queue: "default".to_owned(),
            sharding: None,
            nodes_meet_claims: false,
            tells_pods: true,
            gangs_leave_whole: false,
            large_first: false,
        }
    }
}

impl Config {
    pub(crate) fn has(&self, action: Action) -> bool {
        self.actions.contains(&action)
    }

    /// An integer argument of an action; what is not a YAML integer is ignored, as in Volcano.
    pub(crate) fn action_int(&self, action: &str, name: &str, default: i64) -> i64 {
        match self.configurations.get(action).and_then(|arguments| arguments.get(name)) {
            Some(Argument::Int(value)) => *value,
            _ => default,
        }
    }

    /// A boolean argument of an action; the words true and false count too, as in Volcano.
    pub(crate) fn action_bool(&self, action: &str, name: &str, default: bool) -> bool {
        match self.configurations.get(action).and_then(|arguments| arguments.get(name)) {
            Some(Argument::Bool(value)) => *value,
            Some(Argument::Text(text)) => text.parse().unwrap_or(default),
            _ => default,
        }
    }

    /// Pods that may be on their way to one node before it is passed over; 0 means any number.
    pub(crate) fn max_binding_per_node(&self) -> u32 {
        u32::try_from(self.action_int("allocate", "maxBindingPerNode", 0)).unwrap_or(0)
    }

    /// How long a gang may stay partly placed before it is taken back.
    pub(crate) fn gang_commit_window_ms(&self) -> i64 {
        self.action_int("allocate", "gangCommitWindowSeconds", 30).clamp(0, SECONDS_MAX) * 1_000
    }

    /// How long freed room is kept for those it was freed for, after it should be free.
    pub(crate) fn nomination_ms(&self) -> i64 {
        self.action_int("fence", "expirySeconds", 60).clamp(0, SECONDS_MAX) * 1_000
    }

    /// How long a pod takes to leave, where that is not known.
    pub(crate) fn leaving_ms(&self) -> i64 {
        self.action_int("fence", "graceSeconds", 30).clamp(0, SECONDS_MAX) * 1_000
    }
}

impl PluginConfig {
    /// An integer argument; what is not a YAML integer is ignored, as in Volcano.
    pub fn int(&self, name: &str, default: i64) -> i64 {
        match self.arguments.get(name) {
            Some(Argument::Int(value)) => *value,
            _ => default,
        }
    }

    /// A number, with a fraction or without; what is neither is ignored, as in Volcano.
    pub fn float(&self, name: &str, default: f64) -> f64 {
        match self.arguments.get(name) {
            Some(Argument::Float(value)) => *value,
            Some(Argument::Int(value)) => *value as f64,
            _ => default,
        }
    }

    /// A boolean argument; the words true and false count too, as in Volcano.
    pub fn bool(&self, name: &str, default: bool) -> bool {
        match self.arguments.get(name) {
            Some(Argument::Bool(value)) => *value,
            Some(Argument::Text(text)) => text.parse().unwrap_or(default),
            _ => default,
        }
    }
}

/// Why a configuration is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// It is too long.
    #[error("scheduler configuration has {bytes} bytes, more than {bytes_max}: shorten it")]
    ReadLimit {
        /// Its length.
        bytes: usize,
        bytes_max: usize,
    },
    /// It is not YAML.
    #[error("scheduler configuration line {line}: {message}")]
    Syntax {
        line: u64,
        /// What the parser says.
        message: String,
    },
    /// A value has the wrong type.
    #[error("scheduler configuration line {line}: {what} must be {wanted}")]
    WrongType {
        line: u64,
        what: String,
        /// What it must be.
        wanted: &'static str,
    },
    /// The file says nothing, or names no actions.
    #[error(
        "scheduler configuration line {line}: it names no action: write what a cycle does, such as \
         actions: \"enqueue, allocate, backfill\""
    )]
    NoAction { line: u64 },
    /// An action does not exist.
    #[error(
        "scheduler configuration line {line}: no action is called {action:?}; use enqueue, allocate, backfill, \
         preempt, reclaim, gangpreempt, gangreclaim, shuffle"
    )]
    UnknownAction { line: u64, action: String },
    /// A plugin can't work with its arguments.
    #[error("scheduler configuration line {line}: plugin {plugin}: {error}")]
    BadArgument { line: u64, plugin: String, error: ArgumentError },
    /// drf's hierarchy and proportion exclude each other.
    #[error(
        "scheduler configuration line {line}: drf with enableHierarchy can't share a tier with proportion; remove one"
    )]
    HierarchyWithProportion { line: u64 },
}

impl ConfigError {
    /// The line at fault, where there is one.
    pub fn line(&self) -> Option<u64> {
        match self {
            Self::ReadLimit { .. } => None,
            Self::Syntax { line, .. }
            | Self::WrongType { line, .. }
            | Self::NoAction { line }
            | Self::UnknownAction { line, .. }
            | Self::BadArgument { line, .. }
            | Self::HierarchyWithProportion { line } => Some(*line),
        }
    }
}

/// Something in a configuration that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub line: u64,
    pub kind: WarningKind,
}

/// What has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WarningKind {
    /// A key that nothing reads.
    UnknownKey { key: String },
    /// A plugin that Volcano does not have either.
    UnknownPlugin { plugin: String },
    /// An argument that the plugin does not read.
    UnknownArgument { plugin: String, argument: String },
    /// A value of a type that is not read: the default holds.
    IgnoredValue {
        what: String,
        /// What it must be.
        wanted: &'static str,
    },
    /// Something of Volcano's that this version does not have.
    NotInThisVersion { what: String },
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.kind {
            WarningKind::UnknownKey { key } => write!(f, "nothing reads the key {key}"),
            WarningKind::UnknownPlugin { plugin } => write!(f, "no plugin is called {plugin}"),
            WarningKind::UnknownArgument { plugin, argument } => {
                write!(f, "plugin {plugin} has no argument {argument}")
            }
            WarningKind::IgnoredValue { what, wanted } => write!(f, "{what} is ignored: it must be {wanted}"),
            WarningKind::NotInThisVersion { what } => write!(f, "{what} is not in this version and has no effect"),
        }
    }
}

crate::save::saved! { Sharding { hard, name } }
