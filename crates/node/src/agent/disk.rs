//! What pods keep on the node's disk, and which of them keep more than they may.
//!
//! Invariant: measuring only reads, off the async threads, and takes a bounded share of one core's time, however much there is to
//! count. What is not counted is never guessed, so a pod is judged by no more than it has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, Volume};
use pumice_units::Quantity;
use tokio::sync::mpsc;

use super::log_service::PodIndex;
use super::resolve::is_sidecar;
use super::usage::Usage;
use super::{fields, start};
use crate::clock;
use crate::shim::status::{ContainerStatus, ShimPhase, ShimStatus};

/// Time between two rounds, as a kubelet's.
const MEASURE_EVERY: Duration = Duration::from_secs(10);
/// A round that took long is followed by a rest of so many times its length.
const REST_PER_WORK: u32 = 20;
/// Files of one pod that are counted in a round; of a pod with more the rest is left out.
const FILES_MAX: u32 = 500_000;
/// Measurements that wait to be judged.
pub(crate) const MEASURED_MAX: usize = 64;

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
    /// Everything together.
    pub(crate) fn total(&self) -> u64 {
        let containers = self.containers.values().map(|container| container.total());
        containers.chain(self.volumes.values().copied()).fold(0, u64::saturating_add)
    }

    /// Looks at a pod's directory. Takes time; what goes away meanwhile is left out.
    fn measure(dir: &Path) -> DiskUse {
        let mut walk = Walk { left: FILES_MAX, seen: BTreeSet::new() };
        let mut found = DiskUse::default();
        for (name, bytes) in walk.each(&dir.join("logs")) {
            found.containers.entry(name).or_default().logs = bytes;
        }
        for (name, bytes) in walk.each(&start::volumes_dir(dir)) {
            found.volumes.insert(name, bytes);
        }
        for (name, bytes) in walk.each(&dir.join("c")) {
            found.containers.entry(name).or_default().files = bytes;
        }
        found
    }
}

/// One count of a pod's files.
struct Walk {
    /// How many more may be looked at.
    left: u32,
    /// Files with several names that were counted.
    seen: BTreeSet<(u64, u64)>,
}

impl Walk {
    /// The sizes of the folders in `dir`, by their names.
    fn each(&mut self, dir: &Path) -> Vec<(String, u64)> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, self.size(&entry.path())))).collect()
    }

    /// Bytes on disk of everything below `root`, on its own file system.
    fn size(&mut self, root: &Path) -> u64 {
        let Ok(top) = fs::symlink_metadata(root) else { return 0 };
        let mut bytes: u64 = 0;
        let mut folders: Vec<PathBuf> = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let Some(left) = self.left.checked_sub(1) else { return bytes };
                self.left = left;
                let Ok(found) = entry.metadata() else { continue };
                if found.dev() != top.dev() {
                    continue;
                }
                if found.is_dir() {
                    folders.push(entry.path());
                } else if found.nlink() > 1 && !self.seen.insert((found.dev(), entry.ino())) {
                    continue;
                }
                bytes = bytes.saturating_add(found.blocks().saturating_mul(512));
            }
        }
        bytes
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
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let all: Vec<(&str, Quantity)> = sidecars.chain(&spec.containers).filter_map(storage_limit).collect();
    // As upstream sums them: containers without a limit add none, and one init container may be allowed more than all.
    let init = spec.init_containers.iter().flatten().filter_map(storage_limit).map(|(_, limit)| limit);
    let together = all.iter().try_fold(Quantity::from_bytes(0), |sum, (_, limit)| sum.checked_add(*limit));
    let together = init.chain(together.filter(|_| !all.is_empty())).max();
    if let Some(limit) = together.filter(|limit| over(used.total(), limit)) {
        return Some(format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "));
    }
    let container = |name: &str| used.containers.get(name).copied().unwrap_or_default().total();
    let (name, limit) = all.iter().find(|(name, limit)| over(container(name), limit))?;
    Some(format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "))
}

/// The limit of a folder on disk; those in memory have the kernel's.
fn size_limit(volume: &Volume) -> Option<Quantity> {
    let source = volume.empty_dir.as_ref().filter(|source| source.medium.as_deref().is_none_or(str::is_empty))?;
    source.size_limit.as_ref().and_then(fields::parse).filter(|limit| limit.value() > 0)
}

fn storage_limit(container: &Container) -> Option<(&str, Quantity)> {
    let limit = container.resources.as_ref()?.limits.as_ref()?.get("ephemeral-storage")?;
    Some((&container.name, fields::parse(limit)?))
}

/// A pod by its uid, and what it keeps.
pub(crate) type Measured = (String, DiskUse);

/// Where to look, and who hears of it.
pub(crate) struct Measurer {
    pub index: PodIndex,
    pub usage: Usage,
    pub measured: mpsc::Sender<Measured>,
}

impl Measurer {
    /// Measures until it is dropped.
    pub(crate) async fn run(self) {
        loop {
            let began = clock::monotonic();
            // Pod by pod, for what was found last must not be old when it is heard.
            for (_, _, dir) in self.index.all() {
                let measuring = tokio::task::spawn_blocking(move || running(&dir));
                match measuring.await {
                    Ok(Some((uid, used))) => {
                        self.usage.set_disk(&uid, &used);
                        if self.measured.send((uid, used)).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => {}
                    Err(error) => tracing::error!(%error, "what a pod keeps on disk was not measured"),
                }
            }
            tokio::time::sleep(MEASURE_EVERY.max(began.elapsed() * REST_PER_WORK)).await;
        }
    }
}

/// Measures the pod of `dir` if it runs.
fn running(dir: &Path) -> Option<Measured> {
    let status = ShimStatus::read(dir).ok().filter(|status| status.phase != ShimPhase::Done)?;
    let runs = status.init_containers.iter().chain(&status.containers).any(ContainerStatus::is_running);
    runs.then(|| Some((dir.file_name()?.to_str()?.to_owned(), DiskUse::measure(dir))))?
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

    #[test]
    fn files_are_counted_once_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, bytes: usize| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, vec![b'x'; bytes]).unwrap();
            path
        };
        let big = write("volumes/v/deep/big", MI as usize);
        fs::hard_link(&big, dir.path().join("volumes/v/again")).unwrap();
        std::os::unix::fs::symlink(&big, dir.path().join("volumes/v/link")).unwrap();
        write("logs/a/0.log", 2 * MI as usize);
        write("c/a/0/upper/file", 3 * MI as usize);
        let used = DiskUse::measure(dir.path());
        let about = |bytes: u64, mebibytes: u64| bytes.abs_diff(mebibytes * MI) < MI / 4;
        assert!(about(used.volumes["v"], 1), "{used:?}");
        assert!(about(used.containers["a"].logs, 2) && about(used.containers["a"].files, 3), "{used:?}");
        assert!(about(used.total(), 6), "{used:?}");
        let mut short = Walk { left: 2, seen: BTreeSet::new() };
        assert!(short.size(dir.path()) < MI, "the rest is left out");
        assert_eq!(short.left, 0);
    }
}
