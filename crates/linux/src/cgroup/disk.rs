//! The time of the disk with the pods' files: what pods weigh there, and how much they read and write a second at most.
//!
//! Invariant: a pod pays for it only where that has an effect. In version 1, where the controller of disks is a hierarchy of its own, a
//! pod has a group there only if it has a limit or something goes by weights: making and removing one takes 0.2 ms of CPU. Called
//! when a node is prepared and when a pod's groups are made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Hierarchy;
use super::directory::make_dir;
use super::limits::weight;
use crate::disk_device::DiskNumber;

/// What all pods of all nodes weigh among the machine's services, each of which has 100 unless somebody has said otherwise.
const PODS_WEIGHT: i64 = 50;
/// The largest weight of BFQ, and the smallest of CFQ.
const BFQ_MAX: i64 = 1000;
const CFQ_MIN: i64 = 10;

/// The controller of disks, and the disk with the pods' files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskControl {
    /// Where it is mounted.
    root: PathBuf,
    number: DiskNumber,
    /// What goes by weights on this disk, if something does.
    weights: Option<Weights>,
}

/// What shares out a disk by weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Weights {
    Bfq,
    /// The scheduler before BFQ.
    Cfq,
    /// The controller's own model of the disk, of version 2.
    Cost,
}

/// What a pod reads and writes at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskLimits {
    pub read_bytes_per_second: Option<u64>,
    pub write_bytes_per_second: Option<u64>,
}

impl Hierarchy {
    /// Takes on the controller of disks, for a node that was prepared and pods with files in `folder`.
    ///
    /// # Errors
    /// Where the kernel has none, it was not handed over, or the folder is on no disk.
    pub fn add_disk(&mut self, node: &Path, folder: &Path) -> io::Result<()> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let found = self.prepare_disk(node, &mounts, DiskNumber::under(folder)?)?;
        let (Hierarchy::V1 { disk, .. } | Hierarchy::V2 { disk, .. }) = self;
        *disk = Some(found);
        Ok(())
    }

    fn prepare_disk(&self, node: &Path, mounts: &str, number: DiskNumber) -> io::Result<DiskControl> {
        let root = match self {
            Hierarchy::V1 { .. } => {
                let found = mount_of_version_1(mounts).filter(|root| root.join(WRITE_LIMIT).exists());
                found.ok_or_else(no_controller)?
            }
            Hierarchy::V2 { root, .. } => {
                let groups = node.ancestors().collect::<Vec<_>>().into_iter().rev();
                for group in groups {
                    fs::write(root.join(group).join("cgroup.subtree_control"), "+io")?;
                }
                root.clone()
            }
        };
        let costs = fs::read_to_string(root.join("io.cost.qos")).unwrap_or_default();
        let control = DiskControl { weights: weights(number.scheduler().as_deref(), &costs, number), root, number };
        make_dir(&control.root.join(node))?;
        if let Some(top) = node.ancestors().filter(|group| !group.as_os_str().is_empty()).last() {
            self.weigh_disk(&control, top, PODS_WEIGHT);
        }
        Ok(control)
    }

    /// What pods weigh and may use of the disk.
    pub(super) fn disk(&self) -> Option<&DiskControl> {
        match self {
            Hierarchy::V1 { disk, .. } | Hierarchy::V2 { disk, .. } => disk.as_ref(),
        }
    }

    /// Whether pods can be kept to a number of bytes a second.
    pub fn limits_disk(&self) -> bool {
        self.disk().is_some()
    }

    /// Has a pod weigh as much as its CPUs on the disk, and keeps it to its limits.
    pub(super) fn limit_disk(&self, pod: &Path, cpu_milli: i64, limits: Option<&DiskLimits>) -> io::Result<()> {
        let Some(control) = self.disk() else { return Ok(()) };
        if !control.has_group(limits) {
            return Ok(());
        }
        let group = control.root.join(pod);
        make_dir(&group)?;
        self.weigh_disk(control, pod, weight(cpu_milli));
        let Some(limits) = limits else { return Ok(()) };
        let (read, write) = (limits.read_bytes_per_second, limits.write_bytes_per_second);
        if !self.is_v1() {
            let parts = [("rbps", read), ("wbps", write)];
            let parts = parts.iter().filter_map(|(name, bytes)| Some(format!(" {name}={}", (*bytes)?)));
            return fs::write(group.join(LIMITS), format!("{}{}", control.number, parts.collect::<String>()));
        }
        for (name, bytes) in [(READ_LIMIT, read), (WRITE_LIMIT, write)] {
            if let Some(bytes) = bytes {
                fs::write(group.join(name), format!("{} {bytes}", control.number))?;
            }
        }
        Ok(())
    }

    /// Writes a weight from 1 to 10,000, which is that of a container's CPUs (`cpu.weight`, by the formula that kubelet and `runc`
    /// have for it). BFQ has none above 1000: what weighs more weighs as much, where systemd (`BFQ_WEIGHT` in its
    /// `cgroup-util.h`) has all above 100 closer
    /// together, so that a pod of 8 CPUs would weigh three times one of 1. Where the scheduler has been
    /// changed meanwhile there may be no such file, and no effect.
    fn weigh_disk(&self, control: &DiskControl, group: &Path, weight: i64) {
        let (name, weight) = match (control.weights, self.is_v1()) {
            (None, _) => return,
            (Some(Weights::Bfq), true) => ("blkio.bfq.weight", weight.min(BFQ_MAX)),
            (Some(Weights::Bfq), false) => ("io.bfq.weight", weight.min(BFQ_MAX)),
            (Some(Weights::Cfq), true) => ("blkio.weight", weight.clamp(CFQ_MIN, BFQ_MAX)),
            (Some(Weights::Cfq | Weights::Cost), false) => ("io.weight", weight),
            // A model of costs is version 2's.
            (Some(Weights::Cost), true) => return,
        };
        let _ = fs::write(control.root.join(group).join(name), weight.to_string());
    }
}

