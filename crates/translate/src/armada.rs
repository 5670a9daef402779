//! The specifications of Armada's simulator, clusters and workloads in YAML: which fields there are, and what stands in them.
//!
//! Invariant: a field that nobody knows, or a value that is none of its kind, is refused with its line. What they mean is for
//! the simulators of the scheduler and of the fleet to say.

use std::collections::BTreeMap;
use std::fmt;

use pumice_units::{GoDuration, Quantity};
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// Largest text of a specification.
pub const SPEC_BYTES_MAX: usize = 16 << 20;
/// Longest time that a specification may name: ten years.
const SPAN_MAX_MS: i64 = 10 * 365 * 24 * 3_600_000;
/// Longest name of anything.
const NAME_MAX: usize = 253;
/// Amounts are below: many of them can be added.
const AMOUNT_LIMIT: Quantity = Quantity::from_units(1 << 50);

/// Why a text is no specification that can be run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    /// It is too long.
    #[error("it has {bytes} bytes: have at most {max}", max = SPEC_BYTES_MAX)]
    TooLong {
        /// How many it has.
        bytes: usize,
    },
    /// It is no YAML, or its fields are others.
    #[error("{0}")]
    Syntax(String),
    /// A field says what can't be run.
    #[error("{path}: {problem}")]
    Field { path: String, problem: String },
}

/// What a field says can't be run.
pub fn wrong(place: impl Into<String>, problem: impl Into<String>) -> SpecError {
    SpecError::Field { path: place.into(), problem: problem.into() }
}

/// Reads a specification.
///
/// # Errors
/// Where it is too long, no YAML, or has other fields.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, SpecError> {
    if text.len() > SPEC_BYTES_MAX {
        return Err(SpecError::TooLong { bytes: text.len() });
    }
    yaml(text).map_err(SpecError::Syntax)
}

/// What a text says.
///
/// # Errors
/// In one line why it can't be read, and where.
pub fn yaml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str(text).map_err(|error| {
        let said = error.without_snippet().to_string();
        said.lines().next().unwrap_or_default().to_owned()
    })
}

/// A name that the engine and people can tell apart from others.
///
/// # Errors
/// Where it is none.
pub fn name(place: String, name: &str) -> Result<(), SpecError> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(wrong(place, format!("a name has 1 to {NAME_MAX} letters")));
    }
    match name.chars().find(|letter| *letter == '/' || letter.is_control()) {
        Some(letter) => Err(wrong(place, format!("there may be no {letter:?} in a name"))),
        None => Ok(()),
    }
}

/// A length of time: `1h30m`, or seconds and nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    /// Milliseconds.
    pub ms: i64,
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SpanVisitor;

        impl SpanVisitor {
            fn span<E: de::Error>(nanos: i128) -> Result<Span, E> {
                let ms = i64::try_from(nanos / 1_000_000).ok().filter(|ms| (0..=SPAN_MAX_MS).contains(ms));
                ms.map(|ms| Span { ms }).ok_or_else(|| E::custom("a time lies between 0 and ten years"))
            }
        }

        impl<'de> Visitor<'de> for SpanVisitor {
            type Value = Span;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a time such as 1h30m")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                let span: GoDuration = text.parse().map_err(E::custom)?;
                Self::span(span.as_nanos().into())
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Span, A::Error> {
                let Parts { seconds, nanos } = Parts::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Self::span(i128::from(seconds) * 1_000_000_000 + i128::from(nanos))
            }
        }

        deserializer.deserialize_any(SpanVisitor)
    }
}

/// A time as protobuf has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    #[serde(default)]
    seconds: i64,
    #[serde(default)]
    nanos: i64,
}

/// An amount that can be added to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount(pub Quantity);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let amount = Quantity::deserialize(deserializer)?;
        if amount.is_negative() || amount >= AMOUNT_LIMIT {
            return Err(de::Error::custom(format!("an amount lies between 0 and {AMOUNT_LIMIT}")));
        }
        Ok(Self(amount))
    }
}

/// Amounts by the name of their resource, such as `cpu` or `nvidia.com/gpu`.
pub type Amounts = BTreeMap<String, Amount>;

/// A time that is at least so long, and longer by an exponential one of that mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ShiftedExponential {
    /// The least.
    pub minimum: Span,
    /// The mean of what is beyond.
    pub tail_mean: Span,
}

/// A specification of clusters.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterSpec {
    /// What it is called; empty for the name of its file.
    #[serde(default)]
    pub name: String,
    pub clusters: Vec<ClusterFields>,
    /// How long whoever submits takes to submit again.
    pub workflow_manager_delay_distribution: Option<ShiftedExponential>,
    /// From the lease until the pod runs.
    pub pending_delay_distribution: Option<ShiftedExponential>,
}

