//! The pods of jobs.
//!
//! Invariant: pods are kept by the uid of their job, whether or not that job is known, as the small records that the machine
//! reads.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use pumice_cluster::Change;
use pumice_machines::job::{JobPod, PodFacts};

use super::{Key, Touched, version};

/// A pod that went away.
#[derive(Debug, PartialEq)]
pub(crate) struct Gone {
    pub job: Key,
    pub job_uid: String,
    pub facts: PodFacts,
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
    none: BTreeMap<String, PodFacts>,
}

impl JobPods {
    /// The pods of a job.
    pub fn of(&self, job_uid: &str) -> &BTreeMap<String, PodFacts> {
        self.by_job.get(job_uid).map_or(&self.none, |pods| &pods.facts)
    }

    /// Takes a change; tells which pods went away.
    pub fn changed(&mut self, change: Change<Pod>, touched: &mut Vec<Touched>) -> Vec<Gone> {
        match change {
            Change::Applied(pod) => {
                self.put(&pod, touched);
                Vec::new()
            }
            Change::Deleted(pod) => self.deleted(&pod, touched).into_iter().collect(),
            Change::Replace(all) => {
                let keep: HashSet<&str> = all.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
                let mut gone = Vec::new();
                for (job_uid, pods) in &mut self.by_job {
                    let absent = pods.facts.extract_if(.., |_, facts| !keep.contains(facts.uid.as_str()));
                    gone.extend(absent.map(|(_, facts)| Gone {
                        job: pods.key.clone(),
                        job_uid: job_uid.clone(),
                        facts,
                    }));
                    touched.push(Touched::Job(pods.key.clone()));
                }
                self.by_job.retain(|_, pods| !pods.facts.is_empty());
                all.iter().for_each(|pod| self.put(pod, touched));
                gone
            }
        }
    }

    /// Takes the state of a pod, unless a newer one is known.
    pub fn put(&mut self, pod: &Pod, touched: &mut Vec<Touched>) {
        let Some(observed) = JobPod::observe(pod) else { return };
        let key = (pod.metadata.namespace.clone().unwrap_or_default(), observed.job_name);
        let pods = self.by_job.entry(observed.job_uid).or_default();
        let facts = observed.facts;
        let at = version(&pod.metadata);
        let known = pods.facts.get(&facts.name).map(|known| known.uid == facts.uid);
        let newest = pods.versions.get(&facts.name).copied().unwrap_or(0);
        if known == Some(true) && at < newest {
            return;
        }
        pods.key = key.clone();
        pods.versions.insert(facts.name.clone(), at);
        pods.facts.insert(facts.name.clone(), facts);
        touched.push(Touched::Job(key));
    }

    fn deleted(&mut self, pod: &Pod, touched: &mut Vec<Touched>) -> Option<Gone> {
        let observed = JobPod::observe(pod)?;
        let pods = self.by_job.get_mut(&observed.job_uid)?;
        let facts = observed.facts;
        // A successor of the same name may be known already.
        if pods.facts.get(&facts.name).is_none_or(|known| known.uid != facts.uid) {
            return None;
        }
        pods.facts.remove(&facts.name);
        pods.versions.remove(&facts.name);
        let job = pods.key.clone();
        touched.push(Touched::Job(job.clone()));
        if pods.facts.is_empty() {
            self.by_job.remove(&observed.job_uid);
        }
        Some(Gone { job, job_uid: observed.job_uid, facts })
    }

    /// Notes that the API server has taken our wish to delete a pod; the watch will tell when it is gone.
    pub fn deleting(&mut self, job_uid: &str, name: &str, uid: &str, now: Timestamp) {
        let facts = self.by_job.get_mut(job_uid).and_then(|pods| pods.facts.get_mut(name));
        if let Some(facts) = facts.filter(|facts| facts.uid == uid) {
            facts.terminating_since.get_or_insert(now);
        }
    }

    /// Forgets a pod that the API server says is not there.
    pub fn absent(&mut self, job_uid: &str, name: &str, uid: &str) {
        if let Some(pods) = self.by_job.get_mut(job_uid)
            && pods.facts.get(name).is_some_and(|facts| facts.uid == uid)
        {
            pods.facts.remove(name);
            pods.versions.remove(name);
        }
    }
}
