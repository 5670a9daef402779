//! What a platform has beside jobs: queues, nodes, and what running pods use.
//!
//! Called by `jobctl queue`, `node`, `top` and `usage`.

mod error;
pub mod nodes;
pub mod queues;
pub mod resource_usage;

pub use error::Missing;
