//! Jobs that are several pods: a Volcano job of a cluster, which places and runs them itself.
//!
//! To the ledger it is one job with one run at a time, like any other. What its pods ask for stands in its shape, and where
//! room is held for them in its run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The pods of a job. They are numbered through, part after part, from 0.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolcanoJob {
    /// How many of them have to start together.
    pub least: u32,
    /// Pods that are alike.
    pub parts: Vec<VolcanoTask>,
}

/// Pods of a job that scheduling can't tell apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolcanoTask {
    /// How many there are.
    pub pods: u32,
    /// What each takes: cpu in milli-cores, everything else in job units.
    pub requests: BTreeMap<String, i64>,
    /// What placing one reads, as the scheduler's own JSON; the ledger only carries it.
    #[serde(default)]
    pub template: serde_json::Value,
}

/// Pods of a job that have room on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePods {
    /// The node, of the run's cluster.
    pub node: String,
    /// The numbers of the pods.
    pub pods: Vec<u32>,
}

impl VolcanoJob {
    /// How many pods there are.
    pub fn pods(&self) -> u32 {
        self.parts.iter().map(|part| part.pods).fold(0, u32::saturating_add)
    }

    /// The numbers of all pods, each with the place of its part. O(pods).
    pub fn numbered(&self) -> impl Iterator<Item = (u32, usize)> {
        let parts = self.parts.iter().enumerate();
        (0..).zip(parts.flat_map(|(part, alike)| (0..alike.pods).map(move |_| part)))
    }

    /// The part of a pod; none where there is no such pod.
    pub fn part_of(&self, pod: u32) -> Option<usize> {
        let mut after = 0_u32;
        self.parts.iter().position(|part| {
            after = after.saturating_add(part.pods);
            pod < after
        })
    }

    /// What the pods of these places ask for together. O(pods · parts).
    pub fn requests_at(&self, places: &[NodePods]) -> BTreeMap<String, i64> {
        let mut sums: BTreeMap<String, i64> = BTreeMap::new();
        let pods = places.iter().flat_map(|place| &place.pods);
        let parts = pods.filter_map(|pod| self.parts.get(self.part_of(*pod)?));
        for (name, amount) in parts.flat_map(|part| &part.requests) {
            let sum = sums.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_numbered_part_after_part() {
        let part = |pods| VolcanoTask { pods, requests: BTreeMap::new(), template: serde_json::Value::Null };
        let job = VolcanoJob { least: 1, parts: vec![part(2), part(0), part(1)] };
        assert_eq!(job.numbered().collect::<Vec<_>>(), [(0, 0), (1, 0), (2, 2)]);
        assert_eq!((job.pods(), job.part_of(1), job.part_of(2), job.part_of(3)), (3, Some(0), Some(2), None));
        assert!(job.numbered().all(|(pod, part)| job.part_of(pod) == Some(part)));
    }
}
