//! One run: its pod as far as it is known, how it is to end, and what the server was told.

use std::collections::BTreeMap;

use pumice_fleet_model::names::pod_name;
use pumice_ledger::{RunId, TimeMs};
use pumice_wire::executor::{Lease, RunCause, RunContainer, RunPhase, RunReport};

use crate::error_categories::{Categories, Named, PodAction};
use crate::facts::{ContainerState, Kind, PodEvent, PodFacts, PodPhase};
use crate::pod::{cut_off_of, is_volcano_job};

/// How far the making of a pod is.
#[derive(Debug)]
pub enum Stage {
    /// Not begun.
    Waiting(Box<Lease>),
    /// Asked for, no answer yet: what is asked for may come to be, also where an earlier one came and went.
    Creating(Box<Lease>),
    /// Asked for, and there was no answer: it may be there, and is asked for again.
    Unanswered(Box<Lease>),
    /// Made at that time; the watch has not shown it yet.
    Made(TimeMs),
    /// The watch has shown it, or there is none any more.
    Known,
}

/// How a run ends whose pod is to go.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// Stopped, with the reason.
    Gone(String),
    /// Its lease goes back.
    Returned {
        /// One word.
        reason: String,
        /// For people.
        message: String,
        /// Something of it may have run.
        attempted: bool,
    },
    /// It has ended; only the pod is left.
    Tidy,
}

/// A pod that is to go.
#[derive(Debug)]
pub struct Leaving {
    /// What the run ends as.
    pub ending: Ending,
    /// Counts only while the pod has not changed; cleared once the cluster agreed.
    pub if_version: Option<String>,
    /// When the deletion was last asked for.
    pub requested_at: Option<TimeMs>,
    /// A deletion is under way.
    pub in_flight: bool,
    /// The last deletion was of a certain pod, and says nothing of another one of its name.
    pub by_uid: bool,
    /// Because a rule found it stuck: it was not to start any more.
    pub is_ruled: bool,
}

impl Leaving {
    /// A run that is to end so, of which nothing was asked of the cluster yet.
    pub fn new(ending: Ending) -> Self {
        Self { ending, if_version: None, requested_at: None, in_flight: false, by_uid: false, is_ruled: false }
    }
}

/// Failed pods of a Volcano job that are kept, the last ones.
const FAILED_MAX: usize = 20;
/// Of how many of them a failure tells.
const FAILED_TOLD: usize = 3;

/// A run that was leased here and whose end the server does not have yet.
#[derive(Debug)]
pub struct Run {
    pub kind: Kind,
    pub queue: String,
    pub namespace: String,
    /// After how long without an answer of the server it is stopped; none for never.
    pub cut_off_ms: Option<i64>,
    pub stage: Stage,
    /// How often its pod was asked for without an answer that tells: each may have made one, where the one before was gone.
    pub unheard: u32,
    pub pod: Option<PodFacts>,
    /// The uid of a pod of it that is gone.
    pub removed: Option<String>,
    pub leaving: Option<Leaving>,
    pub events: Vec<PodEvent>,
    /// Pods of a Volcano job that failed, and how.
    pub failed: Vec<PodFacts>,
    pub report: RunReport,
    /// When the report was sent in this session.
    pub sent: Option<TimeMs>,
    pub acknowledged: bool,
    /// It was said what kind of failure it was.
    pub is_named: bool,
    /// Its pod does not stay, though it failed.
    pub goes_at_once: bool,
}

impl Run {
    /// A run without anything.
    pub fn new(id: RunId, stage: Stage, now: TimeMs) -> Self {
        let report = RunReport {
            run_id: id.to_string(),
            phase: RunPhase::Leased as i32,
            pod_name: pod_name(id),
            time_ms: now.0,
            ..RunReport::default()
        };
        Self {
            kind: Kind::Pod,
            queue: String::new(),
            namespace: String::new(),
            cut_off_ms: None,
            stage,
            unheard: 0,
            pod: None,
            removed: None,
            leaving: None,
            events: Vec::new(),
            failed: Vec::new(),
            report,
            sent: None,
            acknowledged: false,
            is_named: false,
            goes_at_once: false,
        }
    }