const READ_LIMIT: &str = "blkio.throttle.read_bps_device";
const WRITE_LIMIT: &str = "blkio.throttle.write_bps_device";
/// Of version 2.
const LIMITS: &str = "io.max";

fn no_controller() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "no control group limits disks")
}

/// Where disks are limited, by the text of `/proc/self/mounts`.
pub(super) fn mount_of_version_1(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let [_, at, "cgroup", options, ..] = line.split_ascii_whitespace().collect::<Vec<_>>()[..] else { return None };
        options.split(',').any(|option| option == "blkio").then(|| PathBuf::from(at))
    })
}

/// Without BFQ, and unless somebody has the controller share out by costs, weights change nothing.
fn weights(scheduler: Option<&str>, costs: &str, disk: DiskNumber) -> Option<Weights> {
    let by_costs = costs.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        words.next() == Some(&*disk.to_string()) && words.any(|word| word == "enable=1")
    });
    match scheduler {
        Some("bfq") => Some(Weights::Bfq),
        Some("cfq") => Some(Weights::Cfq),
        _ => by_costs.then_some(Weights::Cost),
    }
}

impl DiskControl {
    /// Where it is mounted.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether a pod with such limits needs a group.
    pub(super) fn has_group(&self, limits: Option<&DiskLimits>) -> bool {
        self.weights.is_some() || limits.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::cgroup::{CgroupSpec, ContainerCgroup, Limits, join};

    const DISK: DiskNumber = DiskNumber { major: 254, minor: 16 };
    const LIMITED: DiskLimits = DiskLimits { read_bytes_per_second: None, write_bytes_per_second: Some(1 << 20) };

    fn version_1(root: &Path, weights: Option<Weights>) -> Hierarchy {
        let disk = Some(DiskControl { root: root.join("blkio"), number: DISK, weights });
        Hierarchy::V1 { memory: root.join("memory"), cpu: None, pids: None, devices: None, disk }
    }

    fn read(root: &Path, name: &str) -> String {
        fs::read_to_string(root.join(name)).unwrap_or_default()
    }

    #[test]
    fn what_shares_out_a_disk_by_weights_is_known() {
        let costs = "8:0 enable=1 ctrl=auto\n254:16 enable=0 ctrl=auto\n254:1 enable=1\n";
        let cases = [
            (Some("bfq"), "", Some(Weights::Bfq)),
            (Some("cfq"), "", Some(Weights::Cfq)),
            (Some("mq-deadline"), costs, None),
            (None, "254:16 enable=1 ctrl=user\n", Some(Weights::Cost)),
        ];
        for (scheduler, costs, expected) in cases {
            assert_eq!(weights(scheduler, costs, DISK), expected, "{scheduler:?} {costs}");
        }
    }

    #[test]
    fn a_pod_has_a_group_of_disks_only_where_that_has_an_effect() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let mut pod = CgroupSpec::of(version_1(root, None), "p/u".into());
        pod.create(1000).unwrap();
        assert!(root.join("memory/p/u").is_dir() && !root.join("blkio").exists());
        pod.disk = Some(LIMITED);
        pod.create(1000).unwrap();
        assert_eq!(read(root, &format!("blkio/p/u/{WRITE_LIMIT}")), "254:16 1048576");
        assert!(!root.join("blkio/p/u").join(READ_LIMIT).exists());
        let container = ContainerCgroup::create(&pod, "c", &Limits::default(), None).unwrap();
        for group in ["memory/p/u/c", "blkio/p/u"] {
            fs::write(root.join(group).join("tasks"), "").unwrap();
        }
        container.processes_files().unwrap().iter().for_each(|file| join(file).unwrap());
        assert_eq!(read(root, "blkio/p/u/tasks"), "0", "a container's processes count in the pod's group");
    }

