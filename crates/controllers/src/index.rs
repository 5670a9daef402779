//! What exists, as far as the watches and the answers to our own calls have told.
//!
//! Invariant: an object is never replaced by an older state of itself, so an answer that is ahead of the watch stays; an answer
//! that is behind it is dropped, because its object may have gone since. Owned by the loop.

mod child_objects;
mod dependents;
mod nodes;
mod pods;
mod profiles;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use pumice_api::batch::Job;
use pumice_api::names;
use pumice_api::scheduling::{PodGroup, Queue};
use pumice_cluster::Change;
use pumice_machines::queue::GroupCounts;

pub(crate) use child_objects::{CONTENT, ChildObjects, Lost};
use dependents::Dependents;
use nodes::Nodes;
pub(crate) use pods::{Doubtful, Gone, JobPods, ask};
use profiles::Profiles;

/// Namespace and name of an object; the namespace is empty for what has none.
pub(crate) type Key = (String, String);

/// The key of an object.
pub(crate) fn key(metadata: &ObjectMeta) -> Key {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// Something that must be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum DirtyKey {
    Job(Key),
    Profile(Key),
    Queue(String),
}

/// How far a watch has told.
#[derive(Default)]
struct ListedVersion {
    version: u64,
}

impl ListedVersion {
    fn hear<K: Resource>(&mut self, change: &Change<K>) {
        let objects = match change {
            Change::Replace(all) => all.as_slice(),
            Change::Applied(one) | Change::Deleted(one) => std::slice::from_ref(one),
        };
        self.version = objects.iter().map(|object| version(object.meta())).chain([self.version]).max().unwrap_or(0);
    }

    /// Whether the watch has told of this state, and maybe of the object's end after it.
    fn covers(&self, metadata: &ObjectMeta) -> bool {
        let version = version(metadata);
        version > 0 && version <= self.version
    }
}

#[derive(Default)]
pub(crate) struct Index {
    pub jobs: HashMap<Key, Job>,
    jobs_listed: ListedVersion,
    pub dependents: Dependents,
    pub pods: JobPods,
    pub child_objects: ChildObjects,
    pub groups: HashMap<Key, PodGroup>,
    groups_listed: ListedVersion,
    groups_of_queue: HashMap<String, GroupCounts>,
    pub queues: BTreeMap<String, Queue>,
    /// Names of the queues by the name of their parent.
    children: HashMap<String, BTreeSet<String>>,
    queues_listed: ListedVersion,
    pub claims: HashMap<String, BTreeSet<String>>,
    pub priorities: BTreeMap<String, i32>,
    profiles: Profiles,
    nodes: Nodes,
}

/// Whether `new` may replace `old`: it is not an older state of the same object.
pub(crate) fn is_newer(old: &ObjectMeta, new: &ObjectMeta) -> bool {
    old.uid != new.uid || version(new) >= version(old)
}