    /// A run whose lease came now: nothing was made of it.
    pub fn leased(id: RunId, lease: Lease, now: TimeMs) -> Self {
        let (queue, namespace, node) = (lease.queue.clone(), lease.namespace.clone(), lease.node.clone());
        let cut_off_ms = cut_off_of(&lease);
        let kind = if is_volcano_job(&lease) { Kind::Job } else { Kind::Pod };
        let mut run = Self::new(id, Stage::Waiting(Box::new(lease)), now);
        run.report.namespace.clone_from(&namespace);
        run.report.node = node;
        Self { kind, queue, namespace, cut_off_ms, ..run }
    }

    /// The lease of a run whose pod is to be asked for, which counts as asked for now.
    pub fn begin(&mut self) -> Option<&Lease> {
        let is_stopped = self.leaving.is_some() && matches!(self.stage, Stage::Unanswered(_));
        if self.is_ended() || self.pod.is_some() || is_stopped {
            return None;
        }
        self.stage = match std::mem::replace(&mut self.stage, Stage::Known) {
            Stage::Waiting(lease) | Stage::Unanswered(lease) => Stage::Creating(lease),
            other => {
                self.stage = other;
                return None;
            }
        };
        if let Stage::Creating(lease) = &self.stage { Some(lease) } else { None }
    }

