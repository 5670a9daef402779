//! The network topology constraint, of one shape in Volcano's batch and scheduling groups.

use crate::wire;

/// How far apart in the network the pods of a group may be.
///
/// `highest_tier_allowed` and `highest_tier_name` exclude each other; admission says so.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkTopologySpec {
    /// Whether the constraint must hold. Absent = hard.
    #[serde(default, deserialize_with = "wire::word", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "hard"))]
    pub mode: Option<NetworkTopologyMode>,
    /// Highest tier of a HyperNode that the group may cross.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "wire::plain_integer")]
    pub highest_tier_allowed: Option<i64>,
    /// Name of that tier, instead of its number.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub highest_tier_name: String,
}

word_enum! {
    /// Strength of a network topology constraint.
    closed pub enum NetworkTopologyMode {
        /// The group waits until it fits.
        Hard = "hard",
        /// The group prefers to fit.
        Soft = "soft",
    }
}
