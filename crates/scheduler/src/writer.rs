//! Carries plans out: calls side by side within the window, one at a time for each object.
//!
//! Invariant: binds go first; of several statuses of one object only the newest waits. A write that failed and may
//! succeed later comes back as `again`, after a pause; a bind that was not decided on is asked for again, to the same
//! node. Owned by the loop.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::{Api, Client};
use pumice_api::scheduling::{PodGroup, Queue};
use pumice_cluster::events::{Occurrence, Severity};
use pumice_cluster::{EventRecorder, Failure, PodRef, failure, write};
use pumice_engine::{Bind, GroupUpdate, Plan, PodNotice, QueueUpdate};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clock;
use crate::intake::Intake;
use crate::patches::{self, QueueNames, Stamps};
use crate::window::Window;

/// A call without an answer by then has failed.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause before a failed status is written again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What a call was about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Bind { uid: String },
    Group { namespace: String, name: String },
    Pod { uid: String },
    Queue { name: String },
}

/// What came of a call.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) subject: Subject,
    pub(crate) failed: Option<(Failure, String)>,
    /// The failure says nothing about what was asked for: it may have happened, or the server had no time for it.
    undecided: bool,
}

pub(crate) struct Writer {
    client: Client,
    recorder: EventRecorder,
    window: Window,
    calls: JoinSet<Answer>,
    binds: VecDeque<Bind>,
    /// Binds under way, by uid.
    binding: BTreeMap<String, Bind>,
    groups: BTreeMap<Subject, GroupUpdate>,
    pods: VecDeque<PodNotice>,
    queues: BTreeMap<Subject, QueueUpdate>,
    busy: BTreeSet<Subject>,
    stamps: Stamps,
    queue_names: QueueNames,
    cycles: u64,
    again: VecDeque<(Instant, Subject)>,
    binds_again: VecDeque<(Instant, Bind)>,
}

impl Writer {
    pub(crate) fn new(client: Client, recorder: EventRecorder) -> Self {
        Self {
            client,
            recorder,
            window: Window::new(),
            calls: JoinSet::new(),
            binds: VecDeque::new(),
            binding: BTreeMap::new(),
            groups: BTreeMap::new(),
            pods: VecDeque::new(),
            queues: BTreeMap::new(),
            busy: BTreeSet::new(),
            stamps: Stamps::default(),
            queue_names: QueueNames::default(),
            cycles: 0,
            again: VecDeque::new(),
            binds_again: VecDeque::new(),
        }
    }

    /// Takes a plan and starts what there is room for.
    pub(crate) fn carry_out(&mut self, plan: Plan, intake: &Intake) {
        self.cycles += 1;
        self.binds.extend(plan.binds);
        for update in plan.groups {
            let (namespace, name) = (update.namespace.clone(), update.name.clone());
            self.groups.insert(Subject::Group { namespace, name }, update);
        }
        self.pods.extend(plan.pods);
        for update in plan.queues {
            self.queues.insert(Subject::Queue { name: update.name.clone() }, update);
        }
        self.start(intake);
    }

    /// Starts calls while the window has room.
    pub(crate) fn start(&mut self, intake: &Intake) {
        let now = Instant::now();
        while self.binds_again.front().is_some_and(|(at, _)| *at <= now) {
            self.binds.extend(self.binds_again.pop_front().map(|(_, bind)| bind));
        }
        while self.window.has_room() {
            if let Some(bind) = self.binds.pop_front() {
                self.bind(bind);
            } else if let Some(subject) = self.groups.keys().find(|subject| !self.busy.contains(subject)).cloned() {
                let update = self.groups.remove(&subject).expect("found by its key");
                self.group(subject, &update);
            } else if let Some(notice) = self.pods.pop_front() {
                self.pod(&notice, intake);
            } else if let Some(subject) = self.queues.keys().find(|subject| !self.busy.contains(subject)).cloned() {
                let update = self.queues.remove(&subject).expect("found by its key");
                self.queue(subject, &update, intake);
            } else {
                return;
            }
        }
    }

