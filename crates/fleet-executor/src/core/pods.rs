//! What the cluster says: pods that come, change and go, and its answers to what was asked.

use std::collections::{BTreeMap, BTreeSet};

use pumice_ledger::RunId;

use crate::facts::{Kind, PodEvent, PodFacts, PodPhase};

use super::run::{Ending, Leaving, Run, Stage};
use super::{Core, DeleteAnswer, Deletion, EVENTS_MAX, Output, Refusal, RefusalKind};

/// Why a run ends whose pod somebody else deleted.
pub(super) const DELETED: &str = "the pod was deleted, and not by the fleet";

impl Core {
    /// These are all that there are of a kind.
    pub(super) fn all(&mut self, kind: Kind, pods: Vec<PodFacts>) {
        let there: BTreeSet<(RunId, &str)> = pods.iter().map(|pod| (pod.run, pod.uid.as_str())).collect();
        let known = self.runs.iter().filter_map(|(id, run)| Some((*id, run.pod.as_ref()?)));
        let known = known.filter(|(_, pod)| pod.kind == kind).map(|(id, pod)| (id, pod.uid.clone()));
        let gone: Vec<_> = known.filter(|(id, uid)| !there.contains(&(*id, uid.as_str()))).collect();
        gone.into_iter().for_each(|(id, uid)| self.pod_removed(id, &uid));
        pods.into_iter().for_each(|pod| self.pod(pod));
    }

    pub(super) fn pod(&mut self, pod: PodFacts) {
        let id = pod.run;
        if self.is_second(&pod) {
            return self.remove_second(&pod);
        }
        // One of the same name that was made anew: the one before is gone.
        let before = self.runs.get(&id).and_then(|run| run.pod.as_ref()).filter(|before| before.uid != pod.uid);
        if let Some(uid) = before.map(|before| before.uid.clone()) {
            self.pod_removed(id, &uid);
        }
        let Some(run) = self.runs.get_mut(&id) else {
            let mut run = Run::new(id, Stage::Known, self.now);
            if self.ended.contains(&id) {
                run.end_gone(self.now, "the run is over");
                run.acknowledged = true;
            }
            // Of a run that was leased to an earlier executor the pod tells what its lease said.
            run.cut_off_ms = pod.cut_off_ms;
            run.follow(pod);
            self.runs.insert(id, run);
            return self.remove_leftover(id);
        };
        // The watch may be behind: at what is gone, or at what was there before the one that was made.
        let is_before = matches!(run.stage, Stage::Made(_)) && run.uid().is_some_and(|uid| *uid != pod.uid);
        if is_before || run.removed.as_ref() == Some(&pod.uid) {
            return;
        }
        let (had_pod, was_ended) = (run.pod.is_some(), run.is_ended());
        run.follow(pod);
        // A pod that came after the end is not to stay.
        if was_ended && !had_pod {
            self.remove_leftover(id);
        }
        self.fail_if_started(id);
        self.drive(id);
    }

    /// Whether the run has, or may have, a pod of another name. An earlier release may have asked for one that came to be only
    /// when this one had asked for its own.
    fn is_second(&self, pod: &PodFacts) -> bool {
        let known = self.runs.get(&pod.run).filter(|run| run.may_have_pod());
        known.is_some_and(|run| run.report.pod_name != pod.name)
    }

    /// Deletes a second pod of a run. Nothing follows from it for the run; while that leaves, whose answer it is would not be
    /// clear, so that this one's time comes when it is seen again.
    fn remove_second(&mut self, pod: &PodFacts) {
        let is_leaving = self.runs.get(&pod.run).is_some_and(|run| run.leaving.is_some());
        if is_leaving || pod.deletion.is_some() {
            return;
        }
        self.outputs.push(Output::Delete {
            run: pod.run,
            kind: pod.kind,
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: Some(pod.uid.clone()),
            how: Deletion::Graceful,
        });
    }