    /// There was no answer to what was asked for.
    pub fn unanswered(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Known) {
            Stage::Creating(lease) => Stage::Unanswered(lease),
            other => other,
        };
    }

    /// How far it is, as the next report to the server says.
    pub fn phase(&self) -> RunPhase {
        RunPhase::try_from(self.report.phase).unwrap_or(RunPhase::Unspecified)
    }

    /// Whether its end is known here, though the server may not have it yet.
    pub fn is_ended(&self) -> bool {
        self.report.phase >= RunPhase::Succeeded as i32
    }

    /// A pod of it may be there, or come to be.
    pub fn may_have_pod(&self) -> bool {
        self.pod.is_some() || matches!(self.stage, Stage::Creating(_) | Stage::Unanswered(_) | Stage::Made(_))
    }

    /// The uid of its pod, where it is known and not known to be gone.
    pub fn uid(&self) -> Option<&String> {
        let uid = self.pod.as_ref().map_or(&self.report.pod_uid, |pod| &pod.uid);
        Some(uid).filter(|uid| !uid.is_empty() && self.removed.as_ref() != Some(*uid))
    }

    /// Part of the whole state: all but ends that the server has.
    pub fn is_worth_telling(&self) -> bool {
        !(self.is_ended() && self.acknowledged)
    }

    /// To be sent now. That it was taken is said once in a session: nothing follows from it, and nobody acknowledges it.
    pub fn is_due(&self, now: TimeMs, repeat_ms: i64) -> bool {
        let is_overdue = |sent| self.phase() != RunPhase::Leased && now.since(sent) >= repeat_ms;
        !self.acknowledged && self.sent.is_none_or(is_overdue)
    }

    /// Said again, whatever the server acknowledged.
    pub fn tell_again(&mut self) {
        self.sent = None;
        self.acknowledged = false;
    }

    /// Moves on to a phase.
    fn turn(&mut self, phase: RunPhase, at: TimeMs) {
        self.report.phase = phase as i32;
        self.report.time_ms = at.0;
        self.tell_again();
    }

    /// Ends, unless it has ended.
    fn end(&mut self, phase: RunPhase, at: TimeMs, reason: &str, message: &str) -> bool {
        if self.is_ended() {
            return false;
        }
        self.turn(phase, at);
        reason.clone_into(&mut self.report.reason);
        message.clone_into(&mut self.report.message);
        true
    }

    /// Ends it as one whose pod is gone, whatever became of that.
    pub fn end_gone(&mut self, now: TimeMs, reason: &str) {
        self.end(RunPhase::Gone, now, "Gone", reason);
    }

    /// What was said of its end does not count for the server: it is gone, and nothing else.
    pub fn overrule(&mut self, now: TimeMs, reason: &str) {
        if self.phase() != RunPhase::Gone {
            self.report.phase = RunPhase::Leased as i32;
            self.report.cause = RunCause::Unspecified as i32;
            self.report.containers.clear();
            self.report.category.clear();
            self.report.subcategory.clear();
            self.end_gone(now, reason);
        } else {
            self.tell_again();
        }
    }

    /// Gives its lease back to the server; `attempted` where a program of it may have run.
    pub fn end_returned(&mut self, now: TimeMs, reason: &str, message: &str, attempted: bool) {
        if self.end(RunPhase::Returned, now, reason, message) {
            self.report.run_attempted = attempted;
        }
    }

    /// Says what kind of failure it was, where it failed.
    pub fn name_failure(&mut self, categories: &Categories) {
        if self.phase() != RunPhase::Failed || self.is_named {
            return;
        }
        self.is_named = true;
        let Named { category, subcategory, hint, action } = categories.of(&self.report, &self.events);
        (self.report.category, self.report.subcategory) = (category, subcategory);
        if !hint.is_empty() {
            let text = [self.report.message.as_str(), &hint].into_iter().filter(|text| !text.is_empty());
            self.report.message = text.collect::<Vec<_>>().join("\n\n");
        }
        self.goes_at_once = action == PodAction::Delete;
    }

    /// Ends it as a failure of its own, with what is known of its containers.
    pub fn fail(&mut self, now: TimeMs, reason: &str, message: &str) {
        if self.end(RunPhase::Failed, now, reason, message) {
            self.report.cause = RunCause::Error as i32;
            self.report.run_attempted = true;
            self.report.containers = self.pod.as_ref().map(|pod| self.ended(pod)).unwrap_or_default();
        }
    }

    /// Fails before anything could run.
    pub fn fail_rejected(&mut self, now: TimeMs, reason: &str, message: &str) {
        if self.end(RunPhase::Failed, now, reason, message) {
            self.report.cause = RunCause::Rejected as i32;
        }
    }

    /// There is no pod, and none will come: the run is over, in the way that was meant.
    pub fn settle(&mut self, now: TimeMs, unmeant: &str) {
        self.pod = None;
        self.stage = Stage::Known;
        match self.leaving.take().map(|leaving| leaving.ending) {
            Some(Ending::Returned { reason, message, attempted }) => {
                self.end_returned(now, &reason, &message, attempted);
            }
            Some(Ending::Gone(reason)) => self.end_gone(now, &reason),
            Some(Ending::Tidy) | None => self.end_gone(now, unmeant),
        }
    }

    /// Takes in what its pod says, where that counts.
    pub fn follow(&mut self, pod: PodFacts) {
        pod.namespace.clone_into(&mut self.namespace);
        pod.queue.clone_into(&mut self.queue);
        self.kind = pod.kind;
        // An earlier release called it otherwise.
        self.report.pod_name.clone_from(&pod.name);
        if !self.is_ended() {
            self.report.namespace.clone_from(&pod.namespace);
            self.report.pod_uid.clone_from(&pod.uid);
            if !pod.node.is_empty() {
                self.report.node.clone_from(&pod.node);
            }
        }
        if !matches!(self.stage, Stage::Creating(_)) {
            self.stage = Stage::Known;
        }
        // What a pod says while it is put to an end is not the run's own doing.
        let is_leaving = self.leaving.is_some() || pod.deletion.is_some() && pod.phase.is_finished();
        if !self.is_ended() && !is_leaving {
            self.follow_phase(&pod);
        }
        self.pod = Some(pod);
    }

    fn follow_phase(&mut self, pod: &PodFacts) {
        let phase = match pod.phase {
            PodPhase::Pending | PodPhase::Unknown => RunPhase::Pending,
            PodPhase::Running => RunPhase::Running,
            PodPhase::Succeeded => RunPhase::Succeeded,
            PodPhase::Failed => RunPhase::Failed,
        };
        // Nothing goes back.
        if phase as i32 <= self.report.phase {
            return;
        }
        self.turn(phase, pod.since);
        if matches!(phase, RunPhase::Succeeded | RunPhase::Failed) {
            self.report.run_attempted = true;
            self.report.containers = self.ended(pod);
            self.report.reason.clone_from(&pod.reason);
            self.report.message.clone_from(&pod.message);
        }
        if phase == RunPhase::Failed {
            self.report.cause = cause(pod) as i32;
            if self.report.message.is_empty() {
                self.report.message = how_it_failed(pod);
            }
            self.name_failed();
        }
    }

    /// A pod of a Volcano job failed.
    pub fn member_failed(&mut self, pod: &PodFacts) {
        self.failed.retain(|known| known.uid != pod.uid);
        if self.failed.len() == FAILED_MAX {
            self.failed.remove(0);
        }
        self.failed.push(pod.clone());
    }

    /// The containers that ended: of a Volcano job those of its pods that failed.
    fn ended(&self, pod: &PodFacts) -> Vec<RunContainer> {
        match pod.kind {
            Kind::Pod => containers(pod),
            Kind::Job => self.failed.iter().flat_map(containers).collect(),
        }
    }

    /// Says of pods of a Volcano job how they failed.
    fn name_failed(&mut self) {
        for pod in self.failed.iter().take(FAILED_TOLD) {
            let how = how_it_failed(pod);
            let how = [pod.message.as_str(), &how].into_iter().find(|text| !text.is_empty()).unwrap_or("it failed");
            self.report.message = format!("{}; pod {}: {how}", self.report.message, pod.name);
        }
    }

    /// Its pod was made, and will be seen.
    pub fn made(&mut self, uid: String, now: TimeMs) {
        self.stage = Stage::Made(now);
        self.report.pod_uid = uid;
        if self.report.phase < RunPhase::Pending as i32 {
            self.turn(RunPhase::Pending, now);
        }
    }

    /// Takes in the addresses of its ingresses, by port; they are told only before its end.
    pub fn set_addresses(&mut self, addresses: BTreeMap<i32, String>) {
        if !self.is_ended() && self.report.ingress_addresses != addresses {
            self.report.ingress_addresses = addresses;
            self.tell_again();
        }
    }
}

