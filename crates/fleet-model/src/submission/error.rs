//! Why a submission is refused: where, what is wrong, what to do.

use std::fmt;

use pumice_objects::protobuf::ProtobufError;
use pumice_objects::selector::SelectorError;
use pumice_units::Quantity;
use thiserror::Error;

use crate::grants::NotGranted;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SubmitError {
    #[error("queue: it is missing: name the queue that the jobs are for")]
    Queue,
    #[error("jobSetId: it is missing: name the set that the jobs belong to")]
    JobSet,
    /// The job set's name is too long.
    #[error("jobSetId: it has {length} characters: have fewer than {limit}")]
    JobSetLength {
        /// Of the name, in characters.
        length: usize,
        /// It has to be below.
        limit: usize,
    },
    /// A job is wrong.
    #[error("jobRequestItems[{index}].{cause}")]
    Item {
        /// Its place in the request, from zero.
        index: usize,
        cause: ItemError,
    },
}

/// A container of a pod spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPath {
    /// `containers` or `initContainers`.
    pub list: &'static str,
    /// Its place in the list, from zero.
    pub index: usize,
}

impl fmt::Display for ContainerPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "podSpec.{}[{}]", self.list, self.index)
    }
}

/// An amount of a resource in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amount {
    pub at: ContainerPath,
    /// `requests` or `limits`.
    pub of: &'static str,
    pub resource: String,
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.resources.{}[{}]", self.at, self.of, self.resource)
    }
}

/// An amount that is on the wrong side of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    pub amount: Amount,
    /// How much it is.
    pub is: Quantity,
    /// What it is compared with.
    pub bound: Quantity,
}

