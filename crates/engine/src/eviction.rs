//! The actions that make running pods leave, one per file, and what they share: preempt, reclaim, their gang variants and
//! shuffle; and what leaves by itself at the start of a cycle (partial gangs, maintenance, backfill that overran).

pub(crate) mod candidates;
mod cheapest;
pub(crate) mod gang_eviction;
pub(crate) mod maintenance;
pub(crate) mod overrun_backfill;
pub(crate) mod partial_gangs;
pub(crate) mod preempt;
mod preemptors;
pub(crate) mod reclaim;
mod reclaim_progress;
pub(crate) mod shuffle;
mod statement;
mod unreclaimable;
mod victim_search;
mod whole_gangs;
