//! Carries plans out: calls side by side within the window, one at a time for each object.
//!
//! Invariant: binds go first, but one call in `OTHERS_EVERY` is for the rest; of several statuses of one object only
//! the newest is written. A write that failed and may succeed later comes back as `again`, after a pause; a bind or an
//! eviction that was not decided on is asked for again as it was. Owned by the loop.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::Client;
use pumice_clock as clock;
use pumice_cluster::events::Severity;
use pumice_cluster::{EventRecorder, Failure, Window, failure};
use pumice_engine::{
    Bind, Ending, Eviction, FreedRoom, GroupUid, GroupUpdate, Late, NodeName, Pipelined, Plan, PodNotice, PodUid,
    QueueUpdate, Ungate,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::patches::{self, QueueNames, Stamps};
use crate::watch_to_deltas::WatchedObjects;

mod calls;
mod coalescing_queue;
mod events;

use coalescing_queue::CoalescingQueue;
use events::{About, GroupEvents};

/// A call without an answer by then has failed.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause before a failed write is made again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// While binds wait, one call of so many is another one.
const OTHERS_EVERY: u32 = 8;
/// What changes with every pod is written once it has not changed for so long, or has waited for so long.
const SETTLE_GROUP: Duration = Duration::from_millis(500);
const SETTLE_POD: Duration = Duration::from_millis(250);
const SETTLE_QUEUE: Duration = Duration::from_secs(1);

/// What a call was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    Bind(Arc<Bind>),
    Evict(Arc<Eviction>),
    Ungate {
        uid: PodUid,
    },
    /// The nodes that this scheduler's NodeShard has.
    Shard {
        name: String,
    },
    Group {
        namespace: String,
        name: String,
    },
    Pod {
        uid: PodUid,
    },
    Queue {
        name: String,
    },
    /// Nobody waits for the answer.
    Nomination,
}

/// What came of a call.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) subject: Subject,
    pub(crate) failed: Option<(Failure, String)>,
    /// The failure says nothing about what was asked for: it may have happened, or the server had no time for it.
    undecided: bool,
    took: Duration,
}

/// What the World is told of an answer.
#[derive(Debug, PartialEq)]
pub(crate) enum CallOutcome {
    /// Nothing: it is asked for again, or nobody waits.
    No,
    Bind {
        uid: PodUid,
        error: Option<String>,
    },
    Evict {
        uid: PodUid,
        error: Option<String>,
    },
    /// A gate could not be removed.
    Gated {
        uid: PodUid,
    },
    Group {
        namespace: String,
        name: String,
    },
}

/// A nomination to be written, or taken back.
#[derive(Debug, Clone)]
struct Nomination {
    namespace: String,
    name: String,
    uid: PodUid,
    node: Option<NodeName>,
}

pub(crate) struct Writer {
    client: Client,
    events: GroupEvents,
    metrics: Metrics,
    window: Window,
    calls: JoinSet<Answer>,
    binds: VecDeque<Arc<Bind>>,
    evictions: VecDeque<Arc<Eviction>>,
    ungates: VecDeque<Ungate>,
    shards: CoalescingQueue<String, Vec<String>>,
    groups: CoalescingQueue<(String, String), GroupUpdate>,
    pods: CoalescingQueue<PodUid, PodNotice>,
    queues: CoalescingQueue<String, QueueUpdate>,
    nominations: VecDeque<Nomination>,
    /// What the pods were told last, by uid.
    nominated: HashMap<PodUid, Nomination>,
    stamps: Stamps,
    queue_names: QueueNames,
    cycles: u64,
    started: u32,
    again: VecDeque<(Instant, Subject)>,
}

impl Writer {
    pub(crate) fn new(client: Client, recorder: EventRecorder, metrics: Metrics) -> Self {
        Self {
            client,
            events: GroupEvents::new(recorder),
            metrics,
            window: Window::default(),
            calls: JoinSet::new(),
            binds: VecDeque::new(),
            evictions: VecDeque::new(),
            ungates: VecDeque::new(),
            shards: CoalescingQueue::new(SETTLE_QUEUE),
            groups: CoalescingQueue::new(SETTLE_GROUP),
            pods: CoalescingQueue::new(SETTLE_POD),
            queues: CoalescingQueue::new(SETTLE_QUEUE),
            nominations: VecDeque::new(),
            nominated: HashMap::new(),
            stamps: Stamps::default(),
            queue_names: QueueNames::default(),
            cycles: 0,
            started: 0,
            again: VecDeque::new(),
        }
    }

