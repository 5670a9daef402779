//! The actions that admit and place groups, one per file, and what they share. Those that make pods leave are in `eviction`.

pub(crate) mod allocate;
pub(crate) mod backfill;
pub(crate) mod enqueue;
pub(crate) mod fair_share_order;
pub(crate) mod nominated_capacity;
mod outranked;
pub(crate) mod reserve;
