//! Jobs: the shell around the Job machine.
//!
//! Invariant: one plan for a job at a time, and nothing about a job is remembered that could not be lost: what is kept here
//! saves calls and repeated Events, or is told again by the objects. A job whose plan crashed rests until it changes.

mod ensure;
pub(crate) mod execute;
mod rate_limit;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use pumice_api::batch::{Job, JobPhase};
use pumice_cluster::EventRecorder;
use pumice_cluster::events::{self, Occurrence};
use pumice_machines::job::{Effect, Evicted, JobView, Lesson, ObjectId, Plan, PodFacts, Severity, step};
use tokio::time::Instant;

use crate::backoff;
use crate::index::{DirtyKey, Gone, Index, Key, Lost, job_queue};
use crate::ticket::{Ticket, Wish};

use execute::Observed;
#[cfg(test)]
use execute::Trouble;
pub(crate) use execute::{Answer, JobPlan};
use rate_limit::RateLimit;

/// Longest sleep; the wall clock may jump.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Reasons of Events that a restart of the job doesn't make news again.
const TOLD_ONCE: &[&str] = &["PodRefused"];
/// How many Events of a job are remembered, so as not to repeat them.
const TOLD_MAX: usize = 64;

#[derive(Default)]
struct Entry {
    uid: String,
    busy: bool,
    wish: Option<Wish>,
    evicted: Vec<Evicted>,
    /// Uids of pods that we asked to delete.
    deleting: HashSet<String>,
    applied: BTreeMap<ObjectId, i64>,
    /// Generation of the job that the failures are about.
    generation: Option<i64>,
    failures: u32,
    not_before: Option<Instant>,
    pace: RateLimit,
    reported: VecDeque<u64>,
}

/// What a step needs beside the job's own entry.
pub(crate) struct Surroundings<'a> {
    pub index: &'a Index,
    pub network_policies: bool,
    pub recorder: &'a EventRecorder,
    /// Jobs, queues and profiles that wait for their turn, or have it.
    pub queued: usize,
    pub now: Timestamp,
}

/// What to do about a job now.
pub(crate) enum Begin {
    Nothing,
    Wait(Instant),
    Carry(Box<JobPlan>),
}

/// Jobs that are known, and what is under way for them.
#[derive(Default)]
pub(crate) struct JobWork {
    entries: HashMap<Key, Entry>,
    /// Commands that were carried out, or are for jobs that are gone.
    done: Vec<Ticket>,
    /// What jobs have taught, with their namespaces.
    lessons: Vec<(String, Lesson)>,
}

/// The entry of a job as it is now.
fn enter<'w>(entries: &'w mut HashMap<Key, Entry>, done: &mut Vec<Ticket>, key: &Key, job: &Job) -> &'w mut Entry {
    let entry = entries.entry(key.clone()).or_default();
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    if entry.uid != uid {
        // A new job of the same name. A plan for the old one may be under way still.
        done.extend(entry.wish.take().map(|wish| wish.ticket));
        *entry = Entry { uid: uid.to_owned(), busy: entry.busy, ..Entry::default() };
    }
    if entry.generation != job.metadata.generation {
        // What its user has changed may be what failed.
        entry.generation = job.metadata.generation;
        entry.not_before = None;
    }
    entry
}

impl JobWork {
    /// Notes a Command; there is one at a time for a job. Gives it back if the job is gone.
    pub fn wish(&mut self, key: &Key, index: &Index, wish: Wish) -> Option<Ticket> {
        let Some(job) = index.jobs.get(key) else { return Some(wish.ticket) };
        let entry = enter(&mut self.entries, &mut self.done, key, job);
        // A job that fails to start can still be ended at once.
        entry.not_before = None;
        entry.wish.replace(wish).map(|earlier| earlier.ticket)
    }

