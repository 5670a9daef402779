//! What a group knows of its pods and of their owner.
//!
//! Invariant: two pods made of one template have equal [`Template`]s, so that the shell keeps one for all of them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use pumice_api::grouping::{self, Made};
use pumice_api::names;
use pumice_api::scheduling::{NetworkTopologyMode, NetworkTopologySpec};

use crate::usage::{self, Usage};

/// Annotations of a pod that its group takes over. `sla-waiting-time` is ours: Volcano takes it from an owner only.
const FROM_POD: &[&str] = &[names::PREEMPTABLE, names::COOLDOWN_TIME, names::REVOCABLE_ZONE, names::SLA_WAITING_TIME];
/// Labels of a pod that its group takes over.
const LABELS_FROM_POD: &[&str] = &[names::PREEMPTABLE, names::COOLDOWN_TIME];

/// What a group takes from the template of its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Template {
    pub(super) queue: String,
    pub(super) priority_class: String,
    /// Mode and highest tier.
    pub(super) topology: Option<(bool, Option<i64>)>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) usage: Usage,
}

/// Whose pod it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    Alone,
    Owned(OwnerReference),
    /// It is in a PodGroup of Kubernetes' own.
    Native,
}

/// A pod that a group is made for.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub group: String,
    /// Whose pod it is.
    pub origin: Origin,
    pub owners: Vec<OwnerReference>,
    /// It carries the group's name.
    pub is_told: bool,
    /// It has a node.
    pub is_bound: bool,
    /// It is being deleted.
    pub is_leaving: bool,
    /// When it was made.
    pub created: Timestamp,
    /// What its group takes from it.
    pub template: Template,
}

impl Member {
    /// Nothing for a pod that has ended, or is in a group that somebody else made.
    pub fn of(pod: &Pod) -> Option<Self> {
        let (metadata, spec) = (&pod.metadata, pod.spec.as_ref()?);
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return None;
        }
        let made = grouping::made(metadata, spec)?;
        let group = made.name(metadata.uid.as_deref().filter(|uid| !uid.is_empty())?);
        let named = grouping::named(metadata);
        if named.is_some_and(|name| name != group) {
            return None;
        }
        Some(Self {
            is_told: named.is_some(),
            group,
            origin: match made {
                Made::Native(_) => Origin::Native,
                Made::Owned(owner) => Origin::Owned(owner.clone()),
                Made::Alone => Origin::Alone,
            },
            owners: metadata.owner_references.clone().unwrap_or_default(),
            is_bound: spec.node_name.as_deref().is_some_and(|node| !node.is_empty()),
            is_leaving: metadata.deletion_timestamp.is_some(),
            created: metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0),
            template: Template::of(metadata, spec),
        })
    }
}

impl Template {
    fn of(metadata: &ObjectMeta, spec: &PodSpec) -> Self {
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key));
        let label = |key: &str| metadata.labels.as_ref().and_then(|all| all.get(key));
        let copy = |keys: &[&str], of: &dyn Fn(&str) -> Option<String>| -> BTreeMap<String, String> {
            keys.iter().filter_map(|key| Some(((*key).to_owned(), of(key)?))).collect()
        };
        let mut annotations = copy(FROM_POD, &|key| annotation(key).cloned());
        let mut budgets = [names::JDB_MIN_AVAILABLE, names::JDB_MAX_UNAVAILABLE].into_iter();
        let budget = budgets.find_map(|key| Some((key.to_owned(), annotation(key)?.clone())));
        annotations.extend(budget);
        Self {
            queue: annotation(names::SCHEDULING_QUEUE_NAME).cloned().unwrap_or_default(),
            priority_class: spec.priority_class_name.clone().unwrap_or_default(),
            topology: topology(
                annotation(names::NETWORK_TOPOLOGY_MODE),
                annotation(names::NETWORK_TOPOLOGY_HIGHEST_TIER),
            ),
            annotations,
            labels: copy(LABELS_FROM_POD, &|key| label(key).cloned()),
            usage: usage::quota_usage(Some(spec)),
        }
    }

    /// As a PodGroup says it.
    pub(super) fn network_topology(&self) -> Option<NetworkTopologySpec> {
        let (is_soft, tier) = self.topology?;
        let mode = if is_soft { NetworkTopologyMode::Soft } else { NetworkTopologyMode::Hard };
        Some(NetworkTopologySpec { mode: Some(mode), highest_tier_allowed: tier, ..NetworkTopologySpec::default() })
    }
}

/// Whether it is soft, and the tier. A word nobody knows is hard, a tier that is no number is none.
fn topology(mode: Option<&String>, tier: Option<&String>) -> Option<(bool, Option<i64>)> {
    if mode.is_none() && tier.is_none() {
        return None;
    }
    let is_soft = mode.is_some_and(|mode| mode.eq_ignore_ascii_case("soft"));
    Some((is_soft, tier.and_then(|tier| tier.parse().ok())))
}

/// The annotations of an owner that its group takes over or reads; all others are not worth keeping.
pub fn inherited(annotations: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let wanted = |key: &str| key.starts_with(names::VOLCANO_PREFIX) || key == names::GROUP_MIN_MEMBER;
    annotations.into_iter().filter(|(key, _)| wanted(key)).collect()
}
