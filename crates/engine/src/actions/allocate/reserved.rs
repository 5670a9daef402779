//! Turns around reservations: those who have one go first, and those who end in time pass them at the end.

use super::{Round, Which};
use crate::actions::reserve;
use crate::actions::walk::{Outcome, Turn};
use crate::cycle::Cycle;
use crate::ids::GroupId;

/// Those that end before any reservation needs its room may have it until then.
pub(super) fn pass(cycle: &mut Cycle<'_>, groups: &[GroupId]) {
    let failed = |group: &GroupId| cycle.failures.contains_key(group);
    let passes = |group: GroupId| reserve::passes(cycle, group);
    let heads = cycle.backlog.buckets.values().filter(|bucket| bucket.failure.is_some());
    let mut heads = heads.filter_map(|bucket| bucket.groups.iter().next());
    if !heads.any(passes) && !groups.iter().filter(|group| failed(group)).any(|group| passes(*group)) {
        return;
    }
    cycle.tables.lift_reservations();
    let mut round = Round { passing: true, ..Round::new(Which::Requesting) };
    round.walk(cycle, groups);
    cycle.tables.keep_again(cycle.now);
}

impl Round {
    /// Starts the groups whose reserved room is there: it is theirs, whoever is before them now.
    pub(super) fn start_reserved(&mut self, cycle: &mut Cycle<'_>, rest: &mut Vec<GroupId>) {
        let holders: Vec<GroupId> = cycle.tables.reservations.all.iter().map(|one| one.group).collect();
        for group in holders {
            let loose = rest.contains(&group);
            if !loose && cycle.backlog.bucket_of(group).is_none() {
                continue;
            }
            let outcome = reserve::with_its_own(cycle, group, |cycle| self.turn(cycle, group));
            if outcome != Outcome::Again {
                self.wanted.remove(&group);
            }
            if outcome == Outcome::Stuck {
                reserve::still_stuck(cycle, group);
            }
            if outcome == Outcome::Again && !loose {
                rest.push(group);
            }
        }
    }

    /// Whether the group is over before any reservation needs its room; it is told anew why it waits then.
    pub(super) fn may_pass(&mut self, cycle: &mut Cycle<'_>, turn: Turn) -> bool {
        let passes = cycle.tables.reservations.of(turn.group).is_none() && reserve::passes(cycle, turn.group);
        if passes {
            cycle.failures.remove(&turn.group);
        }
        passes
    }

    /// A group got nothing: room may have to be reserved for it.
    pub(super) fn consider(&mut self, cycle: &mut Cycle<'_>, turn: Turn) {
        if self.which == Which::Requesting && !self.passing {
            reserve::consider(cycle, turn.group, &mut self.fronts);
        }
    }
}
