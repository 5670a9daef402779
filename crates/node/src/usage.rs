//! What the pods of this node use: sampled every few seconds, told at `/stats/summary` as the kubelet tells it.
//!
//! Invariant: sampling only reads, and takes no time of the loop over the pods. A number that can't be had is left out, never
//! guessed.

pub(crate) mod disk;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use pumice_clock as clock;
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use crate::pod_index::{IndexedPod, PodIndex};
use disk::DiskUse;
use pumice_linux::cgroup::{CgroupSpec, ContainerCgroup, Hierarchy};
use pumice_linux::procfs;
use pumice_shim::control::ShimProcess;
use pumice_shim::spec::{Network, ShimSpec};
use pumice_shim::status::{ContainerState, ShimPhase, ShimStatus};

/// Time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// Samples kept of each container: what it uses now is its mean over them, and no single peak.
const SAMPLES_MAX: usize = 4;

/// Of one run of a container, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    at: Timestamp,
    /// Computed since its start, in nanoseconds.
    cpu_ns: u64,
    memory_bytes: u64,
}

/// The latest samples of one run of a container, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Series {
    started_at: Timestamp,
    samples: VecDeque<Sample>,
}

impl Series {
    /// Nothing was computed before the start.
    fn new(started_at: Timestamp) -> Series {
        Series::from(Sample { at: started_at, cpu_ns: 0, memory_bytes: 0 })
    }

    fn from(first: Sample) -> Series {
        Series { started_at: first.at, samples: VecDeque::from([first]) }
    }

    fn add(&mut self, sample: Sample) {
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// Billionths of a core, over the time of the samples; and that time.
    fn cpu_nano_cores(&self) -> Option<(u64, Duration)> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let time = Duration::try_from(last.at.duration_since(first.at)).ok().filter(|time| !time.is_zero())?;
        // A process whose end nobody took is not counted any more.
        let computed = u128::from(last.cpu_ns.saturating_sub(first.cpu_ns));
        Some((u64::try_from(computed * 1_000_000_000 / time.as_nanos()).unwrap_or(u64::MAX), time))
    }
}

impl Series {
    /// In the form of the kubelet; `None` as long as there is no use to tell.
    fn summary(&self) -> Option<Value> {
        let (last, (nano_cores, window)) = (self.samples.back()?, self.cpu_nano_cores()?);
        Some(json!({
            "startTime": self.started_at,
            "cpu": {"time": last.at, "usageNanoCores": nano_cores, "usageCoreNanoSeconds": last.cpu_ns,
                "windowSeconds": window.as_secs()},
            "memory": {"time": last.at, "workingSetBytes": last.memory_bytes},
        }))
    }
}

/// What is known of the use of one pod that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PodUsage {
    namespace: String,
    name: String,
    containers: BTreeMap<String, Series>,
    /// Bytes received and sent since its start, where it has a network of its own.
    network: Option<(u64, u64)>,
    /// What it keeps on disk, and when that was measured.
    disk: Option<(Timestamp, DiskUse)>,
}

/// What this machine and its pods use; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usage {
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Clone, Default)]
struct Known {
    /// The whole machine, what is no pod included.
    node: Option<Series>,
    /// By their uids.
    pods: BTreeMap<String, PodUsage>,
    /// Uids of the pods that are over, at which nobody looks again as long as they are kept.
    ended: BTreeSet<String>,
}

/// Samples what the pods of an index use, for [`Usage`] to tell.
pub(crate) struct Sampler {
    pub usage: Usage,
    pub index: PodIndex,
    pub hierarchy: Option<Hierarchy>,
    pub cgroup_node: PathBuf,
}

impl Sampler {
    /// Samples until it is dropped.
    pub(crate) async fn run(self) {
        let sampler = Arc::new(self);
        let mut ticks = tokio::time::interval(SAMPLE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let sampler = Arc::clone(&sampler);
            if let Err(error) = tokio::task::spawn_blocking(move || sampler.sample(clock::now())).await {
                tracing::error!(%error, "what pods use was not sampled");
            }
        }
    }