    /// Takes a plan and starts what there is room for.
    pub(crate) fn carry_out(&mut self, plan: Plan, watched: &WatchedObjects) {
        let now = Instant::now();
        self.cycles += 1;
        self.binds.extend(plan.binds.into_iter().map(Arc::new));
        // Who does not run yet loses nothing.
        let evictions = plan.evictions.into_iter().map(Arc::new);
        let (running, waiting): (Vec<_>, Vec<_>) = evictions.partition(|eviction| eviction.running);
        self.evictions.extend(waiting);
        self.evictions.extend(running);
        self.ungates.extend(plan.ungates);
        for late in &plan.late {
            self.late(late);
        }
        plan.settled.iter().for_each(|room| self.freed(room));
        for update in plan.groups {
            // Pods are made once their group is admitted; counts and messages change with every pod.
            let urgent = self.stamps.is_newly_admitted(&update);
            self.groups.put((update.namespace.clone(), update.name.clone()), update, urgent, now);
        }
        for notice in plan.pods {
            self.pods.put(notice.uid.clone(), notice, false, now);
        }
        for update in plan.queues {
            self.queues.put(update.name.clone(), update, false, now);
        }
        for pipelined in plan.pipelined.into_iter().filter(|pipelined| pipelined.fenced) {
            self.nominate(pipelined);
        }
        self.start(watched);
    }

    /// Starts calls while the window has room.
    pub(crate) fn start(&mut self, watched: &WatchedObjects) {
        let now = Instant::now();
        self.events.gathered(now, |namespace, name| watched.group_uid(namespace, name));
        while self.window.has_room() && self.start_next(watched, now) {
            self.started = self.started.wrapping_add(1);
        }
        self.metrics.in_flight(self.window.in_flight(), self.window.limit());
    }

    /// Starts one call; false if none waits.
    fn start_next(&mut self, watched: &WatchedObjects, now: Instant) -> bool {
        let others_first = self.started.is_multiple_of(OTHERS_EVERY);
        if !others_first && let Some(bind) = self.binds.pop_front() {
            self.bind(bind);
            return true;
        }
        if let Some(eviction) = self.evictions.pop_front() {
            self.evict(eviction, watched);
        } else if let Some(ungate) = self.ungates.pop_front() {
            let subject = Subject::Ungate { uid: ungate.uid.clone() };
            let call = calls::ungate(self.client.clone(), ungate);
            self.call(subject, call);
        } else if let Some(((namespace, name), update)) = self.groups.pop(now) {
            self.group(Subject::Group { namespace, name }, &update);
        } else if let Some((uid, notice)) = self.pods.pop(now) {
            self.pod(uid, &notice, watched, now);
        } else if let Some(nomination) = self.nominations.pop_front() {
            let client = self.client.clone();
            self.call(Subject::Nomination, calls::nominate(client, nomination));
        } else if let Some((name, update)) = self.queues.pop(now) {
            let patch = self.queue_names.queue(&update, watched.allocated(&name));
            let client = self.client.clone();
            self.call(Subject::Queue { name: name.clone() }, calls::queue(client, name, patch));
        } else if let Some((name, nodes)) = self.shards.pop(now) {
            let call = calls::shard(self.client.clone(), name.clone(), nodes, clock::now());
            self.call(Subject::Shard { name }, call);
        } else if let Some(bind) = self.binds.pop_front() {
            self.bind(bind);
        } else {
            return false;
        }
        true
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

    /// Another answer that is there already.
    pub(crate) fn answer_now(&mut self) -> Option<Answer> {
        self.calls.try_join_next()?.ok()
    }

    /// Frees the place that the call had in the window, and lines it up again where it has to be. Gives what the World is told.
    pub(crate) fn answered(&mut self, answer: Answer) -> CallOutcome {
        let now = Instant::now();
        let Answer { subject, failed, undecided, took } = answer;
        self.window.answered(matches!(failed, Some((Failure::Unavailable, _))));
        if let Some((failure, error)) = &failed {
            tracing::debug!(?subject, ?failure, error, "call failed");
        }
        match subject {
            Subject::Bind(_) | Subject::Evict(_) if undecided => {
                // Its room is not given away: the pod may be there, and the server says so then; or its gang is half-way.
                self.again.push_back((now + AGAIN_AFTER, subject));
                CallOutcome::No
            }
            Subject::Bind(bind) => {
                self.metrics.bound(took, failed.is_none());
                if failed.is_none() {
                    self.events.bound(&bind);
                }
                CallOutcome::Bind { uid: bind.uid.clone(), error: failed.map(|(_, error)| error) }
            }
            Subject::Evict(eviction) => {
                // Gone, or another pod of that name: this one is no longer there.
                let failed = failed.filter(|(failure, _)| !matches!(failure, Failure::NotFound | Failure::Conflict));
                CallOutcome::Evict { uid: eviction.uid.clone(), error: failed.map(|(_, error)| error) }
            }
            Subject::Group { namespace, name } => {
                let key = (namespace, name);
                self.groups.done(&key, now);
                if self.groups.has_newer(&key) {
                    return CallOutcome::No;
                }
                let (namespace, name) = key;
                self.later(failed.as_ref(), Subject::Group { namespace: namespace.clone(), name: name.clone() }, now);
                CallOutcome::Group { namespace, name }
            }
            Subject::Pod { uid } => {
                self.pods.done(&uid, now);
                if !self.pods.has_newer(&uid) {
                    self.later(failed.as_ref(), Subject::Pod { uid }, now);
                }
                CallOutcome::No
            }
            Subject::Queue { name } => {
                self.queues.done(&name, now);
                if !self.queues.has_newer(&name) {
                    self.later(failed.as_ref(), Subject::Queue { name }, now);
                }
                CallOutcome::No
            }
            Subject::Ungate { uid } if failed.is_some() => CallOutcome::Gated { uid },
            Subject::Shard { name } => {
                self.shards.done(&name, now);
                CallOutcome::No
            }
            Subject::Ungate { .. } | Subject::Nomination => CallOutcome::No,
        }
    }

    /// A status that may be written later is planned anew then.
    fn later(&mut self, failed: Option<&(Failure, String)>, subject: Subject, now: Instant) {
        let Some((failure, _)) = failed else { return };
        // A pod that has changed is looked at again: it may wait still.
        let changed = *failure == Failure::Conflict && matches!(subject, Subject::Pod { .. });
        if changed || matches!(failure, Failure::Unavailable | Failure::Forbidden) {
            self.again.push_back((now + AGAIN_AFTER, subject));
        }
    }

    /// When something that waits here is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        let again = self.again.front().map(|(at, _)| *at);
        let others = again.into_iter().chain(self.events.due());
        if !self.window.has_room() {
            // An answer is what is waited for.
            return others.min();
        }
        let queues = [self.groups.due(), self.pods.due(), self.queues.due(), self.shards.due()];
        queues.into_iter().flatten().chain(others).min()
    }

