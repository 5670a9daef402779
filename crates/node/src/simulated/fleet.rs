//! The simulated nodes and the pods on them: what has been seen and how time goes on, in; what is to be written, out.
//!
//! Invariant: what a node's pods use is exactly the sum of those that have not ended; a pod never goes back from its
//! end; one call about a pod is under way at a time, so that an older status never overwrites a newer one. Nothing but
//! an entry is kept of a pod, and none once the API server has shown its end. Pure; owned by the shell's loop.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use uuid::Uuid;

use super::capacity::NodeShape;
use super::entry::{Entry, Stage, Wish, Written};
use super::faults::Faults;
use super::order::{Order, Templates};
use super::status::{self, Facts, Refusal};
use super::wheel::Wheel;

/// Pauses before a call that failed is made again, in milliseconds.
const AGAIN_FIRST_MS: u64 = 100;
const AGAIN_LONGEST_MS: u64 = 5_000;
/// Namespaces remembered before those without a pod are swept out.
const NAMESPACES_FIRST: usize = 256;

/// A moment by both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Now {
    /// Milliseconds of the clock that only goes forward.
    pub ms: u64,
    /// Seconds since 1970.
    pub unix_seconds: i64,
}

/// How far the API server says a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeenPhase {
    Pending,
    Running { since_seconds: Option<i64> },
    Over,
}

/// What every change of a pod says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Glance {
    pub uid: Uuid,
    /// Index of its node.
    pub node: u32,
    pub phase: SeenPhase,
    /// Its grace in milliseconds, once it is being deleted.
    pub leaving_ms: Option<u64>,
}

/// A call to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub uid: Uuid,
    pub namespace: Arc<str>,
    pub name: Box<str>,
    pub what: What,
}

/// What a call does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// Merges this into the pod's status.
    Status(Vec<u8>),
    /// Removes the pod, of which nothing is left.
    Remove,
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was done, or the pod is gone, which a watch will tell.
    Done,
    /// It was not, and is to be tried again.
    Failed,
}

/// What has happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pods that run or are about to.
    pub active: u64,
    pub admitted: u64,
    /// Pods refused because they are over what their node has: a scheduler's mistake.
    pub refused: u64,
    /// Pods refused as a fault that was asked for.
    pub faults: u64,
    /// Pods that ran to their end.
    pub ended: u64,
    /// Calls that failed and were made again.
    pub failures: u64,
}

/// The nodes and their pods.
#[derive(Debug)]
pub(crate) struct Fleet {
    shape: NodeShape,
    faults: Faults,
    /// What is used, node after node.
    used: Vec<i64>,
    places: HashMap<Uuid, u32>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    wheel: Wheel,
    due: Vec<u32>,
    wanted: VecDeque<u32>,
    templates: Templates,
    namespaces: HashSet<Arc<str>>,
    counts: Counts,
}

impl Fleet {
    /// `nodes` empty nodes of one shape.
    pub(crate) fn new(nodes: u32, shape: NodeShape, faults: Faults, now: Now) -> Self {
        Self {
            used: vec![0; nodes as usize * shape.len()],
            shape,
            faults,
            places: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            wheel: Wheel::new(now.ms),
            due: Vec::new(),
            wanted: VecDeque::new(),
            templates: Templates::new(),
            namespaces: HashSet::new(),
            counts: Counts::default(),
        }
    }

    /// What has happened so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// A pod of one of the nodes was listed or has changed. `order` is asked for only when it is new. O(1).
    pub(crate) fn see(&mut self, glance: &Glance, order: impl FnOnce(&NodeShape) -> Order, now: Now) {
        let Some(place) = self.places.get(&glance.uid).copied() else {
            if glance.phase != SeenPhase::Over || glance.leaving_ms.is_some() {
                let order = order(&self.shape);
                self.arrive(glance, order, now);
            }
            return;
        };
        match glance.leaving_ms {
            None if glance.phase == SeenPhase::Over => self.forget(place),
            None => {}
            Some(grace_ms) => self.leave(place, grace_ms, now),
        }
    }

    /// A pod is gone.
    pub(crate) fn gone(&mut self, uid: Uuid) {
        if let Some(place) = self.places.get(&uid).copied() {
            self.forget(place);
        }
    }

    /// These are all the pods there are. O(pods).
    pub(crate) fn keep_only(&mut self, there: &HashSet<Uuid>) {
        let gone: Vec<u32> =
            self.places.iter().filter(|(uid, _)| !there.contains(uid)).map(|(_, place)| *place).collect();
        gone.into_iter().for_each(|place| self.forget(place));
    }

