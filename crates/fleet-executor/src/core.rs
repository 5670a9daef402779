//! What the executor does next: every decision, as a function of what happened.
//!
//! Invariant: of one run at most one pod is asked for, and a run ends once; its end is reported until the server has it.
//! A run whose pod may be there ends only when the pod is known to be gone, be it by the watch or by the cluster's answer to
//! a deletion. Pure: no clock, no I/O; the shell calls [`Core::apply`] and carries out the [`Output`]s in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pumice_ledger::{RunId, TimeMs};
use pumice_units::with_causes;
use pumice_wire::executor::{Errand, RunReport, Runs, ToExecutor};

use super::error_categories::{Categories, CategoryError};
use super::facts::{Kind, PodEvent, PodFacts};
use super::metrics::{RunCounts, word};
use super::pending_checks::{Checks, PatternError};
use super::settings::Settings;

mod cleanup;
mod pods;
mod run;
mod session;

use run::{Run, Stage};

/// Runs that came to an end and were forgotten, kept so that they are not started again.
const ENDED_MAX: usize = 10_000;
/// Reports in one message that is not the whole state.
const REPORTS_MAX: usize = 1000;
/// Warnings that are kept of one pod.
const EVENTS_MAX: usize = 20;

/// What the core is told: of the session, of pods, of nodes and of the time. It decides from nothing else.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A session was opened: `Hello` and the nodes were sent. Sessions have larger numbers than those before.
    Connected {
        session: u64,
    },
    Disconnected,
    /// The server said something.
    Message {
        session: u64,
        message: Box<ToExecutor>,
    },
    /// These are all pods of runs, but for those of Volcano jobs.
    Pods(Vec<PodFacts>),
    /// These are all Jobs of Volcano jobs.
    Jobs(Vec<PodFacts>),
    /// A pod is new or changed, or the Job of a Volcano job.
    Pod(Box<PodFacts>),
    /// A pod of a Volcano job failed.
    MemberFailed(Box<PodFacts>),
    /// A pod is gone.
    PodRemoved {
        run: RunId,
        uid: String,
    },
    /// Something warns about a pod.
    PodEvent {
        run: RunId,
        event: PodEvent,
    },
    /// A pod was made, or is there already and is of this run.
    Created {
        run: RunId,
        uid: String,
    },
    /// A pod was not made.
    NotCreated {
        run: RunId,
        refusal: Refusal,
    },
    /// The cluster answered a deletion.
    Deleted {
        run: RunId,
        answer: DeleteAnswer,
    },
    /// Where a run's ports are reached.
    Addresses {
        run: RunId,
        /// Addresses by port.
        addresses: BTreeMap<i32, String>,
    },
    Tick,
}

/// Why a pod was not made.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub kind: RefusalKind,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// What follows from a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// It is refused everywhere: the run fails.
    Fatal,
    /// It was not made: the lease goes back.
    Refused,
    /// The run before still has the name, from a release that called pods otherwise: the lease goes back, and the next
    /// attempt has another name. No try of the job's is used up.
    Taken,
    /// The answer does not tell whether it was made.
    Unclear,
    /// There was no answer, and it may have been made: it is asked for again, under the same name.
    Unanswered,
}

/// How the cluster answered a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteAnswer {
    /// The pod is on its way.
    Accepted,
    /// There is no such pod.
    NotFound,
    /// The pod is not what it was.
    Changed,
    /// There was no answer, or none that helps.
    Failed,
}

/// What the core decides: what the component asks of the cluster, and what it sends or ends in the session.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Make these; the answer is [`Input::Created`] or [`Input::NotCreated`], of the pod.
    Create {
        run: RunId,
        objects: Box<super::pod::Objects>,
    },
    /// Delete a pod, or the Job of a Volcano job with its pods; the answer is [`Input::Deleted`].
    Delete {
        run: RunId,
        kind: Kind,
        namespace: String,
        name: String,
        /// The pod's uid, where it is known: another is left alone.
        uid: Option<String>,
        how: Deletion,
    },
    /// Do this at once, and tell the server what came of it. No run is another for it.
    RunErrand(Box<Errand>),
    /// Say this to the server.
    Report(Runs),
    EndSession(SessionEnd),
}

/// How a pod is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// Within its grace period.
    Graceful,
    /// Within its grace period, and only if it is still this version.
    IfVersion(String),
    /// At once, whether its node says so or not.
    Forced,
}

/// Why a session is ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// A message is missing, or one came before its time.
    OutOfOrder,
    Redirect(String),
}

/// Settings that can't be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// A rule for pods that don't start.
    #[error(transparent)]
    Stuck(#[from] PatternError),
    /// A rule for failures.
    #[error(transparent)]
    Category(#[from] CategoryError),
}

/// The state of an executor.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    checks: Checks,
    categories: Categories,
    runs: BTreeMap<RunId, Run>,
    /// Runs whose pods are not begun, in the order of their leases.
    waiting: VecDeque<RunId>,
    /// Runs whose pods were asked for without an answer, until the next tick.
    again: Vec<RunId>,
    /// Pods that are being made.
    creating: usize,
    /// Ended and forgotten, oldest first in `ended_order`.
    ended: BTreeSet<RunId>,
    ended_order: VecDeque<RunId>,
    /// All pods were seen once.
    synced: bool,
    session: Option<Session>,
    /// When the server last answered; before it did, when all this began.
    heard: Option<TimeMs>,
    heartbeat_ms: u64,
    now: TimeMs,
    outputs: Vec<Output>,
    /// Reports on what is no run.
    strays: Vec<RunReport>,
}

