//! Runs away from home: on nodes that are kept for others, as long as those don't want them.

use serde::{Deserialize, Serialize};

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