    /// Whoever runs is to be told again: others may have told otherwise while the nodes were lost. O(pods).
    pub(crate) fn tell_again(&mut self) {
        let places: Vec<u32> = self.places.values().copied().collect();
        for place in places {
            let entry = self.entry(place);
            if entry.stage == Stage::Running && entry.written == Written::Running {
                entry.written = Written::Nothing;
                self.want(place);
            }
        }
    }

    /// Time has gone on.
    pub(crate) fn pass(&mut self, now: Now) {
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(now.ms, &mut due);
        for key in due.drain(..) {
            let (place, is_retry) = (key >> 1, key & 1 == 1);
            let entry = self.entry(place);
            if is_retry {
                entry.retry = None;
                self.want(place);
            } else {
                entry.timer = None;
                self.step(place, now);
            }
        }
        self.due = due;
    }

    /// When [`Fleet::pass`] has something to do, in milliseconds.
    pub(crate) fn next_wake(&self) -> Option<u64> {
        self.wheel.next_wake()
    }

    /// The next call to be made; its answer goes to [`Fleet::answered`].
    pub(crate) fn next_call(&mut self) -> Option<Call> {
        while let Some(place) = self.wanted.pop_front() {
            // It may have gone, and another one come to its place, since it was put here.
            let Some(entry) = self.entries[place as usize].as_mut().filter(|entry| entry.queued) else { continue };
            entry.queued = false;
            let Some(wish) = entry.wish() else { continue };
            entry.calling = Some(wish.written());
            let what = match wish {
                Wish::Remove => What::Remove,
                Wish::Tell(told) => {
                    let facts = Facts {
                        uid: entry.uid,
                        template: &entry.template,
                        started_seconds: entry.started_seconds,
                        conditions: &entry.conditions,
                    };
                    What::Status(status::patch(&facts, &told))
                }
            };
            let (namespace, name) = (Arc::clone(&entry.namespace), entry.name.clone());
            return Some(Call { uid: entry.uid, namespace, name, what });
        }
        None
    }

    /// What came of a call.
    pub(crate) fn answered(&mut self, uid: Uuid, outcome: Outcome, now: Now) {
        let failed = outcome == Outcome::Failed;
        self.counts.failures += u64::from(failed);
        let Some(place) = self.places.get(&uid).copied() else { return };
        let entry = self.entry(place);
        let Some(written) = entry.calling.take() else { return };
        if failed {
            let pause = AGAIN_FIRST_MS << entry.failures.min(6);
            entry.failures = entry.failures.saturating_add(1);
            let retry = self.wheel.insert(now.ms.saturating_add(pause.min(AGAIN_LONGEST_MS)), place << 1 | 1);
            self.entry(place).retry = Some(retry);
            return;
        }
        entry.failures = 0;
        entry.written = entry.written.max(written);
        self.want(place);
    }

    fn arrive(&mut self, glance: &Glance, order: Order, now: Now) {
        let template = self.templates.share(order.template);
        let namespace = self.namespace(&order.namespace);
        let mut entry = Entry {
            uid: glance.uid,
            namespace,
            name: order.name.into(),
            template,
            conditions: order.conditions,
            plan: order.plan,
            node: glance.node,
            started_seconds: now.unix_seconds,
            stage: Stage::Starting,
            written: Written::Nothing,
            leaving: false,
            calling: None,
            queued: false,
            failures: 0,
            timer: None,
            retry: None,
        };
        match (glance.phase, glance.leaving_ms) {
            (SeenPhase::Running { since_seconds }, _) => {
                // It ran before we did: it goes on, also where its node is full.
                entry.started_seconds = since_seconds.unwrap_or(now.unix_seconds);
                entry.stage = Stage::Running;
                entry.written = Written::Running;
            }
            (SeenPhase::Over, _) | (SeenPhase::Pending, Some(_)) => {
                (entry.stage, entry.leaving) = (Stage::Stopped, true);
            }
            (SeenPhase::Pending, None) => entry.stage = self.admit(&entry),
        }
        if entry.stage.is_active() {
            self.counts.admitted += 1;
            self.counts.active += 1;
            entry.template.request.take(self.used_by(glance.node));
        }
        let place = self.put(entry);
        match glance.phase {
            SeenPhase::Running { .. } => self.run_from(place, now),
            _ => self.start(place, now),
        }
        if let Some(grace_ms) = glance.leaving_ms {
            self.leave(place, grace_ms, now);
        }
        self.want(place);
    }

    /// Whether its node takes a new pod.
    fn admit(&mut self, entry: &Entry) -> Stage {
        let node = entry.node as usize * self.shape.len();
        let used = &self.used[node..node + self.shape.len()];
        if let Some(short) = self.shape.shortage(&entry.template.request, used) {
            self.counts.refused += 1;
            return Stage::Refused(Box::new(Refusal::Short(short)));
        }
        if self.faults.refuses(entry.uid) {
            self.counts.faults += 1;
            return Stage::Refused(Box::new(Refusal::Fault));
        }
        Stage::Starting
    }

