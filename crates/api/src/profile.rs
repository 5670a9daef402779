//! `pumice.sh/v1alpha1`: the ResourceProfile, what was learned of a kind of run, and which runs are of one kind by their names. Not
//! in Volcano.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::wire;

custom_resource! {
    /// The memory that the pods of one task turned out to need, for the runs of it that follow. At most 4 KiB.
    pub struct ResourceProfile {
        /// The runs it is about.
        pub spec: ResourceProfileSpec = "spec",
        /// What they taught.
        pub status: ResourceProfileStatus = "status",
    }
    group: "pumice.sh", version: "v1alpha1", plural: "resourceprofiles", singular: "resourceprofile",
    short_names: ["rprof"], scope: NamespaceResourceScope, cluster_scoped: false
}

/// What runs have in common that are taken for the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceProfileSpec {
    /// Who runs them; empty where nobody is named.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub user: String,
    /// The job's name, without what differs from run to run.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub job: String,
    /// The task.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub task: String,
    /// The image of the first container, without tag and digest; for people, may be cut.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 256))]
    pub image: String,
    /// What the first container runs, numbers replaced by `#`; for people, may be cut.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 256))]
    pub command: String,
    /// All of it, also of the other containers, as a hash of 16 hexadecimal digits.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 16))]
    pub signature: String,
}

/// What such runs taught.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceProfileStatus {
    /// By container.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 16))]
    pub containers: Vec<LearnedMemory>,
    /// How many runs taught something.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub runs: i64,
    /// When the last one did. After 30 days it is forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_at: Option<Time>,
}

/// What was learned of a container.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LearnedMemory {
    /// Its name.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 63))]
    pub name: String,
    /// What it starts with, its limit or else its request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
    /// The most with which it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub killed: Option<Quantity>,
}

/// A job's name without the numbers and dates at its end, which runs of one kind have in common: `train-2024-01-02` and `train7`
/// are `train`. What is all number stays.
pub fn base_name(name: &str) -> &str {
    let base = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '-' || letter == '.');
    if base.is_empty() { name } else { base }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_differ_in_numbers_are_of_one_kind() {
        let cases = [("train-2024-01-02", "train"), ("train7", "train"), ("2024-01-02", "2024-01-02"), ("", "")];
        for (name, base) in cases {
            assert_eq!(base_name(name), base, "{name}");
        }
    }
}
