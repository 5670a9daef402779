//! What stands in a recording: the beginning of a World, what it was told, when it decided and what.

use pumice_engine::{Delta, NodeName, ObjectName, Plan, PodUid, TimeMs, World};
use serde::{Deserialize, Serialize};

use crate::digest::digest;
use crate::flags::Flags;

/// One line of a recording.
#[allow(clippy::large_enum_variant, reason = "nearly all are changes; one at a time is read")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Entry {
    /// A World begins; what was before has nothing to do with it.
    Begin(Box<Beginning>),
    /// A change of the cluster.
    Delta(Delta),
    /// What came of a decision.
    #[serde(rename = "told")]
    Feedback(Feedback),
    /// The text of another configuration file.
    Config(String),
    /// A cycle was run.
    Cycle(Cycle),
    /// The World forgot what it keeps to be quick: a segment begins, which a saved World may stand for.
    Forget,
    /// The scheduler was faster than the recorder: so many entries are missing here.
    Hole { entries: u64 },
    /// The engine panicked over what would stand here: the World ends.
    Panic {
        /// What it was told, if it was that and no cycle.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delta: Option<Box<Delta>>,
    },
}

/// What a World is made with.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Beginning {
    /// The version of the platform.
    pub version: String,
    /// The text of the configuration file; absent where there is none.
    pub config: Option<String>,
    /// What flags add to it.
    pub flags: Flags,
    /// The plugins that it could name.
    pub plugins: Vec<String>,
    /// The scheduler names answered to.
    pub schedulers: Vec<String>,
}

/// What came of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Feedback {
    Bind {
        uid: PodUid,
        /// Why it failed, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        at: TimeMs,
    },
    Evict {
        uid: PodUid,
        /// Why it failed, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        at: TimeMs,
    },
    /// A gate could not be removed.
    Gated { uid: PodUid },
    /// Of a PodGroup's status.
    Status { namespace: String, name: String, written: bool },
    /// A pod's condition could not be written.
    Unnoticed { uid: PodUid },
    /// A queue's status could not be written.
    QueueFailed { name: String },
}

impl Feedback {
    /// Applies it to the World. The loop and every replay go this one way.
    pub fn apply(&self, world: &mut World) {
        fn result(error: Option<&String>) -> Result<(), &str> {
            error.map_or(Ok(()), |error| Err(error.as_str()))
        }
        match self {
            Self::Bind { uid, error, at } => {
                world.bind_result(uid, result(error.as_ref()), *at);
            }
            Self::Evict { uid, error, at } => {
                world.evict_result(uid, result(error.as_ref()), *at);
            }
            Self::Gated { uid } => world.ungate_failed(uid),
            Self::Status { namespace, name, written } => world.status_result(namespace, name, *written),
            Self::Unnoticed { uid } => world.notice_failed(uid),
            Self::QueueFailed { name } => world.queue_failed(name),
        }
    }
}

/// A cycle, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cycle {
    pub at: TimeMs,
    /// [`digest`] of the plan, sixteen hexadecimal digits.
    #[serde(with = "hex")]
    pub digest: u64,
    /// Pods that it bound, in the plan's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binds: Vec<Bound>,
    /// Pods that it told to leave, in the plan's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<Evicted>,
}

/// A pod that was bound.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Bound {
    pub uid: PodUid,
    pub pod: ObjectName,
    pub node: NodeName,
}

/// A pod that was told to leave.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Evicted {
    pub uid: PodUid,
    pub pod: ObjectName,
    pub node: NodeName,
    /// The action that wanted it.
    pub action: String,
    /// The group that gets its room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beneficiary: Option<ObjectName>,
}

impl Cycle {
    /// Of a plan. O(its length).
    pub fn of(at: TimeMs, plan: &Plan) -> Self {
        let bound = plan.binds.iter().map(|bind| Bound {
            uid: bind.uid.clone(),
            pod: ObjectName::new(&bind.namespace, &bind.name),
            node: bind.node.clone(),
        });
        let evicted = plan.evictions.iter().map(|eviction| Evicted {
            uid: eviction.uid.clone(),
            pod: ObjectName::new(&eviction.namespace, &eviction.name),
            node: eviction.node.clone(),
            action: eviction.action.clone(),
            beneficiary: eviction.beneficiary.clone(),
        });
        Self { at, digest: digest(plan), binds: bound.collect(), evictions: evicted.collect() }
    }
}

/// A digest as text: JSON's numbers are not exact everywhere.
mod hex {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(digest: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{digest:016x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map_err(|_| D::Error::custom(format!("{text:?} is no digest")))
    }
}