    /// Commands to delete, since the last call.
    pub fn done(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.done)
    }

    /// What jobs have taught since the last call.
    pub fn lessons(&mut self) -> Vec<(String, Lesson)> {
        std::mem::take(&mut self.lessons)
    }

    /// Notes pods that went away; those we did not ask to go were evicted.
    pub fn gone(&mut self, gone: Vec<Gone>, now: Timestamp) {
        for Gone { job, job_uid, facts } in gone {
            let Some(entry) = self.entries.get_mut(&job) else { continue };
            if entry.uid != job_uid {
                // A pod of an earlier job of the name: one that has waited for its names may go on.
                entry.not_before = None;
                continue;
            }
            let asked = entry.deleting.remove(&facts.uid);
            if !asked && facts.mark.is_none() && facts.refused.is_none() {
                let PodFacts { task, index, version, phase, .. } = facts;
                entry.evicted.push(Evicted { task, index, version, phase, at: now });
            }
        }
    }

    /// Notes objects of plugins that went away; a job that still needs one makes it again.
    pub fn lost(&mut self, lost: Vec<Lost>, touched: &mut Vec<DirtyKey>) {
        for Lost { job, job_uid, id } in lost {
            let entry = self.entries.get_mut(&job).filter(|entry| entry.uid == job_uid);
            if entry.is_some_and(|entry| entry.applied.remove(&id).is_some()) {
                touched.push(DirtyKey::Job(job));
            }
        }
    }

    /// A plan crashed: the job waits for its next change.
    pub fn crashed(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.busy = false;
            entry.pace.answered(Instant::now());
        }
    }

    /// Decides what to do about a job, if nothing is under way.
    pub fn begin(&mut self, key: &Key, surroundings: &Surroundings<'_>) -> Begin {
        let Some(job) = surroundings.index.jobs.get(key) else {
            if self.entries.get(key).is_some_and(|entry| !entry.busy) {
                let entry = self.entries.remove(key);
                self.done.extend(entry.and_then(|entry| entry.wish).map(|wish| wish.ticket));
            }
            return Begin::Nothing;
        };
        let Self { entries, done, .. } = self;
        let entry = enter(entries, done, key, job);
        if entry.busy {
            return Begin::Nothing;
        }
        let now = Instant::now();
        if let Some(at) = entry.not_before.filter(|at| *at > now) {
            return Begin::Wait(at);
        }
        entry.not_before = None;
        if let Some(at) = entry.pace.rests_until(now) {
            return Begin::Wait(at);
        }
        entry.pace.looked(surroundings.index.pods.of(&entry.uid).len(), now);
        let Some(mut plan) = look(entry, job, surroundings) else { return Begin::Nothing };
        leave_out_right(entry, &mut plan, &key.0, surroundings.index);
        if let Some(at) = entry.pace.waits_until(&plan, now) {
            return Begin::Wait(at);
        }
        tell(entry, job, &mut plan, surroundings);
        let is_pending = matches!(job.status.state.phase, None | Some(JobPhase::Pending));
        let held = entry.pace.hold_back(&mut plan, is_pending, surroundings.queued, now);
        let wake_at = plan.wake_at.map(|at| now + until(at, surroundings.now)).into_iter().chain(held).min();
        plan.stages.retain(|stage| !stage.is_empty());
        let wish = entry.wish.is_some() && !plan.command_waits;
        if !plan.stages.is_empty() {
            entry.busy = true;
            let (evicted, job) = (entry.evicted.len(), Box::new(job.clone()));
            return Begin::Carry(Box::new(JobPlan {
                key: key.clone(),
                job,
                stages: plan.stages,
                wake_at,
                wish,
                evicted,
            }));
        }
        entry.failures = 0;
        if wish {
            // There was nothing to do. The job goes on once the Command is deleted.
            done.extend(entry.wish.take().map(|wish| wish.ticket));
            return Begin::Nothing;
        }
        entry.evicted.clear();
        wake_at.map_or(Begin::Nothing, Begin::Wait)
    }

    /// Takes in what came of a plan.
    pub fn answered(
        &mut self,
        answer: Answer,
        index: &mut Index,
        recorder: &EventRecorder,
        touched: &mut Vec<DirtyKey>,
    ) {
        let now = Instant::now();
        let uid = answer.job.metadata.uid.clone().unwrap_or_default();
        let Some(entry) = self.entries.get_mut(&answer.key) else { return };
        entry.busy = false;
        entry.pace.answered(now);
        let same = entry.uid == uid;
        let progress = !answer.observed.is_empty();
        for observed in answer.observed {
            if let Observed::Lesson(lesson) = observed {
                self.lessons.push((answer.key.0.clone(), *lesson));
                continue;
            }
            take_in(observed, &answer.key, &uid, entry, same, index, touched);
        }
        touched.push(DirtyKey::Job(answer.key));
        if !same {
            return;
        }
        match answer.result {
            Ok(()) => {
                entry.failures = 0;
                if answer.wish {
                    self.done.extend(entry.wish.take().map(|wish| wish.ticket));
                }
                entry.evicted.drain(..answer.evicted.min(entry.evicted.len()));
            }
            Err(trouble) => {
                // Only a plan that gets nowhere waits longer and longer.
                entry.failures = if progress { 1 } else { entry.failures.saturating_add(1) };
                entry.not_before = Some(now + backoff::wait(trouble.failure, entry.failures));
                if let Some((reason, message)) = trouble.event {
                    let record = Effect::Record { severity: Severity::Warning, reason, message };
                    tell_one(entry, &answer.job, &record, recorder, pumice_clock::now());
                }
            }
        }
    }
}