/// What a pod's status does not say itself: which of its containers failed, and how.
fn how_it_failed(pod: &PodFacts) -> String {
    let failed = pod.containers.iter().filter_map(|container| match &container.state {
        ContainerState::Ended { exit_code, reason, message } if *exit_code != 0 => {
            let because = [reason, message].map(String::as_str).into_iter().filter(|text| !text.is_empty());
            let because = because.collect::<Vec<_>>().join(": ");
            let because = if because.is_empty() { because } else { format!(" ({because})") };
            Some(format!("container {} ended with exit code {exit_code}{because}", container.name))
        }
        _ => None,
    });
    let failed: Vec<String> = failed.collect();
    if failed.is_empty() { pod.reason.clone() } else { failed.join("; ") }
}

/// What a failure comes down to.
fn cause(pod: &PodFacts) -> RunCause {
    let is_out_of_memory = |state: &ContainerState| container_cause(state) == RunCause::OutOfMemory;
    match pod.reason.as_str() {
        "Evicted" => RunCause::Evicted,
        "DeadlineExceeded" => RunCause::DeadlineExceeded,
        _ if pod.containers.iter().any(|container| is_out_of_memory(&container.state)) => RunCause::OutOfMemory,
        _ => RunCause::Error,
    }
}

fn container_cause(state: &ContainerState) -> RunCause {
    match state {
        ContainerState::Ended { reason, .. } if reason == "OOMKilled" => RunCause::OutOfMemory,
        ContainerState::Ended { exit_code, .. } if *exit_code != 0 => RunCause::Error,
        _ => RunCause::Unspecified,
    }
}

/// The containers that ended.
fn containers(pod: &PodFacts) -> Vec<RunContainer> {
    let ended = pod.containers.iter().filter_map(|container| match &container.state {
        ContainerState::Ended { exit_code, reason, message } => Some(RunContainer {
            name: container.name.clone(),
            exit_code: *exit_code,
            message: message.clone(),
            reason: reason.clone(),
            cause: container_cause(&container.state) as i32,
        }),
        ContainerState::Waiting { .. } | ContainerState::Running => None,
    });
    ended.collect()
}