#[derive(Debug)]
struct Session {
    number: u64,
    /// The last of the server's messages.
    seen: u64,
    /// The whole state was reported.
    is_told: bool,
    /// It is being ended: nothing more is taken.
    is_over: bool,
}

impl Core {
    /// An executor that knows of nothing.
    ///
    /// # Errors
    /// Settings that can't be used.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        Ok(Self {
            checks: Checks::new(&settings.stuck)?,
            categories: Categories::new(&settings.error_categories)?,
            settings,
            runs: BTreeMap::new(),
            waiting: VecDeque::new(),
            again: Vec::new(),
            creating: 0,
            ended: BTreeSet::new(),
            ended_order: VecDeque::new(),
            synced: false,
            session: None,
            heard: None,
            heartbeat_ms: 0,
            now: TimeMs(0),
            outputs: Vec::new(),
            strays: Vec::new(),
        })
    }

    /// Takes in what happened at `now`, and says what to do, in order. `O(what is named)`; a tick `O(runs)`.
    #[must_use]
    pub fn apply(&mut self, now: TimeMs, input: Input) -> Vec<Output> {
        self.now = self.now.max(now);
        self.heard.get_or_insert(self.now);
        match input {
            Input::Connected { session } => self.connected(session),
            Input::Disconnected => self.session = None,
            Input::Message { session, message } => self.message(session, *message),
            Input::Pods(pods) => {
                self.all(Kind::Pod, pods);
                self.synced = true;
            }
            Input::Jobs(jobs) => self.all(Kind::Job, jobs),
            Input::MemberFailed(pod) => self.member_failed(&pod),
            Input::Pod(pod) => self.pod(*pod),
            Input::PodRemoved { run, uid } => self.pod_removed(run, &uid),
            Input::PodEvent { run, event } => self.pod_event(run, event),
            Input::Created { run, uid } => self.created(run, uid),
            Input::NotCreated { run, refusal } => self.not_created(run, refusal),
            Input::Deleted { run, answer } => self.deleted(run, answer),
            Input::Addresses { run, addresses } => self.addresses(run, addresses),
            Input::Tick => self.tick(),
        }
        self.start_pods();
        self.report();
        std::mem::take(&mut self.outputs)
    }

    /// The patterns of the settings, for the shell to sort refusals by.
    #[must_use]
    pub fn checks(&self) -> &Checks {
        &self.checks
    }

    /// Its runs, for metrics. `O(runs)`.
    #[must_use]
    pub fn counts(&self) -> RunCounts {
        let mut counts = RunCounts::default();
        for run in self.runs.values() {
            let key = (run.queue.clone(), word(run.phase()));
            *counts.phases.entry(key).or_default() += 1;
            counts.waiting += u64::from(matches!(run.stage, Stage::Waiting(_)) && !run.is_ended());
            counts.unacknowledged += u64::from(run.is_ended() && !run.acknowledged);
        }
        counts
    }

    /// The queue of a run, and its node.
    #[must_use]
    pub fn owner(&self, run: RunId) -> Option<(&str, &str)> {
        self.runs.get(&run).map(|run| (run.queue.as_str(), run.report.node.as_str()))
    }

    /// How often the server wants to hear something, milliseconds; 0 before it said.
    #[must_use]
    pub fn heartbeat_ms(&self) -> u64 {
        self.heartbeat_ms
    }

    /// The last of the server's messages in this session.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.session.as_ref().map_or(0, |session| session.seen)
    }

    /// Whether all pods were seen, before which no session should be opened.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Begins pods while there is room.
    fn start_pods(&mut self) {
        while self.creating < self.settings.starts_max {
            let Some(id) = self.waiting.pop_front() else { return };
            let Some(run) = self.runs.get_mut(&id) else { continue };
            // One that ended meanwhile, or whose pod appeared, is not begun.
            let Some(lease) = run.begin() else { continue };
            match super::pod::build(id, lease, &self.settings) {
                Ok(objects) => {
                    self.creating += 1;
                    self.outputs.push(Output::Create { run: id, objects: Box::new(objects) });
                }
                Err(error) => {
                    run.stage = Stage::Known;
                    run.fail_rejected(self.now, "InvalidLease", &with_causes(&error));
                }
            }
        }
    }

    /// Sends what was not sent, or not acknowledged in time.
    fn report(&mut self) {
        let Some(session) = self.session.as_mut().filter(|session| self.synced && !session.is_over) else { return };
        let complete = !session.is_told;
        session.is_told = true;
        let mut reports = std::mem::take(&mut self.strays);
        let repeat_ms = self.settings.report_repeat_ms;
        for run in self.runs.values_mut() {
            run.name_failure(&self.categories);
            if complete && run.is_worth_telling() || run.is_due(self.now, repeat_ms) {
                run.sent = Some(self.now);
                reports.push(run.report.clone());
            }
        }
        if complete {
            self.outputs.push(Output::Report(Runs { complete, reports }));
        } else {
            let chunks = reports.chunks(REPORTS_MAX).map(|reports| Runs { complete, reports: reports.to_vec() });
            self.outputs.extend(chunks.map(Output::Report));
        }
    }

    /// Forgets a run that is over in every way.
    fn forget(&mut self, id: RunId) {
        self.runs.remove(&id);
        if self.ended.insert(id) {
            self.ended_order.push_back(id);
            if self.ended_order.len() > ENDED_MAX
                && let Some(oldest) = self.ended_order.pop_front()
            {
                self.ended.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
