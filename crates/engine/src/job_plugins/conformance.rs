//! `conformance`: what the cluster itself runs on is never a victim: critical priority classes and `kube-system`.

use crate::cluster::classes::ClassRow;
use crate::ids::TaskId;
use crate::plugin::{GangEviction, Plugin};
use crate::world::tables::Tables;

const CRITICAL: [&str; 2] = ["system-cluster-critical", "system-node-critical"];
const SYSTEM_NAMESPACE: &str = "kube-system";

#[derive(Debug)]
pub(crate) struct Conformance;

impl Plugin for Conformance {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn preemptable(&self, tables: &Tables, _preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        Some(unprotected(tables, candidates))
    }

    fn reclaimable(&self, tables: &Tables, _preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        Some(unprotected(tables, candidates))
    }

    fn may_leave(&self, tables: &Tables, task: TaskId) -> bool {
        !is_protected(tables, task)
    }

    fn keeps(&self, tables: &Tables, victim: TaskId) -> bool {
        is_protected(tables, victim)
    }

    fn unified_evictable(&self, tables: &Tables, _want: &GangEviction, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        Some(unprotected(tables, candidates))
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }
}

fn unprotected(tables: &Tables, candidates: &[TaskId]) -> Vec<TaskId> {
    candidates.iter().copied().filter(|task| !is_protected(tables, *task)).collect()
}

/// Whether the cluster itself needs the pod.
pub(crate) fn is_protected(tables: &Tables, task: TaskId) -> bool {
    let row = tables.task(task);
    let critical = row.priority_class.as_deref().is_some_and(|name| CRITICAL.contains(&name));
    critical || &*row.namespace == SYSTEM_NAMESPACE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::tests::victim_bench::Bench;

    #[test]
    fn what_the_cluster_runs_on_stays() {
        for (class, namespace, leaves) in [
            ("", "ns", true),
            ("batch-low", "ns", true),
            ("system-cluster-critical", "ns", false),
            ("system-node-critical", "ns", false),
            ("", "kube-system", false),
        ] {
            let mut bench = Bench::new();
            let task = bench.running("victims", 0, |pod| {
                pod.pod_priority_class = class.to_owned();
                pod.namespace = namespace.to_owned();
            });
            let preemptor = bench.pending("wants", 0, |_| {});
            let expected = if leaves { vec![task] } else { Vec::new() };
            let tables = &bench.tables;
            assert_eq!(
                Conformance.preemptable(tables, preemptor, &[task]),
                Some(expected.clone()),
                "{class} {namespace}"
            );
            assert_eq!(Conformance.reclaimable(tables, preemptor, &[task]), Some(expected), "{class} {namespace}");
        }
    }
}
