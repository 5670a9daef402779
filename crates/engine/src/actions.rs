//! The actions of a cycle, one per file, and what they share.

pub(crate) mod allocate;
pub(crate) mod backfill;
pub(crate) mod enqueue;
mod walk;
