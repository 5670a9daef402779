//! What the server says: leases, stops, acknowledgements, and the order in which they come.

use pumice_ledger::RunId;
use pumice_wire::executor::to_executor::Message;
use pumice_wire::executor::{Acknowledged, Lease, RunPhase, RunReport, StopKind, StopRun, ToExecutor};

use super::run::{Ending, Leaving, Run, Stage};
use super::{Core, Output, Session, SessionEnd};

impl Core {
    pub(super) fn connected(&mut self, number: u64) {
        self.session = Some(Session { number, seen: 0, is_told: false, is_over: false });
        for run in self.runs.values_mut() {
            run.sent = None;
        }
    }

    /// Messages of another session than the present one are nothing: their leases may be another's by now.
    pub(super) fn message(&mut self, number: u64, message: ToExecutor) {
        let Some(session) = self.session.as_mut().filter(|session| session.number == number && !session.is_over) else {
            return;
        };
        if message.sequence <= session.seen {
            return;
        }
        let needs_state = !matches!(message.message, Some(Message::Welcome(_) | Message::Redirect(_)) | None);
        if message.sequence != session.seen + 1 || needs_state && !session.is_told {
            return self.end_session(SessionEnd::OutOfOrder);
        }
        session.seen = message.sequence;
        // Only an answer says that the server hears this side; what it says by itself does not.
        if matches!(message.message, Some(Message::Welcome(_) | Message::Acknowledge(_))) {
            self.heard = Some(self.now);
        }
        match message.message {
            Some(Message::Welcome(welcome)) => self.heartbeat_ms = welcome.heartbeat_ms,
            Some(Message::Leases(leases)) => leases.leases.into_iter().for_each(|lease| self.lease(lease)),
            Some(Message::Stop(stop)) => stop.runs.iter().for_each(|stop| self.stop_run(stop)),
            Some(Message::Acknowledge(known)) => known.runs.iter().for_each(|known| self.acknowledge(known)),
            Some(Message::Redirect(redirect)) => self.end_session(SessionEnd::Redirect(redirect.address)),
            Some(Message::Errand(errand)) => self.outputs.push(Output::RunErrand(Box::new(errand))),
            // Of a newer server.
            None => {}
        }
    }

    fn end_session(&mut self, why: SessionEnd) {
        if let Some(session) = &mut self.session {
            session.is_over = true;
        }
        self.outputs.push(Output::EndSession(why));
    }

    fn lease(&mut self, lease: Lease) {
        let Some(id) = self.parse(&lease.run_id) else { return };
        if let Some(run) = self.runs.get_mut(&id) {
            run.tell_again();
        } else if self.ended.contains(&id) {
            self.never_was(id, "the run is over");
        } else {
            self.runs.insert(id, Run::leased(id, lease, self.now));
            self.waiting.push_back(id);
        }
    }

    fn stop_run(&mut self, stop: &StopRun) {
        let Some(id) = self.parse(&stop.run_id) else { return };
        let Some(run) = self.runs.get_mut(&id) else { return self.never_was(id, "no such run here") };
        if !run.is_ended() {
            return self.stop(id, Ending::Gone(stop.reason.clone()));
        }
        // The server still wants an end that it knows the run of, and has no use for it elsewhere.
        if stop.kind == StopKind::Unknown as i32 || run.acknowledged {
            run.overrule(self.now, &stop.reason);
        } else {
            run.tell_again();
        }
        self.remove_leftover(id);
    }

    /// Puts an end to a run that has none, whatever its pod does meanwhile.
    pub(super) fn stop(&mut self, id: RunId, ending: Ending) {
        let Some(run) = self.runs.get_mut(&id).filter(|run| !run.is_ended()) else { return };
        match &mut run.leaving {
            Some(leaving) => {
                // The first reason is the one that is told. A lease goes back only where the server wants no stop, and what
                // hung on the pod staying as it is was not settled.
                let may_replace = leaving.is_ruled || !matches!(ending, Ending::Returned { .. });
                if may_replace && !matches!(leaving.ending, Ending::Gone(_)) {
                    leaving.ending = ending;
                }
                // A deletion that might not have counted is asked for again, without its condition.
                if leaving.if_version.take().is_some() {
                    leaving.requested_at = None;
                }
                leaving.is_ruled = false;
            }
            None => run.leaving = Some(Leaving::new(ending)),
        }
        if run.may_have_pod() {
            self.drive(id);
        } else {
            run.settle(self.now, "");
        }
    }

    fn acknowledge(&mut self, known: &Acknowledged) {
        let Ok(id) = known.run_id.parse::<RunId>() else { return };
        let Some(run) = self.runs.get_mut(&id).filter(|run| run.report.phase == known.phase) else { return };
        // Of a report of the same phase that was not sent yet, it is not.
        if run.sent.is_none() {
            return;
        }
        run.acknowledged = true;
        if run.is_ended() {
            if run.may_have_pod() { self.remove_leftover(id) } else { self.forget(id) }
        }
    }

    /// Removes the pod of a run that has ended while its pod has not.
    pub(super) fn remove_leftover(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let is_finished = run.pod.as_ref().is_some_and(|pod| pod.phase.is_finished());
        if run.is_ended() && run.may_have_pod() && !is_finished {
            run.leaving.get_or_insert_with(|| Leaving::new(Ending::Tidy));
            self.drive(id);
        }
    }

    /// Reports a run of which there is nothing as gone, until the server has it.
    fn never_was(&mut self, id: RunId, reason: &str) {
        let mut run = Run::new(id, Stage::Known, self.now);
        run.end_gone(self.now, reason);
        self.runs.insert(id, run);
    }

    /// The run of this id. What is no id can't be kept and acknowledged: it is answered once.
    fn parse(&mut self, text: &str) -> Option<RunId> {
        let id = text.parse().ok();
        if id.is_none() {
            self.strays.push(RunReport {
                run_id: text.to_owned(),
                phase: RunPhase::Gone as i32,
                reason: "InvalidRunId".to_owned(),
                message: "it is no run's id".to_owned(),
                time_ms: self.now.0,
                ..RunReport::default()
            });
        }
        id
    }
}