    fn start(&mut self, place: u32, now: Now) {
        let faults = self.faults;
        let entry = self.entry(place);
        if entry.stage != Stage::Starting {
            return;
        }
        match faults.start_ms(entry.uid) {
            0 => self.step(place, now),
            wait_ms => self.wait(place, now.ms.saturating_add(wait_ms)),
        }
    }

    /// Lets a running pod end when its duration is over, of which some may have passed before we came.
    fn run_from(&mut self, place: u32, now: Now) {
        let entry = self.entry(place);
        let Some(duration_ms) = entry.plan.duration_ms else { return };
        let ran_seconds = now.unix_seconds.saturating_sub(entry.started_seconds);
        let ran_ms = u64::try_from(ran_seconds).unwrap_or(0).saturating_mul(1000);
        self.wait(place, now.ms.saturating_add(duration_ms.saturating_sub(ran_ms)));
    }

    /// A pod's timer has come: its next stage.
    fn step(&mut self, place: u32, now: Now) {
        let entry = self.entry(place);
        match entry.stage {
            Stage::Starting => {
                entry.stage = Stage::Running;
                if let Some(duration_ms) = entry.plan.duration_ms {
                    self.wait(place, now.ms.saturating_add(duration_ms));
                }
            }
            Stage::Running => {
                self.give_back(place);
                self.entry(place).stage = Stage::Ended { at_seconds: now.unix_seconds };
                self.counts.ended += 1;
            }
            Stage::Stopping => {
                self.give_back(place);
                self.entry(place).stage = Stage::Stopped;
            }
            Stage::Ended { .. } | Stage::Refused(_) | Stage::Stopped => {}
        }
        self.want(place);
    }

    /// A pod is being deleted.
    fn leave(&mut self, place: u32, grace_ms: u64, now: Now) {
        let entry = self.entry(place);
        entry.leaving = true;
        if matches!(entry.stage, Stage::Starting | Stage::Running) {
            let stop_ms = entry.plan.stop_ms.min(grace_ms);
            entry.stage = Stage::Stopping;
            match stop_ms {
                0 => self.step(place, now),
                _ => self.wait(place, now.ms.saturating_add(stop_ms)),
            }
        }
        self.want(place);
    }

    fn wait(&mut self, place: u32, until_ms: u64) {
        if let Some(before) = self.entry(place).timer.take() {
            self.wheel.cancel(before);
        }
        let timer = self.wheel.insert(until_ms, place << 1);
        self.entry(place).timer = Some(timer);
    }

    /// Puts a pod in the queue if there is something to write.
    fn want(&mut self, place: u32) {
        let entry = self.entry(place);
        if !entry.queued && entry.calling.is_none() && entry.retry.is_none() && entry.wish().is_some() {
            entry.queued = true;
            self.wanted.push_back(place);
        }
    }

    fn forget(&mut self, place: u32) {
        self.give_back(place);
        let Some(entry) = self.entries[place as usize].take() else { return };
        for timer in [entry.timer, entry.retry].into_iter().flatten() {
            self.wheel.cancel(timer);
        }
        self.places.remove(&entry.uid);
        self.free.push(place);
    }

    fn give_back(&mut self, place: u32) {
        let entry = self.entry(place);
        if !entry.stage.is_active() {
            return;
        }
        let (node, template) = (entry.node, Arc::clone(&entry.template));
        template.request.give_back(self.used_by(node));
        self.counts.active -= 1;
    }

    fn used_by(&mut self, node: u32) -> &mut [i64] {
        let width = self.shape.len();
        let first = node as usize * width;
        &mut self.used[first..first + width]
    }

    fn put(&mut self, entry: Entry) -> u32 {
        let uid = entry.uid;
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.entries.push(None);
                self.entries.len() as u32 - 1
            }
        };
        self.entries[place as usize] = Some(entry);
        self.places.insert(uid, place);
        place
    }

    /// The entry at a place that is taken.
    fn entry(&mut self, place: u32) -> &mut Entry {
        self.entries[place as usize].as_mut().expect("timers and places are taken away with their entry")
    }

    fn namespace(&mut self, name: &str) -> Arc<str> {
        if let Some(found) = self.namespaces.get(name) {
            return Arc::clone(found);
        }
        if self.namespaces.len() >= NAMESPACES_FIRST {
            self.namespaces.retain(|name| Arc::strong_count(name) > 1);
        }
        let shared: Arc<str> = name.into();
        self.namespaces.insert(Arc::clone(&shared));
        shared
    }
}

#[cfg(test)]
mod tests;
