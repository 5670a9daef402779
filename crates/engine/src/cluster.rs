//! What the cluster has, as tables of one kind each: nodes and the network between them, images, volumes, devices, the classes
//! of pods, and how pods draw each other near or away.
//!
//! Invariant: no table here knows of groups or queues, nor of another table but nodes. `world::tables` holds them together.

pub(crate) mod classes;
pub(crate) mod devices;
pub(crate) mod hypernodes;
pub(crate) mod images;
pub(crate) mod inter_pod;
pub(crate) mod interned;
pub(crate) mod node_matching;
pub(crate) mod nodes;
pub(crate) mod objects;
mod oversubscription;
pub(crate) mod shard;
pub(crate) mod storage;
pub(crate) mod table;
mod use_counts;