/// A cluster of a simulation, as Armada's file of clusters describes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterFields {
    pub name: String,
    /// The pool of its nodes; empty for the default.
    #[serde(default)]
    pub pool: String,
    #[serde(default)]
    pub node_templates: Vec<NodeTemplateFields>,
}

/// Nodes that are alike.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeTemplateFields {
    pub number: u32,
    #[serde(default)]
    pub taints: Vec<TaintFields>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    pub total_resources: ResourceList,
}

/// What a node offers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceList {
    /// By name.
    #[serde(default)]
    pub resources: Amounts,
}

/// A taint on all nodes of a template.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaintFields {
    pub key: String,
    #[serde(default)]
    pub value: String,
    pub effect: Effect,
}

/// What a taint does.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub enum Effect {
    /// Nothing new starts there.
    NoSchedule,
    /// Better nothing new starts there.
    PreferNoSchedule,
    /// What is there leaves.
    NoExecute,
}

impl Effect {
    /// Its name in Kubernetes.
    pub fn word(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// A specification of a workload.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadSpec {
    /// What it is called; empty for the name of its file.
    #[serde(default)]
    pub name: String,
    /// What run times are drawn by; 0 for any.
    #[serde(default)]
    pub random_seed: u64,
    pub queues: Vec<QueueFields>,
}

/// A queue of a simulation and what is submitted to it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueFields {
    pub name: String,
    /// Its share is in proportion to this.
    pub weight: f64,
    /// What is submitted to it.
    #[serde(default)]
    pub job_templates: Vec<JobTemplateFields>,
}

/// Jobs that are alike.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobTemplateFields {
    pub number: u32,
    /// What others depend on it by; empty for one that is made.
    #[serde(default)]
    pub id: String,
    #[serde(default)]
    pub job_set: String,
    /// Lower goes first.
    #[serde(default)]
    pub queue_priority: u32,
    /// Empty for the default.
    #[serde(default)]
    pub priority_class_name: String,
    /// What each job asks for.
    #[serde(default)]
    pub requirements: Requirements,
    /// Templates all of whose jobs have to succeed before.
    #[serde(default)]
    pub dependencies: Vec<String>,
    /// Not submitted before this, counted from the start.
    #[serde(default)]
    pub earliest_submit_time: Span,
    /// Nor before this, counted from the end of the last that is waited for.
    #[serde(default)]
    pub earliest_submit_time_from_dependency_completion: Span,
    /// How long a job runs.
    #[serde(default)]
    pub runtime_distribution: ShiftedExponential,
    /// How many are in a gang; 0 and 1 for no gangs.
    #[serde(default)]
    pub gang_cardinality: u32,
    /// The label that the nodes of a gang share; empty for none that is named.
    #[serde(default)]
    pub gang_node_uniformity_label: String,
    /// How often it is submitted.
    pub repeat: Option<Repeat>,
}

/// A template that is submitted more than once.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Repeat {
    pub num_times: u32,
    /// How long after each other.
    pub period: Span,
}

/// What a job asks for.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Requirements {
    /// Labels of its nodes.
    pub node_selector: BTreeMap<String, String>,
    /// Kubernetes' own, which is checked when it is known where it stands.
    pub affinity: Option<Value>,
    /// Taints that it bears.
    pub tolerations: Vec<TolerationFields>,
    pub annotations: BTreeMap<String, String>,
    /// Whether it may take room from others.
    pub preemption_policy: Option<String>,
    pub resource_requirements: ResourceRequirements,
}

/// A toleration of the pods of a job, as Kubernetes writes it.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TolerationFields {
    /// Its key; none for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How values are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<Match>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The effect; none for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// How a toleration compares.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub enum Match {
    /// Any value will do.
    Exists,
    Equal,
}

/// What a job takes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResourceRequirements {
    /// What it asks for.
    pub requests: Amounts,
    /// They bound what a container takes, and nothing of where it runs.
    #[serde(rename = "limits")]
    pub _limits: Amounts,
}

/// The first field of `given` that is not in `kept`, which was read from it.
pub fn lost(given: &Value, kept: &Value) -> Option<String> {
    match (given, kept) {
        (Value::Object(given), kept) => given.iter().filter(|(_, value)| !value.is_null()).find_map(|(name, value)| {
            let Some(kept) = kept.get(name) else { return Some(format!(".{name}")) };
            lost(value, kept).map(|rest| format!(".{name}{rest}"))
        }),
        (Value::Array(given), Value::Array(kept)) => given
            .iter()
            .zip(kept)
            .enumerate()
            .find_map(|(index, (given, kept))| lost(given, kept).map(|rest| format!("[{index}]{rest}"))),
        _ => None,
    }
}
