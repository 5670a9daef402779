//! What pods keep on the node's disk, and which of them keep more than they may.
//!
//! Invariant: measuring only reads, off the async threads, and takes a bounded share of one core's time, however much there is to
//! count: a pod with more files than a round counts is gone through in several, and judged by what was found so far. What is
//! not counted is never guessed, so a pod is judged by no more than it has.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, Volume};
use pumice_clock as clock;
use pumice_units::Quantity;
use tokio::sync::mpsc;

use crate::pod_index::PodIndex;
use crate::pod_spec::resolve::is_sidecar;
use crate::shim::status::{ContainerStatus, ShimPhase, ShimStatus};
use crate::tree::size::Size;
use crate::usage::Usage;
use crate::{downward_api, layout};

/// Time between two rounds, as a kubelet's.
const MEASURE_EVERY: Duration = Duration::from_secs(10);
/// A round that took long is followed by a rest of so many times its length.
const REST_PER_WORK: u32 = 20;
/// Files of one pod that are counted in a round; with more, the next round goes on there.
const FILES_MAX: u32 = 500_000;
/// Pods whose count goes on in the next round: each takes memory and descriptors until then.
const UNFINISHED_MAX: usize = 8;
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
    /// Bytes of all containers and volumes together.
    pub(crate) fn total(&self) -> u64 {
        let containers = self.containers.values().map(|container| container.total());
        containers.chain(self.volumes.values().copied()).fold(0, u64::saturating_add)
    }
}

/// Which of a pod's folders one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Logs,
    Volume,
    Files,
}

/// A folder to count.
struct Folder {
    part: Part,
    /// The container or the volume that it is of.
    name: String,
    path: PathBuf,
}

/// A look at a pod's directory, in parts. What goes away meanwhile is left out.
struct Measurement {
    /// Folders to count, the last one first.
    folders: Vec<Folder>,
    /// The count of the last of them.
    size: Option<Size>,
    found: DiskUse,
    /// Folders that this process may not read.
    unreadable: u64,
}

impl Measurement {
    fn begin(dir: &Path) -> Measurement {
        let each = |part: Part, dir: PathBuf| {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries.filter_map(move |entry| {
                Some(Folder { part, name: entry.file_name().into_string().ok()?, path: entry.path() })
            })
        };
        let files = each(Part::Files, dir.join("c"));
        let volumes = each(Part::Volume, layout::volumes_dir(dir));
        let folders = files.chain(volumes).chain(each(Part::Logs, dir.join("logs"))).collect();
        Measurement { folders, size: None, found: DiskUse::default(), unreadable: 0 }
    }

    /// Goes on for at most `entries` more; whether all is counted.
    fn go_on(&mut self, mut entries: u32) -> bool {
        while let Some(Folder { part, name, path }) = self.folders.last() {
            // What is no folder, or is gone, takes nothing.
            let size = self.size.take().or_else(|| Size::of(path).ok());
            let mut finished = true;
            if let Some(mut size) = size {
                finished = size.go_on(&mut entries);
                match part {
                    Part::Logs => self.found.containers.entry(name.clone()).or_default().logs = size.bytes(),
                    Part::Files => self.found.containers.entry(name.clone()).or_default().files = size.bytes(),
                    Part::Volume => drop(self.found.volumes.insert(name.clone(), size.bytes())),
                }
                if finished {
                    self.unreadable = self.unreadable.saturating_add(size.unreadable());
                } else {
                    self.size = Some(size);
                }
            }
            if !finished {
                return false;
            }
            self.folders.pop();
        }
        true
    }
}

/// Counts that take more than a round, by their pods' uids. They go on in the next.
#[derive(Default)]
struct Unfinished(BTreeMap<String, Measurement>);

