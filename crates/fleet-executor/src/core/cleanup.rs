//! What time brings: pods that are stuck or missing, a server that does not answer, finished pods that go.

use std::collections::BTreeMap;

use pumice_ledger::{RunId, TimeMs};
use pumice_units::GoDuration;

use crate::facts::{Kind, PodPhase};
use crate::pending_checks::Action;

use super::Core;
use super::pods::DELETED;
use super::run::{Ending, Leaving, Run, Stage};

impl Core {
    pub(super) fn tick(&mut self) {
        let ids: Vec<RunId> = self.runs.keys().copied().collect();
        for id in ids {
            self.cut_off(id);
            self.look_at(id);
            self.drive(id);
        }
        self.remove_finished();
        self.waiting.extend(self.again.drain(..));
    }

    /// Stops a run that the server may soon count as lost, and start elsewhere. One that does not count as lost by then waits
    /// in its queue again.
    fn cut_off(&mut self, id: RunId) {
        let silent_ms = self.heard.map_or(0, |heard| self.now.since(heard));
        let Some(after_ms) = self.runs.get(&id).and_then(|run| run.cut_off_ms).filter(|after| silent_ms >= *after)
        else {
            return;
        };
        let message = format!("nothing was heard of the server for {}", GoDuration::from_millis(after_ms));
        // Some of it may have run, but that is not the job's doing: it uses up none of its tries.
        self.stop(id, Ending::Returned { reason: "CutOff".to_owned(), message, attempted: false });
        self.remove_leftover(id);
    }

    /// Applies the rules that need time.
    fn look_at(&mut self, id: RunId) {
        let (now, settings) = (self.now, &self.settings);
        let Some(run) = self.runs.get_mut(&id).filter(|run| !run.is_ended()) else { return };
        if let Stage::Made(made) = run.stage
            && run.leaving.is_none()
            && now.since(made) > settings.missing_after_ms
        {
            run.leaving = Some(Leaving::new(Ending::Gone("the pod was made and never seen".to_owned())));
            return;
        }
        let Some(pod) = &run.pod else { return };
        if pod.deletion.is_some_and(|by| now >= by.plus(settings.kill_after_ms)) {
            let is_finished = pod.phase.is_finished();
            return end_overdue(run, is_finished, now);
        }
        if run.leaving.is_some() {
            return;
        }
        let verdict = self.checks.verdict(pod, &run.events, now);
        match verdict.action {
            Action::Wait => {}
            // The pod goes once the server has the report.
            Action::Fail => run.fail(now, &verdict.reason, &verdict.message),
            Action::Retry => {
                let mut leaving = Leaving::new(Ending::Returned {
                    reason: verdict.reason,
                    message: verdict.message,
                    attempted: pod.kind == Kind::Job || !pod.node.is_empty(),
                });
                leaving.if_version = Some(pod.version.clone());
                leaving.is_ruled = true;
                run.leaving = Some(leaving);
            }
        }
    }

    /// Finished pods whose ends the server has go when they are old enough, or too many.
    fn remove_finished(&mut self) {
        let mut by_queue: BTreeMap<&str, Vec<(TimeMs, RunId)>> = BTreeMap::new();
        let (mut expired, mut finished) = (Vec::new(), 0_usize);
        for (id, run) in &self.runs {
            let Some(pod) = run.pod.as_ref().filter(|pod| pod.phase.is_finished()) else { continue };
            if run.leaving.is_some() {
                continue;
            }
            finished += 1;
            if !run.is_ended() || !run.acknowledged {
                continue;
            }
            let has_failed = pod.phase == PodPhase::Failed;
            let stay_ms = if run.goes_at_once {
                0
            } else if has_failed {
                self.settings.failed_min_ms
            } else {
                self.settings.finished_min_ms
            };
            if self.now.since(pod.since) >= stay_ms {
                expired.push(*id);
            } else {
                by_queue.entry(&run.queue).or_default().push((pod.since, *id));
            }
        }
        // The oldest last.
        by_queue.values_mut().for_each(|pods| pods.sort_by(|one, other| other.cmp(one)));
        let mut excess = (finished - expired.len()).saturating_sub(self.settings.finished_max);
        while excess > 0
            && let Some(most) = by_queue.values_mut().max_by_key(|pods| pods.len())
            && let Some((_, id)) = most.pop()
        {
            expired.push(id);
            excess -= 1;
        }
        for id in expired {
            if let Some(run) = self.runs.get_mut(&id) {
                run.leaving = Some(Leaving::new(Ending::Tidy));
                self.drive(id);
            }
        }
    }
}

/// A pod that is being deleted is still there long after it should be gone.
fn end_overdue(run: &mut Run, is_finished: bool, now: TimeMs) {
    let ending = run.leaving.as_ref().map(|leaving| leaving.ending.clone());
    match ending {
        // Nothing of it runs; something only holds the object back.
        Some(Ending::Gone(reason)) if is_finished => run.end_gone(now, &reason),
        Some(Ending::Returned { reason, message, attempted }) if is_finished => {
            run.end_returned(now, &reason, &message, attempted);
        }
        None if is_finished => run.end_gone(now, DELETED),
        // It may run on, on a node that does not answer: it is not for another to begin.
        None => run.fail(now, "StuckTerminating", "the pod was deleted, not by the fleet, and does not go"),
        Some(_) => {}
    }
}
