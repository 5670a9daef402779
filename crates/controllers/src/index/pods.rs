//! The pods of jobs.
//!
//! Invariant: pods are kept by the uid of their job, whether or not that job is known, as the small records that the machine
//! reads.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;
use kube::{Api, Client};
use pumice_cluster::{Change, failure};
use pumice_machines::job::{Existing, JobPod, PodFacts};

use super::{DirtyKey, Key, ListedVersion, version};
use crate::backoff;
use crate::slim::SlimPod;

/// Most pods asked for at a time.
const ASKS_MAX: usize = 32;

/// A pod that went away.
#[derive(Debug, PartialEq)]
pub(crate) struct Gone {
    pub job: Key,
    pub job_uid: String,
    pub facts: PodFacts,
}

/// A pod that a new list lacks, though we heard of it later than of anything in that list: it may be newer than the list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Doubtful {
    pub namespace: String,
    pub job_uid: String,
    pub pod: Existing,
}

/// What a change meant.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub gone: Vec<Gone>,
    pub doubtful: Vec<Doubtful>,
}

#[derive(Default)]
struct OfJob {
    key: Key,
    facts: BTreeMap<String, PodFacts>,
    versions: HashMap<String, u64>,
}

/// All pods, by the uid of their job.
#[derive(Default)]
pub(crate) struct JobPods {
    by_job: HashMap<String, OfJob>,
    listed: ListedVersion,
    none: BTreeMap<String, PodFacts>,
}

impl JobPods {
    /// The pods of a job.
    pub fn of(&self, job_uid: &str) -> &BTreeMap<String, PodFacts> {
        self.by_job.get(job_uid).map_or(&self.none, |pods| &pods.facts)
    }

    /// Takes a change; tells which pods went away, and which must be asked for.
    pub fn changed(&mut self, change: Change<SlimPod>, touched: &mut Vec<DirtyKey>) -> Outcome {
        self.listed.hear(&change);
        match change {
            Change::Applied(pod) => {
                self.put(pod, touched);
                Outcome::default()
            }
            Change::Deleted(pod) => {
                Outcome { gone: self.deleted(pod, touched).into_iter().collect(), ..Outcome::default() }
            }
            Change::Replace(all) => {
                let outcome = self.lacking(&all, touched);
                all.into_iter().for_each(|pod| self.put(pod, touched));
                outcome
            }
        }
    }

    /// Finds what a complete list lacks. Pods that we heard of after the list was made stay until somebody has asked.
    fn lacking(&mut self, all: &[SlimPod], touched: &mut Vec<DirtyKey>) -> Outcome {
        let listed: HashSet<&str> = all.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
        let newest = all.iter().map(|pod| version(&pod.metadata)).max().unwrap_or(0);
        let mut outcome = Outcome::default();
        for (job_uid, pods) in &mut self.by_job {
            let versions = &pods.versions;
            let is_later = |name: &String| versions.get(name).is_some_and(|version| *version > newest);
            let later =
                pods.facts.values().filter(|facts| !listed.contains(facts.uid.as_str()) && is_later(&facts.name));
            outcome.doubtful.extend(later.map(|facts| Doubtful {
                namespace: pods.key.0.clone(),
                job_uid: job_uid.clone(),
                pod: Existing { name: facts.name.clone(), uid: facts.uid.clone() },
            }));
            let absent =
                pods.facts.extract_if(.., |name, facts| !listed.contains(facts.uid.as_str()) && !is_later(name));
            outcome.gone.extend(absent.map(|(_, facts)| Gone {
                job: pods.key.clone(),
                job_uid: job_uid.clone(),
                facts,
            }));
            pods.versions.retain(|name, _| pods.facts.contains_key(name));
            touched.push(DirtyKey::Job(pods.key.clone()));
        }
        self.by_job.retain(|_, pods| !pods.facts.is_empty());
        outcome
    }

