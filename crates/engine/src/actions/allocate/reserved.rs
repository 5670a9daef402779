//! Turns around reservations: those who have one go first, and those who end in time pass them at the end.

use super::{Round, Which};
use crate::actions::fair_share_order::{Outcome, Turn};
use crate::actions::reserve;
use crate::ids::{GroupId, TaskId};
use crate::session::Session;
use crate::world::end_times::Confidence;
use crate::world::reservations::Lift;
use crate::world::tasks::TaskState;

/// Those that end before a reservation needs its room may have it until then.
pub(super) fn pass(session: &mut Session<'_>, groups: &[GroupId]) {
    for lift in session.tables.reservations.lifts() {
        if !anybody_passes(session, groups, lift) {
            continue;
        }
        session.tables.lift_reservations(lift, session.now);
        let mut round = Round { passing: Some(lift), ..Round::new(Which::Requesting) };
        round.give_turns(session, groups);
        session.tables.keep_again(session.now);
    }
}

/// The group goes before those that are lifted. What only its kind tells of its pods' ends is put down: they may be held
/// to it.
pub(super) fn note_backfilled(session: &mut Session<'_>, group: GroupId, lift: Lift) {
    let tables = &mut *session.tables;
    if lift.confidence == Confidence::Certain {
        return;
    }
    let started = |task: &TaskId| tables.task(*task).state == TaskState::Binding;
    let tasks: Vec<TaskId> = tables.groups.row(group).tasks.iter().copied().filter(started).collect();
    for task in tasks {
        let class = tables.task(task).class;
        if tables.backfills_for(group, class, Confidence::Certain).is_none() {
            let run = tables.backfills_for(group, class, Confidence::Expected);
            tables.tasks.row_mut(task.index()).backfilled_until = run.map(|run| session.now.plus_ms(run));
        }
    }
}

fn anybody_passes(session: &Session<'_>, groups: &[GroupId], lift: Lift) -> bool {
    let waits =
        |group: &GroupId| session.failures.contains_key(group) && session.tables.groups.row(*group).pending() > 0;
    let passes = |group: GroupId| reserve::passes(session, group, lift);
    let heads = session.pending_index.by_task_class.values().filter(|task_class| task_class.failure.is_some());
    let mut heads = heads.filter_map(|task_class| task_class.groups.iter().next());
    heads.any(passes) || groups.iter().copied().filter(waits).any(passes)
}

impl Round {
    /// Starts the groups whose reserved room is there: it is theirs, whoever is before them now.
    pub(super) fn start_reserved(&mut self, session: &mut Session<'_>, rest: &mut Vec<GroupId>) {
        let holders: Vec<GroupId> = session.tables.reservations.all.iter().map(|one| one.group).collect();
        for group in holders {
            let one_by_one = rest.contains(&group);
            if !one_by_one && session.pending_index.task_class_of(group).is_none() {
                continue;
            }
            if reserve::gives_way(session, group) {
                continue;
            }
            let outcome = reserve::with_its_own(session, group, |session| self.turns_of_holder(session, group));
            if outcome != Outcome::Again {
                self.wanted.remove(&group);
            }
            if outcome == Outcome::Stuck {
                reserve::still_stuck(session, group);
            }
            if outcome == Outcome::Again && !one_by_one {
                rest.push(group);
            }
        }
    }

    /// A turn; where the group has begun and waits for what it was promised, turns until it has it or finds no room.
    fn turns_of_holder(&mut self, session: &mut Session<'_>, group: GroupId) -> Outcome {
        loop {
            let outcome = self.turn(session, group);
            if outcome != Outcome::Again || !session.tables.waits_for_its_sum(session.tables.groups.row(group)) {
                return outcome;
            }
        }
    }

    /// Whether the group is over before any reservation needs its room; it is told anew why it waits then.
    pub(super) fn may_pass(&mut self, session: &mut Session<'_>, turn: Turn) -> bool {
        let Some(lift) = self.passing else { return false };
        let passes = reserve::passes(session, turn.group, lift);
        if passes {
            session.failures.remove(&turn.group);
        }
        passes
    }

    /// A group got nothing: room may have to be reserved for it.
    pub(super) fn consider(&mut self, session: &mut Session<'_>, turn: Turn) {
        if self.which == Which::Requesting && self.passing.is_none() {
            reserve::consider(session, turn.group, &mut self.fronts);
        }
    }
}