/// Why a job is refused.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ItemError {
    #[error("annotations[armadaproject.io/gangId]: it is empty: give the gang a name, or leave the annotation out")]
    GangId,
    #[error(
        "annotations[armadaproject.io/gangId]: {id:?} can't be a label, as this server makes it one: use at most 63 letters, digits, \"-\", \"_\" and \".\""
    )]
    GangIdLabel { id: String },
    #[error("annotations[armadaproject.io/gangCardinality]: it is missing: say how many jobs gang {id:?} has")]
    GangCardinalityMissing { id: String },
    #[error(
        "annotations[armadaproject.io/gangCardinality]: {text:?} is no number above zero: say how many jobs the gang has"
    )]
    GangCardinality { text: String },
    #[error("annotations[armadaproject.io/failFast]: {text:?} on a gang: set it to \"true\", or leave it out")]
    GangFailFast { text: String },
    #[error(
        "{field}: {here:?}, but {first:?} in jobRequestItems[{first_index}] of the same gang {id:?}: jobs of a gang have the same"
    )]
    GangDiffers { field: &'static str, id: String, here: String, first: String, first_index: usize },
    #[error("namespace: it is missing: name the namespace that the pod is made in")]
    Namespace,
    #[error("{0}")]
    NotGranted(#[from] NotGranted),
    #[error("priority: it is not a number")]
    Priority,
    #[error("annotations[pumice.sh/volcano-job]: {0}")]
    VolcanoJob(#[source] super::JobError),
    #[error("podSpec: it is missing: give one pod spec")]
    PodSpecMissing,
    #[error("podSpecs: there are {count} pod specs, with that in podSpec: a job has one, so submit more jobs")]
    PodSpecs { count: usize },
    #[error("podSpec: it is nested deeper than {max} levels, which no pod spec is")]
    PodSpecTooDeep { max: usize },
    #[error("podSpec: it has more than {max} bytes: move files into images or volumes")]
    PodSpecTooLarge { max: usize },
    #[error("podSpec: {source}")]
    PodSpec { source: ProtobufError },
    #[error("podSpec.containers: there is none: a pod has at least one")]
    Containers,
    #[error(
        "podSpec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution: preferences are not read: require it, or leave it out"
    )]
    PreferredAffinity,
    #[error(
        "podSpec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: there is none, so no node would do: give one, or leave it out"
    )]
    AffinityTerms,
    #[error(
        "podSpec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{term}].matchExpressions[{expression}]: {source}"
    )]
    AffinityExpression { term: usize, expression: usize, source: SelectorError },
    #[error(
        "podSpec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{term}].matchFields[{field}]: give key metadata.name, operator In or NotIn and one value"
    )]
    AffinityField { term: usize, field: usize },
    #[error("{at}.resources: it names none: set requests and limits")]
    NoResources { at: ContainerPath },
    #[error("{missing}: it is missing, and the other of requests and limits is there: set both")]
    ResourcesDiffer { missing: Amount },
    #[error("{amount}: {text} is not an amount between 0 and {}: write it as 500m, 2 or 4Gi", i64::MAX)]
    Amount { amount: Amount, text: String },
    #[error("{field}[{resource}]: {text} is not an amount between 0 and {}: write it as 500m, 2 or 4Gi", i64::MAX)]
    PodAmount { field: &'static str, resource: String, text: String },
    #[error("{}: {} is below the request of {}: raise it", .0.amount, .0.is, .0.bound)]
    LimitBelowRequest(Box<Misfit>),
    #[error("{}: {} is more than {ratio} times the request of {}: lower it, or request more", .misfit.amount, .misfit.is, .misfit.bound)]
    LimitAboveRequest { misfit: Box<Misfit>, ratio: f64 },
    #[error("{}: {} is below the least, {}: request more", .0.amount, .0.is, .0.bound)]
    BelowMinimum(Box<Misfit>),
    #[error(
        "{request}: {is} are whole cores, which some nodes would not get back from an init container: ask for {is} less 1m"
    )]
    WholeCores { request: Box<Amount>, is: Quantity },
    #[error("podSpec.priorityClassName: {name:?} is not to be had: use {}, or leave it out", .allowed.join(", "))]
    PriorityClass { name: String, allowed: Vec<String> },
    #[error(
        "podSpec.terminationGracePeriodSeconds: {seconds} is not between {min} and {max}: choose another, or leave it out"
    )]
    GracePeriod { seconds: i64, min: i64, max: i64 },
    #[error("ingress[{index}].ports: there is none: name a container's port")]
    IngressPorts { index: usize },
    #[error("ingress[{index}].ports: {port} is in ingress[{first}], too: have it in one")]
    IngressPortTwice { index: usize, port: u32, first: usize },
    #[error("{at}.ports: {port} is a port of {first}, too: containers of a pod share an address, so choose another")]
    PortTwice { at: ContainerPath, port: u64, first: ContainerPath },
    #[error("clientId: it has {length} characters: have at most {max}")]
    ClientId { length: usize, max: usize },
    #[error("podSpec.tolerations[{index}]: {key:?} may not be tolerated here: leave it out")]
    Toleration { index: usize, key: String },
    #[error(
        "podSpec.tolerations[{index}]: it has no key, so it would tolerate {key:?}, which is not allowed: name a key"
    )]
    TolerationOfAll { index: usize, key: String },
    #[error("annotations[armadaproject.io/priceBand]: {text:?} is no band: use a letter from A to H, or leave it out")]
    PriceBand { text: String },
    #[error("annotations[pumice.sh/retries]: {text:?} is no number from 0 to {most}")]
    Retries { text: String, most: i32 },
    #[error("annotations[pumice.sh/on-oom]: {source}")]
    OnOom { source: pumice_machines::job::ScaleUpError },
    #[error("services[{index}].name: {name:?}: {source}")]
    ServiceName { index: usize, name: String, source: pumice_objects::names::NameError },
    #[error("services[{index}].name: {name:?} is the name of services[{first}], too: choose another")]
    ServiceNameTwice { index: usize, name: String, first: usize },
    #[error("requiredNodeLabels[{key}]: {value:?}, but {other:?} in podSpec.nodeSelector: say it once")]
    NodeLabel { key: String, value: String, other: String },
}
