//! Facts of dated reservations: nodes that an administrator keeps for some, or from everybody.

use serde::{Deserialize, Serialize};

use crate::facts::{NodeName, Requirement};
use crate::ids::TimeMs;

/// A Reservation: from one time to another its nodes are for those that it names, or for nobody.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WindowFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    /// Nodes by name, such as will come.
    #[serde(skip_serializing_if = "super::is_default")]
    pub nodes: Vec<NodeName>,
    /// Nodes by labels, all of which must hold; without any, by name only.
    #[serde(skip_serializing_if = "super::is_default")]
    pub selector: Vec<Requirement>,
    #[serde(skip_serializing_if = "super::is_default")]
    pub from: TimeMs,
    /// When it is over; absent, when it is deleted.
    #[serde(skip_serializing_if = "super::is_default")]
    pub to: Option<TimeMs>,
    /// Queues whose groups may use the nodes meanwhile.
    #[serde(skip_serializing_if = "super::is_default")]
    pub queues: Vec<String>,
    /// Namespaces whose groups may.
    #[serde(skip_serializing_if = "super::is_default")]
    pub namespaces: Vec<String>,
}