/// The resource version as a number; servers that don't count give 0, and the last word wins.
pub(crate) fn version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl Index {
    pub fn job_changed(&mut self, change: Change<Job>, touched: &mut Vec<DirtyKey>) {
        self.jobs_listed.hear(&change);
        match change {
            Change::Applied(job) => self.put_job(job, touched),
            Change::Deleted(job) => {
                self.remove_job(&key(&job.metadata), job.metadata.uid.as_deref().unwrap_or_default(), touched);
            }
            Change::Replace(all) => {
                let keep: HashSet<Key> = all.iter().map(|job| key(&job.metadata)).collect();
                let gone: Vec<Key> = self.jobs.keys().filter(|key| !keep.contains(*key)).cloned().collect();
                gone.iter().for_each(|key| self.forget_job(key, touched));
                all.into_iter().for_each(|job| self.put_job(job, touched));
            }
        }
    }

    /// Forgets a job, if it is that very one.
    pub fn remove_job(&mut self, key: &Key, uid: &str, touched: &mut Vec<DirtyKey>) {
        if self.jobs.get(key).is_some_and(|known| known.metadata.uid.as_deref().unwrap_or_default() == uid) {
            self.forget_job(key, touched);
        }
    }

    fn forget_job(&mut self, key: &Key, touched: &mut Vec<DirtyKey>) {
        let old = self.jobs.remove(key);
        self.dependents.changed(key, old.as_ref(), None, &self.jobs, touched);
        touched.push(DirtyKey::Job(key.clone()));
    }

    /// Takes the job that a call of ours brought.
    pub fn job_answered(&mut self, job: Job, touched: &mut Vec<DirtyKey>) {
        if !self.jobs_listed.covers(&job.metadata) {
            self.put_job(job, touched);
        }
    }

    fn put_job(&mut self, mut job: Job, touched: &mut Vec<DirtyKey>) {
        let key = key(&job.metadata);
        if self.jobs.get(&key).is_none_or(|known| is_newer(&known.metadata, &job.metadata)) {
            complete(&mut job);
            // Who wrote what is as long as a small job itself.
            job.metadata.managed_fields = None;
            self.dependents.changed(&key, self.jobs.get(&key), Some(&job), &self.jobs, touched);
            self.jobs.insert(key.clone(), job);
            touched.push(DirtyKey::Job(key));
        }
    }

    pub fn group_changed(&mut self, change: Change<PodGroup>, touched: &mut Vec<DirtyKey>) {
        self.groups_listed.hear(&change);
        match change {
            Change::Applied(group) => self.put_group(group, touched),
            Change::Deleted(group) => self.remove_group(&key(&group.metadata), group.metadata.uid.as_deref(), touched),
            Change::Replace(all) => {
                let keep: HashSet<Key> = all.iter().map(|group| key(&group.metadata)).collect();
                let gone: Vec<Key> = self.groups.keys().filter(|key| !keep.contains(*key)).cloned().collect();
                gone.iter().for_each(|key| self.remove_group(key, None, touched));
                all.into_iter().for_each(|group| self.put_group(group, touched));
            }
        }
    }

    /// Takes the group that a call of ours brought.
    pub fn group_answered(&mut self, group: PodGroup, touched: &mut Vec<DirtyKey>) {
        if !self.groups_listed.covers(&group.metadata) {
            self.put_group(group, touched);
        }
    }

    fn put_group(&mut self, mut group: PodGroup, touched: &mut Vec<DirtyKey>) {
        group.metadata.managed_fields = None;
        let key = key(&group.metadata);
        let known = self.groups.get(&key);
        if known.is_some_and(|known| !is_newer(&known.metadata, &group.metadata)) {
            return;
        }
        let same_phase = known.is_some_and(|known| known.status.phase == group.status.phase);
        touched.extend(owner_job(&group.metadata).map(DirtyKey::Job));
        if !same_phase {
            touched.push(DirtyKey::Queue(group.spec.queue.clone()));
        }
        self.groups_of_queue.entry(group.spec.queue.clone()).or_default().enter(group.status.phase.as_ref());
        let queue = group.spec.queue.clone();
        if let Some(old) = self.groups.insert(key, group) {
            self.leave_queue(&old);
            if old.spec.queue != queue {
                touched.push(DirtyKey::Queue(old.spec.queue));
            }
        }
    }

    /// Forgets a group; with a uid, only that very one.
    pub fn remove_group(&mut self, key: &Key, uid: Option<&str>, touched: &mut Vec<DirtyKey>) {
        let known = self.groups.get(key).filter(|known| uid.is_none() || known.metadata.uid.as_deref() == uid);
        if known.is_none() {
            return;
        }
        if let Some(group) = self.groups.remove(key) {
            touched.extend(owner_job(&group.metadata).map(DirtyKey::Job));
            self.leave_queue(&group);
            touched.push(DirtyKey::Queue(group.spec.queue));
        }
    }

    fn leave_queue(&mut self, group: &PodGroup) {
        let queue = &group.spec.queue;
        if let Some(counts) = self.groups_of_queue.get_mut(queue) {
            counts.leave(group.status.phase.as_ref());
            if counts.is_empty() {
                self.groups_of_queue.remove(queue);
            }
        }
    }

    pub fn queue_changed(&mut self, change: Change<Queue>, touched: &mut Vec<DirtyKey>) {
        self.queues_listed.hear(&change);
        match change {
            Change::Applied(queue) => self.put_queue(queue, touched),
            Change::Deleted(queue) => {
                let name = queue.metadata.name.unwrap_or_default();
                self.remove_queue(&name);
                self.touch_jobs(touched, |job| job_queue(job) == name);
                self.touch_children(&name, touched);
                // What is remembered of it goes, too.
                touched.push(DirtyKey::Queue(name));
            }
            Change::Replace(all) => {
                let keep: HashSet<&str> = all.iter().filter_map(|queue| queue.metadata.name.as_deref()).collect();
                let gone: Vec<String> =
                    self.queues.keys().filter(|name| !keep.contains(name.as_str())).cloned().collect();
                gone.iter().for_each(|name| self.remove_queue(name));
                touched.extend(gone.into_iter().map(DirtyKey::Queue));
                all.into_iter().for_each(|queue| self.put_queue(queue, touched));
            }
        }
    }

    /// Takes the queue that a call of ours brought.
    pub fn queue_answered(&mut self, queue: Queue, touched: &mut Vec<DirtyKey>) {
        if !self.queues_listed.covers(&queue.metadata) {
            self.put_queue(queue, touched);
        }
    }

    fn put_queue(&mut self, queue: Queue, touched: &mut Vec<DirtyKey>) {
        let name = queue.metadata.name.clone().unwrap_or_default();
        let known = self.queues.get(&name);
        if known.is_some_and(|known| !is_newer(&known.metadata, &queue.metadata)) {
            return;
        }
        let new = known.is_none();
        let state_moved = known.is_none_or(|known| known.status.state != queue.status.state);
        self.remove_queue(&name);
        self.children.entry(queue.spec.parent.clone()).or_default().insert(name.clone());
        self.queues.insert(name.clone(), queue);
        touched.push(DirtyKey::Queue(name.clone()));
        if new {
            self.touch_jobs(touched, |job| job_queue(job) == name);
        }
        if state_moved {
            self.touch_children(&name, touched);
        }
    }

    fn remove_queue(&mut self, name: &str) {
        let Some(queue) = self.queues.remove(name) else { return };
        if let Some(children) = self.children.get_mut(&queue.spec.parent) {
            children.remove(name);
            if children.is_empty() {
                self.children.remove(&queue.spec.parent);
            }
        }
    }

    fn touch_children(&self, parent: &str, touched: &mut Vec<DirtyKey>) {
        touched.extend(self.children.get(parent).into_iter().flatten().cloned().map(DirtyKey::Queue));
    }

    pub fn claim_changed(&mut self, change: Change<ObjectMeta>, touched: &mut Vec<DirtyKey>) {
        match change {
            Change::Applied(claim) => {
                let (namespace, name) = key(&claim);
                if self.claims.entry(namespace.clone()).or_default().insert(name) {
                    self.touch_jobs(touched, |job| {
                        !job.spec.volumes.is_empty() && job.metadata.namespace.as_deref() == Some(&namespace)
                    });
                }
            }
            Change::Deleted(claim) => {
                let (namespace, name) = key(&claim);
                if let Some(names) = self.claims.get_mut(&namespace) {
                    names.remove(&name);
                }
            }
            Change::Replace(all) => {
                self.claims.clear();
                for claim in &all {
                    let (namespace, name) = key(claim);
                    self.claims.entry(namespace).or_default().insert(name);
                }
                self.touch_jobs(touched, |job| !job.spec.volumes.is_empty());
            }
        }
    }

    pub fn priority_changed(&mut self, change: Change<(String, i32)>) {
        match change {
            Change::Applied((name, value)) => {
                self.priorities.insert(name, value);
            }
            Change::Deleted((name, _)) => {
                self.priorities.remove(&name);
            }
            Change::Replace(all) => self.priorities = all.into_iter().collect(),
        }
    }

    fn touch_jobs(&self, touched: &mut Vec<DirtyKey>, chosen: impl Fn(&Job) -> bool) {
        let jobs = self.jobs.iter().filter(|(_, job)| chosen(job));
        touched.extend(jobs.map(|(key, _)| DirtyKey::Job(key.clone())));
    }

    /// The group made for a job.
    pub fn group_of(&self, job: &Job) -> Option<&PodGroup> {
        let (namespace, name) = key(&job.metadata);
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        self.groups.get(&(namespace, names::pod_group_name(&name, uid)))
    }

    /// The groups that name a queue.
    pub fn groups_in(&self, queue: &str) -> GroupCounts {
        self.groups_of_queue.get(queue).copied().unwrap_or_default()
    }
}

/// The queue a job names, or the default.
pub(crate) fn job_queue(job: &Job) -> &str {
    if job.spec.queue.is_empty() { names::DEFAULT_QUEUE } else { &job.spec.queue }
}

/// The Job that controls an object.
fn owner_job(metadata: &ObjectMeta) -> Option<Key> {
    let owner = owner_reference(metadata)?;
    Some((metadata.namespace.clone().unwrap_or_default(), owner.name.clone()))
}

/// Says which Job controls an object.
fn owner_reference(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    (owner.kind == "Job" && owner.api_version.starts_with("batch.volcano.sh/")).then_some(owner)
}

/// Fills in what a job can't live without, where no admission has: its pods name their task and their scheduler, and are
/// found again by that.
fn complete(job: &mut Job) {
    if job.spec.scheduler_name.is_empty() {
        names::SCHEDULER_VOLCANO.clone_into(&mut job.spec.scheduler_name);
    }
    for (index, task) in job.spec.tasks.iter_mut().enumerate().filter(|(_, task)| task.name.is_empty()) {
        task.name = names::unnamed_task(index);
    }
}

#[cfg(test)]
mod tests;