    #[test]
    fn a_pods_weight_follows_its_cpus() {
        let dir = tempfile::tempdir().unwrap();
        for (weights, name) in [(Weights::Bfq, "blkio.bfq.weight"), (Weights::Cfq, "blkio.weight")] {
            let root = dir.path().join(name);
            let hierarchy = version_1(&root, Some(weights));
            for (milli, expected) in [(1000, "39"), (64_000, "1000")] {
                CgroupSpec::of(hierarchy.clone(), "p/u".into()).create(milli).unwrap();
                assert_eq!(read(&root, &format!("blkio/p/u/{name}")), expected);
            }
        }
        for (weights, name, many) in [(Weights::Bfq, "io.bfq.weight", "1000"), (Weights::Cost, "io.weight", "2500")] {
            let root = dir.path().join(name);
            let disk = Some(DiskControl { root: root.clone(), number: DISK, weights: Some(weights) });
            let hierarchy = Hierarchy::V2 { root: root.clone(), pids: false, devices: false, disk };
            let limits = DiskLimits { read_bytes_per_second: Some(5), ..LIMITED };
            let pod = CgroupSpec { disk: Some(limits), ..CgroupSpec::of(hierarchy, "p/u".into()) };
            pod.create(64_000).unwrap();
            assert_eq!(read(&root, &format!("p/u/{name}")), many);
            assert_eq!(read(&root, "p/u/io.max"), "254:16 rbps=5 wbps=1048576");
        }
    }

    #[test]
    fn a_node_prepares_its_controller_of_disks() {
        let dir = tempfile::tempdir().unwrap();
        let node = Path::new("pumice/node");
        let root = dir.path().to_owned();
        let hierarchy = Hierarchy::V2 { root: root.clone(), pids: false, devices: false, disk: None };
        fs::create_dir_all(root.join(node)).unwrap();
        fs::write(root.join("io.cost.qos"), "254:16 enable=1\n").unwrap();
        let control = hierarchy.prepare_disk(node, "", DISK).unwrap();
        assert_eq!(control.weights, Some(Weights::Cost));
        for group in ["", "pumice", "pumice/node"] {
            assert_eq!(read(&root, format!("{group}/cgroup.subtree_control").trim_start_matches('/')), "+io");
        }
        assert_eq!(
            (read(&root, "pumice/io.weight"), read(&root, "pumice/node/io.weight")),
            ("50".into(), String::new())
        );
        // Version 1 without the controller, and with one that has no limits.
        let mounts = format!("cgroup {} cgroup rw,blkio 0 0\n", root.display());
        for mounts in ["", &mounts] {
            let error = version_1(&root, None).prepare_disk(node, mounts, DISK).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        }
    }

    #[test]
    fn a_pod_of_the_version_before_goes_on_without_limits_of_disks() {
        let text = r#"{"hierarchy": {"V1": {"memory": "/m", "cpu": null}}, "path": "p/u"}"#;
        let pod: CgroupSpec = serde_json::from_str(text).unwrap();
        assert!(!pod.hierarchy.limits_disk() && pod.disk.is_none());
    }
}