impl Unfinished {
    /// Goes on with a count of the pod of `dir`; whether it is finished. Where as many wait as may, one begins anew each time.
    fn measure(&mut self, uid: &str, dir: &Path, entries: u32) -> Measured {
        let mut measurement = self.0.remove(uid).unwrap_or_else(|| Measurement::begin(dir));
        let finished = measurement.go_on(entries);
        let used = measurement.found.clone();
        if measurement.unreadable > 0 {
            tracing::debug!(uid, folders = measurement.unreadable, "folders that only root may read are not counted");
        }
        if !finished && self.0.len() < UNFINISHED_MAX {
            self.0.insert(uid.to_owned(), measurement);
        }
        Measured { uid: uid.to_owned(), used, finished }
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
    let sum = all.iter().try_fold(Quantity::from_bytes(0), |sum, (_, limit)| sum.checked_add(*limit));
    let together = init.chain(if all.is_empty() { None } else { sum }).max();
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
    source.size_limit.as_ref().and_then(downward_api::parse).filter(|limit| limit.value() > 0)
}

fn storage_limit(container: &Container) -> Option<(&str, Quantity)> {
    let limit = container.resources.as_ref()?.limits.as_ref()?.get("ephemeral-storage")?;
    Some((&container.name, downward_api::parse(limit)?))
}

/// What a pod keeps, by its uid.
pub(crate) struct Measured {
    pub uid: String,
    pub used: DiskUse,
    /// Whether that is all; else it keeps at least so much.
    finished: bool,
}

/// Where to look, and who hears of it.
pub(crate) struct Measurer {
    pub index: PodIndex,
    pub usage: Usage,
    pub measured: mpsc::Sender<Measured>,
}

impl Measurer {
    /// Measures until it is dropped.
    pub(crate) async fn run(self) {
        let mut unfinished = Unfinished::default();
        loop {
            let began = clock::monotonic();
            let dirs: Vec<PathBuf> = self.index.all().into_iter().map(|pod| pod.dir).collect();
            unfinished.0.retain(|uid, _| dirs.iter().any(|dir| dir.ends_with(uid)));
            // Pod by pod, for what was found last must not be old when it is heard.
            for dir in dirs {
                let mut begun = std::mem::take(&mut unfinished);
                let measuring = tokio::task::spawn_blocking(move || (running(&dir, &mut begun), begun));
                match measuring.await {
                    Ok((measured, rest)) => {
                        unfinished = rest;
                        let Some(measured) = measured else { continue };
                        if measured.finished {
                            self.usage.set_disk(&measured.uid, &measured.used);
                        }
                        if self.measured.send(measured).await.is_err() {
                            return;
                        }
                    }
                    Err(error) => tracing::error!(%error, "what a pod keeps on disk was not measured"),
                }
            }
            tokio::time::sleep(MEASURE_EVERY.max(began.elapsed() * REST_PER_WORK)).await;
        }
    }
}

/// Measures the pod of `dir` if it runs.
fn running(dir: &Path, unfinished: &mut Unfinished) -> Option<Measured> {
    let status = ShimStatus::read(dir).ok().filter(|status| status.phase != ShimPhase::Done)?;
    if !status.init_containers.iter().chain(&status.containers).any(ContainerStatus::is_running) {
        return None;
    }
    let uid = dir.file_name()?.to_str()?;
    Some(unfinished.measure(uid, dir, FILES_MAX))
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
        let mut all = Measurement::begin(dir.path());
        assert!(all.go_on(u32::MAX));
        let used = all.found;
        let about = |bytes: u64, mebibytes: u64| bytes.abs_diff(mebibytes * MI) < MI / 4;
        assert!(about(used.volumes["v"], 1), "{used:?}");
        assert!(about(used.containers["a"].logs, 2) && about(used.containers["a"].files, 3), "{used:?}");
        assert!(about(used.total(), 6), "{used:?}");
    }

    #[test]
    fn bytes_behind_many_files_are_found_in_later_rounds() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volumes/v");
        fs::create_dir_all(&volume).unwrap();
        (0..500).for_each(|i| drop(fs::File::create(volume.join(i.to_string())).unwrap()));
        fs::create_dir_all(dir.path().join("c/a/0/upper")).unwrap();
        fs::write(dir.path().join("c/a/0/upper/hidden"), vec![b'x'; MI as usize]).unwrap();
        let (mut unfinished, mut rounds, mut before) = (Unfinished::default(), 0, 0);
        loop {
            rounds += 1;
            let measured = unfinished.measure("u", dir.path(), 100);
            assert!(measured.used.total() >= before, "what was found so far counts");
            before = measured.used.total();
            assert_eq!(unfinished.0.contains_key("u"), !measured.finished);
            if measured.finished {
                break;
            }
        }
        assert!(rounds >= 5, "{rounds}");
        assert!((MI..2 * MI).contains(&before), "{before}");
        for other in 0..=UNFINISHED_MAX {
            unfinished.measure(&other.to_string(), dir.path(), 1);
        }
        assert_eq!(unfinished.0.len(), UNFINISHED_MAX);
    }
}