/// Steps the machine; a job whose step crashes waits for its next change.
fn look(entry: &Entry, job: &Job, surroundings: &Surroundings<'_>) -> Option<Plan> {
    let index = surroundings.index;
    let none = std::collections::BTreeSet::new();
    let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
    let view = JobView {
        job,
        pods: index.pods.of(&entry.uid),
        evicted: &entry.evicted,
        group: index.group_of(job),
        queue_exists: index.queues.contains_key(job_queue(job)),
        claims: index.claims.get(namespace).unwrap_or(&none),
        applied: &entry.applied,
        priorities: &index.priorities,
        awaited: &index.dependents.awaited(namespace, job),
        network_policies: surroundings.network_policies,
        profiles: index.profiles_of(namespace),
        largest_node: index.largest_node(),
        command: entry.wish.as_ref().map(|wish| &wish.action),
    };
    match std::panic::catch_unwind(AssertUnwindSafe(|| step(&view, surroundings.now))) {
        Ok(plan) => Some(plan),
        Err(_) => {
            let name = job.metadata.name.as_deref().unwrap_or_default();
            tracing::error!(namespace, job = name, "a step crashed; the job waits for a change");
            None
        }
    }
}

/// Takes out of a plan what an earlier life of the controllers has done: objects of plugins that are right.
fn leave_out_right(entry: &mut Entry, plan: &mut Plan, namespace: &str, index: &Index) {
    let Entry { uid, applied, .. } = entry;
    for effect in plan.stages.iter_mut().flat_map(|stage| {
        let is_right = |effect: &mut Effect| match effect {
            Effect::Ensure { id, object, .. } => {
                index.child_objects.is_right(namespace, id, uid, &ensure::content(object))
            }
            _ => false,
        };
        stage.extract_if(.., is_right)
    }) {
        if let Effect::Ensure { id, generation, .. } = effect {
            applied.insert(id, generation);
        }
    }
}

/// Takes the Events out of a plan and records those that are new.
fn tell(entry: &mut Entry, job: &Job, plan: &mut Plan, surroundings: &Surroundings<'_>) {
    for stage in &mut plan.stages {
        for record in stage.extract_if(.., |effect| effect.is_record()) {
            tell_one(entry, job, &record, surroundings.recorder, surroundings.now);
        }
    }
}

fn tell_one(entry: &mut Entry, job: &Job, record: &Effect, recorder: &EventRecorder, at: Timestamp) {
    let Effect::Record { severity, reason, message } = record else { return };
    let mut hasher = DefaultHasher::new();
    let restarts = (!TOLD_ONCE.contains(reason)).then_some((job.status.version, job.status.retry_count));
    (reason, message, restarts).hash(&mut hasher);
    let hash = hasher.finish();
    if entry.reported.contains(&hash) {
        return;
    }
    entry.reported.push_back(hash);
    if entry.reported.len() > TOLD_MAX {
        entry.reported.pop_front();
    }
    let severity = match severity {
        Severity::Normal => events::Severity::Normal,
        Severity::Warning => events::Severity::Warning,
    };
    let about = reference(job);
    recorder.record(Occurrence { about, severity, reason: (*reason).to_owned(), message: message.clone(), at });
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO).min(SLEEP_MAX)
}

fn take_in(
    observed: Observed,
    key: &Key,
    job_uid: &str,
    entry: &mut Entry,
    same: bool,
    index: &mut Index,
    touched: &mut Vec<DirtyKey>,
) {
    match observed {
        Observed::Job(job) => index.job_answered(*job, touched),
        Observed::JobAbsent => index.remove_job(key, job_uid, touched),
        Observed::Pod(pod) => index.pods.answered(*pod, touched),
        Observed::PodDeleting { pod, now } => {
            index.pods.deleting(job_uid, &pod.name, &pod.uid, now);
            entry.deleting.insert(pod.uid);
        }
        // We wanted it to go, so this is no eviction.
        Observed::PodAbsent(pod) => drop(index.pods.absent(job_uid, &pod)),
        Observed::Group(group) => index.group_answered(*group, touched),
        Observed::GroupAbsent(group) => {
            index.remove_group(&(key.0.clone(), group.name), Some(&group.uid), touched);
        }
        Observed::Claim(name) => {
            index.claims.entry(key.0.clone()).or_default().insert(name);
        }
        Observed::Applied(id, generation) if same => {
            entry.applied.insert(id, generation);
        }
        Observed::Removed(id) => {
            entry.applied.remove(&id);
        }
        Observed::Applied(..) | Observed::Lesson(_) => {}
    }
}

fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch.volcano.sh/v1alpha1".to_owned()),
        kind: Some("Job".to_owned()),
        namespace: job.metadata.namespace.clone(),
        name: job.metadata.name.clone(),
        uid: job.metadata.uid.clone(),
        resource_version: job.metadata.resource_version.clone(),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests;
