//! What the engine calls nodes, runs, pods and groups of the fleet.
//!
//! Names of runs begin with the priority and go on with the job's id, which begins with its time, and the names of groups
//! follow. So the order of names is the order of jobs in their queue, and [`crate::plugins::job_order`] reads nothing else.

use std::fmt::Write as _;

use pumice_engine::{NodeName, PodUid};
use pumice_ledger::{JobId, NodeRef, RunId};

/// Between cluster and node in the names that the engine has of nodes; no name of either has it.
const NODE_SEPARATOR: char = '/';
/// Between a run and the number of a pod in the names of tasks.
const POD_SEPARATOR: char = '+';
/// How the engine begins the name of a group that it made for a single run.
const MADE_PREFIX: &str = "podgroup-";
/// Room for a uid of a run of few attempts: there are hundreds of thousands of them.
const UID_LENGTH: usize = 40;

/// What the engine calls a node of a cluster.
pub fn node_name(cluster: &str, node: &str) -> NodeName {
    format!("{cluster}{NODE_SEPARATOR}{node}").into()
}

/// The node of a cluster that the engine calls so.
pub(crate) fn node_ref(name: &NodeName) -> Option<NodeRef> {
    let (cluster, node) = name.split_once(NODE_SEPARATOR)?;
    Some(NodeRef { cluster: cluster.to_owned(), node: node.to_owned() })
}

/// What the engine calls a run: its name says when it is its turn.
pub(crate) fn uid(priority: u32, run: RunId) -> PodUid {
    let mut uid = String::with_capacity(UID_LENGTH);
    let _ = write!(uid, "{priority:010}.{run}");
    uid.into()
}

/// The run of a single pod's uid, as text.
pub(crate) fn name_in(uid: &PodUid) -> &str {
    uid.split_once('.').map_or(uid, |(_, run)| run)
}

/// The run of a uid, be it of a single pod or of one of several.
pub(crate) fn run_of(uid: &str) -> Option<RunId> {
    without_pod(uid).rsplit_once('.')?.1.parse().ok()
}

/// The name of a gang's group, in one order with those that the engine gives to single runs.
pub(crate) fn gang_name(priority: u32, first: JobId) -> String {
    format!("{MADE_PREFIX}{priority:010}.{first}")
}

/// The name of the group that the engine makes for a single run.
pub(crate) fn single_name(priority: u32, run: RunId) -> String {
    format!("{MADE_PREFIX}{}", uid(priority, run))
}

/// The uid of the run in the name of the group that the engine made for it.
pub(crate) fn uid_of_single(group: &str) -> Option<&str> {
    group.strip_prefix(MADE_PREFIX)
}

/// The job in the name of a group, the first of its gang.
pub(crate) fn job_of(group: &str) -> Option<JobId> {
    group.rsplit_once('.')?.1.split('-').next()?.parse().ok()
}

/// What the engine calls a pod of a run.
pub(crate) fn pod_uid(priority: u32, run: RunId, pod: u32) -> PodUid {
    format!("{}{POD_SEPARATOR}{pod:05}", uid(priority, run)).into()
}

/// The number of the pod of a uid; none where it is of a single pod.
pub(crate) fn pod_of(uid: &PodUid) -> Option<u32> {
    uid.rsplit_once(POD_SEPARATOR)?.1.parse().ok()
}

/// A uid without the number of its pod.
pub(crate) fn without_pod(uid: &str) -> &str {
    uid.split_once(POD_SEPARATOR).map_or(uid, |(run, _)| run)
}

/// Whether a group that was told is that of a Volcano job: those of gangs are called by a job, not by a run.
pub(crate) fn is_volcano_group(name: &str) -> bool {
    run_of(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_the_order_of_turns() {
        let run = |job, attempt| RunId { job: JobId(job), attempt };
        let single = |priority, job| single_name(priority, run(job, 1));
        let names = [single(0, 1), gang_name(0, JobId(2)), single(0, 3), single(9, 0), gang_name(10, JobId(0))];
        assert!(names.is_sorted());
        assert_eq!(run_of(&uid(7, run(5, 2))), Some(run(5, 2)));
        assert_eq!(name_in(&uid(7, run(5, 2))), run(5, 2).to_string());
        assert_eq!(job_of(&format!("q/{}", names[2])), Some(JobId(3)));
        assert_eq!(job_of(&names[1]), Some(JobId(2)));
        assert_eq!((run_of("x"), job_of("q/podgroup-x")), (None, None));
    }

    #[test]
    fn names_of_pods_say_of_which_run_they_are() {
        let run = RunId { job: JobId(5), attempt: 2 };
        let names = [pod_uid(7, run, 0), pod_uid(7, run, 9), pod_uid(7, run, 10)];
        assert!(names.is_sorted());
        assert_eq!((run_of(&names[2]), pod_of(&names[2])), (Some(run), Some(10)));
        assert_eq!((run_of(&uid(7, run)), pod_of(&uid(7, run))), (Some(run), None));
        assert_eq!(job_of(&single_name(7, run)), Some(JobId(5)));
        assert!(is_volcano_group(&single_name(7, run)) && !is_volcano_group(&gang_name(7, JobId(5))));
    }
}
