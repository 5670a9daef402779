//! What a pod says about where other pods may be: pod affinity and anti-affinity, and topology spread.
//!
//! The shell resolves what depends on the pod alone: an absent namespace list is the pod's own namespace, and label
//! keys to match or not to match have become requirements.

use serde::{Deserialize, Serialize};

use super::Requirement;

/// Requirements on labels; none at all matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// All of them hold. `Gt` and `Lt` match nothing.
    #[serde(skip_serializing_if = "super::is_default")]
    pub requirements: Vec<Requirement>,
}

/// Which pods a term is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSelector {
    /// Pods of these namespaces.
    #[serde(skip_serializing_if = "super::is_default")]
    pub namespaces: Vec<String>,
    /// And of the namespaces with these labels.
    #[serde(skip_serializing_if = "super::is_default")]
    pub namespace_selector: Option<LabelSelector>,
    /// With these labels; absent matches no pod.
    #[serde(skip_serializing_if = "super::is_default")]
    pub labels: Option<LabelSelector>,
}

/// Pods, and the label of nodes that says which nodes are together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTerm {
    #[serde(skip_serializing_if = "super::is_default")]
    pub pods: PodSelector,
    /// The label: nodes with equal values are one domain, nodes without it are in none.
    #[serde(skip_serializing_if = "super::is_default")]
    pub topology_key: String,
}

/// A term that scores nodes for a pod and refuses none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreferredPodTerm {
    /// -100 to 100; below zero the pod prefers to be apart.
    #[serde(skip_serializing_if = "super::is_default")]
    pub weight: i32,
    #[serde(skip_serializing_if = "super::is_default")]
    pub term: PodTerm,
}

/// A topology spread constraint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpreadConstraint {
    /// The pods to spread, and over which domains.
    #[serde(skip_serializing_if = "super::is_default")]
    pub term: PodTerm,
    /// How many more of them one domain may have than the least, at least 1.
    #[serde(skip_serializing_if = "super::is_default")]
    pub max_skew: i32,
    #[serde(skip_serializing_if = "super::is_default")]
    pub hard: bool,
    /// With fewer domains than this the least counts as none.
    #[serde(skip_serializing_if = "super::is_default")]
    pub min_domains: u32,
    /// Nodes that the pod's node selector or affinity excludes don't count.
    #[serde(skip_serializing_if = "super::is_default")]
    pub honors_affinity: bool,
    /// Nodes with taints that the pod does not tolerate don't count.
    #[serde(skip_serializing_if = "super::is_default")]
    pub honors_taints: bool,
}

/// All that couples a pod to others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InterPodConstraints {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub affinity: Vec<PodTerm>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub anti_affinity: Vec<PodTerm>,
    /// Preferred affinity, and anti-affinity with weights below zero.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preferred: Vec<PreferredPodTerm>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<SpreadConstraint>,
}

impl InterPodConstraints {
    /// Nothing said of other pods.
    pub fn is_empty(&self) -> bool {
        self.affinity.is_empty() && self.anti_affinity.is_empty() && self.preferred.is_empty() && self.spread.is_empty()
    }
}
