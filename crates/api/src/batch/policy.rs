//! What to do when something happens to a job's pods.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Number;

use crate::bus::{Action, Event};
use crate::wire;

/// One rule: on these events, or on this exit code, take that action.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LifecyclePolicy {
    /// What to do.
    #[serde(default, deserialize_with = "wire::word", skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// One event; the rule listens to the union of this and `events`.
    #[serde(default, deserialize_with = "wire::word", skip_serializing_if = "Option::is_none")]
    pub event: Option<Event>,
    /// Several events.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub events: Vec<Event>,
    /// Exit code of a pod's first container, never zero; excludes events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Go duration string; the action waits this long. Absent = at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// How the action ScaleUpMemory raises memory. Absent = each of its defaults. Not in Volcano.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_up: Option<MemoryScaleUp>,
}

/// How much more memory a pod gets that was killed for want of it. Not in Volcano; where its definitions are installed,
/// which drop this, an annotation says the same.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryScaleUp {
    /// How many times as much each try gets, more than 1; excludes `step`. Absent, and without a step = 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "wire::any_number")]
    pub factor: Option<Number>,
    /// How much more each try gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Quantity>,
    /// Most memory of a container. Absent = only the number of tries ends the raises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Quantity>,
    /// How often the memory of one pod index is raised. Absent = 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub tries: Option<i32>,
}
