//! Identities inside one `World`: `u32` newtypes that index its columns. They mean nothing outside the
//! World that gave them out, and a freed one is given out again. Every module of the engine uses them.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) u32);

        impl $name {
            pub(crate) fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            fn from(index: usize) -> Self {
                Self(u32::try_from(index).expect("a world holds fewer than 2^32 rows"))
            }
        }
    )+};
}

ids! {
    /// A resource dimension, such as `cpu`.
    DimId,
    /// A node.
    NodeId,
    /// A pod.
    TaskId,
    /// A PodGroup, or the group of one made for a bare pod.
    GroupId,
    /// A queue.
    QueueId,
    /// A namespace that groups are in.
    NamespaceId,
    /// A set of pods that scheduling can't tell apart.
    ClassId,
    /// A HyperNode.
    HyperId,
}

/// A namespace in a queue: whose work, and whose share of the queue.
pub(crate) type QueueNamespace = (QueueId, NamespaceId);

/// Milliseconds since the Unix epoch. The engine has no clock: it is always an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct TimeMs(pub i64);

impl TimeMs {
    /// This time plus a number of milliseconds, saturating.
    #[must_use]
    pub fn plus_ms(self, milliseconds: i64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }
}

crate::save::saved_inside!(ClassId, DimId, GroupId, NamespaceId, NodeId, QueueId, TaskId, TimeMs);
