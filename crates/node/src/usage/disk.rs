//! What pods use of the node's disk, and which of them use more than they may.
//!
//! Invariant: a pod is judged by no more than it has. [`measuring`] counts, or asks the kernel where [`projects`] do;
//! [`schedule`] says when, [`thresholds`] has the numbers, and [`pressure`] decides who goes when the whole disk is nearly full.

pub(crate) mod measuring;
pub(crate) mod pressure;
pub(crate) mod projects;
mod schedule;
pub(crate) mod thresholds;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};
use pumice_units::Quantity;

use crate::downward_api;
use crate::pod_index::DiskRules;
use crate::pod_spec::resolve::is_sidecar;

/// What one pod keeps on disk, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DiskUse {
    /// Of each container that has run: its own files, and its logs.
    pub containers: BTreeMap<String, ContainerUse>,
    /// In the pod's own folder of each volume; other file systems mounted there are not counted.
    pub volumes: BTreeMap<String, u64>,
}

/// What one container keeps on disk, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ContainerUse {
    pub files: u64,
    pub logs: u64,
}

impl ContainerUse {
    fn total(self) -> u64 {
        self.files.saturating_add(self.logs)
    }
}

impl DiskUse {
    /// Bytes of all containers and volumes together.
    pub(crate) fn total(&self) -> u64 {
        let containers = self.containers.values().map(|container| container.total());
        containers.chain(self.volumes.values().copied()).fold(0, u64::saturating_add)
    }
}

/// Why `pod` has to go, in a kubelet's words; `None` while it keeps to its limits.
pub(crate) fn excess(pod: &Pod, used: &DiskUse) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let over = |used: u64, limit: &Quantity| i64::try_from(used).unwrap_or(i64::MAX) > limit.value();
    for volume in spec.volumes.iter().flatten() {
        let Some(limit) = size_limit(volume) else { continue };
        if used.volumes.get(&volume.name).is_some_and(|used| over(*used, &limit)) {
            return Some(format!("Usage of EmptyDir volume \"{}\" exceeds the limit \"{limit}\". ", volume.name));
        }
    }
    if let Some(limit) = together(spec).filter(|limit| over(used.total(), limit)) {
        return Some(format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "));
    }
    let container = |name: &str| used.containers.get(name).copied().unwrap_or_default().total();
    let (name, limit) = side_by_side(spec).find(|(name, limit)| over(container(name), limit))?;
    Some(format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "))
}

/// The limit of a pod as a whole. As upstream sums them: containers without a limit add none, and one init container may be allowed
/// more than all.
fn together(spec: &PodSpec) -> Option<Quantity> {
    let init = spec.init_containers.iter().flatten().filter_map(storage_limit).map(|(_, limit)| limit);
    let has_limits = side_by_side(spec).next().is_some();
    let sum = side_by_side(spec).try_fold(Quantity::from_bytes(0), |sum, (_, limit)| sum.checked_add(limit));
    init.chain(if has_limits { sum } else { None }).max()
}

/// The limits of the containers that run beside each other.
fn side_by_side(spec: &PodSpec) -> impl Iterator<Item = (&str, Quantity)> {
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    sidecars.chain(&spec.containers).filter_map(storage_limit)
}

/// How a pod is measured.
pub(crate) fn rules_of(pod: &Pod) -> DiskRules {
    DiskRules { limited: is_limited(pod), by_project: projects::are_lasting(pod) }
}

/// Whether a pod has a limit that is kept to by measuring.
fn is_limited(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    containers.any(|container| storage_limit(container).is_some())
        || spec.volumes.iter().flatten().any(|volume| size_limit(volume).is_some())
}

/// Whether a volume is a folder of the pod's on disk.
fn is_on_disk(volume: &Volume) -> bool {
    volume.empty_dir.as_ref().is_some_and(|source| source.medium.as_deref().is_none_or(str::is_empty))
}

/// The limit of a folder on disk; those in memory have the kernel's.
fn size_limit(volume: &Volume) -> Option<Quantity> {
    let source = volume.empty_dir.as_ref().filter(|_| is_on_disk(volume))?;
    source.size_limit.as_ref().and_then(downward_api::parse).filter(|limit| limit.value() > 0)
}

fn storage_limit(container: &Container) -> Option<(&str, Quantity)> {
    let limit = container.resources.as_ref()?.limits.as_ref()?.get("ephemeral-storage")?;
    Some((&container.name, downward_api::parse(limit)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    fn used(containers: &[(&str, u64, u64)], volumes: &[(&str, u64)]) -> DiskUse {
        let containers = containers
            .iter()
            .map(|(name, files, logs)| ((*name).to_owned(), ContainerUse { files: *files, logs: *logs }));
        let volumes = volumes.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes));
        DiskUse { containers: containers.collect(), volumes: volumes.collect() }
    }

    const MI: u64 = 1 << 20;

    #[test]
    fn a_pod_over_a_limit_is_told_in_a_kubelets_words() {
        let limited = |limit: &str| json!({"limits": {"ephemeral-storage": limit}});
        let pod = pod(json!({
            "initContainers": [{"name": "i", "resources": limited("1Mi")}],
            "containers": [{"name": "a", "resources": limited("2Mi")}, {"name": "b", "resources": limited("3Mi")}, {"name": "c"}],
            "volumes": [
                {"name": "v", "emptyDir": {"sizeLimit": "1Mi"}},
                {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                {"name": "free", "emptyDir": {}},
            ],
        }));
        let volume = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ";
        let all = "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. ";
        let one = "Container a exceeded its local ephemeral storage limit \"2Mi\". ";
        let cases = [
            (used(&[("a", MI, MI), ("b", MI, 0), ("c", MI, 0)], &[("v", MI)]), None),
            (used(&[], &[("v", MI + 1)]), Some(volume)),
            (used(&[], &[("m", 2 * MI)]), None),
            (used(&[], &[("free", 5 * MI + 1)]), Some(all)),
            (used(&[("c", 6 * MI, 0)], &[]), Some(all)),
            (used(&[("a", MI, MI + 1)], &[]), Some(one)),
            (used(&[("b", 0, 3 * MI)], &[]), None),
        ];
        for (used, expected) in cases {
            assert_eq!(excess(&pod, &used).as_deref(), expected, "{used:?}");
        }
    }

    #[test]
    fn a_pod_without_limits_may_fill_the_disk() {
        let pod = pod(json!({"containers": [{"name": "a"}], "volumes": [{"name": "v", "emptyDir": {}}]}));
        assert_eq!(excess(&pod, &used(&[("a", u64::MAX, 1)], &[("v", u64::MAX)])), None);
    }
}
