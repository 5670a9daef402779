//! Queues: what is filled in, and which trees of queues are refused.

mod amounts;
mod hierarchy_annotations;
mod mutate;
mod tree;
mod validate;

pub use mutate::mutate;
pub use validate::{validate, validate_delete};
