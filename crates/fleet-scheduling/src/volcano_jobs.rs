//! Volcano jobs: several pods that a cluster places and runs as one job of its own.
//!
//! To the engine the pods are one gang, whose nodes are all of one cluster that runs such jobs: those have the label
//! [`CLUSTER_LABEL`] with the cluster's name, which is what the gang's nodes have in common. Invariant: names of its tasks
//! stand in the order of turns, and say of which run and which pod they are.

use std::collections::BTreeMap;

use pumice_engine::{Delta, GroupFacts, GroupUid, NodeName, TimeMs};
use pumice_fleet_model::names::CLUSTER_LABEL;
use pumice_ledger::{Job, Ledger, NodeRef, Proposal, Run, RunId};

use crate::gang_uniformity;
use crate::names::{self, node_name};

/// A pod of a Volcano job, as the pool knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its number in the job.
    pub pod: u32,
    /// Its part of the job.
    pub part: usize,
    /// The node on which it has room, as the engine calls it.
    pub node: Option<NodeName>,
}

/// The pods of a Volcano job's run, and the queue in whose name the engine knows their group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Members {
    pub queue: String,
    pub pods: Vec<Member>,
}

/// All pods of a job that waits; nothing of one that is a single pod. O(pods).
pub(crate) fn waiting(ledger: &Ledger, job: &Job) -> Option<Members> {
    let pods = ledger.shape(job).volcano_job.as_ref()?.numbered();
    let pods = pods.map(|(pod, part)| Member { pod, part, node: None }).collect();
    Some(Members { queue: ledger.owner(job).0.to_owned(), pods })
}

/// The pods of a run that have room; nothing of one that is a single pod. O(pods · parts).
pub(crate) fn holding(ledger: &Ledger, run: &Run) -> Option<Members> {
    let whole = ledger.shape_of_run(run).volcano_job.as_ref()?;
    let places = run.places.iter().flat_map(|place| {
        let node = node_name(&run.at.cluster, &place.node);
        place.pods.iter().map(move |pod| (*pod, node.clone()))
    });
    let pods = places.filter_map(|(pod, node)| Some(Member { pod, part: whole.part_of(pod)?, node: Some(node) }));
    Some(Members { queue: ledger.owner_of_run(run).0.to_owned(), pods: pods.collect() })
}

/// The group of a Volcano job's next or present run.
pub(crate) fn group(ledger: &Ledger, job: &Job, run: RunId, priority: u32) -> Option<Delta> {
    let shape = ledger.shape(job);
    let whole = shape.volcano_job.as_ref()?;
    let queue = ledger.owner(job).0;
    Some(Delta::GroupUpsert(Box::new(GroupFacts {
        uid: run.to_string().into(),
        namespace: queue.to_owned(),
        name: names::single_name(priority, run),
        queue: queue.to_owned(),
        min_member: whole.least.clamp(1, whole.pods().max(1)),
        priority_class: shape.priority_class.clone(),
        created: TimeMs(job.submitted.0),
        preemptable: Some(ledger.class(job).preemptible),
        topology: gang_uniformity::topology(CLUSTER_LABEL),
        ..GroupFacts::default()
    })))
}

/// There is no such group any more.
pub(crate) fn group_gone(queue: &str, run: RunId, priority: u32) -> Delta {
    let (namespace, name) = (queue.to_owned(), names::single_name(priority, run));
    Delta::GroupRemove { namespace, name, uid: GroupUid::default() }
}

/// Whether the pods of a job are still looked at; `left` are those that a queue has in one look. A job of one pod always is:
/// the jobs of a queue are bounded by themselves.
pub(crate) fn is_looked_at(left: &mut usize, pods: usize) -> bool {
    let is_single = pods <= 1;
    let fits = is_single || *left > 0;
    if !is_single {
        *left = left.saturating_sub(pods);
    }
    fits
}

/// What the engine bound of runs that are Volcano jobs: pods by node.
#[derive(Debug, Default)]
pub(crate) struct Bound(BTreeMap<RunId, BTreeMap<NodeRef, Vec<u32>>>);

impl Bound {
    pub(crate) fn add(&mut self, run: RunId, at: NodeRef, pod: u32) {
        self.0.entry(run).or_default().entry(at).or_default().push(pod);
    }

    /// Whether a pod of the run is among them.
    pub(crate) fn has(&self, run: RunId) -> bool {
        self.0.contains_key(&run)
    }

    pub(crate) fn proposals(self, pool: &str) -> impl Iterator<Item = Proposal> {
        self.0.into_iter().map(move |(run, places)| {
            let mut places: Vec<(NodeRef, Vec<u32>)> = places.into_iter().collect();
            places.iter_mut().for_each(|(_, pods)| pods.sort_unstable());
            Proposal::LeaseVolcanoJob { job: run.job, places, pool: pool.to_owned() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_bounded_by_pods_and_takes_single_ones_always() {
        let mut left = 5;
        let looks = [1, 3, 4, 2, 1].map(|pods| is_looked_at(&mut left, pods));
        assert_eq!(looks, [true, true, true, false, true]);
    }
}
