//! The actions of a cycle, one per file, and what they share.

pub(crate) mod allocate;
pub(crate) mod backfill;
mod cheapest;
pub(crate) mod enqueue;
pub(crate) mod fences;
pub(crate) mod gang_eviction;
pub(crate) mod half_placed;
mod kept;
mod outranked;
pub(crate) mod overrun;
mod potential;
pub(crate) mod preempt;
mod preemptors;
mod prospects;
pub(crate) mod reclaim;
pub(crate) mod reserve;
pub(crate) mod shuffle;
mod statement;
mod victims;
mod walk;
mod whole_gangs;
pub(crate) mod windows;