    /// A failed status that is due again; binds and evictions line up again by themselves.
    pub(crate) fn pop_again(&mut self, now: Instant) -> Option<Subject> {
        loop {
            self.again.front().filter(|(at, _)| *at <= now)?;
            match self.again.pop_front()?.1 {
                Subject::Bind(bind) => self.binds.push_back(bind),
                Subject::Evict(eviction) => self.evictions.push_back(eviction),
                subject => return Some(subject),
            }
        }
    }

    /// Waits for the calls under way and forgets all others: the World that wanted them is no more.
    pub(crate) async fn drain(&mut self) {
        self.binds.clear();
        self.evictions.clear();
        self.ungates.clear();
        self.shards.clear();
        self.groups.clear();
        self.pods.clear();
        self.queues.clear();
        self.nominations.clear();
        self.nominated.clear();
        self.again.clear();
        while let Some(answer) = self.answer().await {
            self.answered(answer);
        }
        self.again.clear();
    }

    /// The nodes that the NodeShard of this name has now.
    pub(crate) fn shard(&mut self, name: &str, nodes: Vec<String>) {
        self.shards.put(name.to_owned(), nodes, false, Instant::now());
    }

    /// Takes back nominations whose room is no longer kept. `is_void` tells of a pod by its uid. O(nominations).
    pub(crate) fn withdraw(&mut self, watched: &WatchedObjects, is_void: impl Fn(&PodUid) -> bool) {
        let nominations = &mut self.nominations;
        self.nominated.retain(|uid, nomination| {
            // One that was bound keeps the name of the node it is on.
            let waits = watched.unbound(uid).is_some();
            let is_void = waits && is_void(uid);
            if is_void {
                nominations.push_back(Nomination { node: None, ..nomination.clone() });
            }
            waits && !is_void
        });
    }

    fn nominate(&mut self, pipelined: Pipelined) {
        let Pipelined { uid, namespace, name, node, .. } = pipelined;
        let nomination = Nomination { namespace, name, uid: uid.clone(), node: Some(node) };
        if self.nominated.insert(uid, nomination.clone()).is_none_or(|before| before.node != nomination.node) {
            self.nominations.push_back(nomination);
        }
    }

    /// Warns of a deadline that will be missed.
    fn late(&mut self, late: &Late) {
        let about = About::group(&late.namespace, &late.name, &late.uid);
        self.events.insist(about, Severity::Warning, "DeadlineAtRisk", late.to_string());
    }

