//! What to do when something happens to a job's pods.

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
}