    /// Takes the pod that a call of ours brought.
    pub fn answered(&mut self, pod: SlimPod, touched: &mut Vec<DirtyKey>) {
        if !self.listed.covers(&pod.metadata) {
            self.put(pod, touched);
        }
    }

    /// Takes the state of a pod, unless a newer one is known.
    pub(super) fn put(&mut self, pod: SlimPod, touched: &mut Vec<DirtyKey>) {
        let SlimPod { metadata, of_job: Some(of_job) } = pod else { return };
        let JobPod { job_name, job_uid, facts } = *of_job;
        let at = version(&metadata);
        let key = (metadata.namespace.unwrap_or_default(), job_name);
        let pods = self.by_job.entry(job_uid).or_default();
        let known = pods.facts.get(&facts.name).map(|known| known.uid == facts.uid);
        let newest = pods.versions.get(&facts.name).copied().unwrap_or(0);
        if known == Some(true) && at < newest {
            return;
        }
        pods.key = key.clone();
        pods.versions.insert(facts.name.clone(), at);
        pods.facts.insert(facts.name.clone(), facts);
        touched.push(DirtyKey::Job(key));
    }

    fn deleted(&mut self, pod: SlimPod, touched: &mut Vec<DirtyKey>) -> Option<Gone> {
        let JobPod { job_uid, facts, .. } = *pod.of_job?;
        let pods = self.by_job.get_mut(&job_uid)?;
        // A successor of the same name may be known already.
        if pods.facts.get(&facts.name).is_none_or(|known| known.uid != facts.uid) {
            return None;
        }
        pods.facts.remove(&facts.name);
        pods.versions.remove(&facts.name);
        let job = pods.key.clone();
        touched.push(DirtyKey::Job(job.clone()));
        if pods.facts.is_empty() {
            self.by_job.remove(&job_uid);
        }
        Some(Gone { job, job_uid, facts })
    }

    /// Notes that the API server has taken our wish to delete a pod; the watch will tell when it is gone.
    pub fn deleting(&mut self, job_uid: &str, name: &str, uid: &str, now: Timestamp) {
        let facts = self.by_job.get_mut(job_uid).and_then(|pods| pods.facts.get_mut(name));
        if let Some(facts) = facts.filter(|facts| facts.uid == uid) {
            facts.terminating_since.get_or_insert(now);
        }
    }

    /// Forgets a pod that the API server says is not there.
    pub fn absent(&mut self, job_uid: &str, pod: &Existing) -> Option<Gone> {
        let pods = self.by_job.get_mut(job_uid)?;
        pods.facts.get(&pod.name).filter(|facts| facts.uid == pod.uid)?;
        let facts = pods.facts.remove(&pod.name)?;
        pods.versions.remove(&pod.name);
        Some(Gone { job: pods.key.clone(), job_uid: job_uid.to_owned(), facts })
    }
}

/// Asks for pods that a list may have been too old to have; `None` for one that is not there. Repeats until answered.
pub(crate) async fn ask(client: Client, doubtful: Vec<Doubtful>) -> Vec<(Doubtful, Option<SlimPod>)> {
    let asked = stream::iter(doubtful).map(|one| {
        let pods: Api<SlimPod> = Api::namespaced(client.clone(), &one.namespace);
        async move {
            let mut failures = 0_u32;
            loop {
                let error = match pods.get_opt(&one.pod.name).await {
                    Ok(found) => {
                        let same = found.filter(|pod| pod.metadata.uid.as_deref() == Some(&one.pod.uid));
                        return (one, same);
                    }
                    Err(error) => error,
                };
                failures = failures.saturating_add(1);
                tracing::warn!(pod = one.pod.name, %error, "cannot ask for a pod, will try again");
                tokio::time::sleep(backoff::wait(failure(&error), failures)).await;
            }
        }
    });
    asked.buffer_unordered(ASKS_MAX).collect().await
}