    /// Tells a group what became of the room that others had to leave for it.
    fn freed(&mut self, room: &FreedRoom) {
        self.metrics.settled(&room.action, room.room.word(), room.evictions);
        let Some((namespace, name)) = room.beneficiary.parts() else { return };
        let severity = if room.room == Ending::Used { Severity::Normal } else { Severity::Warning };
        self.events.insist(About::group(namespace, name, &room.uid), severity, "RoomFreed", room.to_string());
    }

    /// Records an Event on a group that was quarantined.
    pub(crate) fn quarantined(&mut self, namespace: &str, name: &str, uid: &GroupUid, message: String) {
        self.events.insist(About::group(namespace, name, uid), Severity::Warning, "Quarantined", message);
    }

    /// Tells a queue that something of its spec has no effect.
    pub(crate) fn unread(&mut self, queue: &str, uid: &str, message: String) {
        self.events.say(About::queue(queue, uid), Severity::Warning, "NoEffect", message);
    }

    /// Forgets what was remembered of groups that are gone, once there is much of it.
    pub(crate) fn tidy(&mut self, watched: &WatchedObjects) {
        if self.stamps.len() > 2 * watched.groups() + 1024 {
            let there = watched.group_uids();
            self.stamps.keep(|uid| there.contains(uid.as_str()));
        }
    }

    fn call(&mut self, subject: Subject, call: impl Future<Output = Result<(), kube::Error>> + Send + 'static) {
        self.window.started();
        self.calls.spawn(async move {
            let started = Instant::now();
            let call = AssertUnwindSafe(tokio::time::timeout(CALL_TIMEOUT, call)).catch_unwind();
            let (failed, undecided) = match call.await {
                Ok(Ok(Ok(()))) => (None, false),
                Ok(Ok(Err(error))) => {
                    (Some((failure(&error), pumice_cluster::write::words(&error))), is_undecided(&error))
                }
                Ok(Err(_)) => (Some((Failure::Unavailable, format!("no answer within {CALL_TIMEOUT:?}"))), true),
                Err(_) => (Some((Failure::Unavailable, "the call crashed".to_owned())), false),
            };
            Answer { subject, failed, undecided, took: started.elapsed() }
        });
    }

    fn bind(&mut self, bind: Arc<Bind>) {
        let call = calls::bind(self.client.clone(), Arc::clone(&bind));
        self.call(Subject::Bind(bind), call);
    }

    fn evict(&mut self, eviction: Arc<Eviction>, watched: &WatchedObjects) {
        let text = patches::eviction_text(&eviction);
        let about = About::pod(&eviction.namespace, &eviction.name, &eviction.uid);
        self.events.insist(about, Severity::Warning, "Evict", text.clone());
        if let Some((namespace, name)) = eviction.group.parts()
            && let Some(uid) = watched.group_uid(namespace, name)
        {
            let about = About::group(namespace, name, &uid);
            let message = format!("{}: {text}", eviction.name);
            self.events.insist(about, Severity::Normal, "Evict", message);
        }
        self.metrics.evicting(&eviction.action);
        let call = calls::evict(self.client.clone(), Arc::clone(&eviction), text, clock::now());
        self.call(Subject::Evict(eviction), call);
    }

    fn group(&mut self, subject: Subject, update: &GroupUpdate) {
        let patch = self.stamps.group(update, clock::now(), &self.cycles.to_string());
        let blocked =
            update.status.conditions.iter().find(|condition| condition.kind == "Unschedulable" && condition.status);
        if let Some(condition) = blocked {
            let about = About::group(&update.namespace, &update.name, &update.uid);
            self.events.say(about, Severity::Warning, "Unschedulable", condition.message.clone());
        }
        let client = self.client.clone();
        self.call(subject, calls::group(client, update.namespace.clone(), update.name.clone(), patch));
    }

    fn pod(&mut self, uid: PodUid, notice: &PodNotice, watched: &WatchedObjects, now: Instant) {
        // It may have got a node, or be gone, since this was planned.
        let Some(seen) = watched.unbound(&uid) else { return self.pods.done(&uid, now) };
        let patch = patches::pod(notice, seen, clock::now());
        let about = About::pod(&notice.namespace, &notice.name, &uid);
        self.events.say(about, Severity::Warning, "FailedScheduling", notice.message.clone());
        let client = self.client.clone();
        let (namespace, name) = (notice.namespace.clone(), notice.name.clone());
        self.call(Subject::Pod { uid }, calls::pod_status(client, namespace, name, patch));
    }
}

/// Whether a call that failed so may have reached the server without an answer, or was turned away unread.
fn is_undecided(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 429 | 502..=504),
        _ => failure(error) == Failure::Unavailable,
    }
}
