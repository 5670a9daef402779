//! Whether a job that failed could be tried again as its policy wants it: with more memory, or on another node.

use std::cell::Cell;

use pumice_engine::NodeFacts;
use pumice_fleet_scheduling::{Constraints, could_hold};
use pumice_ledger::{NodeRef, Shape};

/// Answers in one commit, during which others wait. Beyond them a job is tried again, and says why it waits.
const ANSWERS_MAX: u32 = 100;

/// Answers as [`pumice_ledger::CouldHold`]; everything could be held where it is not known which `nodes` there are.
pub(super) fn question<'n>(
    nodes: Option<impl Iterator<Item = (&'n str, &'n NodeFacts)> + Clone>,
    constraints: &Constraints,
) -> impl Fn(&Shape, &[NodeRef]) -> bool {
    let asked = Cell::new(0);
    move |shape, off| {
        if asked.get() >= ANSWERS_MAX {
            return true;
        }
        let Some(nodes) = nodes.clone() else { return true };
        asked.set(asked.get() + 1);
        could_hold(shape, off, &constraints.floating, nodes)
    }
}