    fn sample(&self, now: Timestamp) {
        // Copies: who asks meanwhile is told what was known before.
        let (node, mut before, ended_before) = {
            let mut known = self.usage.lock();
            (known.node.clone(), known.pods.clone(), std::mem::take(&mut known.ended))
        };
        let node = match (node, machine_sample(now)) {
            (Some(mut series), Some(sample)) => {
                series.add(sample);
                Some(series)
            }
            (_, machine) => machine.map(Series::from),
        };
        let mut ended = BTreeSet::new();
        let pods = self.index.unended().into_iter().filter_map(|IndexedPod { namespace, name, dir, .. }| {
            let uid = dir.file_name()?.to_str()?.to_owned();
            // What has not begun has no status yet.
            let status = if ended_before.contains(&uid) { None } else { Some(ShimStatus::read(&dir).ok()?) };
            let Some(status) = status.filter(|status| status.phase != ShimPhase::Done) else {
                ended.insert(uid);
                return None;
            };
            let new = || PodUsage { namespace, name, containers: BTreeMap::new(), network: None, disk: None };
            let mut pod = before.remove(&uid).unwrap_or_else(new);
            self.look_at(&mut pod, &status, &dir, now);
            (!pod.containers.is_empty()).then_some((uid, pod))
        });
        let mut pods: BTreeMap<String, PodUsage> = pods.collect();
        let mut known = self.usage.lock();
        // Measured meanwhile.
        for (uid, pod) in &mut pods {
            pod.disk = known.pods.get_mut(uid).and_then(|before| before.disk.take()).or(pod.disk.take());
        }
        *known = Known { node, pods, ended };
    }

    fn look_at(&self, pod: &mut PodUsage, status: &ShimStatus, dir: &Path, now: Timestamp) {
        let uid = dir.file_name().unwrap_or_default();
        let group = self.hierarchy.clone().map(|hierarchy| CgroupSpec::of(hierarchy, self.cgroup_node.join(uid)));
        let running = status.all().filter_map(|container| match container.state {
            ContainerState::Running { started_at, pid: Some(pid) } => Some((container, started_at, pid)),
            _ => None,
        });
        let mut before = std::mem::take(&mut pod.containers);
        for (container, started_at, pid) in running {
            let same = before.remove(&container.name).filter(|series| series.started_at == started_at);
            let mut series = same.unwrap_or_else(|| Series::new(started_at));
            let group = group.as_ref().map(|group| ContainerCgroup::of(group, &container.name));
            let (cpu_ns, memory_bytes) = used(group.as_ref(), pid);
            series.add(Sample { at: now, cpu_ns, memory_bytes });
            pod.containers.insert(container.name.clone(), series);
        }
        if pod.containers.is_empty() {
            return;
        }
        // The shim is in the pod's network.
        let shim = ShimProcess::read(dir).ok().filter(ShimProcess::is_current);
        let own = pod.network.is_some() || ShimSpec::read(dir).is_ok_and(|spec| spec.network != Network::Host);
        pod.network = if own { shim.map(|shim| procfs::network_bytes(shim.pid)) } else { None };
    }
}

/// The whole machine, where `/proc` tells.
fn machine_sample(now: Timestamp) -> Option<Sample> {
    Some(Sample { at: now, cpu_ns: procfs::machine_cpu_ns()?, memory_bytes: procfs::machine_memory_bytes()? })
}

/// What a container has computed and what it holds: as its control groups say, else its processes one by one.
fn used(group: Option<&ContainerCgroup>, pid: i32) -> (u64, u64) {
    let (cpu, memory) = (group.and_then(ContainerCgroup::cpu_ns), group.and_then(ContainerCgroup::working_set_bytes));
    if let (Some(cpu), Some(memory)) = (cpu, memory) {
        return (cpu, memory);
    }
    let all = || std::iter::once(pid).chain(procfs::descendants(pid));
    (
        cpu.unwrap_or_else(|| all().map(procfs::cpu_ns).sum()),
        memory.unwrap_or_else(|| all().map(procfs::resident_bytes).sum()),
    )
}

impl Usage {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what a pod keeps on disk, if it was sampled before.
    pub(crate) fn set_disk(&self, uid: &str, used: &DiskUse) {
        if let Some(pod) = self.lock().pods.get_mut(uid) {
            pod.disk = Some((clock::now(), used.clone()));
        }
    }