    /// The next answer; nothing while no call runs. Cancel safe.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        loop {
            match self.calls.join_next().await? {
                Ok(answer) => return Some(answer),
                // A crash inside of a call is its answer, and calls are not aborted.
                Err(error) => tracing::error!(%error, "a call of the scheduler was lost"),
            }
        }
    }

    /// Books an answer; false if a newer status of the object is on its way, or the bind is asked for again.
    pub(crate) fn answered(&mut self, answer: &Answer) -> bool {
        let overloaded = matches!(answer.failed, Some((Failure::Unavailable, _)));
        self.window.answered(overloaded);
        self.busy.remove(&answer.subject);
        if let Subject::Bind { uid } = &answer.subject
            && let Some(bind) = self.binding.remove(uid)
            && answer.undecided
        {
            // Its room is not given away: the pod may be there, and the server says so then; or its gang is half-way.
            self.binds_again.push_back((Instant::now() + AGAIN_AFTER, bind));
            return false;
        }
        let newer = self.groups.contains_key(&answer.subject) || self.queues.contains_key(&answer.subject);
        if let Some((failure, error)) = &answer.failed {
            tracing::debug!(subject = ?answer.subject, ?failure, error, "call failed");
            // A pod that has changed is looked at again: it may wait still.
            let changed = *failure == Failure::Conflict && matches!(answer.subject, Subject::Pod { .. });
            let may_succeed = changed || matches!(failure, Failure::Unavailable | Failure::Forbidden);
            let is_status = !matches!(answer.subject, Subject::Bind { .. });
            if may_succeed && is_status && !newer {
                self.again.push_back((Instant::now() + AGAIN_AFTER, answer.subject.clone()));
            }
        }
        !newer
    }

    /// When the next failed status, or bind, is due again.
    pub(crate) fn next_again(&self) -> Option<Instant> {
        let bind = self.binds_again.front().map(|(at, _)| *at);
        self.again.front().map(|(at, _)| *at).into_iter().chain(bind).min()
    }

    /// A failed status that is due again.
    pub(crate) fn pop_again(&mut self, now: Instant) -> Option<Subject> {
        self.again.front().filter(|(at, _)| *at <= now)?;
        self.again.pop_front().map(|(_, subject)| subject)
    }

    /// Forgets what was remembered of groups that are gone, once there is much of it.
    pub(crate) fn tidy(&mut self, intake: &Intake) {
        if self.stamps.len() > 2 * intake.groups() + 1024 {
            let there = intake.group_uids();
            self.stamps.keep(|uid| there.contains(uid));
        }
    }

    fn call(&mut self, subject: Subject, call: impl Future<Output = Result<(), kube::Error>> + Send + 'static) {
        self.window.started();
        self.busy.insert(subject.clone());
        self.calls.spawn(async move {
            let call = AssertUnwindSafe(tokio::time::timeout(CALL_TIMEOUT, call)).catch_unwind();
            let (failed, undecided) = match call.await {
                Ok(Ok(Ok(()))) => (None, false),
                Ok(Ok(Err(error))) => (Some((failure(&error), error.to_string())), is_undecided(&error)),
                Ok(Err(_)) => (Some((Failure::Unavailable, format!("no answer within {CALL_TIMEOUT:?}"))), true),
                Err(_) => (Some((Failure::Unavailable, "the call crashed".to_owned())), false),
            };
            Answer { subject, failed, undecided }
        });
    }

    fn bind(&mut self, bind: Bind) {
        let (client, recorder) = (self.client.clone(), self.recorder.clone());
        self.binding.insert(bind.uid.clone(), bind.clone());
        self.call(Subject::Bind { uid: bind.uid.clone() }, async move {
            let pod = PodRef { namespace: &bind.namespace, name: &bind.name, uid: &bind.uid };
            write::bind_pod(&client, pod, &bind.node, &BTreeMap::new()).await?;
            let message = format!("Successfully assigned {}/{} to {}", bind.namespace, bind.name, bind.node);
            let about = reference("v1", "Pod", &bind.namespace, &bind.name, &bind.uid);
            recorder.record(occurrence(about, Severity::Normal, "Scheduled", message));
            Ok(())
        });
    }

    fn group(&mut self, subject: Subject, update: &GroupUpdate) {
        let patch = self.stamps.group(update, clock::now(), &self.cycles.to_string());
        let groups: Api<PodGroup> = Api::namespaced(self.client.clone(), &update.namespace);
        let name = update.name.clone();
        let blocked =
            update.status.conditions.iter().find(|condition| condition.kind == "Unschedulable" && condition.status);
        if let Some(condition) = blocked {
            let version = <PodGroup as k8s_openapi::Resource>::API_VERSION;
            let about = reference(version, "PodGroup", &update.namespace, &name, &update.uid);
            self.recorder.record(occurrence(about, Severity::Warning, "Unschedulable", condition.message.clone()));
        }
        self.call(subject, async move { write::merge(&groups, &name, &patch).await.map(drop) });
    }

    fn pod(&mut self, notice: &PodNotice, intake: &Intake) {
        // It may have got a node, or be gone, since this was planned.
        let Some(seen) = intake.unbound(&notice.uid) else { return };
        let patch = patches::pod(notice, seen, clock::now());
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &notice.namespace);
        let name = notice.name.clone();
        let about = reference("v1", "Pod", &notice.namespace, &name, &notice.uid);
        self.recorder.record(occurrence(about, Severity::Warning, "FailedScheduling", notice.message.clone()));
        self.call(Subject::Pod { uid: notice.uid.clone() }, async move {
            write::merge_status(&pods, &name, &patch).await.map(drop)
        });
    }

    fn queue(&mut self, subject: Subject, update: &QueueUpdate, intake: &Intake) {
        let patch: Value = self.queue_names.queue(update, intake.held(&update.name));
        let queues: Api<Queue> = Api::all(self.client.clone());
        let name = update.name.clone();
        self.call(subject, async move { write::merge_status(&queues, &name, &patch).await.map(drop) });
    }
}

/// Whether a call that failed so may have reached the server without an answer, or was turned away unread.
fn is_undecided(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 429 | 502..=504),
        _ => failure(error) == Failure::Unavailable,
    }
}

fn reference(version: &str, kind: &str, namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(version.to_owned()),
        kind: Some(kind.to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

fn occurrence(about: ObjectReference, severity: Severity, reason: &str, message: String) -> Occurrence {
    Occurrence { about, severity, reason: reason.to_owned(), message, at: clock::now() }
}
