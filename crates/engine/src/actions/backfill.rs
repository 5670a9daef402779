//! `backfill`: places pods that ask for nothing, wherever a node takes one more pod. Gangs hold here, too.

use super::allocate::{Which, place_groups};
use crate::session::Session;

pub(crate) fn run(session: &mut Session<'_>) {
    let groups = session.tables.groups.best_effort.iter().copied().collect();
    place_groups(session, Which::BestEffort, groups);
}