    /// All of it in the form of the kubelet's `/stats/summary`, as far as it is known.
    pub(crate) fn summary(&self) -> Value {
        let known = self.lock();
        let pods: Vec<Value> = known.pods.iter().map(|(uid, pod)| pod.summary(uid)).collect();
        let mut summary = json!({"pods": pods});
        if let Some(node) = known.node.as_ref().and_then(Series::summary) {
            summary["node"] = node;
        }
        summary
    }
}

impl PodUsage {
    fn summary(&self, uid: &str) -> Value {
        let disk = |name: &str| {
            let (time, used) = self.disk.as_ref()?;
            Some((time, used.containers.get(name)?))
        };
        let containers: Vec<Value> = self
            .containers
            .iter()
            .filter_map(|(name, series)| {
                let mut summary = series.summary()?;
                summary["name"] = json!(name);
                if let Some((time, used)) = disk(name) {
                    summary["rootfs"] = json!({"time": time, "usedBytes": used.files});
                    summary["logs"] = json!({"time": time, "usedBytes": used.logs});
                }
                Some(summary)
            })
            .collect();
        let mut pod = json!({
            "podRef": {"name": self.name, "namespace": self.namespace, "uid": uid},
            "containers": containers,
        });
        if let Some((received, sent)) = self.network {
            pod["network"] = json!({"rxBytes": received, "txBytes": sent});
        }
        if let Some((time, used)) = &self.disk {
            let volume = |(name, bytes): (&String, &u64)| json!({"name": name, "time": time, "usedBytes": bytes});
            pod["volume"] = used.volumes.iter().map(volume).collect();
            pod["ephemeral-storage"] = json!({"time": time, "usedBytes": used.total()});
        }
        pod
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::ContainerUse;

    #[test]
    fn use_is_the_mean_over_the_latest_samples() {
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).unwrap();
        let mut series = Series::new(at(0));
        assert_eq!(series.cpu_nano_cores(), None);
        let sample = |second, cpu_s: u64| Sample { at: at(second), cpu_ns: cpu_s * 1_000_000_000, memory_bytes: 5 };
        for (second, cpu_s, nano_cores, window) in [
            (10, 10, 1_000_000_000, 10),
            (20, 30, 1_500_000_000, 20),
            (30, 30, 1_000_000_000, 30),
            // The start is forgotten.
            (40, 40, 1_000_000_000, 30),
            (50, 40, 333_333_333, 30),
            // Processes have gone uncounted.
            (60, 20, 0, 30),
        ] {
            series.add(sample(second, cpu_s));
            assert_eq!(series.cpu_nano_cores(), Some((nano_cores, Duration::from_secs(window))), "{second}");
        }
        assert_eq!(series.samples.len(), SAMPLES_MAX);
        let mut now = Series::new(at(0));
        now.add(sample(0, 1));
        assert_eq!(now.cpu_nano_cores(), None, "no time has passed");
    }

    #[test]
    fn what_a_pod_keeps_on_disk_is_told_beside_what_it_uses() {
        let at = Timestamp::from_second(1_700_000_000).unwrap();
        let mut series = Series::new(at);
        series.add(Sample { at: at + Duration::from_secs(10), cpu_ns: 1, memory_bytes: 5 });
        let pod = PodUsage {
            namespace: "ns".into(),
            name: "p".into(),
            containers: BTreeMap::from([("c".to_owned(), series)]),
            network: None,
            disk: None,
        };
        let usage = Usage::default();
        usage.lock().pods.insert("u".to_owned(), pod);
        assert!(usage.summary()["pods"][0]["ephemeral-storage"].is_null(), "not measured, not told");
        let used = DiskUse {
            containers: BTreeMap::from([("c".to_owned(), ContainerUse { files: 2, logs: 3 })]),
            volumes: BTreeMap::from([("v".to_owned(), 4)]),
        };
        usage.set_disk("u", &used);
        usage.set_disk("not sampled", &used);
        let told = &usage.summary()["pods"][0];
        let container = &told["containers"][0];
        let bytes = [&container["rootfs"], &container["logs"], &told["volume"][0], &told["ephemeral-storage"]];
        assert_eq!(bytes.map(|one| one["usedBytes"].as_u64()), [2, 3, 4, 9].map(Some), "{told}");
        assert_eq!(told["volume"][0]["name"], "v");
    }

    #[test]
    fn this_process_uses_something() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let (cpu, memory) = used(None, pid);
        assert!(memory > 0);
        assert!(cpu < 1_000_000_000_000, "{cpu}");
    }
}
