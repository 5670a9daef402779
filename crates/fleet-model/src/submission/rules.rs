//! The limits and defaults of submissions, as an operator may set them; by default they are Armada's.

use std::collections::{BTreeMap, BTreeSet};

use pumice_units::{GoDuration, Quantity};
use serde::{Deserialize, Serialize};

use super::VolcanoJobs;
use crate::grants::Grants;

/// Limits and defaults. Names are those of Armada's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Rules {
    /// Job sets have shorter names, in characters.
    pub job_set_id_length_limit: usize,
    /// Most characters of a client id.
    pub client_id_length_max: usize,
    /// Most bytes of a pod spec in protobuf.
    pub max_pod_spec_size_bytes: usize,
    /// By how much a limit may be above its request; 1 where a resource is absent.
    pub max_oversubscription_by_resource_request: BTreeMap<String, f64>,
    /// Least amounts that a container may request.
    pub min_job_resources: BTreeMap<String, Quantity>,
    /// Whether init containers must not ask for whole cores, which the kubelet's static policy would never give back.
    pub assert_init_containers_request_fractional_cpu: bool,
    /// Priority classes that a job may have: a list, or as Armada has it.
    #[serde(deserialize_with = "armadas::names")]
    pub allowed_priority_class_names: BTreeSet<String>,
    /// The priority class of jobs that name none.
    pub default_priority_class_name: String,
    /// Shortest grace period at the end, and that of jobs that name none.
    pub min_termination_grace_period: GoDuration,
    /// Longest grace period at the end.
    pub max_termination_grace_period: GoDuration,
    /// Keys of taints that no job may tolerate.
    pub restricted_toleration_keys: BTreeSet<String>,
    /// How long jobs run that do not say it.
    pub default_active_deadline: GoDuration,
    /// How long jobs run that do not say it and request such a resource.
    pub default_active_deadline_by_resource_request: BTreeMap<String, GoDuration>,
    /// What containers get of a resource of which they set neither request nor limit.
    pub default_job_limits: BTreeMap<String, Quantity>,
    /// Tolerations of all jobs.
    pub default_job_tolerations: Vec<Toleration>,
    /// Tolerations of jobs of a priority class.
    pub default_job_tolerations_by_priority_class: BTreeMap<String, Vec<Toleration>>,
    /// Tolerations of jobs that request a resource: by its name, or as Armada has it.
    #[serde(deserialize_with = "armadas::of_resources")]
    pub default_job_tolerations_by_resource_request: BTreeMap<String, Vec<Toleration>>,
    /// The label that all nodes of a gang share where it names none; empty for none.
    pub default_gang_node_uniformity_label: String,
    /// Whether the gang's id becomes a label of the pod, too.
    pub add_gang_id_label: bool,
    /// Whether services may have names that the submitter chose.
    pub allow_custom_service_names: bool,
    /// Where pods of queues may be made, and with which rights. Not in Armada.
    pub queue_access: Grants,
    /// The rules of whole Volcano Jobs; no file says them.
    #[serde(skip)]
    pub volcano_jobs: VolcanoJobs,
}

/// A toleration in a pod spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Toleration {
    pub key: String,
    /// How its value is compared.
    #[serde(default)]
    pub operator: Operator,
    /// Its value; empty with [`Operator::Exists`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// What the taint does; all of it where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
}

/// How a toleration compares a taint's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operator {
    /// It is the same.
    #[default]
    Equal,
    Exists,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// They are not placed there.
    NoSchedule,
    /// They are rather placed elsewhere.
    PreferNoSchedule,
    /// They are not placed there and leave.
    NoExecute,
}

/// Forms that a value has in Armada's files.
mod armadas {
    use std::collections::{BTreeMap, BTreeSet};

    use serde::{Deserialize, Deserializer};

    use super::Toleration;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either<Ours, Armadas> {
        Ours(Ours),
        Armadas(Armadas),
    }

    /// Names, each with whether it counts.
    pub(super) fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<String>, D::Error> {
        Ok(match Either::<_, BTreeMap<String, bool>>::deserialize(deserializer)? {
            Either::Ours(names) => names,
            Either::Armadas(names) => names.into_iter().filter_map(|(name, counts)| counts.then_some(name)).collect(),
        })
    }

    type OfResources = BTreeMap<String, Vec<Toleration>>;

    /// A list of what is by name.
    pub(super) fn of_resources<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OfResources, D::Error> {
        Ok(match Either::<_, Vec<OfResources>>::deserialize(deserializer)? {
            Either::Ours(by_name) => by_name,
            Either::Armadas(several) => several.into_iter().flatten().collect(),
        })
    }
}

/// Priority classes of Armada's own configuration.
const CLASSES: [&str; 3] = ["armada-default", "armada-preemptible", "armada-resilient"];
/// The accelerator that Armada knows.
const GPU: &str = "nvidia.com/gpu";
const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
const HOUR_SECS: i64 = 3_600;

impl Default for Rules {
    fn default() -> Self {
        let tolerate = |of: &str| {
            vec![Toleration {
                key: format!("armadaproject.io/{of}"),
                operator: Operator::Equal,
                value: "true".to_owned(),
                effect: Some(Effect::NoSchedule),
            }]
        };
        let limits = [
            ("cpu", Quantity::from_units(1)),
            ("memory", Quantity::from_bytes(GIB)),
            ("ephemeral-storage", Quantity::from_bytes(8 * GIB)),
        ];
        let by_class = CLASSES.map(|class| (class.to_owned(), tolerate(&format!("pc-{class}"))));
        Self {
            job_set_id_length_limit: 1024,
            client_id_length_max: 100,
            max_pod_spec_size_bytes: 65_535,
            max_oversubscription_by_resource_request: BTreeMap::new(),
            min_job_resources: BTreeMap::from([("memory".to_owned(), Quantity::from_bytes(MIB))]),
            assert_init_containers_request_fractional_cpu: true,
            allowed_priority_class_names: CLASSES.map(str::to_owned).into(),
            default_priority_class_name: CLASSES[0].to_owned(),
            min_termination_grace_period: GoDuration::from_secs(1),
            max_termination_grace_period: GoDuration::from_secs(300),
            restricted_toleration_keys: BTreeSet::new(),
            default_active_deadline: GoDuration::from_secs(72 * HOUR_SECS),
            default_active_deadline_by_resource_request: BTreeMap::from([(
                GPU.to_owned(),
                GoDuration::from_secs(336 * HOUR_SECS),
            )]),
            default_job_limits: limits.map(|(name, amount)| (name.to_owned(), amount)).into(),
            default_job_tolerations: tolerate("armada"),
            default_job_tolerations_by_priority_class: by_class.into(),
            default_job_tolerations_by_resource_request: BTreeMap::from([(GPU.to_owned(), tolerate("gpu"))]),
            default_gang_node_uniformity_label: String::new(),
            add_gang_id_label: false,
            allow_custom_service_names: false,
            queue_access: Grants::default(),
            volcano_jobs: VolcanoJobs::default(),
        }
    }
}