    /// A stuck pod that starts after all, once its deletion was agreed on, can't be taken back.
    fn fail_if_started(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let started = run.pod.as_ref().is_some_and(|pod| matches!(pod.phase, PodPhase::Running | PodPhase::Succeeded));
        let Some(leaving) = run.leaving.as_mut().filter(|leaving| started && leaving.is_ruled) else { return };
        if leaving.if_version.is_none() {
            (leaving.ending, leaving.is_ruled) = (Ending::Tidy, false);
            run.fail(self.now, "StartedLate", "the pod started while it was deleted because it had not started");
        }
    }

    pub(super) fn pod_removed(&mut self, id: RunId, uid: &str) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let is_known = run.pod.as_ref().is_some_and(|pod| pod.uid == uid);
        let is_made = matches!(run.stage, Stage::Made(_)) && run.report.pod_uid == uid;
        // It was there before anybody answered that it is.
        let is_first = run.pod.is_none() && matches!(run.stage, Stage::Unanswered(_));
        if matches!(run.stage, Stage::Creating(_)) {
            // Another may come to be: the answer tells.
            run.removed = Some(uid.to_owned());
            run.pod.take_if(|pod| pod.uid == uid);
        } else if is_known || is_made || is_first {
            run.removed = Some(uid.to_owned());
            self.gone(id);
        }
    }

    /// A run's pod is gone, and the run is over once there can be no other.
    fn gone(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        // It was of one of the tries; another may have made the next.
        if run.unheard > 1 {
            run.pod = None;
            run.stage = Stage::Made(self.now);
            if let Some(leaving) = &mut run.leaving {
                leaving.requested_at = None;
            }
            return self.end_with_first_pod(id);
        }
        run.settle(self.now, DELETED);
        if run.acknowledged {
            self.forget(id);
        }
    }

    /// A run ends with its first pod: with that deleted by somebody else, a second one that is there, or may be, goes.
    fn end_with_first_pod(&mut self, id: RunId) {
        // A run that has no end yet is over once the second pod is gone; one that has its end keeps it, and loses the pod.
        self.stop(id, Ending::Gone(DELETED.to_owned()));
        self.remove_leftover(id);
    }

    pub(super) fn member_failed(&mut self, pod: &PodFacts) {
        if let Some(run) = self.runs.get_mut(&pod.run) {
            run.member_failed(pod);
        }
    }

    pub(super) fn pod_event(&mut self, id: RunId, event: PodEvent) {
        let Some(run) = self.runs.get_mut(&id).filter(|run| !run.is_ended() && !run.events.contains(&event)) else {
            return;
        };
        if run.events.len() == EVENTS_MAX {
            run.events.remove(0);
        }
        run.events.push(event);
    }

    pub(super) fn created(&mut self, id: RunId, uid: String) {
        self.creating = self.creating.saturating_sub(1);
        let Some(run) = self.runs.get_mut(&id).filter(|run| matches!(run.stage, Stage::Creating(_))) else { return };
        let is_gone = run.removed.as_ref() == Some(&uid);
        run.unheard = 0;
        // An earlier one that was seen had this one's name, so that it is gone.
        let is_second = run.removed.is_some() && !is_gone || run.pod.as_ref().is_some_and(|pod| pod.uid != uid);
        run.pod.take_if(|pod| pod.uid != uid);
        if run.pod.is_some() {
            run.stage = Stage::Known;
        } else {
            run.made(uid, self.now);
        }
        if is_second {
            self.end_with_first_pod(id);
        }
        if is_gone { self.gone(id) } else { self.drive(id) }
    }

    pub(super) fn not_created(&mut self, id: RunId, refusal: Refusal) {
        self.creating = self.creating.saturating_sub(1);
        let Some(run) = self.runs.get_mut(&id).filter(|run| matches!(run.stage, Stage::Creating(_))) else { return };
        let Refusal { kind, reason, message } = refusal;
        let is_clear = matches!(kind, RefusalKind::Fatal | RefusalKind::Refused | RefusalKind::Taken);
        run.unheard = run.unheard.saturating_add(u32::from(!is_clear));
        // One whose pod was seen was made, whatever the answer.
        if run.pod.is_some() || run.removed.is_some() {
            run.stage = Stage::Known;
            return if run.pod.is_some() { self.drive(id) } else { self.gone(id) };
        }
        match kind {
            _ if is_clear && run.unheard > 0 => self.give_back(id, reason, message),
            // Whoever removed it and gave the lease back would have nothing left to tell the next executor by.
            RefusalKind::Unanswered => {
                run.unanswered();
                self.again.push(id);
                self.drive(id);
            }
            RefusalKind::Unclear => self.give_back(id, reason, message),
            RefusalKind::Fatal | RefusalKind::Refused | RefusalKind::Taken => {
                run.stage = Stage::Known;
                if run.leaving.is_some() {
                    run.settle(self.now, "");
                } else if kind == RefusalKind::Fatal {
                    run.fail_rejected(self.now, &reason, &message);
                } else {
                    run.end_returned(self.now, &reason, &message, kind == RefusalKind::Refused);
                }
            }
        }
    }

    /// The lease goes back, once a pod that may have been made is gone.
    fn give_back(&mut self, id: RunId, reason: String, message: String) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.stage = Stage::Made(self.now);
        let ending = Ending::Returned { reason, message, attempted: true };
        run.leaving.get_or_insert_with(|| Leaving::new(ending));
        self.drive(id);
    }

    pub(super) fn deleted(&mut self, id: RunId, answer: DeleteAnswer) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let Some(leaving) = run.leaving.as_mut() else { return };
        leaving.in_flight = false;
        match answer {
            DeleteAnswer::Accepted => {
                leaving.if_version = None;
                self.fail_if_started(id);
            }
            DeleteAnswer::NotFound => {
                if !leaving.by_uid {
                    run.unheard = 0;
                }
                let uid = run.pod.as_ref().map_or(&run.report.pod_uid, |pod| &pod.uid);
                run.removed = Some(uid.clone()).filter(|uid| !uid.is_empty());
                self.gone(id);
            }
            DeleteAnswer::Changed => {
                if leaving.if_version.is_some() {
                    // It moves after all: what it says counts again.
                    run.leaving = None;
                    if let Some(pod) = run.pod.clone() {
                        run.follow(pod);
                    }
                } else {
                    leaving.requested_at = None;
                }
            }
            DeleteAnswer::Failed => {}
        }
        self.drive(id);
    }

    pub(super) fn addresses(&mut self, id: RunId, addresses: BTreeMap<i32, String>) {
        if let Some(run) = self.runs.get_mut(&id) {
            run.set_addresses(addresses);
        }
    }

    /// Asks for the deletion of a pod that is to go, where it is time.
    pub(super) fn drive(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if run.leaving.is_none() || !run.may_have_pod() || matches!(run.stage, Stage::Creating(_)) {
            return;
        }
        let uid = run.uid().cloned();
        let Some(leaving) = run.leaving.as_mut().filter(|leaving| !leaving.in_flight) else { return };
        let deletion = run.pod.as_ref().and_then(|pod| pod.deletion);
        let is_late = deletion.is_some_and(|by| self.now >= by.plus(self.settings.kill_after_ms));
        let is_asked = leaving
            .requested_at
            .is_some_and(|requested_at| self.now.since(requested_at) < self.settings.delete_repeat_ms);
        if is_asked || deletion.is_some() && !is_late {
            return;
        }
        leaving.requested_at = Some(self.now);
        leaving.in_flight = true;
        let how = match &leaving.if_version {
            _ if is_late => Deletion::Forced,
            Some(version) => Deletion::IfVersion(version.clone()),
            None => Deletion::Graceful,
        };
        leaving.by_uid = uid.is_some();
        self.outputs.push(Output::Delete {
            run: id,
            kind: run.kind,
            namespace: run.namespace.clone(),
            name: run.report.pod_name.clone(),
            uid,
            how,
        });
    }
}
