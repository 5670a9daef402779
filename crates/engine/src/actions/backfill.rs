//! `backfill`: places pods that ask for nothing, wherever a node takes one more pod. Gangs hold here, too.

use super::allocate::{Which, place_groups};
use crate::session::Cycle;

pub(crate) fn run(cycle: &mut Cycle<'_>) {
    let groups = cycle.tables.groups.best_effort.iter().copied().collect();
    place_groups(cycle, Which::BestEffort, groups);
}
